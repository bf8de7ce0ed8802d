/*!
The consequences of a lost lock for the process that relies on it: its deadline, and all that is reported of its lease.
*/

use std::time::Duration;

use crate::cli::OnLost;
use crate::clock::{Instant, millis};
use crate::command::recording::Recording;
use crate::lease::renewal::LeaseNews;
use crate::lease::timing::{Grace, Schedule};
use crate::report::Report;
use crate::report::event::{Event, Lock, Loss};
use crate::schema::events::Cause;
use crate::supervise::protocol::Deadline;

/// A change of the lease that the process has to be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It was extended.
    Extended(Schedule),
    /// It was lost, or its holder was asked to give the lock back; not reported yet.
    Lost(Loss),
}

/// A process that relies on a lock, and what is reported of it and its lease.
pub(super) struct Reliance<'a> {
    report: &'a Report,
    lock: Lock,
    program: String,
    on_lost: OnLost,
    /// The record of the process.
    pub(super) recording: Recording<'a>,
    /// `true` if renewals fail.
    is_troubled: bool,
    /// The loss that was reported.
    told: Option<Loss>,
}

impl<'a> Reliance<'a> {
    /// Begins with a `program` that has just started.
    pub(super) fn new(report: &'a Report, lock: Lock, program: String, on_lost: OnLost) -> Self {
        let recording = Recording::new(report, program.clone(), on_lost);
        Self { report, lock, program, on_lost, recording, is_troubled: false, told: None }
    }

    /// Returns the loss that was reported, if there is one.
    pub(super) fn told(&self) -> Option<&Loss> {
        self.told.as_ref()
    }

    /// Reports what there is to say about `news` of the lease; returns the change that follows from them.
    pub(super) fn hear(&mut self, news: LeaseNews) -> Option<Change> {
        let lock = || self.lock.clone();
        match news {
            LeaseNews::Extended(schedule) => {
                self.recording.renewed(schedule.ttl);
                if std::mem::take(&mut self.is_troubled) {
                    self.report.tell(&Event::RenewedAgain(self.lock.clone()));
                }
                return Some(Change::Extended(schedule));
            }
            LeaseNews::Trouble(last) => {
                self.report.tell(&Event::NotRenewed { lock: lock(), last });
                self.is_troubled = true;
            }
            LeaseNews::Warning(warning) => self.report.tell(&Event::Warning { lock: lock(), warning }),
            LeaseNews::Asked(ask) if self.on_lost == OnLost::Ignore => {
                self.report.tell(&Event::AskedAndGoesOn { lock: lock(), ask, program: self.program.clone() });
            }
            LeaseNews::Asked(ask) => return Some(Change::Lost(Loss::Asked(ask))),
            last => return loss(last).map(Change::Lost),
        }
        None
    }

    /// Reports a loss, the first one only; before that it calls `stop`, unless the process goes on without the lock.
    pub(super) fn lose(&mut self, how: Loss, stop: impl FnOnce()) {
        if self.told.is_some() {
            return;
        }
        self.told = Some(how.clone());
        let goes_on = self.on_lost == OnLost::Ignore;
        if !goes_on {
            stop();
        }
        let cause = if matches!(how, Loss::Asked(_)) { Cause::Asked } else { Cause::Lost };
        self.report.tell(&Event::Lost { lock: self.lock.clone(), how, program: self.program.clone(), goes_on });
        if !goes_on {
            self.recording.stop(cause);
        }
    }
}

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
fn loss(news: LeaseNews) -> Option<Loss> {
    match news {
        LeaseNews::NotMine(why) => Some(Loss::NotMine(why)),
        LeaseNews::OuterEnded => Some(Loss::OuterEnded),
        LeaseNews::KeeperEnded => Some(Loss::KeeperEnded),
        LeaseNews::Unrenewed { since, last } => {
            Some(Loss::Unrenewed { silent: rounded(Instant::now().since(since)), last })
        }
        LeaseNews::Extended(_) | LeaseNews::Trouble(_) | LeaseNews::Warning(_) | LeaseNews::Asked(_) => None,
    }
}

/// Rounds a length for messages: to seconds, below ten of them to tenths.
fn rounded(length: Duration) -> Duration {
    let step = if length < Duration::from_secs(10) { 100 } else { 1000 };
    Duration::from_millis(millis(length) / step * step)
}
