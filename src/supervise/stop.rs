/*!
The schedule of stopping the command: pure decisions from what happened and what time it is.
*/

use std::time::Duration;

use crate::clock::Instant;
use crate::supervise::protocol::Deadline;

/// The next step of stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing before this instant; nothing at all if there is none.
    Wait(Option<Instant>),
    /// Send SIGTERM, because of the lease's own deadline or because it was ordered.
    Term {
        /// `true` if the deadline has passed, and there was no order to stop.
        by_deadline: bool,
    },
    /// Send SIGKILL, again and again until nothing is left.
    Kill,
}

/// The time that one process takes to die of SIGKILL, on a slow machine.
const DYING: Duration = Duration::from_micros(100);
/// The number of processes that die within the safety margin of any lease.
const FEW: usize = 100;

/// The times by which a stop begins earlier because the guard may be late.
#[derive(Clone, Copy, Debug, Default)]
struct Earlier {
    term: Duration,
    kill: Duration,
}

/// The steps of stopping: SIGTERM, then SIGKILL. They begin at the lease's deadline or by an order, and cannot be
/// undone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ladder {
    lease: Option<Deadline>,
    ordered: Option<Instant>,
    /// The time that all processes together take to die. SIGKILL is sent this much before the end of the lease.
    dying: Duration,
    /// The times by which SIGTERM and SIGKILL are sent before the lease's deadlines.
    earlier: Earlier,
    deadline_passed: bool,
    termed: bool,
}

impl Ladder {
    /// Makes the ladder of a command under a lease, or under a lock that has none.
    #[must_use]
    pub(crate) fn new(lease: Option<Deadline>) -> Self {
        Self { lease, ..Self::default() }
    }

    /// Notes that the lease was renewed. Once its SIGTERM has been sent, no renewal rescues the command.
    pub(crate) fn extend(&mut self, deadline: Deadline) {
        if self.lease.is_some() && !self.deadline_passed {
            self.lease = Some(deadline);
        }
    }

    /// Orders the stop: SIGTERM at once, SIGKILL at `kill_at` or at the lease's deadline if that is earlier.
    pub(crate) fn stop(&mut self, kill_at: Instant) {
        self.ordered = Some(self.ordered.map_or(kill_at, |earlier| earlier.min(kill_at)));
    }

    /// Notes the number of processes to stop. With many of them, SIGKILL is sent before the lease's deadline, so that
    /// the last one is dead by then.
    pub(crate) fn counted(&mut self, processes: usize) {
        self.dying = DYING * u32::try_from(processes.saturating_sub(FEW)).unwrap_or(u32::MAX);
    }

    /// Makes a stop for the lease's sake begin this much earlier from now on. SIGTERM leaves two thirds of its time,
    /// counted from when the lease was `renewed`, for the next renewal. A stop that has begun is never put off.
    pub(crate) fn hasten(&mut self, by: Duration, renewed: Instant) {
        let Some(lease) = self.lease else { return };
        if self.is_stopping() {
            self.earlier.kill = self.earlier.kill.max(by);
        } else {
            self.earlier = Earlier { term: by.min(lease.stop_at.since(renewed) / 3), kill: by };
        }
    }

    /// Returns the time at which a stop for the lease's sake begins.
    fn stop_at(&self) -> Option<Instant> {
        let lease = self.lease?;
        Some((lease.stop_at - self.earlier.term).min(lease.kill_at - self.earlier.kill))
    }

    /// Returns `true` if a stop for the lease's sake is due at `now`.
    fn is_due(&self, now: Instant) -> bool {
        self.stop_at().is_some_and(|at| now >= at)
    }

    /// Returns `true` if the command is being stopped.
    #[must_use]
    pub(crate) fn is_stopping(&self) -> bool {
        self.ordered.is_some() || self.deadline_passed
    }

    /// Returns the time at which SIGKILL is due, as far as it is known by now.
    #[must_use]
    pub(crate) fn kill_at(&self) -> Option<Instant> {
        let lease_kill_at = self.lease.map(|lease| lease.kill_at - self.dying.max(self.earlier.kill));
        [self.ordered, lease_kill_at].into_iter().flatten().min()
    }

    /// Returns the step to take at `now`. A step that was returned counts as done.
    pub(crate) fn step(&mut self, now: Instant) -> Step {
        if self.is_due(now) {
            self.deadline_passed = true;
        }
        let kill_at = self.kill_at();
        if self.is_stopping() && !self.termed {
            self.termed = true;
            return Step::Term { by_deadline: self.ordered.is_none() };
        }
        if kill_at.is_some_and(|at| now >= at) {
            return Step::Kill;
        }
        let stop_at = self.stop_at().filter(|_| !self.deadline_passed);
        Step::Wait(match (stop_at, kill_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn deadline(term: u64, kill: u64) -> Deadline {
        Deadline { stop_at: at(term), kill_at: at(kill) }
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_the_command() {
        let mut ladder = Ladder::new(Some(deadline(100, 200)));
        assert_eq!(ladder.step(at(0)), Step::Wait(Some(at(100))));
        ladder.extend(deadline(150, 250));
        assert_eq!(ladder.step(at(100)), Step::Wait(Some(at(150))));
        assert_eq!(ladder.step(at(150)), Step::Term { by_deadline: true });
        assert_eq!(ladder.step(at(150)), Step::Wait(Some(at(250))));
        ladder.extend(deadline(1000, 2000));
        assert_eq!(ladder.step(at(250)), Step::Kill, "no renewal rescues it after SIGTERM");
        assert_eq!(ladder.step(at(260)), Step::Kill);
    }

    #[test]
    fn an_order_stops_it_earlier_and_the_lease_still_bounds_it() {
        let mut ladder = Ladder::new(Some(deadline(100, 200)));
        ladder.stop(at(500));
        assert_eq!(ladder.step(at(10)), Step::Term { by_deadline: false });
        assert_eq!(ladder.step(at(10)), Step::Wait(Some(at(100))));
        ladder.extend(deadline(400, 450));
        assert_eq!(ladder.step(at(300)), Step::Wait(Some(at(400))), "renewed while it is being stopped");
        assert_eq!(ladder.step(at(450)), Step::Kill);

        let mut ladder = Ladder::new(None);
        assert_eq!(ladder.step(at(0)), Step::Wait(None));
        ladder.stop(at(50));
        ladder.stop(at(70));
        assert_eq!(ladder.step(at(10)), Step::Term { by_deadline: false });
        assert_eq!(ladder.step(at(50)), Step::Kill);
    }

    #[test]
    fn thousands_of_processes_are_killed_earlier_but_only_for_the_leases_sake() {
        let mut ladder = Ladder::new(Some(deadline(1_000, 2_000)));
        assert_eq!(ladder.step(at(1_000)), Step::Term { by_deadline: true });
        ladder.counted(100);
        assert_eq!(ladder.step(at(1_000)), Step::Wait(Some(at(2_000))));
        ladder.counted(5_100);
        assert_eq!(ladder.step(at(1_000)), Step::Wait(Some(at(1_500))));
        assert_eq!(ladder.step(at(1_500)), Step::Kill);

        let mut ladder = Ladder::new(Some(deadline(60_000, 65_000)));
        ladder.stop(at(5_000));
        assert_eq!(ladder.step(at(0)), Step::Term { by_deadline: false });
        ladder.counted(5_100);
        assert_eq!(ladder.step(at(0)), Step::Wait(Some(at(5_000))));
    }

    #[test]
    fn a_stop_begins_earlier_by_what_the_guard_may_be_late_and_is_never_put_off() {
        let ladder = |by| {
            let mut ladder = Ladder::new(Some(deadline(1_200, 2_000)));
            ladder.hasten(Duration::from_millis(by), at(0));
            ladder
        };
        for (by, term, kill) in [(0, 1_200, 2_000), (300, 900, 1_700), (1_000, 800, 1_000), (1_500, 500, 500)] {
            let mut ladder = ladder(by);
            assert_eq!(ladder.step(at(100)), Step::Wait(Some(at(term))), "{by}");
            assert_eq!(ladder.step(at(term)), Step::Term { by_deadline: true }, "{by}");
            let killed = if term < kill { Step::Wait(Some(at(kill))) } else { Step::Kill };
            assert_eq!(ladder.step(at(term)), killed, "{by}");
            ladder.hasten(Duration::ZERO, at(0));
            assert_eq!(ladder.kill_at(), Some(at(kill)), "{by}");
            ladder.hasten(Duration::MAX, at(0));
            assert_eq!(ladder.step(at(term)), Step::Kill, "{by}");
        }
        // An ordered stop is not for the lease's sake.
        let mut ladder = ladder(300);
        ladder.stop(at(1_000));
        assert_eq!(ladder.step(at(10)), Step::Term { by_deadline: false });
        assert_eq!(ladder.kill_at(), Some(at(1_000)));
    }

    #[test]
    fn a_thaw_long_after_the_deadline_terms_and_kills_at_once() {
        let mut ladder = Ladder::new(Some(deadline(100, 200)));
        assert_eq!(ladder.step(at(9_000)), Step::Term { by_deadline: true });
        assert_eq!(ladder.step(at(9_000)), Step::Kill);
    }
}
