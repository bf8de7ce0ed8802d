//! What must hold in an episode, and what came of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::stall;

/// What must hold in every episode, whatever the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Invariant {
    /// No two commands overlap that exclude each other, no slot is had twice, and there are no more than there are slots.
    NoOverlap,
    /// Tokens strictly increase from holder to holder, of those who exclude each other.
    TokensRise,
    /// A store that refuses smaller tokens accepts no late write.
    NoLateWrite,
    /// The command is dead before its lease can expire at the server.
    DeadInTime,
    /// Nothing is left behind: no lock, no queue entry, no process, no file.
    NothingLeft,
    /// Somebody holds the lock soon after it can be held again.
    GoesOn,
    /// A lock with a minimum hold is held by nobody else before that is over.
    HeldLongEnough,
    /// Parties pass a barrier together or not at all, and what was put down at a latch counts.
    MeetsRight,
    /// Exit code and last line on stderr are right.
    EndsRight,
    /// Who has broken the lock, and whom that hit, is told to those who look later.
    BreaksTold,
    /// Nothing is called that others have prepared in the same database.
    NoneCalled,
    /// dlock and its guard leak neither memory nor descriptors.
    NoLeak,
    /// Not one of dlock's: the episode itself could not be carried out.
    Harness,
}

impl Invariant {
    /// Whether nothing but a slow machine could break it.
    fn is_of_time(self) -> bool {
        matches!(self, Self::NoOverlap | Self::DeadInTime) || self.is_of_pace()
    }

    /// Whether nothing but ordinary programs waiting for their turn could break it. That does not excuse a command that
    /// dies too late.
    fn is_of_pace(self) -> bool {
        matches!(self, Self::GoesOn | Self::MeetsRight | Self::EndsRight | Self::Harness)
    }
}

/// The result of an episode.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The invariants that were violated, each with its symptom.
    pub violations: Vec<(Invariant, String)>,
    /// From the death of the command's last process to the end of its lease at the servers, where that is known.
    pub margin: Option<Duration>,
    /// How many holders lost a lock that they could have kept.
    pub false_losses: u64,
    /// From the end of the fault until somebody held the lock again.
    pub recovery: Option<Duration>,
    /// How often the lock was held.
    pub hand_overs: u64,
    /// How many things were broken.
    pub faults: u64,
    /// How many commands began while another one was still running.
    pub overlaps: u64,
    /// Writes with an old token that the store refused.
    pub late_refused: u64,
    /// The largest resident memory of a dlock or a guard, in KiB.
    pub rss_kib: u64,
    /// The longest time for which the machine itself stood still.
    pub stall: Duration,
    /// The longest time for which ordinary programs waited for their turns.
    pub busy: Duration,
    /// What the servers logged last, if something was violated.
    pub logs: String,
    /// Why the episode could not be carried out, for a reason that is not dlock's.
    pub hindered: Option<&'static str>,
}

impl Report {
    /// Why a failed episode says nothing about dlock, if so: the machine stood still and something was late, or the
    /// episode could not be carried out.
    pub fn void(&self) -> Option<&'static str> {
        let all = |fits: fn(Invariant) -> bool| self.violations.iter().all(|(what, _)| fits(*what));
        if self.violations.is_empty() {
            None
        } else if self.stall > stall::LIMIT && all(Invariant::is_of_time) {
            Some("the machine stood still meanwhile")
        } else if self.busy > stall::BUSY && all(Invariant::is_of_pace) {
            Some("the machine was too busy meanwhile")
        } else {
            self.hindered.filter(|_| all(|what| what == Invariant::Harness))
        }
    }
}
