/*!
A claim on a lock, and what is published under it: see [`holder`](crate::holder).
*/

use std::fmt::Write;
use std::time::Duration;

use crate::holder::{About, Owner};
use crate::key::{Key, Namespace};
use crate::lock::admission::Mode;

/// One wish for one lock. Its owner id is what makes every request repeatable.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The lock's name.
    pub key: Key,
    /// The prefix of its name on a shared server.
    pub namespace: Namespace,
    /// The owner: random, and new for every claim.
    pub owner: Owner,
    /// How the lock is to be held.
    pub mode: Mode,
    /// The ids of the owners of the runs around this one: where one of them holds the lock, it is not asked for.
    pub around: Vec<String>,
    /// The length of lease to ask for: what the command counts on, and how much longer the lock is to stay taken when its
    /// holder is gone.
    pub ttl: Duration,
    /// How long the lock stays taken at least, counted from its grant by the service's clock; zero for no longer than it is
    /// in use.
    pub min_hold: Duration,
    /// What is published for waiters.
    pub about: About,
}

/// What is published of a grant, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// The fencing token.
    pub token: Option<u64>,
    /// The number of the slot.
    pub slot: Option<u32>,
    /// When it was granted, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Until when it stays taken at least, in milliseconds since 1970.
    pub until: Option<u64>,
}

impl Claim {
    /// How the text begins that is published under this claim; see [`Owner::prefix`].
    pub(super) fn prefix(&self) -> String {
        self.owner.prefix(self.min_hold)
    }

    /// The whole published text, where a client writes it. A lock that is held exclusively does not say how, as in earlier
    /// releases.
    pub(super) fn text(&self, known: Known) -> String {
        let mut text = self.prefix();
        let mut add = |name: &str, number: Option<u64>| {
            if let Some(number) = number {
                // Writing to a String cannot fail.
                let _ = write!(text, "\"{name}\":{number},");
            }
        };
        add("token", known.token);
        add("since", known.since);
        add("slot", known.slot.map(u64::from));
        add("until", known.until);
        if self.mode != Mode::Exclusive {
            let _ = write!(text, "\"mode\":\"{}\",", self.mode.name());
        }
        text + &self.about.rest()
    }
}

#[cfg(test)]
impl Claim {
    /// A new claim on the lock `key`, for tests: exclusive, with a lease of a second. Fails where one of the names is not valid.
    pub(crate) fn example(namespace: &str, key: &str) -> Result<Self, String> {
        Ok(Self {
            key: Key::parse(key.as_ref())?,
            namespace: Namespace::parse(namespace)?,
            owner: Owner::random().expect("random"),
            mode: Mode::Exclusive,
            around: Vec::new(),
            ttl: Duration::from_secs(1),
            min_hold: Duration::ZERO,
            about: About::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::{Holder, Published};

    fn published(text: &str) -> Published {
        match Holder::read(text.as_bytes()) {
            Holder::Dlock(published) => *published,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_published_is_read_back() {
        for (mode, slot) in [("exclusive", None), ("shared", None), ("slots5", Some(4))] {
            let about = About { pid: 7, ..About::default() };
            let claim =
                Claim { mode: Mode::read(mode).expect("a mode"), about, ..Claim::example("", "job").expect("names") };
            let first = published(&claim.text(Known::default()));
            assert_eq!((first.id.as_str(), first.mode(), first.slot), (claim.owner.as_str(), Some(claim.mode), None));
            assert_eq!((first.token, first.since, first.until, first.about.pid), (None, None, None, 7));
            let known = Known { token: Some(9), slot, since: Some(11), until: Some(13) };
            let then = published(&claim.text(known));
            assert_eq!((then.mode(), then.slot, then.token), (first.mode(), slot, Some(9)));
            assert_eq!((then.since, then.until, then.about), (Some(11), Some(13), first.about));
        }
    }
}
