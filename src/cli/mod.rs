/*!
The command line. Help, man pages and completions are all made from these definitions.
*/

mod duration;
mod meeting;
mod mistake;
mod options;

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use self::meeting::{BARRIER_ABOUT, LATCH_ABOUT};
pub(crate) use self::meeting::{BarrierArgs, LatchAction, LatchArgs, Waits};
use self::mistake::{Mistake, is_of_a_variable, mistake};
pub(crate) use self::options::{Connects, Leftovers, OnLost, Place, Reach, RunOptions};
use crate::backend::url::without_password;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::report::event::Event;

/// What `dlock run` does, at length.
const RUN_ABOUT: &str = "\
Takes the lock KEY from the backend, runs COMMAND while keeping the lock alive, and releases the lock when COMMAND has \
ended. Signals are passed on, and COMMAND's exit code is dlock's own.

The command never outlives its lease: when the lock cannot be kept (the server died or went silent, the network drops \
packets, dlock was frozen or killed), COMMAND and everything it started are told to end with SIGTERM and are killed \
before the server can give the lock to another holder. Then dlock exits with 79. On file: there is no lease, and COMMAND \
holds the locked file itself: the lock lives as long as COMMAND.";

/// flock(1) for clusters: run a command under a lock.
#[derive(Debug, Parser)]
#[command(
    name = "dlock",
    version,
    about = "flock(1) for clusters: run a command under a lock, and stop it before the lock can pass to someone else",
    disable_help_subcommand = true,
    arg_required_else_help = false
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What dlock can do.
/// What the help of `dlock run` ends with.
const RUN_EXAMPLES: &str = "\
Examples:
  dlock run -k backup -- ./backup.sh
  dlock run -b redis://locks/ -k job -n -E 0 -q -- ./job.sh
  dlock run -b redis://locks/ -k tests --slots 3 -c 'make test DB=test_$DLOCK_SLOT'

Exit codes, the command's variables and more examples: man dlock-run";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold a lock while a command runs
    #[command(long_about = RUN_ABOUT, after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Wait until enough jobs are done, in any order
    #[command(long_about = LATCH_ABOUT)]
    Latch(Box<LatchArgs>),
    /// Wait until enough processes are there at the same time
    #[command(long_about = BARRIER_ABOUT)]
    Barrier(Box<BarrierArgs>),
    /// Print the man page or a completion script
    Generate(GenerateArgs),
    /// Print the help of dlock or of a subcommand
    #[command(hide = true)]
    Help {
        /// The subcommand
        name: Option<String>,
    },
}

/// `dlock generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// What to print
    #[arg(value_enum)]
    pub what: Generated,
    /// With man: the page of this subcommand
    #[arg(value_name = "SUBCOMMAND")]
    pub page: Option<String>,
}

/// What can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generated {
    /// The man page
    Man,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

impl Generated {
    /// The shell that the completions are for; none for the man page.
    #[must_use]
    pub(crate) fn shell(self) -> Option<Shell> {
        match self {
            Self::Man => None,
            Self::Bash => Some(Shell::Bash),
            Self::Zsh => Some(Shell::Zsh),
            Self::Fish => Some(Shell::Fish),
        }
    }
}

/// `dlock run`.
#[derive(Debug, Args)]
#[command(
    override_usage = "dlock run --key <KEY> [OPTIONS] [--] <COMMAND> [ARG]...\n       dlock run --key <KEY> [OPTIONS] -c <STRING>"
)]
pub(crate) struct RunArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters. Give it up to 16 times to hold several locks at
    /// once, all or none; every dlock takes them in the same order, so that no two wait for each other
    #[arg(short, long, value_name = "KEY", required = true, action = ArgAction::Append)]
    pub key: Vec<OsString>,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten)]
    pub run: RunOptions,

    #[command(flatten, next_help_heading = "Connection options")]
    pub reach: Reach,
}

impl Connects for RunArgs {
    fn place(&self) -> &Place {
        &self.place
    }

    fn reach(&self) -> &Reach {
        &self.reach
    }
}

/// Treats an empty variable as one that is not set, as shells and CI systems do. Only the namespace may be empty.
#[must_use]
fn unset_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &clap::Arg| {
        let variable = arg.get_env().filter(|_| arg.get_id() != "namespace");
        variable.and_then(std::env::var_os).is_some_and(|value| value.is_empty())
    };
    command.mut_subcommands(|subcommand| {
        subcommand.mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg })
    })
}

/// Reads the command line and the variables.
pub(crate) fn read() -> Result<clap::ArgMatches, clap::Error> {
    unset_empty_variables(Cli::command()).try_get_matches()
}

/// The parser without the variables.
fn without_variables() -> clap::Command {
    Cli::command().mut_subcommands(|subcommand| subcommand.mut_args(|arg| arg.env(Resettable::Reset)))
}

/// The variables of all options.
#[must_use]
pub(crate) fn variables() -> Vec<String> {
    let cli = Cli::command();
    let options = cli.get_subcommands().flat_map(clap::Command::get_arguments);
    options.filter_map(|option| Some(option.get_env()?.to_str()?.to_owned())).collect()
}

/// Prints the help of dlock, or that of the subcommand `name`.
pub(crate) fn help(name: Option<&str>) -> Result<Exit, Failure> {
    let mut cli = Cli::command();
    cli.build();
    let help = match name {
        None => cli.render_help(),
        Some(name) => {
            let missing = || Failure::new(Exit::Usage, Event::NoSuchPage(name.to_owned()));
            cli.find_subcommand_mut(name).ok_or_else(missing)?.render_long_help()
        }
    };
    output::print(help.to_string().as_bytes())?;
    Ok(Exit::Success)
}

/// Turns an error of the parser into output and an exit: help and version are printed, everything else is one line on
/// standard error.
pub(crate) fn explain(error: &clap::Error) -> Result<Exit, Failure> {
    if !error.use_stderr() {
        output::print(error.render().to_string().as_bytes())?;
        return Ok(Exit::Success);
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let is_variable = is_of_a_variable(error, without_variables(), &words);
    let Mistake { text, help } = mistake(error, &Cli::command(), &words, is_variable);
    // A URL in the wrong place is repeated here, and may hold a password.
    Err(Failure::new(Exit::Usage, Event::CommandLine { mistake: without_password(&text), help }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_but_key_has_its_variable() {
        let cli = Cli::command();
        let uses_locks = |command: &&clap::Command| ["run", "latch", "barrier"].contains(&command.get_name());
        let options = cli.get_subcommands().filter(uses_locks).flat_map(clap::Command::get_opts);
        for option in options.filter(|option| option.get_id() != "key" && option.get_id() != "help") {
            let long = option.get_long().expect("every option has a long form");
            let variable = format!("DLOCK_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(option.get_env().and_then(|env| env.to_str()), Some(variable.as_str()));
            assert!(option.is_hide_env_values_set(), "--{long} would show its variable's value");
        }
    }
}
