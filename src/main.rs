/*!
`dlock`: `flock(1)` for clusters.

Reads the command line, runs the subcommand, and turns its outcome into an exit.
*/

mod backend;
mod cli;
mod clock;
mod command;
mod exit;
mod holder;
mod key;
mod lease;
mod lock;
mod output;
mod printable;
#[cfg(test)]
mod property;
mod readable;
mod report;
mod settings;
mod supervise;
mod variables;

use clap::{CommandFactory, FromArgMatches};

use cli::{Cli, Command};
use exit::{Exit, Failure};
use report::event::Event;

fn main() -> std::process::ExitCode {
    std::panic::set_hook(Box::new(die_of_a_bug));
    let outcome = dispatch().unwrap_or_else(|failure| {
        if let Some(event) = &failure.event {
            report::say(event);
        }
        failure.exit
    });
    if let Exit::Signal(signal) = outcome {
        supervise::signals::die_by(signal);
    }
    outcome.into()
}

fn dispatch() -> Result<Exit, Failure> {
    let matches = match cli::unset_empty_variables(Cli::command()).try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return cli::explain(&error),
    };
    let cli = Cli::from_arg_matches(&matches).map_err(|error| misunderstood(&error))?;
    match (cli.command, matches.subcommand()) {
        (Command::Run(_), Some((_, matches))) => Ok(command::run::run(&settings::RunSettings::read(matches)?)),
        (Command::Generate(args), _) => command::generate::generate(&args),
        (Command::Run(_), None) => Err(misunderstood(&"the command line was not understood")),
    }
}

fn misunderstood(reason: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Internal, Event::Settings(reason.to_string()))
}

/// Nothing of dlock's own may go on after a panic: when this process ends, the guard stops the command.
#[allow(clippy::exit)]
fn die_of_a_bug(panic: &std::panic::PanicHookInfo<'_>) {
    report::say(&Event::Bug(panic.to_string()));
    std::process::exit(i32::from(Exit::Internal.code()));
}
