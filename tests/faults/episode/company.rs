//! Those who hold the lock together with the holder of an episode, where it is not held alone; and the witness that judges who
//! may run together.

use std::ffi::OsString;
use std::time::Duration;

use crate::held::Held;
use crate::support::dlock::{Dlock, Running};
use crate::support::rendezvous::Gate;
use crate::support::witness::OVERLAP_CODE;

use super::{Ending, Episode, Way};

/// Those who hold the lock beside the holder.
#[derive(Default)]
pub(super) struct Company {
    members: Vec<(Running, Gate)>,
    /// Whether there were any, now or before.
    came: bool,
    /// Whether they were let go.
    dismissed: bool,
    /// Whether they may lose the lock.
    may_lose: bool,
}

impl Episode<'_> {
    /// `dlock run` for the lock: as the holders have it or, as often, alone.
    pub fn contender(&mut self, way: Way) -> Dlock {
        let dlock = self.dlock(way);
        if self.held != Held::Alone && self.coin() { self.held.wanted_by(dlock) } else { dlock }
    }

    /// Notes that servers fail, so all who hold the lock may lose it, and not only the holder.
    pub fn servers_fail(&mut self) {
        self.company.may_lose = true;
    }

    /// Lets one or two others hold the lock beside its first holder, until everything is repaired.
    #[track_caller]
    pub(super) fn accompany(&mut self) {
        if self.held == Held::Alone || std::mem::replace(&mut self.company.came, true) {
            return;
        }
        for _ in 0..self.rng.usize(1..=2) {
            self.holders += 1;
            let gate = Gate::new(self.scratch.path(format!("gate-{}", self.holders)));
            let work = format!("{}; {}", self.store.write(), gate.wait());
            let dlock = self.held.wanted_by(self.dlock(Way::Straight)).command(self.section(&work));
            let running = dlock.new_process_group().spawn();
            self.expect_begun(&running, |episode| episode.store.starts().len() >= episode.holders);
            self.company.members.push((running, gate));
        }
    }

    /// Whether all who hold the lock beside the holder still do.
    pub fn company_is_well(&self) -> bool {
        self.company.members.iter().all(|(running, _)| running.is_running())
    }

    /// Lets them go.
    pub(super) fn dismiss(&mut self) {
        if !std::mem::replace(&mut self.company.dismissed, true) {
            self.company.members.iter().for_each(|(_, gate)| gate.open());
        }
    }

    /// Waits for their ends, and checks that they have noticed nothing but what they may.
    #[track_caller]
    pub(super) fn see_them_off(&mut self) {
        let may_lose = self.documented || self.company.may_lose;
        let allowed: &[Ending] = if may_lose { &[Ending::Own(0), Ending::Lost] } else { &[Ending::Own(0)] };
        for (running, _gate) in std::mem::take(&mut self.company.members) {
            let outcome = running.wait();
            // A command that found another one running has said so itself.
            if outcome.status().code() == Some(OVERLAP_CODE) && self.documented {
                let _ = outcome.stderr();
            } else {
                self.ended(&outcome, allowed);
            }
        }
    }

    /// The command line that does `work` under the witness.
    pub(super) fn witnessed(&self, work: &str) -> Vec<OsString> {
        match self.held {
            Held::Alone => self.witness.command(work),
            Held::Shared | Held::Slots => self.mode_witness.command_of_any(work),
        }
    }

    /// What the witness has written.
    pub(super) fn witness_log(&self) -> String {
        format!("{}{}", self.witness.log(), self.mode_witness.log())
    }

    /// When commands overlapped that exclude each other.
    pub(super) fn overlaps(&self) -> Vec<Duration> {
        [self.witness.overlaps(), self.mode_witness.overlaps()].concat()
    }

    /// What the witness says; overlaps do not count where they are expected.
    pub(super) fn verdict(&self) -> Result<(), String> {
        if self.documented {
            self.witness.verdict_but_overlaps()?;
            self.mode_witness.verdict_but_overlaps()?;
        } else {
            self.witness.verdict()?;
            self.mode_witness.verdict()?;
        }
        Ok(())
    }
}
