/*!
A claim on a lock, and the text published under it: see [`holder`](crate::holder).
*/

use std::fmt::Write;
use std::time::Duration;

use crate::backend::meeting::Meeting;
use crate::clock::{Instant, millis, wall_millis};
use crate::holder::done::Done;
use crate::holder::{About, Owner};
use crate::key::{Key, Namespace};
use crate::lock::admission::Mode;
use crate::lock::period::Period;

/// A request for one lock. Its owner id makes every request repeatable.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The lock's name.
    pub key: Key,
    /// The prefix of the lock's name on a shared server.
    pub namespace: Namespace,
    /// The owner: random, and new for every claim.
    pub owner: Owner,
    /// The mode in which the lock is held.
    pub mode: Mode,
    /// Owner ids of the outer runs. A lock that one of them holds is not requested again.
    pub outer: Vec<String>,
    /// The lease to request. The command counts on it, and the lock stays taken for that long after its holder is gone.
    pub ttl: Duration,
    /// The minimum time that the lock stays taken, counted from its grant by the service's clock. With zero, it ends
    /// when the lock is no longer used.
    pub min_hold: Duration,
    /// The period in which a command under this claim must not succeed more than once; `None` for no such limit. Only
    /// exclusive claims have one.
    pub once_per: Option<Once>,
    /// The metadata published for waiters.
    pub about: About,
}

/// A period, and the instant at which it was read from this host's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Once {
    period: Period,
    asked: Instant,
}

impl Once {
    /// Returns the current period of this `length`.
    #[must_use]
    pub(crate) fn now(length: Duration) -> Self {
        Self { period: Period::at(length, wall_millis()), asked: Instant::now() }
    }

    /// Returns the period by this host's clock.
    #[must_use]
    pub(in crate::backend) fn period(self) -> Period {
        self.period
    }

    /// Returns the milliseconds between reading the period and `at`.
    fn age(self, at: Instant) -> u64 {
        millis(at.since(self.asked))
    }

    /// Returns the period by the service's clock, which reads `now` (milliseconds since 1970). It is at most one away
    /// from the period that this host's clock showed when it was read, and does not change while the run waits.
    #[must_use]
    pub(in crate::backend) fn by(self, now: u64) -> Period {
        self.by_at(now, Instant::now())
    }

    /// Like [`Once::by`], where `now` was read from the service's clock at the instant `at`.
    fn by_at(self, now: u64, at: Instant) -> Period {
        self.period.near(now.saturating_sub(self.age(at)))
    }

    /// Returns what a server needs for the same computation: the period's number, its length and its age, the last two
    /// in milliseconds.
    #[must_use]
    pub(in crate::backend) fn arguments(self) -> [String; 3] {
        [self.period.number, self.period.length, self.age(Instant::now())].map(|number| number.to_string())
    }
}

/// Published properties of a grant, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::backend) struct Known {
    /// The fencing token.
    pub token: Option<u64>,
    /// The slot's number.
    pub slot: Option<u32>,
    /// The time of the grant, in milliseconds since 1970.
    pub since: Option<u64>,
    /// The end of the minimum hold, in milliseconds since 1970.
    pub until: Option<u64>,
}

impl Claim {
    /// Returns the beginning of the text published under this claim; see [`Owner::prefix`].
    pub(in crate::backend) fn prefix(&self) -> String {
        self.owner.prefix(self.min_hold)
    }

    /// Returns the record of a command's success under this claim in `period`, at `now` (milliseconds since 1970).
    pub(in crate::backend) fn done(&self, period: Period, now: u64) -> Done {
        Done::by(&self.about, period, now)
    }

    /// Returns what a server needs to record that a command under this claim has succeeded: [`Once::arguments`], and
    /// the end of the record's text.
    pub(in crate::backend) fn success(&self, once: Once) -> [String; 4] {
        let [number, length, age] = once.arguments();
        [number, length, age, self.done(once.period(), 0).end()]
    }

    /// Returns the whole published text, for clients that write it themselves. An exclusive lock does not state its
    /// mode, as in earlier releases.
    pub(in crate::backend) fn text(&self, known: Known) -> String {
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

    /// Returns a claim that is never requested. It has the names and the lease of `meeting`, for code that serves both
    /// locks and meeting points.
    pub(in crate::backend) fn like(meeting: &Meeting) -> Self {
        Self {
            key: meeting.key.clone(),
            namespace: meeting.namespace.clone(),
            owner: meeting.id.clone(),
            mode: Mode::Exclusive,
            outer: Vec::new(),
            ttl: meeting.lease,
            min_hold: Duration::ZERO,
            once_per: None,
            about: About::default(),
        }
    }
}

#[cfg(test)]
impl Claim {
    /// Returns a new exclusive claim on `key` for tests, with a lease of one second. Fails on an invalid name.
    pub(crate) fn example(namespace: &str, key: &str) -> Result<Self, String> {
        Ok(Self {
            key: Key::parse(key.as_ref())?,
            namespace: Namespace::parse(namespace)?,
            owner: Owner::random().expect("random"),
            mode: Mode::Exclusive,
            outer: Vec::new(),
            ttl: Duration::from_secs(1),
            min_hold: Duration::ZERO,
            once_per: None,
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
    fn a_period_does_not_change_while_the_run_waits() {
        let hour = 3_600_000;
        let (begun, asked) = (100 * hour + hour / 2, Instant::from_nanos(7));
        for (number, expected) in [(100, 100), (99, 99), (101, 101), (50, 99), (9000, 101)] {
            let once = Once { period: Period { number, length: hour }, asked };
            for hours in [0, 1, 30] {
                let later = asked + Duration::from_millis(hours * hour);
                assert_eq!(once.by_at(begun + hours * hour, later).number, expected, "{number} {hours}");
            }
        }
        let [number, length, age] = Once::now(Duration::from_secs(3600)).arguments();
        assert_eq!(number, (wall_millis() / hour).to_string());
        assert!(length == "3600000" && age.parse().is_ok_and(|age: u64| age < hour), "{length} {age}");
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
