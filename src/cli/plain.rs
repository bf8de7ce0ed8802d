/*!
The everyday command lines of `dlock run`, and `dlock --version`, read without the parser: making the parser's options
takes longer than the rest of a run's start. Rare, doubtful and wrong command lines are left to the parser, so that it
alone decides and explains.
*/

use std::ffi::OsString;
use std::slice::Iter;
use std::time::Duration;

use crate::cli::duration::{duration, ttl};
use crate::cli::{Leftovers, OnLost, RunArgs, Zone};
use crate::exit::CONFLICT;
use crate::variables::{BACKEND, OF_OPTIONS};

/// A run, as read from its command line and its variables.
#[derive(Debug)]
pub(crate) struct PlainRun {
    /// The whole command line.
    pub words: Vec<OsString>,
    /// The flags.
    pub flags: RunArgs,
    /// The variables.
    pub environment: RunArgs,
}

/// The output of `dlock --version`.
const VERSION: &str = concat!("dlock ", env!("CARGO_PKG_VERSION"), "\n");

/// Returns the text to print if the command line of this process asks only for the version.
pub(crate) fn plain_version() -> Option<&'static str> {
    let mut words = std::env::args_os().skip(1);
    let asks = words.next().is_some_and(|word| word == "--version" || word == "-V") && words.next().is_none();
    asks.then_some(VERSION)
}

/// Reads the command line and the variables of this process; `None` if the parser has to read them.
pub(crate) fn plain_run() -> Option<PlainRun> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let [_, subcommand, of_run @ ..] = words.as_slice() else { return None };
    if subcommand != "run" {
        return None;
    }
    let variables = std::env::vars_os().filter(|(name, _)| OF_OPTIONS.iter().any(|known| name == known));
    Some(PlainRun { environment: environment(variables)?, flags: flags(of_run)?, words })
}

/// Reads `variables`, which are of options; `None` if any but that of `--backend` is set, even to an empty value.
fn environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Option<RunArgs> {
    let mut args = RunArgs::default();
    for (name, value) in variables {
        if name != BACKEND {
            return None;
        }
        // An empty value counts as not set.
        if !value.is_empty() {
            once(&mut args.place.backend, value)?;
        }
    }
    Some(args)
}

/// Reads the words after `dlock run`.
fn flags(words: &[OsString]) -> Option<RunArgs> {
    let (mut args, mut words) = (RunArgs::default(), words.iter());
    let run = &mut args.run;
    while let Some(word) = words.next() {
        match word.to_str()? {
            "-k" | "--key" => args.key.push(value(&mut words)?.into()),
            "-b" | "--backend" => once(&mut args.place.backend, value(&mut words)?.into())?,
            "-n" | "--nonblock" => once(&mut run.waiting.nonblock, true)?,
            "-w" | "--wait" => once(&mut run.waiting.wait, duration(value(&mut words)?).ok()?)?,
            "-E" | "--conflict-exit-code" => once(&mut run.conflict_exit_code, value(&mut words)?.parse().ok()?)?,
            "-t" | "--ttl" => once(&mut run.ttl, ttl(value(&mut words)?).ok()?)?,
            "-q" | "--quiet" => once(&mut run.quiet, true)?,
            "-v" | "--verbose" => once(&mut run.verbose, true)?,
            "-s" | "--shared" => once(&mut run.shared, true)?,
            "-c" | "--command" => once(&mut run.shell, value(&mut words)?.into())?,
            "--" => {
                run.argv.extend(words.by_ref().cloned());
            }
            flag if flag.starts_with('-') => return None,
            _ => {
                run.argv.push(word.clone());
                run.argv.extend(words.by_ref().cloned());
            }
        }
    }
    let are_two_of_one_kind =
        run.waiting.nonblock.is_some() && run.waiting.wait.is_some() || run.quiet.is_some() && run.verbose.is_some();
    (!args.key.is_empty() && !are_two_of_one_kind).then_some(args)
}

/// Returns the defaults of all options, which equal those of the parser.
pub(crate) fn defaults() -> RunArgs {
    let (mut args, off) = (RunArgs::default(), Some(false));
    args.place.namespace = Some("dlock".to_owned());
    args.place.require_backend = off;
    args.place.time = Some(Zone::default());
    let run = &mut args.run;
    (run.waiting.nonblock, run.quiet, run.verbose) = (off, off, off);
    (run.exclusive, run.shared, run.close) = (off, off, off);
    run.conflict_exit_code = Some(CONFLICT);
    run.ttl = Some(Duration::from_secs(30));
    (run.on_lost, run.leftovers) = (Some(OnLost::default()), Some(Leftovers::default()));
    args.reach.connect_timeout = Some(Duration::from_secs(5));
    (args.durability.replicas, args.durability.strict_fencing) = (Some(0), off);
    args
}

/// Returns the value of an option, which is the next word; `None` if that begins with a dash.
fn value<'a>(words: &mut Iter<'a, OsString>) -> Option<&'a str> {
    words.next()?.to_str().filter(|word| !word.starts_with('-'))
}

/// Sets an option; `None` if it was already set.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clap::builder::Resettable;
    use clap::{Args, Command};
    use proptest::prelude::*;

    use super::*;
    use crate::cli::only_run;
    use crate::property::holds;
    use crate::settings::Layers;

    /// The words of random command lines.
    const WORDS: &[&str] = &[
        "-k",
        "--key",
        "-b",
        "--backend",
        "-n",
        "--nonblock",
        "-w",
        "--wait",
        "-E",
        "--conflict-exit-code",
        "-t",
        "--ttl",
        "-q",
        "--quiet",
        "-v",
        "--verbose",
        "-s",
        "--shared",
        "-c",
        "--command",
        "--",
        "-",
        "",
        "a",
        "run",
        "5",
        "1m",
        "300",
        "-1",
        "-x",
        "-nq",
        "-ka",
        "--key=a",
        "--nb",
        "--help",
        "file:",
        "redis://:pw@h",
        "help",
    ];

    #[test]
    fn what_is_read_without_the_parser_is_what_the_parser_reads() {
        let word = proptest::sample::select(WORDS);
        let run = RunArgs::augment_args(Command::new("run")).mut_args(|arg| arg.env(Resettable::Reset));
        let parser = only_run(run);
        // The parser has no default for an option that is given.
        let bare = parser.clone().get_matches_from(["dlock", "run", "-k", "k"]);
        let bare = Layers::over(bare.subcommand().expect("run").1, Vec::new()).expect("no contradiction");
        assert_eq!(format!("{:?}", defaults()), format!("{:?}", bare.args()[2]));
        let plain_lines = Cell::new(0);
        // Without a key no line is plain.
        let line = (any::<bool>(), proptest::collection::vec(word, 0..8));
        holds(20_000, line, |(begins_with_key, words)| {
            let words = if begins_with_key { [&["-k", "k"][..], &words].concat() } else { words };
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            if let Some(read) = flags(&words) {
                let line = ["dlock", "run"].into_iter().map(OsString::from).chain(words);
                let parsed = parser.clone().try_get_matches_from(line);
                let parsed = parsed.map_err(|error| TestCaseError::fail(error.to_string()))?;
                let (_, matches) = parsed.subcommand().expect("run");
                let parsed = Layers::over(matches, Vec::new()).expect("no contradiction");
                let plain = Layers::of_args(read, RunArgs::default());
                prop_assert_eq!(format!("{:?}", &plain.args()[..2]), format!("{:?}", &parsed.args()[..2]));
                plain_lines.set(plain_lines.get() + 1);
            }
            Ok(())
        });
        assert!(plain_lines.get() > 1000, "only {} plain lines", plain_lines.get());
    }

    #[test]
    fn the_version_is_the_parsers() {
        assert_eq!(VERSION, crate::cli::parser().render_version());
    }

    #[test]
    fn only_the_variable_of_the_backend_is_read_without_the_parser() {
        let read = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
            environment(variables).map(|args| args.place.backend)
        };
        assert_eq!(read(&[]), Some(None));
        assert_eq!(read(&[(BACKEND, "")]), Some(None));
        assert_eq!(read(&[(BACKEND, "file:")]), Some(Some("file:".into())));
        for others in [&[("DLOCK_WAIT", "1")][..], &[("DLOCK_WAIT", "")], &[(BACKEND, "file:"), (BACKEND, "file:/a")]] {
            assert_eq!(read(others), None, "{others:?}");
        }
    }
}
