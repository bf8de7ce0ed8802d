//! Plays one episode after the other, on services that are reused as long as they work.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError, RwLock};

use super::episode::{Episode, Invariant, Length, Report};
use super::matrix::{Cell, Class, Needs};
use super::stall;
use super::world::{Column, World};
use crate::support::rendezvous::boottime;

/// How many episodes a service is used for.
const USES: u32 = 16;

/// Idle services, with the number of uses of each, and the number of services in use.
#[derive(Default)]
struct Pool {
    idle: HashMap<Column, Vec<(World, u32)>>,
    in_use: HashMap<Column, usize>,
}

static POOL: LazyLock<(Mutex<Pool>, Condvar)> = LazyLock::new(Default::default);

/// Held by all episodes together, or by a single heavy one.
static MACHINE: RwLock<()> = RwLock::new(());

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// How many services of a column may exist at the same time: some keep a machine busy by running.
pub fn limit(column: Column) -> usize {
    match column {
        Column::Redis | Column::Postgres | Column::Mysql => 5,
        Column::File | Column::Redlock | Column::Etcd | Column::ZooKeeper => 4,
        Column::Sentinel | Column::Redlock3 => 2,
    }
}

/// Remembers why a thread panicked, for [`play`] to report.
pub fn note_panics() {
    panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = format!("{message} ({place})");
        LAST_PANIC.with(|last| {
            // The first panic is the cause.
            last.borrow_mut().get_or_insert(text);
        });
    }));
}

/// Plays one episode of a cell in which all choices follow from `seed`.
pub fn play(cell: Cell, seed: u64, length: Length) -> Report {
    play_beside(cell, seed, length, matches!(cell.fault.needs, Needs::Machine | Needs::Minutes))
}

/// Plays an episode as [`play`] does, while no other one is played.
pub fn play_alone(cell: Cell, seed: u64, length: Length) -> Report {
    play_beside(cell, seed, length, true)
}

fn play_beside(cell: Cell, seed: u64, length: Length, heavy: bool) -> Report {
    let (_together, _alone);
    if heavy {
        _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    } else {
        _together = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    }
    let mut hasher = DefaultHasher::new();
    (seed, cell.fault.name, cell.service()).hash(&mut hasher);
    let rng = fastrand::Rng::with_seed(hasher.finish());
    LAST_PANIC.take();
    let start = boottime();
    let mut taken = None;
    let played = panic::catch_unwind(AssertUnwindSafe(|| {
        let (world, uses) = take(cell.column, cell.fault.needs);
        let world = &taken.insert((world, uses)).0;
        let mut episode = Episode::new(world, rng, cell.held, cell.class == Class::Documented);
        episode.length = length;
        let fault = panic::catch_unwind(AssertUnwindSafe(|| {
            (cell.fault.run)(&mut episode);
            episode.finish();
        }));
        if fault.is_err() {
            let why = LAST_PANIC.take().unwrap_or_default();
            episode.violation(Invariant::Harness, why);
        }
        let mut report = episode.into_report();
        if !report.violations.is_empty() {
            report.logs = world.logs();
        }
        report
    }));
    let mut report = played.unwrap_or_else(|_| {
        let why = LAST_PANIC.take().unwrap_or_default();
        let hindered = Some("the servers could not be started");
        Report { violations: vec![(Invariant::Harness, why)], hindered, ..Report::default() }
    });
    report.stall = stall::worst_since(start);
    report.busy = stall::busiest_since(start);
    if heavy {
        // The kernel clears away what it leaves, which takes time; and servers that wait for the disk with each write would
        // not answer while it is busy with what this crowd wrote.
        stall::wait_calm();
        nix::unistd::sync();
    }
    give_back(cell.column, taken.filter(|(_, uses)| report.violations.is_empty() && *uses < USES));
    report
}

/// Waits until there may be one more service of this column; returns it and how often it was used, this time included.
/// A fault with special needs gets one that is not used again.
fn take(column: Column, needs: Needs) -> (World, u32) {
    let mut pool = POOL.0.lock().unwrap_or_else(PoisonError::into_inner);
    while pool.in_use.get(&column).copied().unwrap_or(0) >= limit(column) {
        pool = POOL.1.wait(pool).unwrap_or_else(PoisonError::into_inner);
    }
    *pool.in_use.entry(column).or_default() += 1;
    let idle =
        if matches!(needs, Needs::Clocks | Needs::Islands) { None } else { pool.idle.entry(column).or_default().pop() };
    drop(pool);
    match (needs, idle) {
        (Needs::Clocks, _) => (World::with_clocks(column), USES),
        (Needs::Islands, _) => (World::on_islands(column), USES),
        (Needs::Own, idle) => (idle.map_or_else(|| World::fresh(column), |(world, _)| world), USES),
        (_, Some((world, uses))) => (world, uses + 1),
        (_, None) => (World::fresh(column), 1),
    }
}

fn give_back(column: Column, world: Option<(World, u32)>) {
    let mut pool = POOL.0.lock().unwrap_or_else(PoisonError::into_inner);
    pool.idle.entry(column).or_default().extend(world);
    *pool.in_use.entry(column).or_default() -= 1;
    POOL.1.notify_all();
}

/// How many more services of this column may be in use.
pub fn room(column: Column) -> usize {
    let pool = POOL.0.lock().unwrap_or_else(PoisonError::into_inner);
    limit(column).saturating_sub(pool.in_use.get(&column).copied().unwrap_or(0))
}

/// Ends all idle services.
pub fn close() {
    let idle = std::mem::take(&mut POOL.0.lock().unwrap_or_else(PoisonError::into_inner).idle);
    drop(idle);
}

/// What an episode has violated, and how busy the machine was, as text.
pub fn shown(report: &Report) -> String {
    let mut text = String::new();
    for (invariant, what) in &report.violations {
        let _ = writeln!(text, "{invariant:?}: {what}");
    }
    let (stall, busy) = (report.stall, report.busy);
    let _ = writeln!(text, "the machine stood still for {stall:.0?}, and programs waited for {busy:.0?}");
    text + &report.logs
}
