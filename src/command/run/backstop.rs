/*!
The time by which the command must be dead: dlock's orders to the guard, and the moments at which dlock does the guard's
work because the guard cannot. Pure decisions from what happened and what time it is.
*/

use std::time::Duration;

use crate::cli::OnLost;
use crate::clock::Instant;
use crate::command::losing::deadline;
use crate::lease::timing::Schedule;
use crate::supervise::protocol::{Deadline, Order};
use crate::supervise::stop::Ladder;

/// The state that decides when the command is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backstop {
    on_lost: OnLost,
    kill_after: Duration,
    schedule: Option<Schedule>,
    /// The lead of dlock's own SIGKILL over the lease's deadline, under a CPU quota.
    earlier: Duration,
    /// The instant by which everything must be dead, once a stop was ordered.
    kill_at: Option<Instant>,
}

impl Backstop {
    /// Makes the backstop of a command that begins to run; `schedule` is that of the lease, if there is one.
    pub(super) fn new(on_lost: OnLost, kill_after: Duration, schedule: Option<Schedule>) -> Self {
        Self { on_lost, kill_after, schedule, earlier: Duration::ZERO, kill_at: None }
    }

    /// Returns the lease as last confirmed, if there is one.
    pub(super) fn schedule(&self) -> Option<Schedule> {
        self.schedule
    }

    /// Returns the deadline of the command unless the lease is renewed.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.schedule.and_then(|schedule| deadline(&schedule, self.on_lost))
    }

    /// Returns `true` if a stop was ordered.
    pub(super) fn is_stopping(&self) -> bool {
        self.kill_at.is_some()
    }

    /// Notes that the lease was renewed; returns the order for the guard.
    pub(super) fn extend(&mut self, schedule: Schedule) -> Option<Order> {
        self.schedule = Some(schedule);
        self.deadline().map(Order::Extend)
    }

    /// Under a CPU quota, the guard and dlock stop the command this much earlier than at the lease's deadline.
    pub(super) fn hasten(&mut self, earlier: Duration) {
        self.earlier = earlier;
    }

    /// Notes that the lock is lost; returns the order for the guard.
    pub(super) fn lose(&mut self, now: Instant) -> Option<Order> {
        match self.on_lost {
            OnLost::Stop => Some(self.stop(now)),
            OnLost::Kill => Some(Order::Stop(self.kill_by(now))),
            OnLost::Ignore => None,
        }
    }

    /// Notes that the guard has begun to stop the command on its own. From now on no renewal rescues the command, even
    /// if the guard is frozen before it is done.
    pub(super) fn begun(&mut self, now: Instant) {
        // The guard needs no order for what it is doing.
        let _ = self.lose(now);
    }

    /// Ends the command: SIGTERM now, SIGKILL after `--kill-after` or when the lease ends, whichever is earlier;
    /// returns the order for the guard.
    pub(super) fn stop(&mut self, now: Instant) -> Order {
        Order::Stop(self.kill_by(now + self.kill_after))
    }

    /// Notes that the guard was killed; returns the ladder on which dlock itself stops what is left of the command.
    pub(super) fn take_over(&mut self, now: Instant) -> Ladder {
        let mut ladder = Ladder::new(self.deadline());
        ladder.stop(self.kill_by(now + self.kill_after));
        ladder
    }

    /// Returns the instant at which dlock itself sends SIGKILL. A guard that is not frozen does so at the same time.
    pub(super) fn kill_due(&self) -> Option<Instant> {
        [self.kill_at, self.deadline().map(|deadline| deadline.kill_at - self.earlier)].into_iter().flatten().min()
    }

    /// Requires everything to be dead at `at`, or earlier if the lease ends or a stop was ordered for then.
    fn kill_by(&mut self, at: Instant) -> Instant {
        let kill_at = self.kill_due().map_or(at, |due| due.min(at));
        self.kill_at = Some(kill_at);
        kill_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Returns a lease of 10 s that was confirmed at `sent` seconds.
    fn schedule(sent: u32) -> Schedule {
        Schedule { sent: Instant::from_nanos(0) + S * sent, ttl: 10 * S, kill_after: 2 * S }
    }

    #[test]
    fn a_renewal_told_too_late_rescues_nothing_although_the_guard_is_frozen() {
        let mut backstop = Backstop::new(OnLost::Stop, 2 * S, Some(schedule(100)));
        let stopped = schedule(100).stop_at();
        backstop.begun(stopped);
        let _ = backstop.extend(schedule(107));
        assert_eq!(backstop.kill_due(), Some(stopped + 2 * S));
    }

    #[test]
    fn every_stop_bounds_what_is_left_and_none_gives_more() {
        let at = |seconds: u32| Instant::from_nanos(0) + S * seconds;
        let mut backstop = Backstop::new(OnLost::Stop, 2 * S, Some(schedule(100)));
        assert_eq!(backstop.kill_due(), Some(schedule(100).dead_at()));
        assert_eq!(backstop.stop(at(103)), Order::Stop(at(105)));
        assert_eq!(backstop.lose(at(104)), Some(Order::Stop(at(105))));
        let mut ladder = backstop.take_over(at(104));
        assert!(matches!(ladder.step(at(104)), crate::supervise::stop::Step::Term { .. }));
        assert_eq!(ladder.step(at(105)), crate::supervise::stop::Step::Kill);
        let mut backstop = Backstop::new(OnLost::Stop, 2 * S, Some(schedule(100)));
        backstop.hasten(3 * S);
        assert_eq!(backstop.kill_due(), Some(schedule(100).dead_at() - 3 * S));
        let mut backstop = Backstop::new(OnLost::Kill, 2 * S, Some(schedule(100)));
        assert_eq!(backstop.lose(at(103)), Some(Order::Stop(at(103))));
        let mut backstop = Backstop::new(OnLost::Ignore, 2 * S, Some(schedule(100)));
        assert_eq!((backstop.lose(at(103)), backstop.kill_due()), (None, None));
        let mut backstop = Backstop::new(OnLost::Stop, 2 * S, None);
        assert_eq!(backstop.kill_due(), None);
        assert_eq!(backstop.stop(at(103)), Order::Stop(at(105)));
    }
}
