//! The matrix: which fault is tried on which service, and what is promised there.

use serde::{Deserialize, Serialize};

use super::episode::Episode;
use super::held::Held;
use super::listed::FAULTS;
use super::world::Column;

/// What dlock promises for a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Every invariant holds.
    Safe,
    /// A documented window of the algorithm: two commands may overlap, and the token tells them apart. How often that
    /// happens is measured.
    Documented,
}

/// What a fault needs of the machine and the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing special.
    Nothing,
    /// The whole machine, so nothing else may be measured meanwhile.
    Machine,
    /// The whole machine for minutes, so it is tried by a campaign only.
    Minutes,
    /// Servers whose clocks can be moved, and which are not used again.
    Clocks,
    /// Servers on islands, which are not used again.
    Islands,
    /// A service that is not used again.
    Own,
}

/// A row of the matrix, or one of several variants of a row.
pub struct Fault {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens, as the row's title.
    pub title: &'static str,
    /// Where it is tried.
    pub cells: &'static [(Column, Class)],
    /// What it needs of the machine and of the service.
    pub needs: Needs,
    /// The function that plays an episode of it.
    pub run: fn(&mut Episode<'_>),
}

/// One fault on one service.
#[derive(Clone, Copy)]
pub struct Cell {
    pub fault: &'static Fault,
    pub column: Column,
    pub held: Held,
    pub class: Class,
}

impl Cell {
    /// The service's name, and how its lock is held unless that is alone: `redis-shared`.
    pub fn service(self) -> String {
        format!("{}{}", self.column, self.held.suffix())
    }

    /// The service's title, and how its lock is held unless that is alone.
    pub fn title(self) -> String {
        match self.held {
            Held::Alone => self.column.title().to_owned(),
            held => format!("{}, {}", self.column.title(), held.title()),
        }
    }
}

/// The faults that are also tried on locks that several hold together.
const ALSO_TOGETHER: &[&str] = &[
    "none",
    "dlock-killed",
    "dlock-frozen",
    "guard-killed",
    "guard-frozen",
    "all-frozen",
    "command-killed",
    "command-stubborn",
    "command-ended",
    "group-hit",
    "covered-run",
    "waiter-killed",
    "min-hold",
    "lock-delay",
    "servers-frozen",
    "servers-restarted",
    "server-emptied",
    "minority-killed",
    "leader-killed",
    "leader-frozen",
    "follower-frozen",
    "majority-killed",
    "majority-frozen",
    "cut-off",
    "acquire-answer-lost",
    "renew-answer-lost",
    "release-answer-lost",
    "refused",
    "reset",
    "silent",
    "late-then-silent",
    "drip",
    "latency",
    "flapping",
    "script-flush",
    "client-kill",
    "oom",
    "failover",
    "failover-replicated",
    "server-clock-back",
    "server-clock-rate",
    "client-clock-rate",
    "queue-churn",
    "mixed",
];

/// The faults that are tried on such locks only.
const ONLY_TOGETHER: &[&str] = &["one-of-several"];

/// On which locks a fault is tried.
fn held(fault: &Fault) -> &'static [Held] {
    if ONLY_TOGETHER.contains(&fault.name) {
        &[Held::Shared, Held::Slots]
    } else if ALSO_TOGETHER.contains(&fault.name) {
        &[Held::Alone, Held::Shared, Held::Slots]
    } else {
        &[Held::Alone]
    }
}

/// Every cell of the matrix, row by row.
pub fn cells() -> impl Iterator<Item = Cell> {
    let row = |fault: &'static Fault, held: Held| {
        fault.cells.iter().map(move |&(column, class)| Cell { fault, column, held, class })
    };
    FAULTS.iter().flat_map(move |fault| held(fault).iter().flat_map(move |&held| row(fault, held)))
}
