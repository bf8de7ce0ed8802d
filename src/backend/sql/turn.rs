/*!
Decides when a waiter looks again, purely from its last look.
*/

use std::time::Duration;

use crate::backend::sql::answers::{Ahead, Look};
use crate::backend::sql::crowd::QueueView;
use crate::backend::sql::owner;
use crate::lock::admission::Mode;

/// The longest time that a dead waiter stays in the queue, however long the leases are.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which the head of the queue looks while another program, which announces nothing, has the lock.
const FOREIGN: Duration = Duration::from_millis(500);
/// The delay from the end of a lease to the next look of the head, so that it has certainly ended.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// The intervals at which the first waiters, and the others, look through a pooler, which swallows the wake-up.
pub(crate) const POOLED: Duration = Duration::from_millis(250);
const POOLED_BEHIND: Duration = Duration::from_secs(1);
/// The number of first waiters.
const FIRST: u64 = 4;
/// The delay before the next look at a lock that came free during the last one.
const AT_ONCE: Duration = Duration::from_millis(10);

/// The shortest and the longest interval at which the first waiter looks for room among several holders.
const GLANCES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// The event that a waiter waits for if the database does not notify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// This contender is gone: the request is answered then, or after `{wait}` seconds.
    Gone {
        /// Identifies the contender.
        entry: String,
        /// The request.
        request: String,
    },
    /// The answer to this request has a row once there is room.
    Room {
        /// The request.
        request: String,
    },
}

/// The reason why a waiter cannot enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// This owner, as long as it holds the lock or waits for it.
    Contender(String),
    /// This owner, as long as it waits.
    Waiter(String),
    /// There is no room for another holder.
    Full,
}

/// Returns the reason why a waiter of this mode cannot enter; `None` if it cannot be watched.
pub(crate) fn blocker(mode: Mode, look: &Look, ahead: &Ahead) -> Option<Blocker> {
    let contender = |owner: &String| Blocker::Contender(owner.clone());
    let waiter = match mode {
        Mode::Exclusive => ahead.nearest.as_ref().map(contender),
        Mode::Shared => ahead.other.as_ref().map(contender),
        Mode::Slots(_) => ahead.other.as_ref().map(contender).or_else(|| ahead.nearest.clone().map(Blocker::Waiter)),
    };
    if waiter.is_some() || look.free {
        return waiter;
    }
    let columns = &look.columns;
    match (owner::read(&columns.locked_by), owner::read_group(&columns.locked_by)) {
        (Some((id, false)), _) => Some(Blocker::Contender(id.to_owned())),
        (None, Some(group)) if group == mode && mode != Mode::Shared => Some(Blocker::Full),
        (None, Some(_)) => columns.member.as_ref().filter(|member| !member.done).map(|member| contender(&member.owner)),
        _ => None,
    }
}

/// Returns the wait before the next glance at a lock that was full for `waited`: a fiftieth, within `GLANCES`.
pub(crate) fn glances(waited: Duration) -> Duration {
    (waited / 50).clamp(GLANCES[0], GLANCES[1])
}

/// Returns how long a waiter stays in the queue after its last heartbeat. With a heartbeat every third of this time, a
/// dead waiter delays the others by at most two thirds of a ttl.
pub(crate) fn heartbeat_ttl(ttl: Duration) -> Duration {
    MAX_TIMEOUT.min(ttl / 2)
}

/// Returns how long to wait for the wake-up before the next look. `is_pooled` says that there will be none.
pub(crate) fn look_again(look: &Look, view: Option<QueueView>, is_pooled: bool, heartbeat_ttl: Duration) -> Duration {
    let heartbeat = heartbeat_ttl / 3;
    let is_head = view.is_some_and(|view| view.is_head);
    let polled = match view {
        _ if !is_pooled => heartbeat,
        Some(view) if view.is_head || view.position <= FIRST => POOLED,
        _ => POOLED_BEHIND,
    };
    if !is_head {
        return polled.min(heartbeat);
    }
    let expiry = if look.free {
        AT_ONCE
    } else {
        let is_foreign = look.columns.is_foreign();
        let left = look.left.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or_default()) + AFTER_EXPIRY);
        let foreign = if is_foreign { FOREIGN } else { heartbeat };
        left.map_or(foreign, |left| left.min(foreign))
    };
    polled.min(heartbeat).min(expiry)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::backend::sql::published::{Columns, Member};
    use crate::holder::Owner;

    const MS: Duration = Duration::from_millis(1);

    fn look(locked_by: &str, left: Option<i64>) -> Look {
        let columns = Columns { locked_by: locked_by.to_owned(), ..Columns::default() };
        let free = left.is_some_and(|left| left <= 0);
        Look { free, columns, left, process: Some(1), ..Look::default() }
    }

    #[test]
    fn a_waiter_watches_whom_it_may_not_pass() {
        let slots = |number| Mode::Slots(NonZeroU32::new(number).expect("not 0"));
        let ahead = |nearest: &str, other: &str| {
            let [nearest, other] = [nearest, other].map(|id| Some(id.to_owned()).filter(|id| !id.is_empty()));
            Ahead { nearest, other }
        };
        let id = Owner::random().expect("random");
        let (held, kept) = (owner::held(&id), owner::kept(&id));
        let id = id.as_str();
        for (mode, locked_by, nearest, other, expected) in [
            (Mode::Exclusive, held.as_str(), "", "", Some(Blocker::Contender(id.to_owned()))),
            (Mode::Exclusive, &held, "a", "", Some(Blocker::Contender("a".to_owned()))),
            (Mode::Exclusive, "dlock:shared", "", "", Some(Blocker::Contender("m".to_owned()))),
            (Mode::Exclusive, &kept, "", "", None),
            (Mode::Exclusive, "web1", "", "", None),
            (Mode::Shared, &held, "a", "", Some(Blocker::Contender(id.to_owned()))),
            (Mode::Shared, "dlock:shared", "a", "b", Some(Blocker::Contender("b".to_owned()))),
            (slots(5), "dlock:slots5", "a", "b", Some(Blocker::Contender("b".to_owned()))),
            (slots(5), "dlock:slots5", "a", "", Some(Blocker::Waiter("a".to_owned()))),
            (slots(5), "dlock:slots5", "", "", Some(Blocker::Full)),
            (slots(5), &held, "", "", Some(Blocker::Contender(id.to_owned()))),
            (slots(5), "dlock:shared", "", "", Some(Blocker::Contender("m".to_owned()))),
        ] {
            let mut look = look(locked_by, Some(900));
            look.columns.member = Some(Member { owner: "m".to_owned(), ..Member::default() });
            assert_eq!(
                blocker(mode, &look, &ahead(nearest, other)),
                expected,
                "{mode:?} {locked_by} {nearest} {other}"
            );
        }
        assert_eq!(blocker(Mode::Exclusive, &look(&held, Some(0)), &ahead("", "")), None);
    }

    #[test]
    fn a_glance_costs_a_part_of_the_wait() {
        for (waited, pause) in [(0, 10), (400, 10), (1000, 20), (10_000, 200), (3_600_000, 250)] {
            assert_eq!(glances(waited * MS), pause * MS);
        }
    }

    #[test]
    fn the_head_watches_the_end_of_the_lease_and_the_others_their_heartbeat() {
        let dlock = owner::held(&Owner::random().expect("random"));
        let dlock = dlock.as_str();
        let place = |position, is_head| Some(QueueView { position, is_head, used: 1, most: 100 });
        let heartbeat_ttl = 15_000 * MS;
        for (holder, left, view, is_pooled, expected) in [
            (dlock, Some(900), place(1, true), false, 902),
            (dlock, Some(60_000), place(1, true), false, 5000),
            (dlock, Some(0), place(1, true), false, 10),
            (dlock, Some(900), place(2, false), false, 5000),
            (dlock, Some(0), place(2, false), false, 5000),
            ("web1", Some(900), place(1, true), false, 500),
            ("web1", Some(90), place(1, true), false, 92),
            ("web1", None, place(1, true), false, 500),
            (dlock, None, place(1, true), false, 5000),
            // The head of the waiters that are alive, behind dead ones.
            (dlock, Some(900), place(7, true), false, 902),
            (dlock, Some(900), place(1, true), true, 250),
            (dlock, Some(9000), place(4, false), true, 250),
            (dlock, Some(9000), place(5, false), true, 1000),
            (dlock, Some(900), None, false, 5000),
        ] {
            let again = look_again(&look(holder, left), view, is_pooled, heartbeat_ttl);
            assert_eq!(again, expected * MS, "{holder} {left:?} {view:?} {is_pooled}");
        }
        assert_eq!((super::heartbeat_ttl(3000 * MS), super::heartbeat_ttl(600_000 * MS)), (1500 * MS, 30_000 * MS));
    }
}
