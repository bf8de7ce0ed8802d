/*!
The command line. Help, man pages and completions are all made from these definitions.
*/

mod breaking;
mod brief;
mod check;
mod config;
pub(crate) mod defaults;
mod duration;
pub(crate) mod flock;
mod handle;
mod held;
mod meeting;
mod mistake;
mod options;
pub(crate) mod plain;

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, Resettable, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use self::breaking::BREAK_ABOUT;
pub(crate) use self::breaking::BreakArgs;
use self::check::CHECK_ABOUT;
pub(crate) use self::check::CheckArgs;
use self::config::CONFIG_ABOUT;
pub(crate) use self::config::ConfigArgs;
use self::duration::positive;
use self::flock::{FLOCK_ABOUT, FLOCK_EXAMPLES, FlockArgs};
use self::handle::{ACQUIRE_ABOUT, ACQUIRE_EXAMPLES, RELEASE_ABOUT, RENEW_ABOUT};
pub(crate) use self::handle::{AcquireArgs, HandleArgs, fail_in_shell};
pub(crate) use self::held::HeldArgs;
use self::held::{HELD_ABOUT, HELD_EXAMPLES};
use self::meeting::{BARRIER_ABOUT, LATCH_ABOUT};
pub(crate) use self::meeting::{BarrierArgs, LatchAction, LatchArgs, Waits};
use self::mistake::{Mistake, is_of_a_variable, mistake};
use self::options::{CONNECTION, between, connects};
pub(crate) use self::options::{
    Connects, Durability, EXCLUSIONS, Leftovers, OnLost, Place, Reach, RunOptions, Showing, Zone, is_on,
};
pub(crate) use self::plain::{PlainRun, plain_run, plain_version};
use crate::backend::registry::{Meetings, help as help_of, setups};
use crate::backend::url::without_password;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::report::event::Event;

/// The long description of `dlock run`.
const RUN_ABOUT: &str = "\
Takes the lock KEY from the backend, runs COMMAND while it keeps the lock alive, and releases the lock when COMMAND has ended. \
Signals are passed on, and the exit code is that of COMMAND.

The command never outlives its lease. When the lock cannot be kept (the server dies or goes silent, the network drops packets, \
dlock is frozen or killed), COMMAND and everything it started get SIGTERM, and are killed before the server can give the lock to \
another holder. dlock then exits with 79. On file: there is no lease: COMMAND holds the locked file itself, so the lock lives as \
long as COMMAND.

Each --key adds a lock. Any other option may be repeated, and the last one counts; so does the last of -n and -w, of -q and -v, \
and of -x, -s and --slots.";

/// The long description of `dlock status`.
const STATUS_ABOUT: &str = "\
Shows who holds the lock KEY, since when and for how much longer, and who waits for it. This takes no lock, joins no queue and \
extends no lease; the right to read is enough. For a week, it also shows what dlock break has done to the lock.

The exit code is 0 if the lock is free, and 75 if it is not. With --done-within, it is 0 or 75 by the last success instead: \
that is known of runs with --once-per, for 30 days or two of their periods, whichever is longer. With file: in a container, the \
kernel hides the locks of processes outside it: if the lock file names such a holder, the exit code is 69.";

/// The long description of `dlock list`.
const LIST_ABOUT: &str = "\
Shows every lock in the namespace that is held or blocked, sorted by name, with its holder and the number of its waiters. This \
takes no lock, joins no queue and extends no lease; the right to read is enough. The exit code is 0, whatever is found. With --json, \
the document also names the latches and barriers that are in use (latches, barriers).";

/// flock(1) for clusters: run a command under a lock.
#[derive(Debug, Parser)]
#[command(
    name = "dlock",
    version,
    propagate_version = true,
    about = "flock(1) for clusters: run a command under a lock, and stop it before the lock can pass to someone else",
    after_help = "Help for a command: dlock COMMAND -h (short), dlock help COMMAND (all of it)\nConfig files: dlock help config",
    disable_help_subcommand = true,
    args_override_self = true,
    arg_required_else_help = false
)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The end of the help of `dlock run`.
const RUN_EXAMPLES: &str = "\
Examples:
  dlock run -k backup -- ./backup.sh
  dlock run -b redis://locks/ -k job -n -E 0 -q -- ./job.sh
  dlock run -b redis://locks/ -k tests --slots 3 -c 'make DB=test_$DLOCK_SLOT'

Exit codes: COMMAND's own (if a signal ended it, dlock ends by the same signal), or
  75  the lock was not acquired (-E changes this number)
  79  the lock was lost, and COMMAND was stopped
  69  the backend is unreachable, or too slow
  77  the backend refused the credentials, or they lack a right
  64  wrong usage
  78  a config file is wrong, or others could have written it

All exit codes, the variables of COMMAND and more examples: man dlock-run
Config files: dlock help config";

/// The subcommands of dlock.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold a lock while a command runs
    #[command(long_about = RUN_ABOUT, after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Replace flock(1), with the locks on a server if a backend is configured
    #[command(long_about = FLOCK_ABOUT, after_help = FLOCK_EXAMPLES)]
    Flock(FlockArgs),
    /// Show who holds a lock, and who waits for it
    #[command(long_about = STATUS_ABOUT)]
    Status(Box<StatusArgs>),
    /// Show every lock that is held in the namespace
    #[command(long_about = LIST_ABOUT)]
    List(Box<ListArgs>),
    /// Test whether this process runs inside a dlock run that holds a lock
    #[command(long_about = HELD_ABOUT, after_help = HELD_EXAMPLES)]
    Held(Box<HeldArgs>),
    /// Ask the holder of a lock to stop and release it; with --now take the lock away
    #[command(long_about = BREAK_ABOUT)]
    Break(Box<BreakArgs>),
    /// Take a lock that outlives this process, and print its handle
    #[command(long_about = ACQUIRE_ABOUT, after_help = ACQUIRE_EXAMPLES)]
    Acquire(Box<AcquireArgs>),
    /// Extend a lock by its handle
    #[command(long_about = RENEW_ABOUT)]
    Renew(Box<HandleArgs>),
    /// Give a lock back by its handle
    #[command(long_about = RELEASE_ABOUT)]
    Release(Box<HandleArgs>),
    /// Wait until enough jobs are done, in any order
    #[command(long_about = LATCH_ABOUT)]
    Latch(Box<LatchArgs>),
    /// Wait until enough processes are there at the same time
    #[command(long_about = BARRIER_ABOUT, mut_arg("backend", |backend| backend.help(help_of(Meetings::Both))))]
    Barrier(Box<BarrierArgs>),
    /// Test whether locks at a backend work, how fast it answers, and what could make them unsafe
    #[command(long_about = CHECK_ABOUT)]
    Check(Box<CheckArgs>),
    /// Show the effective settings, and where each comes from
    #[command(long_about = CONFIG_ABOUT)]
    Config(Box<ConfigArgs>),
    /// Print the man page, a completion script, or the SQL that creates the tables
    Generate(GenerateArgs),
    /// Print the help of dlock or of a subcommand
    #[command(hide = true)]
    Help {
        /// The subcommand
        name: Option<String>,
        /// An action of it, which has no help of its own
        #[arg(hide = true)]
        action: Option<String>,
    },
}

/// `dlock generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// What to print
    #[arg(value_parser = generated())]
    pub what: Generated,
    /// With man: the page of this subcommand, json for dlock-json(7), or config.5 for dlock-config(5)
    #[arg(value_name = "SUBCOMMAND")]
    pub page: Option<String>,
    /// With postgres or mysql: the URL of the locks, for the names of their table and their user
    // Not parsed here, because an error message of the parser would repeat a password.
    #[arg(short, long, value_name = "URL", env = "DLOCK_BACKEND", hide_env_values = true)]
    pub backend: Option<OsString>,
}

/// A text that `dlock generate` prints.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Generated {
    /// The man page.
    Man,
    /// Completions for this shell.
    Completions(Shell),
    /// Statements that an administrator may have to run for a backend: its name, and the function that makes the text.
    Setup(&'static str, fn() -> String),
}

/// Returns the parser for the name of a text that can be generated.
fn generated() -> impl TypedValueParser<Value = Generated> {
    let fixed = [
        ("man", "The man page", Generated::Man),
        ("bash", "Completions for bash", Generated::Completions(Shell::Bash)),
        ("zsh", "Completions for zsh", Generated::Completions(Shell::Zsh)),
        ("fish", "Completions for fish", Generated::Completions(Shell::Fish)),
    ];
    let setups = setups()
        .map(|(name, setup)| (name, "The statements that make the tables there", Generated::Setup(name, setup)));
    let all: Vec<(&'static str, &'static str, Generated)> = fixed.into_iter().chain(setups).collect();
    let names: Vec<PossibleValue> = all.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help)).collect();
    PossibleValuesParser::new(names).map(move |text| {
        // The parser accepts no other name.
        all.iter().find(|(name, ..)| *name == text).map_or(Generated::Man, |(.., generated)| *generated)
    })
}

/// `dlock run`.
#[derive(Debug, Default, Args)]
#[command(
    override_usage = "dlock run --key <KEY> [OPTIONS] [--] <COMMAND> [ARG]...\n       dlock run --key <KEY> [OPTIONS] -c <STRING>\n       dlock run --handle <HANDLE> [OPTIONS] [--] <COMMAND> [ARG]..."
)]
pub(crate) struct RunArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters. Repeat it to hold up to 16 locks at once, all or
    /// none; every dlock takes them in the same order, so that runs cannot deadlock
    #[arg(short, long, value_name = "KEY", required_unless_present = "handle", action = ArgAction::Append)]
    pub key: Vec<OsString>,

    /// Run under a lock that dlock acquire has taken, instead of taking one. The lock is renewed while the command runs, and stays
    /// held afterwards. If it is no longer held, exit with 79 without running the command. Runs under one handle do not exclude
    /// each other. Excludes the options that say which lock to take, and how
    #[arg(long, value_name = "HANDLE", env = "DLOCK_HANDLE", hide_env_values = true)]
    pub handle: Option<OsString>,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten)]
    pub run: RunOptions,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

/// `dlock status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters
    #[arg(short, long, value_name = "KEY", required = true)]
    pub key: Vec<OsString>,

    /// Exit with 0 if a run of this lock with --once-per has succeeded within this time, else with 75, and say when the last one
    /// did
    #[arg(long, value_name = "DURATION", value_parser = positive, conflicts_with = "watch", allow_hyphen_values = true)]
    pub done_within: Option<Duration>,

    #[command(flatten)]
    pub showing: Showing,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,
}

/// Maximum number of locks to ask for, which is far more than there are anywhere.
const MOST_LOCKS: usize = 1_000_000_000;

/// Reads the number of locks to show.
fn limit(text: &str) -> Result<usize, String> {
    between(text, &(0..=MOST_LOCKS))
}

/// `dlock list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show only locks whose names begin with PREFIX
    #[arg(value_name = "PREFIX")]
    pub prefix: Option<String>,

    /// Show at most N locks, the first by name; 0 for all
    #[arg(long, value_name = "N", default_value = "1000", value_parser = limit, allow_hyphen_values = true)]
    pub limit: Option<usize>,

    #[command(flatten)]
    pub showing: Showing,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,
}

connects!(waiting at run.waiting, RunArgs);

connects!(StatusArgs, ListArgs);

/// Treats an empty variable of a subcommand as unset, as shells and CI systems do. Only the namespace and the handle of
/// a lock that is renewed or released may be empty.
fn unset_empty_variables(subcommand: clap::Command) -> clap::Command {
    let is_empty = |arg: &clap::Arg| {
        // An empty handle is that of a lock that was not acquired.
        let may_be_empty = arg.get_id() == "namespace" || arg.is_positional();
        let variable = arg.get_env().filter(|_| !may_be_empty);
        variable.and_then(std::env::var_os).is_some_and(|value| value.is_empty())
    };
    subcommand.mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg })
}

/// Returns the parser with all subcommands.
#[must_use]
pub(crate) fn parser() -> clap::Command {
    Cli::command()
}

/// Reads the command line and the variables. `dlock run` is started often, and making all other subcommands takes
/// longer than the rest of its start: they are made only if there is a help or an error to print.
pub(crate) fn read() -> Result<clap::ArgMatches, clap::Error> {
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "run")
        && let Ok(matches) = read_run(&words)
    {
        return Ok(matches);
    }
    Cli::command().mut_subcommands(unset_empty_variables).try_get_matches_from(words)
}

/// Reads the `words` of a `dlock run`, and the variables.
pub(crate) fn read_run(words: &[OsString]) -> Result<clap::ArgMatches, clap::Error> {
    let run = RunArgs::augment_args(clap::Command::new("run"));
    only_run(unset_empty_variables(run)).try_get_matches_from(words)
}

/// Returns the parser with `run` as the only subcommand.
fn only_run(run: clap::Command) -> clap::Command {
    clap::Command::new("dlock").args_override_self(true).subcommand(run)
}

/// Returns the options that `dlock config` shows: those of `dlock run`, and all others that can be set.
pub(crate) fn shown() -> clap::Command {
    let run = RunArgs::augment_args(clap::Command::new("config").args_override_self(true));
    let is_other = |option: &clap::Arg| run.get_arguments().all(|known| known.get_long() != option.get_long());
    let others: Vec<clap::Arg> = settable().into_iter().filter(is_other).collect();
    let json = clap::Arg::new("json").long("json").action(ArgAction::SetTrue);
    let key = |key: clap::Arg| key.required_unless_present(Resettable::Reset);
    run.args(others).arg(json).mut_arg("key", key)
}

/// Reads the accepted command line of `dlock config` or `dlock check`, with the variables of all options [`shown`].
pub(crate) fn read_shown() -> Result<clap::ArgMatches, Failure> {
    let words: Vec<OsString> = std::env::args_os().collect();
    unset_empty_variables(shown()).try_get_matches_from(&words[1..]).map_err(|error| misunderstood(&error, &words))
}

/// Returns the parser without the variables.
fn without_variables() -> clap::Command {
    Cli::command().mut_subcommands(|subcommand| subcommand.mut_args(|arg| arg.env(Resettable::Reset)))
}

/// Returns the options of all subcommands that may have a value from elsewhere, each once, in the order of the help;
/// those of `dlock run` come first.
#[must_use]
pub(crate) fn settable() -> Vec<clap::Arg> {
    let mut options: Vec<clap::Arg> = Vec::new();
    for option in Cli::command().get_subcommands().flat_map(clap::Command::get_arguments) {
        if defaults::is_allowed(option) && options.iter().all(|other| other.get_long() != option.get_long()) {
            options.push(option.clone());
        }
    }
    options
}

/// Prints the help of dlock, or that of the subcommand `name`, which covers its `action`.
pub(crate) fn help(name: Option<&str>, action: Option<&str>) -> Result<Exit, Failure> {
    let mut cli = Cli::command();
    cli.build();
    let help = match name {
        None => cli.render_help(),
        Some(name) => {
            let missing = |name: String| Failure::new(Exit::Usage, Event::NoSuchPage(name));
            let command = cli.find_subcommand_mut(name).ok_or_else(|| missing(name.to_owned()))?;
            let actions: Vec<_> = command.get_positionals().flat_map(Arg::get_possible_values).collect();
            let is_known = |action: &str| actions.iter().any(|known| known.matches(action, false));
            if let Some(action) = action.filter(|action| !is_known(action)) {
                return Err(missing(format!("{name} {action}")));
            }
            command.render_long_help()
        }
    };
    output::print(help.to_string().as_bytes())?;
    Ok(Exit::Success)
}

/// Turns an error of the parser into output and an exit: help and version are printed, everything else is one line on
/// standard error.
pub(crate) fn explain(error: &clap::Error) -> Result<Exit, Failure> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let text = match error.kind() {
        ErrorKind::DisplayVersion => parser().render_version(),
        ErrorKind::DisplayHelp => brief::help(&parser(), &words).unwrap_or_else(|| error.render().to_string()),
        _ => return Err(misunderstood(error, &words)),
    };
    output::print(text.as_bytes())?;
    Ok(Exit::Success)
}

/// Returns the failure for an error of the parser in `words`: one line on standard error.
pub(crate) fn misunderstood(error: &clap::Error, words: &[OsString]) -> Failure {
    let is_variable = is_of_a_variable(error, without_variables(), words);
    let Mistake { text, help } = mistake(error, &Cli::command(), words, is_variable);
    // A URL in the wrong place is repeated here, and may hold a password.
    Failure::new(Exit::Usage, Event::CommandLine { mistake: without_password(&text), help })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::variables::OF_OPTIONS;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_variables_of_all_options_are_known() {
        let cli = Cli::command();
        let options = cli.get_subcommands().flat_map(clap::Command::get_arguments);
        let variables: BTreeSet<&str> = options.filter_map(|option| option.get_env()?.to_str()).collect();
        assert_eq!(variables.into_iter().collect::<Vec<_>>(), OF_OPTIONS);
    }

    #[test]
    fn every_option_that_says_how_has_its_variable() {
        let cli = Cli::command();
        let uses_locks = |command: &&clap::Command| ["run", "latch", "barrier"].contains(&command.get_name());
        let options = cli.get_subcommands().filter(uses_locks).flat_map(clap::Command::get_opts);
        for option in options.filter(|option| !["key", "json", "help"].contains(&option.get_id().as_str())) {
            let long = option.get_long().expect("every option has a long form");
            let variable = format!("DLOCK_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(option.get_env().and_then(|env| env.to_str()), Some(variable.as_str()));
            assert!(option.is_hide_env_values_set(), "--{long} would show its variable's value");
        }
    }
}
