//! The invariants that are checked of every episode, whatever its fault.

use std::time::Duration;

use crate::support::dlock::Running;
use crate::support::mode_witness::Hold;
use crate::support::process;
use crate::support::rendezvous::{boottime, eventually_within};
use crate::support::witness::OVERLAP_CODE;

use super::{Ending, Episode, Invariant, KEY, Report, Way};

/// No dlock and no guard may ever have more resident memory.
const MAX_RSS_KIB: u64 = 32 * 1024;

impl Episode<'_> {
    /// Checks the memory and the descriptors of `running` and its guard.
    pub fn look_at(&mut self, running: &Running) {
        self.look_at_pid(running.dlock_pid());
    }

    /// Checks the memory and the descriptors of a dlock that was started elsewhere, and of its guard.
    pub fn look_at_pid(&mut self, dlock: i32) {
        for pid in [dlock].into_iter().chain(process::children(dlock)) {
            let (Some(rss), Some(threads)) = (process::peak_rss_kib(pid), process::status(pid, "Threads")) else {
                continue;
            };
            self.report.rss_kib = self.report.rss_kib.max(rss);
            let fds = process::fds(pid).len();
            // For each server a connection with its two ends in here, and during a request a timer; from the first renewal on a
            // second one, to hear of requests to stop. A library may use one more for a moment, for name resolution.
            if rss > MAX_RSS_KIB || !matches!(threads.as_str(), "1" | "2") || fds > 16 + 8 * self.world.size() {
                let leak = format!("pid {pid}: {rss} KiB, {threads} threads, {fds} descriptors");
                self.violation(Invariant::NoLeak, leak);
            }
        }
    }

    /// Lets all waiters have their turn, and then checks everything but what [`Self::into_report`] checks.
    pub fn finish(&mut self) {
        self.dismiss();
        self.closed = Some(boottime());
        let healed = self.healed.unwrap_or_else(boottime);
        if self.waiters.is_empty() {
            let next = self.dlock(Way::Straight).command(self.section(&self.store.write())).spawn();
            self.waiters.push(next);
        }
        self.serve_waiters();
        self.see_them_off();
        self.check_recovery(healed);
        self.check_litter(&[KEY]);
    }

    /// Lets those who wait have their turn, and checks how they end.
    pub fn serve_waiters(&mut self) {
        for waiter in std::mem::take(&mut self.waiters) {
            let overlap = Ending::Own(OVERLAP_CODE);
            let allowed: &[Ending] = match (self.documented, self.waiters_may_lose) {
                (false, _) => &[Ending::Own(0)],
                (true, false) => &[Ending::Own(0), overlap],
                (true, true) => &[Ending::Own(0), overlap, Ending::Lost],
            };
            // A command that found another one running has said so itself.
            let outcome = waiter.wait();
            if outcome.status().code() == Some(OVERLAP_CODE) && self.documented {
                let _ = outcome.stderr();
            } else {
                self.ended(&outcome, allowed);
            }
        }
    }

    /// The result, also of an episode that was given up half-way.
    pub fn into_report(mut self) -> Report {
        self.check_sections();
        self.report
    }

    fn check_sections(&mut self) {
        let starts: Vec<Hold> = self.store.starts().into_iter().map(|(_, hold)| hold).collect();
        self.report.hand_overs += starts.len() as u64;
        self.report.overlaps = self.overlaps().len() as u64;
        if let Some((earlier, later)) = Hold::out_of_order(&starts) {
            let what = format!("the token does not rise from {earlier:?} to {later:?}: {starts:?}");
            self.violation(Invariant::TokensRise, what);
        }
        if let Err(wrong) = self.verdict() {
            self.violation(Invariant::NoOverlap, format!("{wrong}\n{}", self.witness_log()));
        }
        if let Some(late) = self.overlaps().into_iter().find(|&at| self.closed.is_some_and(|end| at > end)) {
            let what = format!("an overlap at {late:?}, when the window was closed\n{}", self.witness_log());
            self.violation(Invariant::NoOverlap, what);
        }
        match self.store.writes() {
            Ok(writes) => {
                self.report.late_refused = writes.late_refused;
                if writes.late_taken > 0 {
                    self.violation(Invariant::NoLateWrite, format!("{} late writes were taken", writes.late_taken));
                }
            }
            Err(wrong) => self.violation(Invariant::TokensRise, wrong),
        }
    }

    fn check_recovery(&mut self, healed: Duration) {
        let Some((at, _)) = self.store.starts().into_iter().find(|(at, _)| *at >= healed) else { return };
        let recovery = at.saturating_sub(healed);
        if self.epoch.is_some() && self.epoch != self.world.epoch() {
            // The cluster fell apart: the servers elected another leader after everything was considered repaired, and a
            // new leader grants every lease anew.
            return;
        }
        self.report.recovery = Some(recovery);
        let usual = self.ttl + Duration::from_secs(2) + self.world.column.granularity();
        if recovery > self.recovers_within.unwrap_or(usual) {
            self.violation(Invariant::GoesOn, format!("nobody held the lock for {recovery:?}"));
        }
    }

    /// Checks that nothing is left of the locks `keys` and of their contenders.
    pub fn check_litter(&mut self, keys: &[&str]) {
        // What a killed contender held lasts until its lease expires.
        let patience = self.ttl + Duration::from_secs(5);
        let mut litter = Vec::new();
        let clean = eventually_within(patience, || {
            if self.is_traced.get() {
                for key in keys {
                    self.world.forget_break(key);
                }
            }
            if self.cut_short {
                for key in keys {
                    self.world.remove_directories(key);
                }
            }
            litter = self.world.litter(keys);
            litter.is_empty().then_some(())
        });
        if clean.is_none() {
            self.violation(Invariant::NothingLeft, format!("left at the servers: {litter:?}"));
        }
        let scratch = &self.scratch;
        if eventually_within(Duration::from_secs(5), || scratch.processes().is_empty().then_some(())).is_none() {
            let left: Vec<_> = scratch.processes().into_iter().map(process::cmdline).collect();
            self.violation(Invariant::NothingLeft, format!("processes that are left: {left:?}"));
        }
    }
}
