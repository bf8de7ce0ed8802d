//! Plays the matrix again and again, the least tried cells first.

use std::io;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use super::episode::Length;
use super::listed;
use super::matrix::{self, Cell};
use super::results::Results;
use super::{AT_ONCE, play};

/// Injects every fault that dlock claims to survive, and checks the invariants each time.
///
/// Exits with 1 if an invariant was violated. Ctrl-C ends it early.
#[derive(Parser)]
#[allow(clippy::struct_excessive_bools)]
#[command(name = "tests/run campaign", no_binary_name = true)]
struct Options {
    /// How long to go on; episodes that have begun are finished.
    #[arg(long, default_value_t = 20.0)]
    minutes: f64,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tries this service only (may be repeated): `redis`, or `redis-shared` and `redis-slots` where several hold the lock.
    #[arg(long, value_name = "NAME")]
    backend: Vec<String>,
    /// Tries this fault only (may be repeated); `--list` prints the names.
    #[arg(long, value_name = "NAME")]
    fault: Vec<String>,
    /// Plays one episode again: its fault, service and seed, as they were printed.
    #[arg(long, value_name = "FAULT:SERVICE:SEED")]
    replay: Option<String>,
    /// Lets intermittent faults (flapping) last ten minutes instead of ten seconds.
    #[arg(long)]
    at_length: bool,
    /// How many episodes to play at the same time.
    #[arg(long, default_value_t = AT_ONCE)]
    jobs: usize,
    /// Ends after the first violation.
    #[arg(long)]
    fail_fast: bool,
    /// The file in which to accumulate the results.
    #[arg(long, default_value = "target/campaign.jsonl")]
    results: PathBuf,
    /// Prints the tables of what was seen so far, and runs nothing.
    #[arg(long)]
    table: bool,
    /// Lists faults and services, and runs nothing.
    #[arg(long)]
    list: bool,
}

impl Options {
    fn length(&self) -> Length {
        if self.at_length { Length::Full } else { Length::Brief }
    }
}

/// What the jobs share.
struct Shared {
    results: Results,
    rng: fastrand::Rng,
    /// What was begun in this campaign, by cell: those that run count too.
    begun: Vec<u64>,
    failures: Vec<String>,
    episodes: u64,
}

/// Set when an early end was requested.
static ENOUGH: AtomicBool = AtomicBool::new(false);

/// Makes Ctrl-C end the campaign but not the episodes: those under way are finished, and no process is left.
///
/// A terminal signals its whole process group, with all servers and dlocks in it. So this program leaves that group to
/// its parent, cargo, and watches for the parent's end instead. It also has a new session, because when the parent
/// ends, the kernel would continue and hang up an orphaned group with a stopped process in it.
fn end_early_on_request() -> io::Result<()> {
    ctrlc::set_handler(|| ENOUGH.store(true, Ordering::Relaxed)).map_err(io::Error::other)?;
    let parent = parent_id();
    // SAFETY: system calls with integers.
    if unsafe { libc::setsid() < 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) < 0 } {
        return Err(io::Error::last_os_error());
    }
    // It may have ended before it could be watched.
    ENOUGH.fetch_or(parent_id() != parent, Ordering::Relaxed);
    Ok(())
}

/// Returns the exit code.
pub fn run() -> i32 {
    let options = match Options::try_parse_from(std::env::args().skip(2)) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    match try_run(&options) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("campaign: {why}");
            2
        }
    }
}

fn try_run(options: &Options) -> Result<i32, String> {
    if options.list {
        for fault in listed::FAULTS {
            let columns: Vec<String> = matrix::cells()
                .filter(|cell| std::ptr::eq(cell.fault, fault))
                .map(|cell| format!("{} ({:?})", cell.service(), cell.class))
                .collect();
            println!("{}: {}: {}", fault.name, fault.title, columns.join(", "));
        }
        return Ok(0);
    }
    let results = Results::read(&options.results).map_err(|error| format!("{}: {error}", options.results.display()))?;
    if options.table {
        print!("{}", results.tables());
        return Ok(0);
    }
    if let Some(replay) = &options.replay {
        return replay_one(replay, options.length());
    }
    let cells = chosen(options)?;
    let shared = Shared {
        begun: cells.iter().map(|cell| results.runs(*cell)).collect(),
        results,
        rng: fastrand::Rng::with_seed(options.seed),
        failures: Vec::new(),
        episodes: 0,
    };
    end_early_on_request().map_err(|error| format!("cannot leave the terminal: {error}"))?;
    let shared = Mutex::new(shared);
    let start = Instant::now();
    let length = Duration::try_from_secs_f64(options.minutes * 60.0).map_err(|error| error.to_string())?;
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                let goes_on = || !options.fail_fast || lock(&shared).failures.is_empty();
                while start.elapsed() < length && !ENOUGH.load(Ordering::Relaxed) && goes_on() {
                    one(&cells, &shared, options.length());
                }
            });
        }
    });
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\n{}", shared.results.tables());
    println!("This campaign: seed {}, {} episodes in {:.1?}.", options.seed, shared.episodes, start.elapsed());
    for failure in &shared.failures {
        println!("\n{failure}");
    }
    Ok(i32::from(!shared.failures.is_empty()))
}

/// The cells selected by the options.
fn chosen(options: &Options) -> Result<Vec<Cell>, String> {
    for name in &options.backend {
        if !matrix::cells().any(|cell| cell.service() == *name) {
            return Err(format!("there is no service {name}; see --list"));
        }
    }
    for name in &options.fault {
        if !listed::FAULTS.iter().any(|fault| fault.name == name) {
            return Err(format!("there is no fault {name}; see --list"));
        }
    }
    let wanted = |list: &[String], name: &str| list.is_empty() || list.iter().any(|wanted| wanted == name);
    let cells: Vec<Cell> = matrix::cells()
        .filter(|cell| wanted(&options.backend, &cell.service()) && wanted(&options.fault, cell.fault.name))
        .collect();
    if cells.is_empty() { Err("that fault is not tried on that service; see --list".to_owned()) } else { Ok(cells) }
}

/// Plays one episode of the cell that was tried least.
fn one(cells: &[Cell], shared: &Mutex<Shared>, length: Length) {
    let (index, seed) = {
        let mut shared = lock(shared);
        // In a column with room for one more service, so that nobody waits for one.
        let free: Vec<usize> = (0..cells.len()).filter(|&index| play::room(cells[index].column) > 0).collect();
        let candidates = if free.is_empty() { (0..cells.len()).collect() } else { free };
        let least = candidates.iter().map(|&index| shared.begun[index]).min().unwrap_or(0);
        let least: Vec<usize> = candidates.into_iter().filter(|&index| shared.begun[index] == least).collect();
        let index = shared.rng.choice(&least).copied().unwrap_or(0);
        shared.begun[index] += 1;
        (index, shared.rng.u64(..))
    };
    let cell = cells[index];
    let start = Instant::now();
    let report = play::play(cell, seed, length);
    let mut shared = lock(shared);
    shared.episodes += 1;
    let replay = format!("{}:{}:{seed}", cell.fault.name, cell.service());
    let (number, took) = (shared.episodes, start.elapsed());
    if let Some(why) = report.void() {
        println!("{number:>5} {replay} {took:.1?} void ({why})\n{}", play::shown(&report));
        shared.begun[index] -= 1;
    } else if report.violations.is_empty() {
        println!("{number:>5} {replay} {took:.1?}");
    } else {
        println!("{number:>5} {replay} {took:.1?} VIOLATED");
        let failure = format!("{replay}\n{}", play::shown(&report));
        println!("{failure}");
        shared.failures.push(failure);
    }
    if let Err(error) = shared.results.add(cell, &report) {
        shared.failures.push(format!("cannot write the results: {error}"));
    }
}

fn replay_one(replay: &str, length: Length) -> Result<i32, String> {
    let parts: Vec<&str> = replay.split(':').collect();
    let [fault, column, seed] = parts[..] else { return Err("--replay wants FAULT:SERVICE:SEED".to_owned()) };
    let cell = matrix::cells().find(|cell| cell.fault.name == fault && cell.service() == column);
    let cell = cell.ok_or("there is no such cell; see --list")?;
    let seed = seed.parse().map_err(|_| "the seed is a number")?;
    let report = play::play(cell, seed, length);
    println!("{report:#?}");
    Ok(i32::from(!report.violations.is_empty()))
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
