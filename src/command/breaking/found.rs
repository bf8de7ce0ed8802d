/*!
Pure decisions of `dlock break` about the named owner, from the state in which the lock was found.
*/

use std::time::Duration;

use crate::backend::survey::{Left, Party, Snapshot, State};
use crate::holder::Holder;
use crate::report::event::Unaskable;

/// Time to wait for a release beyond the lease.
const SLACK: Duration = Duration::from_secs(15);
/// The minimum number of renewals within one lease.
const RENEWALS: u64 = 3;

/// The holder of the lock, compared with the named owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// The named owner.
    Owner(&'a Party),
    /// Several owners whose ids begin with the given text.
    Several,
    /// Other owners; one of them.
    Another(&'a Party),
    /// Nobody.
    Nobody,
    /// No known holder, but the lock is not known to be free.
    Unclear,
}

/// Compares the holders of the lock with the owner whose id begins with `owner`.
pub(super) fn found<'a>(seen: &'a Snapshot, owner: &str) -> Found<'a> {
    let mut meant = seen.holders.iter().filter(|party| party.id().starts_with(owner));
    match (meant.next(), meant.next(), seen.holders.first(), &seen.state) {
        (Some(_), Some(_), ..) => Found::Several,
        (Some(party), None, ..) => Found::Owner(party),
        (None, _, Some(other), _) => Found::Another(other),
        (None, _, None, State::Free) => Found::Nobody,
        (None, _, None, _) => Found::Unclear,
    }
}

/// Returns `true` if the owner with this id no longer uses the lock.
pub(super) fn is_over(seen: &Snapshot, id: &str) -> bool {
    seen.state != State::Unknown && !seen.holders.iter().any(|party| !party.is_done() && party.id() == id)
}

/// Returns the reason why this holder cannot be asked to stop; `None` if it can.
pub(super) fn unaskable(party: &Party) -> Option<Unaskable> {
    match &party.who {
        Holder::Process(pid, name) => Some(Unaskable::Process(*pid, name.clone())),
        Holder::Dlock(said) if said.done => Some(Unaskable::Finished),
        Holder::Dlock(said) if said.about.handle => Some(Unaskable::Handle),
        // A lease ends by itself; without one, the command goes on holding the lock.
        Holder::Dlock(said) if party.alive == Some(false) && said.about.ttl.is_none() => Some(Unaskable::Ended),
        Holder::Dlock(_) if party.can_be_asked() => None,
        Holder::Dlock(_) => Some(Unaskable::Older),
        _ => Some(Unaskable::Foreign),
    }
}

/// Returns the longest time that this holder takes to notice a change of its lock; `None` if unknown.
pub(super) fn notices_within(party: &Party) -> Option<Duration> {
    let ttl = party.published().filter(|said| !said.done)?.about.ttl;
    // Without a lease it looks twice a second.
    let Some(ttl) = ttl else { return Some(Duration::from_millis(500)) };
    let every = ttl.div_ceil(RENEWALS);
    // Above one second, the message shows whole seconds.
    Some(Duration::from_millis(if every > 1000 { every.next_multiple_of(1000) } else { every }))
}

/// Returns the longest time that this holder's command can go on while the holder is frozen, if that is longer than it
/// takes to notice: its guard ends it with the lease.
pub(super) fn ends_within(party: &Party) -> Option<Duration> {
    // The command of a holder that ignores a loss is not ended.
    stops_within(party)?;
    let left = match party.left {
        Some(Left::Millis(left)) => left,
        Some(Left::Forever) | None => party.published()?.about.ttl?,
    };
    let left = Duration::from_secs(left.div_ceil(1000));
    notices_within(party).filter(|within| left > *within).map(|_| left)
}

/// Returns the time that this holder gives its command to end; `None` if unknown.
pub(super) fn stops_within(party: &Party) -> Option<Duration> {
    party.published()?.about.kill_after.map(Duration::from_millis)
}

/// Returns the default time to wait for this holder, used unless the user sets one.
pub(super) fn stop_timeout(party: &Party) -> Duration {
    let ttl = party.published().and_then(|said| said.about.ttl).unwrap_or_default();
    Duration::from_millis(ttl) + SLACK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::survey::Location;

    fn party(text: &str) -> Party {
        Party::new(Holder::read(text.as_bytes()), "")
    }

    fn dlock(id: &str, more: &str) -> Party {
        party(&format!(r#"{{"v":1,"id":"{id}"{more}}}"#))
    }

    fn seen(holders: &[Party]) -> Snapshot {
        Snapshot::free(Location::default(), 0).held_by(holders.to_vec(), 0)
    }

    #[test]
    fn only_the_owner_that_is_named_is_meant() {
        let (one, like, other) = (dlock("0123456789", ""), dlock("0123456700", ""), dlock("abcdefabcd", ""));
        for (holders, expected) in [
            (vec![], Found::Nobody),
            (vec![&one], Found::Owner(&one)),
            (vec![&other, &one], Found::Owner(&one)),
            (vec![&other], Found::Another(&other)),
            (vec![&one, &like], Found::Several),
        ] {
            let seen = seen(&holders.into_iter().cloned().collect::<Vec<_>>());
            assert_eq!(found(&seen, "01234567"), expected);
        }
        let seen = seen(std::slice::from_ref(&other));
        assert_eq!(found(&seen, &other.id()), Found::Owner(&other));
        assert_eq!(found(&seen, "bcdefabcd"), Found::Another(&other), "not from the middle");
        for state in [State::Blocked("x".to_owned()), State::Contested, State::Unknown] {
            assert_eq!(found(&Snapshot { state, ..Snapshot::default() }, "01234567"), Found::Unclear);
        }
    }

    #[test]
    fn it_is_over_when_that_owner_does_not_use_the_lock_whoever_has_it_then() {
        let (one, done, other) = (dlock("01", ""), dlock("01", r#","done":true"#), dlock("ab", ""));
        for (holders, expected) in
            [(vec![one.clone()], false), (vec![other.clone(), one], false), (vec![done], true), (vec![other], true)]
        {
            assert_eq!(is_over(&seen(&holders), "01"), expected, "{holders:?}");
        }
        assert!(is_over(&seen(&[]), "01"));
        assert!(!is_over(&Snapshot { state: State::Unknown, ..Snapshot::default() }, "01"));
    }

    #[test]
    fn who_can_be_asked_and_how_long_that_takes() {
        let about = r#","ttl":30000,"kill_after":5000,"stop":true"#;
        for (party, expected) in [
            (dlock("ab", about), None),
            (dlock("ab", r#","ttl":30000"#), Some(Unaskable::Older)),
            (dlock("ab", &format!("{about},\"done\":true")), Some(Unaskable::Finished)),
            (party("redis-py"), Some(Unaskable::Foreign)),
            (Party::new(Holder::Process(7, "flock".to_owned()), "7"), Some(Unaskable::Process(7, "flock".to_owned()))),
        ] {
            assert_eq!(unaskable(&party), expected, "{party:?}");
        }
        let seconds = Duration::from_secs;
        let (holder, file) = (dlock("ab", about), dlock("ab", r#","stop":true"#));
        assert_eq!(notices_within(&holder), Some(seconds(10)));
        for (ttl, every) in [(2000, 667), (3000, 1000), (4000, 2000), (40_000, 14_000)] {
            let holder = party(&format!(r#"{{"v":1,"id":"ab","ttl":{ttl}}}"#));
            assert_eq!(notices_within(&holder), Some(Duration::from_millis(every)), "{ttl}");
        }
        assert_eq!((stops_within(&holder), stop_timeout(&holder)), (Some(seconds(5)), seconds(45)));
        for (holder, alive, expected) in [
            (&holder, Some(false), None),
            (&file, Some(false), Some(Unaskable::Ended)),
            (&file, Some(true), None),
            (&file, None, None),
        ] {
            assert_eq!(unaskable(&Party { alive, ..holder.clone() }), expected);
        }
        for (left, expected) in [
            (Some(Left::Millis(27_001)), Some(28)),
            (None, Some(30)),
            (Some(Left::Forever), Some(30)),
            (Some(Left::Millis(9000)), None),
        ] {
            assert_eq!(ends_within(&Party { left, ..holder.clone() }), expected.map(seconds), "{left:?}");
        }
        assert_eq!((notices_within(&file), stop_timeout(&file)), (Some(Duration::from_millis(500)), seconds(15)));
        assert_eq!((ends_within(&file), ends_within(&party("redis-py"))), (None, None));
        assert_eq!((notices_within(&party("redis-py")), stops_within(&party("redis-py"))), (None, None));
    }
}
