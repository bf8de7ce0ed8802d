/*!
The consequences of a lost lock for the process that relies on it: its deadline, and the message about the loss.
*/

use std::time::Duration;

use crate::cli::OnLost;
use crate::clock::Instant;
use crate::lease::renewal::LeaseNews;
use crate::lease::timing::{Grace, Schedule};
use crate::report::event::Loss;
use crate::supervise::protocol::Deadline;

/// Returns the deadline of the process if `schedule` is not renewed; `None` with `--on-lost ignore`.
pub(super) fn deadline(schedule: &Schedule, on_lost: OnLost) -> Option<Deadline> {
    match on_lost {
        OnLost::Stop => Some(Deadline { stop_at: schedule.stop_at(), kill_at: schedule.dead_at() }),
        OnLost::Kill => Some(Deadline { stop_at: schedule.stop_at(), kill_at: schedule.stop_at() }),
        OnLost::Ignore => None,
    }
}

/// Returns the time between SIGTERM and SIGKILL that a process gets under a lock with this lease; `None` if it goes on.
pub(super) fn kill_after(on_lost: OnLost, grace: Grace, lease: Option<Duration>) -> Option<Duration> {
    match on_lost {
        OnLost::Stop => Some(grace.within(lease)),
        OnLost::Kill => Some(Duration::ZERO),
        OnLost::Ignore => None,
    }
}

/// Returns the loss that `news` means; `None` for news after which the lock is still held.
pub(super) fn loss(news: LeaseNews) -> Option<Loss> {
    match news {
        LeaseNews::NotMine(why) => Some(Loss::NotMine(why)),
        LeaseNews::OuterEnded => Some(Loss::OuterEnded),
        LeaseNews::KeeperEnded => Some(Loss::KeeperEnded),
        LeaseNews::Unrenewed { since, last } => {
            Some(Loss::Unrenewed { silent: rounded(Instant::now().since(since)), last })
        }
        LeaseNews::Extended(_) | LeaseNews::Trouble(_) | LeaseNews::Concern(_) | LeaseNews::Asked(_) => None,
    }
}

/// Rounds a length for messages: to seconds, below ten of them to tenths.
fn rounded(length: Duration) -> Duration {
    let step = if length < Duration::from_secs(10) { 100 } else { 1000 };
    Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX) / step * step)
}
