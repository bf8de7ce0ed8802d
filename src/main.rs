/*!
`dlock`: `flock(1)` for clusters.

Reads the command line, runs the subcommand, and turns its outcome into an exit.

# Where things are

* `cli` defines the options, and `settings` makes values of them and of config files, each with its origin. `exit` has
  the exit codes.
* `command` has a file or folder for each subcommand. Only its `run` and `keeping` know both locks and processes.
* `backend` has a folder for each lock service. `registry` lists them, and `net` connects to their servers. Nothing
  outside a backend's folder knows it by name. `lock` is the rule by which all of them decide whose turn it is.
* `lease` decides when to ask a backend: to take a lock, to keep it, to give it back. It knows nothing of processes.
* `meeting` decides the same for latches and barriers.
* `supervise` starts, watches and stops the command: the guard, its listener, signals, `/proc`. It knows nothing of locks.
* `report` writes everything that goes to standard error: events as data, each with how loud it is and its sentence.
  Its `journal` writes what happens to a run as JSON lines (`--events`).
* Only `output` writes to standard output: locks as `report/picture` draws them, or JSON documents from `schema`.
* Leaves, which use no module but each other: `clock`, `handle` (of a lock without a process), `here` (this host's
  processes), `holder` (what holders publish), `key`, `printable`, `readable`, `variables`.

# The life of `dlock run`

`command/run/setup` forks the guard before anything else. `lease/taking` takes the lock, or waits for it. The guard
starts the command; `lease/keeper` renews the lease until the command has ended, and `command/run/hold` waits for the
first of its end, a loss, a time-out and a signal. When the lock cannot be kept, the guard stops the command before
the lease can end. It got the deadline with the last renewal, and needs no dlock for that. The remaining processes are
stopped, the lock is released, and `command/run/ending` decides how dlock exits.
*/

// On glibc, `main` is dlock's own: Rust's start looks up the stack in `/proc/self/maps` and makes one for a handler.
#![cfg_attr(all(target_env = "gnu", not(test)), no_main)]

mod backend;
mod cli;
mod clock;
mod command;
mod exit;
mod handle;
mod here;
mod holder;
mod key;
mod lease;
mod lock;
mod meeting;
mod output;
mod printable;
#[cfg(test)]
mod property;
mod readable;
mod report;
mod schema;
mod settings;
mod supervise;
// The servers of the integration tests, for the tests of the lock services.
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    clippy::needless_pass_by_value,
    clippy::disallowed_methods,
    clippy::unchecked_time_subtraction,
    missing_docs,
    unreachable_pub,
    reason = "as in tests/main.rs"
)]
#[path = "../tests/support/mod.rs"]
mod support;
mod variables;

use clap::FromArgMatches;

use backend::url::password_in;
use cli::GenerateArgs;
use exit::{Exit, Failure};
use report::event::Event;

// musl's allocator maps and unmaps single pages, which is a tenth of a run's system calls.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

#[cfg(not(target_env = "gnu"))]
fn main() -> std::process::ExitCode {
    start().into()
}

#[cfg(all(target_env = "gnu", not(test)))]
#[allow(clippy::exit)]
#[unsafe(no_mangle)]
extern "C" fn main() -> std::ffi::c_int {
    supervise::surroundings::settle();
    std::process::exit(i32::from(start().code()))
}

#[cfg_attr(all(target_env = "gnu", test), allow(dead_code))]
fn start() -> Exit {
    std::panic::set_hook(Box::new(die_of_a_bug));
    supervise::surroundings::with_stack(act)
}

fn act() -> Exit {
    let done = cli::flock::words().map_or_else(dispatch, command::flock::flock);
    let outcome = done.unwrap_or_else(|failure| {
        if let Some(event) = failure.message() {
            report::say(event);
        }
        failure.exit
    });
    cli::fail_in_shell(outcome);
    if let Exit::Signal(signal) = outcome {
        supervise::signals::die_by(signal);
    }
    outcome
}

fn dispatch() -> Result<Exit, Failure> {
    if let Some(run) = cli::plain_run() {
        hide_passwords();
        return Ok(command::run::run(&settings::RunSettings::plain(run)?));
    }
    if let Some(version) = cli::plain_version() {
        output::print(version.as_bytes())?;
        return Ok(Exit::Success);
    }
    let matches = match cli::read() {
        Ok(matches) => matches,
        Err(error) => {
            let mut words = std::env::args_os().skip(1);
            let is_look = words.next().is_some_and(|word| ["status", "list", "latch"].iter().any(|look| word == *look));
            return documented(is_look && words.any(|word| word == "--json"), || cli::explain(&error));
        }
    };
    hide_passwords();
    let json = || matches.subcommand().is_some_and(|(_, matches)| matches.get_flag("json"));
    let Some((subcommand, matches)) = matches.subcommand() else {
        return Err(misunderstood(&"the command line was not understood"));
    };
    match subcommand {
        "run" => Ok(command::run::run(&settings::RunSettings::read(matches)?)),
        "status" => documented(json(), || command::status::status(&settings::StatusSettings::read(matches)?)),
        "list" => documented(json(), || command::list::list(&settings::ListSettings::read(matches)?)),
        "held" => command::held::held(&settings::HeldSettings::read(matches)?),
        "break" => command::breaking::break_lock(&settings::BreakSettings::read(matches)?),
        "acquire" => Ok(command::acquire::acquire(&settings::AcquireSettings::read(matches)?)),
        "renew" => command::renew::renew(&settings::HandleSettings::of_renewal(matches)?),
        "release" => command::release::release(&settings::HandleSettings::read(matches)?),
        "latch" => documented(json(), || Ok(command::latch::latch(&settings::LatchSettings::read(matches)?))),
        "barrier" => Ok(command::barrier::barrier(&settings::BarrierSettings::read(matches)?)),
        "check" => Ok(command::check::check(&settings::CheckSettings::read(matches)?)),
        "config" => command::config::config(matches),
        "generate" => {
            let args = GenerateArgs::from_arg_matches(matches).map_err(|error| misunderstood(&error))?;
            let is_flag = matches.value_source("backend") == Some(clap::parser::ValueSource::CommandLine);
            command::generate::generate(&args, is_flag)
        }
        "help" => {
            let word = |name| matches.get_one::<String>(name).map(String::as_str);
            cli::help(word("name"), word("action"))
        }
        // This includes flock, whose command line is not for the parser.
        unknown => Err(misunderstood(&format!("{unknown} is no subcommand"))),
    }
}

/// Returns the result of `work`, and prints its failure as a JSON document too if one is wanted.
fn documented(json: bool, work: impl FnOnce() -> Result<Exit, Failure>) -> Result<Exit, Failure> {
    let done = work();
    if let Err(Failure { exit, event: Some(event), .. }) = &done
        && json
        && output::is_at_start()
    {
        // If this cannot be printed either, that is no news.
        let _ = output::print(schema::trouble(&report::sentence(event), exit.code()).as_bytes());
    }
    done
}

/// Hides passwords in URLs from process lists, also where a later URL counts.
fn hide_passwords() {
    for word in std::env::args_os().take_while(|word| word != "--") {
        if let Some(password) = word.to_str().and_then(password_in) {
            supervise::surroundings::hide_in_arguments(password);
        }
    }
}

fn misunderstood(reason: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Internal, Event::Settings(reason.to_string()))
}

/// Ends the process after a panic, so that no task of dlock goes on. The guard then stops the command.
#[allow(clippy::exit)]
fn die_of_a_bug(panic: &std::panic::PanicHookInfo<'_>) {
    report::say_bug(&Event::Bug(panic.to_string()), Exit::Internal.code());
    cli::fail_in_shell(Exit::Internal);
    std::process::exit(i32::from(Exit::Internal.code()));
}
