//! How actors end: a holder in time, and every dlock with the right code and last line.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::{Outcome, Running};
use crate::support::rendezvous::{CAP, boottime, last_until};

use super::actors::Holder;
use super::{Episode, Invariant, KEY};

/// How often the servers are asked whether they have a lock.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// How a dlock may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the command's own exit code.
    Own(i32),
    /// With 79, and a last line that says what was lost.
    Lost,
    /// With 70, because the guard was killed.
    GuardKilled,
    /// By this signal.
    By(Signal),
    /// With 69: the servers are out of reach.
    Unavailable,
    /// With 75: somebody else holds the lock.
    Busy,
    /// With 73: no lock file can be had.
    CannotCreate,
}

impl Ending {
    fn fits(self, outcome: &Outcome) -> bool {
        let (code, stderr) = (outcome.status().code(), outcome.stderr());
        let ours = stderr.lines().all(|line| line.starts_with("dlock: "));
        let last = stderr.lines().next_back().unwrap_or_default();
        ours && match self {
            Self::Own(wanted) => code == Some(wanted) && !last.contains("lost 'job' at "),
            Self::Lost => code == Some(79) && last.contains("lost 'job' at "),
            Self::GuardKilled => code == Some(70) && last.contains("guard"),
            Self::By(signal) => outcome.status().signal() == Some(signal as i32),
            Self::Unavailable => code == Some(69) && last.contains("did not get 'job'"),
            Self::Busy => code == Some(75) && last.contains("did not get 'job'"),
            Self::CannotCreate => code == Some(73) && last.contains("could not use the lock "),
        }
    }
}

impl Episode<'_> {
    /// Checks that `holder` dies before its lease can expire at the servers, and before it releases its lock if it can. Returns
    /// once it is dead.
    #[track_caller]
    pub fn dies_in_time(&mut self, holder: &Holder) -> Duration {
        let name = if self.monitors.is_empty() { self.world.holder(KEY) } else { None };
        self.dies_before(holder, name)
    }

    /// As [`Self::dies_in_time`], for a holder that the servers knew by this name if they know names.
    #[track_caller]
    pub fn dies_before(&mut self, holder: &Holder, name: Option<String>) -> Duration {
        let (seen, gone) = name.map_or((None, None), |name| self.watch_lock(holder, &name));
        let died = holder.died_at();
        let end = seen.or_else(|| holder.owner.as_ref().and_then(|owner| self.lease_end(owner, died)));
        let has_lost = || holder.running.stderr_so_far().contains("dlock: lost ");
        match end {
            Some(end) if end > died => self.margin(end.saturating_sub(died)),
            // It has released the lock between two looks.
            Some(_) if gone.is_some_and(|gone| gone > died) && has_lost() => {}
            Some(end) => {
                let what = format!("the command lived {:?} after the lease's end", died - end);
                self.violation(Invariant::DeadInTime, what);
            }
            // It releases nothing while its command lives.
            None if has_lost() && gone.is_none_or(|gone| gone > died) => {
                self.violation(Invariant::EndsRight, "a holder lost its lock before it was hit, and has released it");
            }
            None if self.world.column.has_leases() => {
                self.violation(Invariant::DeadInTime, "when the command died, the lock was gone");
            }
            None => {}
        }
        died
    }

    /// When the servers, which only tell whether a lease is over, were last seen to have the lock of `holder` under this name,
    /// and when they no longer had it.
    #[track_caller]
    fn watch_lock(&mut self, holder: &Holder, name: &str) -> (Option<Duration>, Option<Duration>) {
        // Servers that hear nothing of one another take long to elect a leader, which ends leases, and to answer.
        let patience = Duration::from_secs(if self.world.is_on_islands() { 30 } else { 5 });
        if self.world.is_on_islands() {
            holder.died_at();
        }
        let (mut seen, world, begun) = (None, self.world, boottime());
        loop {
            let now = boottime();
            if !world.has(KEY, name) {
                return (seen, Some(boottime()));
            }
            seen = Some(now);
            let dead_by = if holder.is_alive() { begun + CAP } else { holder.died_at() };
            if now > dead_by + self.ttl + patience {
                self.violation(Invariant::NothingLeft, "the lock of a killed contender does not expire");
                return (seen, None);
            }
            last_until(now + BETWEEN_LOOKS);
        }
    }

    /// When the lease of `owner` can expire at the earliest, going by what had been carried out at `until`: when enough
    /// servers can have forgotten it for another contender to find a majority.
    fn lease_end(&self, owner: &str, until: Duration) -> Option<Duration> {
        let key = format!("dlock:{KEY}");
        // A server that never granted a lease can grant one now.
        let mut ends: Vec<Duration> =
            self.monitors.iter().map(|monitor| monitor.lease_end_of(owner, &key, until).unwrap_or_default()).collect();
        ends.sort_unstable();
        ends.get(self.world.majority().checked_sub(1)?).copied().filter(|end| !end.is_zero())
    }

    fn margin(&mut self, margin: Duration) {
        self.report.margin = Some(self.report.margin.map_or(margin, |smallest| smallest.min(margin)));
    }

    /// Waits for a dlock to end in one of these ways, and returns which.
    #[track_caller]
    pub fn ends(&mut self, running: Running, allowed: &[Ending]) -> Option<Ending> {
        let outcome = running.wait();
        self.ended(&outcome, allowed)
    }

    /// Checks that a dlock that has ended did so in one of these ways, and returns which.
    pub fn ended(&mut self, outcome: &Outcome, allowed: &[Ending]) -> Option<Ending> {
        let ending = allowed.iter().copied().find(|ending| ending.fits(outcome));
        if ending.is_none() {
            self.violation(Invariant::EndsRight, format!("none of {allowed:?}:\n{outcome:?}"));
        }
        ending
    }

    /// Counts a lost lock that the holder could have kept, if `ending` is a loss.
    pub fn could_have_kept(&mut self, ending: Option<Ending>) {
        self.report.false_losses += u64::from(ending == Some(Ending::Lost));
    }
}
