/*!
The arithmetic of a lease, as pure functions of instants.

```text
sent            sent+ttl/3          expiry-kill_after        expiry = sent + ttl - margin
 |---------------|--- renew, retry ---|--- SIGTERM ------------|--- SIGKILL; after this the server may end the lease
```

Everything counts from the moment the last successful acquire or renew request was *sent*: the server cannot have
started to count before that.
*/

use std::time::Duration;

use crate::clock::Instant;

/// The margin for clock rates is the lease divided by this: the clocks of this host and of the server may differ by a
/// tenth.
const RATES: u32 = 10;
/// The margin for scheduling, in addition to that for clock rates.
const SCHEDULING: Duration = Duration::from_millis(50);
/// The longest time that any one request may take.
const MAX_REQUEST: Duration = Duration::from_secs(2);
/// The least that `--lock-delay` must leave of a lease: the shortest lease that there is.
const LEAST_LEFT: Duration = Duration::from_secs(1);
/// The longest default time between SIGTERM and SIGKILL.
const MAX_DEFAULT_KILL_AFTER: Duration = Duration::from_secs(5);

/// The time that the command has between SIGTERM and SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grace {
    /// `--kill-after`, if given.
    pub asked: Option<Duration>,
    /// The upper limit is the lease divided by this.
    pub share: u32,
}

impl Grace {
    /// Returns the time that a lease of `ttl` allows: `--kill-after`, at most the lease divided by `share`; by default
    /// the smaller of 5 s and a quarter of the lease.
    #[must_use]
    pub(crate) fn within(&self, ttl: Option<Duration>) -> Duration {
        match (self.asked, ttl) {
            (Some(asked), Some(ttl)) => asked.min(ttl / self.share),
            (Some(asked), None) => asked,
            (None, Some(ttl)) => MAX_DEFAULT_KILL_AFTER.min(ttl / 4),
            (None, None) => MAX_DEFAULT_KILL_AFTER,
        }
    }
}

/// The time by which the server's lease exceeds the command's (`--lock-delay`): the claim asks for the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delay {
    /// The length; zero for no delay.
    pub length: Duration,
    /// The rest of the lease must be at least this many times as long, so that it can be renewed in time.
    pub share: u32,
}

impl Delay {
    /// Returns the least time that a lease must leave the command to be of use.
    #[must_use]
    pub(crate) fn least(&self) -> Duration {
        self.length.saturating_mul(self.share).max(LEAST_LEFT)
    }
}

/// Returns the time limit for one request while a lock of `ttl` is being acquired.
#[must_use]
pub(crate) fn acquire_timeout(ttl: Duration) -> Duration {
    MAX_REQUEST.min(first_timeout(ttl))
}

/// Returns the time limit for the first request for a lock of `ttl`: a grant must leave enough time for a command.
#[must_use]
pub(crate) fn first_timeout(ttl: Duration) -> Duration {
    ttl / 3
}

/// Returns the time after the request for a lease of `ttl` at which the command must be dead: `ttl` less a margin for
/// clock rates and scheduling (ttl/10 + 50 ms).
#[must_use]
pub(crate) fn dead_after(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / RATES + SCHEDULING)
}

/// A lease as last confirmed, and the times that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The time at which the request that the server confirmed was sent.
    pub sent: Instant,
    /// The length that the server granted.
    pub ttl: Duration,
    /// The time between SIGTERM and SIGKILL.
    pub kill_after: Duration,
}

impl Schedule {
    /// Returns the instant at which the command must be dead: `sent + ttl` less the margin.
    #[must_use]
    pub(crate) fn dead_at(&self) -> Instant {
        self.sent + dead_after(self.ttl)
    }

    /// Returns the instant at which the command is told to end; from here on no renewal rescues it.
    #[must_use]
    pub(crate) fn stop_at(&self) -> Instant {
        self.dead_at() - self.kill_after
    }

    /// Returns the time from one renewal to the next: `every`, but with a third of the time until SIGTERM to spare.
    #[must_use]
    pub(crate) fn renew_after(&self, every: Duration) -> Duration {
        every.min(self.stop_at().since(self.sent) * 2 / 3)
    }

    /// Returns the pause between retries of a failed renewal.
    #[must_use]
    pub(crate) fn retry_every(&self) -> Duration {
        self.ttl / 20
    }

    /// Returns the time limit for a renewal sent at `now`: a third of what is left, at most 2 s.
    #[must_use]
    pub(crate) fn request_timeout(&self, now: Instant) -> Duration {
        (self.stop_at().since(now) / 3).min(MAX_REQUEST)
    }

    /// Returns `true` if a lock that is granted only `now` should be released at once: less than a third of the time
    /// until SIGTERM is left.
    #[must_use]
    pub(crate) fn too_little_left(&self, now: Instant) -> bool {
        let whole = self.stop_at().since(self.sent);
        self.stop_at().since(now) < whole / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    fn schedule(ttl: Duration, asked: Option<Duration>) -> Schedule {
        let sent = Instant::from_nanos(0) + 100 * S;
        Schedule { sent, ttl, kill_after: Grace { asked, share: 2 }.within(Some(ttl)) }
    }

    fn after(schedule: &Schedule, at: Instant) -> Duration {
        at.since(schedule.sent)
    }

    #[test]
    fn a_default_lease() {
        let schedule = schedule(30 * S, None);
        assert_eq!(after(&schedule, schedule.dead_at()), 26_950 * MS);
        assert_eq!(after(&schedule, schedule.stop_at()), 21_950 * MS);
        assert_eq!(schedule.retry_every(), 1_500 * MS);
    }

    #[test]
    fn the_shortest_lease_still_has_room() {
        let schedule = schedule(S, None);
        assert_eq!(after(&schedule, schedule.dead_at()), 850 * MS);
        assert_eq!(after(&schedule, schedule.stop_at()), 600 * MS);
        assert_eq!(schedule.renew_after(schedule.ttl / 3), schedule.ttl / 3);
        // On ZooKeeper, the proof by the last answered write is half a session old when the next one is answered.
        assert!(schedule.ttl / 2 + 100 * MS <= after(&schedule, schedule.stop_at()));
    }

    #[test]
    fn a_renewal_comes_in_time_also_where_half_of_the_lease_is_for_the_end() {
        for (ttl, kill_after, renewed, told, killed) in [
            (S, S, 233, 350, 850),
            (2 * S, S, 500, 750, 1_750),
            (30 * S, 15 * S, 7_966, 11_950, 26_950),
            (30 * S, 5 * S, 10_000, 21_950, 26_950),
        ] {
            let schedule = schedule(ttl, Some(kill_after));
            let millis = [
                schedule.renew_after(ttl / 3),
                after(&schedule, schedule.stop_at()),
                after(&schedule, schedule.dead_at()),
            ];
            assert_eq!(millis.map(|time| time.as_millis()), [renewed, told, killed], "{ttl:?} {kill_after:?}");
        }
    }

    #[test]
    fn the_command_is_dead_first_whichever_clock_is_fast_by_a_tenth() {
        for seconds in [1, 2, 4, 30, 600, 86_400] {
            let schedule = schedule(seconds * S, None);
            let (ours, lease) = (after(&schedule, schedule.dead_at()).as_secs_f64(), schedule.ttl.as_secs_f64());
            // The server's clock gains a tenth, or ours loses one.
            assert!(ours + 0.04 < lease / 1.1 && ours / 0.9 + 0.04 < lease, "{seconds}");
        }
    }

    #[test]
    fn kill_after_is_bounded_by_the_granted_lease() {
        for (asked, ttl, expected) in [
            (None, Some(30 * S), 5 * S),
            (None, Some(8 * S), 2 * S),
            (None, None, 5 * S),
            (Some(7 * S), None, 7 * S),
            (Some(7 * S), Some(10 * S), 5 * S),
            (Some(S), Some(10 * S), S),
            (Some(Duration::ZERO), Some(10 * S), Duration::ZERO),
        ] {
            assert_eq!(Grace { asked, share: 2 }.within(ttl), expected);
        }
    }

    #[test]
    fn a_delay_leaves_a_lease_that_can_be_renewed() {
        for (length, share, least) in [(0, 0, 1), (60, 0, 1), (5, 6, 30), (0, 6, 1)] {
            assert_eq!(Delay { length: length * S, share }.least(), least * S, "{length} {share}");
        }
        // On ZooKeeper, the session is longer than the lease by the delay, so the proof is older by a part of it.
        let (lease, share) = (30 * S, 6);
        let session = lease + lease / share;
        let schedule = schedule(lease, Some(lease / 4));
        let proven = session / 4 + session / 40 + lease / 6;
        assert!(proven + S < after(&schedule, schedule.stop_at()), "{proven:?}");
    }

    #[test]
    fn requests_never_outlast_a_third_of_what_is_left() {
        let schedule = schedule(30 * S, None);
        assert_eq!(schedule.request_timeout(schedule.sent), 2 * S);
        assert_eq!(schedule.request_timeout(schedule.stop_at() - 3 * S), S);
        assert_eq!(schedule.request_timeout(schedule.dead_at()), Duration::ZERO);
    }

    #[test]
    fn a_late_grant_is_not_worth_keeping() {
        let schedule = schedule(10 * S, None);
        assert!(!schedule.too_little_left(schedule.sent));
        assert!(!schedule.too_little_left(schedule.sent + 4 * S));
        assert!(schedule.too_little_left(schedule.sent + 5 * S));
        assert!(schedule.too_little_left(schedule.sent + 20 * S));
    }
}
