//! Random traces.

use std::fmt;
use std::num::NonZeroU32;

use proptest::prelude::*;

use crate::backend::contract::contender::Used;
use crate::lock::admission::Mode;

/// Number of contenders.
pub(super) const SEATS: usize = 4;

/// The subject of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Locks are taken, extended and released, and answers are lost.
    Modes,
    /// Locks are kept for a minimum time, or a success is recorded.
    Kept,
    /// Holders die, are asked to stop, or lose their locks.
    Broken,
}

/// One move. Contenders are numbered, and so are holders, the oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// The contender tries, and waits.
    Join(usize),
    /// The contender tries, and does not wait.
    Pass(usize),
    Renew(usize),
    Release(usize, Used),
    /// An attempt is dropped after this many polls, and repeated.
    Again(usize, u32),
    /// An attempt is dropped after this many polls, and undone.
    Undo(usize, u32),
    /// A contender dies, and a new one takes its place.
    Die(usize),
    /// A holder is asked to stop.
    Ask(usize),
    /// The lock is taken away from a holder.
    Take(usize),
    /// Somebody looks at the lock.
    Look,
}

#[derive(Clone)]
pub(super) struct Play {
    pub(super) modes: Vec<Mode>,
    /// The contenders with a minimum hold.
    pub(super) hold: Vec<bool>,
    /// `true` if the claims have a period.
    pub(super) once: bool,
    pub(super) moves: Vec<Move>,
}

/// Prints a few lines, even where values are printed one word per line.
impl fmt::Debug for Play {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { modes, hold, once, moves } = self;
        let period = if *once { ", with a period" } else { "" };
        let text = format!("{modes:?}{period}, minimum holds {hold:?}\n{moves:?}");
        out.write_str(&text)
    }
}

pub(super) fn slots(slots: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(slots).expect("a slot"))
}

fn modes() -> impl Strategy<Value = Vec<Mode>> {
    let of = |all: Vec<Mode>| proptest::collection::vec(proptest::sample::select(all), SEATS);
    prop_oneof![
        1 => of(vec![Mode::Exclusive]),
        3 => of(vec![Mode::Shared, Mode::Exclusive]),
        2 => of(vec![slots(2), slots(2), Mode::Exclusive]),
        2 => of(vec![slots(2), slots(3), Mode::Shared]),
        2 => of(vec![Mode::Exclusive, Mode::Shared, slots(2)]),
    ]
}

fn used(kind: Kind) -> BoxedStrategy<Used> {
    match kind {
        Kind::Kept => prop_oneof![Just(Used::No), Just(Used::Yes), Just(Used::Success)].boxed(),
        _ => Just(Used::No).boxed(),
    }
}

fn moves(kind: Kind) -> impl Strategy<Value = Vec<Move>> {
    let seat = || 0..SEATS;
    let odd = if kind == Kind::Modes { 4 } else { 0 };
    let breaks = if kind == Kind::Broken { 6 } else { 0 };
    let one = prop_oneof![
        24 => seat().prop_map(Move::Join),
        5 => seat().prop_map(Move::Pass),
        6 => seat().prop_map(Move::Renew),
        16 => (seat(), used(kind)).prop_map(|(seat, used)| Move::Release(seat, used)),
        odd => (seat(), 1..8_u32).prop_map(|(seat, cut)| Move::Again(seat, cut)),
        odd => (seat(), 1..8_u32).prop_map(|(seat, cut)| Move::Undo(seat, cut)),
        breaks => seat().prop_map(Move::Die),
        breaks => seat().prop_map(Move::Ask),
        breaks => seat().prop_map(Move::Take),
        4 => Just(Move::Look),
    ];
    proptest::collection::vec(one, 1..30)
}

/// Generates traces of this kind.
pub(super) fn plays(kind: Kind) -> impl Strategy<Value = Play> {
    let hold = proptest::collection::vec(if kind == Kind::Kept { 0.5 } else { 0.0 }.prop_bool(), SEATS);
    let once = if kind == Kind::Kept { 0.4 } else { 0.0 }.prop_bool();
    (modes(), hold, once, moves(kind)).prop_map(|(modes, hold, once, moves)| {
        let modes = if once { vec![Mode::Exclusive; SEATS] } else { modes };
        let hold = if once { vec![false; SEATS] } else { hold };
        Play { modes, hold, once, moves }
    })
}

/// A Boolean that is true with this probability.
trait Probably {
    fn prop_bool(self) -> proptest::bool::Weighted;
}

impl Probably for f64 {
    fn prop_bool(self) -> proptest::bool::Weighted {
        proptest::bool::weighted(self)
    }
}
