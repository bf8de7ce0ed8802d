/*!
The names of a lock's keys: the lock's own key, which other clients use too, and its side keys, which no user can name.
*/

use crate::backend::contract::claim::{Claim, Once};

/// The names of a lock's keys. All keys of one lock have the same hash tag, so that a cluster keeps them together
/// (except for a lock with a `}` outside a tag, which no tag can contain). Two locks never share a key.
pub(in crate::backend) struct Keys {
    /// The key of the lock itself.
    pub(in crate::backend) lock: String,
    side: String,
    /// The keys with the last period in which a command has succeeded, and with the last success; empty if the claim
    /// has no period.
    once: Vec<String>,
}

impl Keys {
    /// Returns the names for the lock of `claim`.
    pub(in crate::backend) fn of(claim: &Claim) -> Self {
        let keys = Self::at(claim.namespace.join(':', &claim.key));
        let records = |once: Once| [keys.side(&format!("once:{}", once.period().length)), keys.done()];
        let once = claim.once_per.into_iter().flat_map(records).collect();
        Self { once, ..keys }
    }

    /// Returns the names for the lock at the key `lock`, without those of a period.
    pub(in crate::backend) fn at(lock: String) -> Self {
        let tagged = lock.split_once('{').is_some_and(|(_, rest)| rest.find('}').is_some_and(|end| end > 0));
        // A control character, which no user's key contains. Two of them if the lock has a tag already: otherwise `a`
        // and `{a}` would have the same side keys.
        let side = if tagged { format!("{lock}\u{1}\u{1}") } else { format!("{{{lock}}}\u{1}") };
        Self { lock, side, once: Vec::new() }
    }

    /// Returns the key of the queue: the waiters in their order.
    pub(in crate::backend) fn queue(&self) -> String {
        format!("{}queue", self.side)
    }

    /// Returns the key of the heartbeats: the time at which each waiter is dropped without another one.
    pub(in crate::backend) fn alive(&self) -> String {
        format!("{}alive", self.side)
    }

    /// Returns the key of the modes of waiters, except exclusive ones.
    pub(in crate::backend) fn modes(&self) -> String {
        format!("{}modes", self.side)
    }

    /// Returns the key of the texts that the waiters publish, each from the time at which it joined the queue.
    pub(in crate::backend) fn who(&self) -> String {
        format!("{}who", self.side)
    }

    /// Returns the key of the holders of a shared or slots lock: the time at which each hold ends.
    pub(in crate::backend) fn holders(&self) -> String {
        format!("{}holders", self.side)
    }

    /// Returns the key of the texts that these holders publish.
    pub(in crate::backend) fn details(&self) -> String {
        format!("{}details", self.side)
    }

    /// Returns the key of the fencing counter.
    pub(in crate::backend) fn fence(&self) -> String {
        format!("{}fence", self.side)
    }

    /// Returns the key of the writer that gets the lock next, on one of several servers that keep no queue.
    fn intent(&self) -> String {
        format!("{}intent", self.side)
    }

    /// Returns the key of the list on which waiters listen for a release, on one of several servers that keep no queue.
    pub(in crate::backend) fn released(&self) -> String {
        format!("{}released", self.side)
    }

    /// Returns the key of the requests to stop, by the ids of their addressees.
    pub(in crate::backend) fn stop(&self) -> String {
        format!("{}stop", self.side)
    }

    /// Returns the key of the trace of the last break.
    pub(in crate::backend) fn broken(&self) -> String {
        format!("{}broken", self.side)
    }

    /// Returns the key of the last success of a run with `--once-per`, whatever its period; it is only for looks.
    pub(in crate::backend) fn done(&self) -> String {
        format!("{}done", self.side)
    }

    /// Returns the name of the lock whose side key with this name `side` is; `None` for any other key.
    pub(in crate::backend) fn lock_of<'a>(side: &'a str, name: &str) -> Option<&'a str> {
        let beside = side.strip_suffix(name)?.strip_suffix('\u{1}')?;
        let lock = match beside.strip_suffix('\u{1}') {
            Some(tagged) => tagged,
            None => beside.strip_prefix('{')?.strip_suffix('}')?,
        };
        (Self::at(lock.to_owned()).side(name) == side).then_some(lock)
    }

    /// Returns the key of the list on which the holder with this id listens.
    pub(in crate::backend) fn listener(&self, id: &str) -> String {
        format!("{}ear:{id}", self.side)
    }

    /// Returns the keys for a renewal, in the order that its script expects.
    pub(in crate::backend) fn renewed(&self) -> Vec<String> {
        vec![self.lock.clone(), self.holders(), self.details(), self.stop()]
    }

    /// Returns the first keys of most of the lock's scripts, in the order that they expect.
    fn held(&self) -> [String; 4] {
        [self.lock.clone(), self.holders(), self.details(), self.fence()]
    }

    /// Returns the keys of the lock on a single server, in the order that its scripts expect.
    pub(in crate::backend) fn single(&self) -> Vec<String> {
        self.and_once([&self.held()[..], &[self.queue(), self.alive(), self.modes(), self.who(), self.stop()]].concat())
    }

    /// Returns the keys of the lock on one of several servers, in the order that its scripts expect.
    pub(in crate::backend) fn voting(&self) -> Vec<String> {
        self.and_once([&self.held()[..], &[self.intent(), self.stop()]].concat())
    }

    /// Returns these keys and those of the claim's period, if it has one.
    fn and_once(&self, mut keys: Vec<String>) -> Vec<String> {
        keys.extend(self.once.clone());
        keys
    }

    /// Returns the prefix of the waiters' wake lists; the waiter's id follows it.
    pub(in crate::backend) fn wakes(&self) -> String {
        format!("{}wake:", self.side)
    }

    /// Returns the side key with this name.
    pub(in crate::backend) fn side(&self, name: &str) -> String {
        format!("{}{name}", self.side)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    fn keys(namespace: &str, key: &str) -> Keys {
        keys_of(namespace, key).expect("valid names")
    }

    fn keys_of(namespace: &str, key: &str) -> Result<Keys, String> {
        let once_per = Some(Once::now(Duration::from_secs(3600)));
        Ok(Keys::of(&Claim { once_per, ..Claim::example(namespace, key)? }))
    }

    #[test]
    fn two_locks_never_have_a_key_in_common() {
        const PIECES: &str = "a|b|{|}|{}|{a}|:|/|%|queue|wake:";
        let name = || made_of(PIECES);
        holds(4000, (name(), name(), name(), name(), 0..3), |(namespace, key, other_namespace, other, how)| {
            let (Ok(one), Ok(other)) = (
                keys_of(&namespace, &key),
                match how {
                    0 => keys_of(&namespace, &format!("{{{key}}}")),
                    1 => keys_of("", &format!("{{{namespace}:{key}}}")),
                    _ => keys_of(&other_namespace, &other),
                },
            ) else {
                return Ok(());
            };
            let all = |keys: &Keys| {
                [keys.single(), vec![keys.intent(), keys.released(), keys.broken(), keys.wakes(), keys.listener("")]]
                    .concat()
            };
            for ours in all(&one) {
                prop_assert_eq!(
                    Keys::lock_of(&ours, "done"),
                    (ours == one.done()).then_some(one.lock.as_str()),
                    "{:?}",
                    ours
                );
                let shared = all(&other).contains(&ours);
                prop_assert_eq!(shared, one.lock == other.lock, "{:?} of {} and {}", ours, one.lock, other.lock);
            }
            for side in &all(&one)[1..] {
                prop_assert!(side.contains(char::is_control), "{side:?} can be a user's");
                prop_assert!(tag(side) == tag(&one.lock) || one.lock.contains('}'), "{side:?}");
            }
            Ok(())
        });
    }

    /// Returns the part of a key that a cluster hashes.
    fn tag(key: &str) -> &str {
        match key.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
            Some((tag, _)) if !tag.is_empty() => tag,
            _ => key,
        }
    }

    #[test]
    fn side_keys_share_the_locks_slot_and_cannot_be_named_by_a_user() {
        for (namespace, key) in
            [("dlock", "job"), ("", "job"), ("dlock", "{a}b"), ("dlock", "x{tag}y"), ("dlock", "a{b")]
        {
            let keys = keys(namespace, key);
            let side = [&keys.single()[1..], &[keys.intent(), keys.released(), keys.wakes()]].concat();
            for side in side {
                assert_eq!(tag(&side), tag(&keys.lock), "{side:?}");
                assert!(side.chars().any(char::is_control));
            }
        }
        assert_eq!(keys("dlock", "job").lock, "dlock:job");
        assert_eq!(keys("", "job").lock, "job");
        let records = ["{dlock:job}\u{1}once:3600000", "{dlock:job}\u{1}done"];
        assert_eq!(keys("dlock", "job").single()[9..], records);
        let never = Keys::of(&Claim::example("dlock", "job").expect("valid names"));
        assert_eq!((never.single().len(), never.voting().len()), (9, 6));
    }

    #[test]
    fn a_lock_in_braces_does_not_share_the_queue_of_the_one_without() {
        assert_ne!(keys("", "{job}").queue(), keys("", "job").queue());
        assert_ne!(keys("", "{dlock:job}").fence(), keys("dlock", "job").fence());
    }
}
