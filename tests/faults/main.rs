/*!
The matrix of faults: the campaign injects every fault that dlock claims to survive, on real servers, and checks the
invariants each time. See `README.md` in this folder.

Without arguments this is an ordinary test program: nearly every cell of a lock that is held alone is a test, and some of
locks that several hold. As `campaign …` (see `tests/run campaign --help`) it goes on for a given time with new random choices,
and accumulates what it has seen.
*/

// A test says what it expects by unwrapping it, and its name says what it proves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::print_stdout)]
#![allow(clippy::must_use_candidate, clippy::return_self_not_must_use, clippy::needless_pass_by_value)]
#![allow(clippy::exit, missing_docs, unreachable_pub)]
// ZooKeeper is a name and not code.
#![allow(clippy::doc_markdown)]
#![allow(
    clippy::disallowed_methods,
    reason = "only dlock has to count time as leases do; tests measure it by other clocks"
)]
// A time that is earlier than it can be is a failure, and a panic says so.
#![allow(clippy::unchecked_time_subtraction)]

#[path = "../support/mod.rs"]
mod support;

mod campaign;
mod episode;
mod faults;
mod held;
mod islands;
mod listed;
mod matrix;
mod net;
mod play;
mod quick;
mod results;
mod stall;
mod store;
mod world;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};

use episode::Length;
use held::Held;
use matrix::{Cell, Needs};
use support::rendezvous::boottime;
use world::Column;

/// How many episodes run at the same time by default: they mostly wait.
const AT_ONCE: usize = 11;

fn main() {
    if let Err(error) = net::enter() {
        eprintln!("cannot make a network of our own: {error}");
        std::process::exit(1);
    }
    play::note_panics();
    stall::watch();
    let code = if std::env::args().nth(1).as_deref() == Some("campaign") { campaign::run() } else { test() };
    play::close();
    std::process::exit(code);
}

/// The faults that hit processes and what they run, whatever keeps the lock: tested on lock files, and on one service that tells a
/// loss at the next renewal and one that tells it at once.
const OF_SUPERVISION: &[&str] = &[
    "guard-frozen",
    "command-killed",
    "command-stubborn",
    "command-ended",
    "group-hit",
    "covered-run",
    "nested-1000",
    "inherited-variables",
    "unseen",
    "group-signal",
    "terminal-closed",
    "broken-pipe",
];

/// Whether only the campaign plays this cell: it takes minutes, or the whole machine for half a minute where tests in tests/
/// prove the same with less (`storms`, and a hundred contenders in `contract`), or no service makes a difference to it.
fn is_for_the_campaign(cell: &Cell) -> bool {
    let name = cell.fault.name;
    if OF_SUPERVISION.contains(&name) && !matches!(cell.column, Column::File | Column::Redis | Column::Etcd) {
        return true;
    }
    match name {
        "fork-storm" | "cpu-quota" | "contenders-500" => true,
        "keys-500" | "two-at-once" => cell.column != Column::Redis,
        _ => cell.fault.needs == Needs::Minutes,
    }
}

/// The faults that are also tested on locks that several hold; the others are cells of the campaign there.
const TESTED_TOGETHER: &[&str] = &["one-of-several", "queue-churn"];

/// How long each cell took.
static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Prints the slowest cells in the form in which libtest prints the time of a test.
fn tell_the_slowest() {
    let mut times = std::mem::take(&mut *TIMES.lock().unwrap_or_else(PoisonError::into_inner));
    times.sort_unstable();
    for (time, name) in times.iter().rev().take(20) {
        println!("took {name} <{:.3}s>", time.as_secs_f64());
    }
}

/// The arguments that `cargo test` passes to every test program.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    arguments: Arguments,
    /// The second and further filters, which libtest takes and libtest-mimic does not.
    more_filters: Vec<String>,
}

impl Options {
    /// Whether one of the filters selects `trial`.
    fn leaves(&self, trial: &Trial) -> bool {
        let filters = self.arguments.filter.iter().chain(&self.more_filters);
        filters
            .cloned()
            .any(|filter| !Arguments { filter: Some(filter), ..self.arguments.clone() }.is_filtered_out(trial))
    }
}

/// Runs every cell once, as a test, but for those that only the campaign plays.
fn test() -> i32 {
    let mut options = Options::parse();
    let is_tested = |cell: &Cell| cell.held == Held::Alone || TESTED_TOGETHER.contains(&cell.fault.name);
    let brief = matrix::cells().filter(|cell| is_tested(cell) && !is_for_the_campaign(cell));
    let trials = brief.map(|cell| {
        let name = format!("{}::{}", cell.service(), cell.fault.name);
        Trial::test(name.clone(), move || {
            let begun = boottime();
            let mut report = play::play(cell, 1, Length::Brief);
            // An episode that says nothing, because the machine stood still or was too busy, is repeated without others beside it.
            for seed in 2..=4 {
                if report.void().is_some() {
                    report = play::play_alone(cell, seed, Length::Brief);
                }
            }
            TIMES.lock().unwrap_or_else(PoisonError::into_inner).push((boottime() - begun, name));
            if report.violations.is_empty() {
                return Ok(());
            }
            Err(Failed::from(play::shown(&report)))
        })
    });
    let published =
        Trial::test("readme::shows_the_published_results", || results::check_readme().map_err(Failed::from));
    let islands = Trial::test("islands::are_cut_as_told_and_leave_nothing", || islands::check().map_err(Failed::from));
    let mut trials: Vec<Trial> = trials.chain([published, islands]).collect();
    // The cells of one fault are alike: those that take much of the machine must not all run at the same time.
    trials.sort_by_cached_key(|trial| {
        let mut hasher = DefaultHasher::new();
        trial.name().hash(&mut hasher);
        hasher.finish()
    });
    if !options.more_filters.is_empty() {
        trials.retain(|trial| options.leaves(trial));
        options.arguments.filter = None;
    }
    options.arguments.test_threads.get_or_insert(AT_ONCE);
    let conclusion = libtest_mimic::run(&options.arguments, trials);
    tell_the_slowest();
    i32::from(conclusion.has_failed()) * 101
}
