/*!
The settings of latches and barriers.
*/

use std::time::Duration;

use clap::ArgMatches;

use crate::backend::url::Target;
use crate::cli::{BarrierArgs, LatchAction, LatchArgs, Waits};
use crate::exit::Failure;
use crate::key::Key;
use crate::report::Verbosity;
use crate::report::event::Event;
use crate::settings::connection::{Connection, ConnectionValues};
use crate::settings::key::one_key;
use crate::settings::layers::{Given, Layers};
use crate::settings::run::verbosity;
use crate::settings::unknown;
use crate::settings::usage::{refused, usage};

/// The longest name, in bytes. The limit keeps a reply with all names short.
const MAX_NAME: usize = 128;
/// The longest reason of a failure, in bytes.
const MAX_REASON: usize = 1024;

/// Everything that `dlock latch` needs to know.
#[derive(Debug)]
pub(crate) struct LatchSettings {
    /// The latch's name.
    pub key: Key,
    /// The connection to the lock service.
    pub connection: Connection,
    /// The action.
    pub act: LatchAct,
    /// Longest time to wait; `None` for no limit.
    pub wait: Option<Duration>,
    /// The exit code if the wait runs out.
    pub conflict: u8,
    /// The verbosity of reports.
    pub verbosity: Verbosity,
    /// The warning about unknown variables; `None` if there are none.
    pub unknown: Option<Event>,
}

/// An action of `dlock latch`, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LatchAct {
    /// Report that a name is done.
    Done {
        /// The name.
        name: String,
        /// Time for which this is remembered.
        keep: Duration,
    },
    /// Wait until enough names are done.
    Wait {
        /// The number of names.
        count: u32,
    },
    /// Mark the latch as failed.
    Fail {
        /// The name of the reporter.
        name: String,
        /// The reason; may be empty.
        reason: String,
        /// Time for which this is remembered.
        keep: Duration,
    },
    /// Forget the names and the failure.
    Forget,
    /// Show the names and the failure.
    Show {
        /// `true` to print a JSON document.
        json: bool,
    },
}

/// Everything that `dlock barrier` needs to know.
#[derive(Debug)]
pub(crate) struct BarrierSettings {
    /// The barrier's name.
    pub key: Key,
    /// The connection to the lock service.
    pub connection: Connection,
    /// Number of parties that must be there.
    pub parties: u32,
    /// This party's name.
    pub name: String,
    /// `true` to go on waiting when others leave or die.
    pub patient: bool,
    /// Time after which it is noticed that a party died.
    pub ttl: Duration,
    /// Longest time to wait; `None` for no limit.
    pub wait: Option<Duration>,
    /// The exit code if the wait runs out.
    pub conflict: u8,
    /// The verbosity of reports.
    pub verbosity: Verbosity,
    /// The warning about unknown variables; `None` if there are none.
    pub unknown: Option<Event>,
}

/// The values of [`Waits`] from all layers together.
struct WaitValues {
    wait: Option<Duration>,
    conflict: u8,
    verbosity: Verbosity,
}

impl WaitValues {
    fn settle<A>(layers: &Layers<A>, waits: impl Fn(&A) -> &Waits) -> Self {
        Self {
            wait: layers.find("wait", |args| waits(args).wait).map(|wait| wait.value),
            conflict: layers.get("conflict-exit-code", |args| waits(args).conflict_exit_code).value,
            verbosity: verbosity(layers, |args| (waits(args).messages.quiet, waits(args).messages.verbose)).value,
        }
    }
}

impl LatchSettings {
    /// Reads the settings of `dlock latch` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let layers = Layers::<LatchArgs>::read(matches)?;
        let key = one_key(&layers, |args| &args.key)?;
        let connection = ConnectionValues::settle(&layers).check()?;
        let act = act(&layers)?;
        let WaitValues { wait, conflict, verbosity } = WaitValues::settle(&layers, |args| &args.waits);
        Ok(Self { key, connection, act, wait, conflict, verbosity, unknown: unknown::variables() })
    }
}

impl BarrierSettings {
    /// Reads the settings of `dlock barrier` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let layers = Layers::<BarrierArgs>::read(matches)?;
        let key = one_key(&layers, |args| &args.key)?;
        let connection = ConnectionValues::settle(&layers).check()?;
        let parties = layers.find("parties", |args| args.parties);
        let Some(parties) = parties else { return Err(usage("the number of parties is missing: add --parties N")) };
        let name = match name(layers.find("as", |args| args.name.clone()))? {
            Some(name) => name,
            None => default_name(&connection.target),
        };
        let WaitValues { wait, conflict, verbosity } = WaitValues::settle(&layers, |args| &args.waits);
        Ok(Self {
            key,
            connection,
            parties: parties.value,
            name,
            patient: layers.get("patient", |args| args.patient).value,
            ttl: layers.get("ttl", |args| args.ttl).value,
            wait,
            conflict,
            verbosity,
            unknown: unknown::variables(),
        })
    }
}

/// Returns the action with its options. A flag that belongs to another action is an error; a variable may be set for
/// all actions.
fn act(layers: &Layers<LatchArgs>) -> Result<LatchAct, Failure> {
    let action = layers.find("action", |args| args.action);
    let Some(Given { value: action, .. }) = action else {
        return Err(usage("there is no action: use dlock latch wait"));
    };
    let (given, count) = (layers.find("as", |args| args.name.clone()), layers.find("count", |args| args.count));
    let (reason, keep) = (layers.find("reason", |args| args.reason.clone()), layers.get("keep", |args| args.keep));
    let json = layers.find("json", |args| args.json).is_some_and(|json| json.value);
    let (is_done, is_fail) = (action == LatchAction::Done, action == LatchAction::Fail);
    for (option, is_flag, fits, place) in [
        ("--as", given.as_ref().is_some_and(Given::is_flag), is_done || is_fail, "done and fail"),
        ("--count", count.as_ref().is_some_and(Given::is_flag), action == LatchAction::Wait, "wait"),
        ("--reason", reason.as_ref().is_some_and(Given::is_flag), is_fail, "fail"),
        ("--keep", keep.is_flag(), is_done || is_fail, "done and fail"),
        ("--json", json, action == LatchAction::Show, "show"),
    ] {
        if is_flag && !fits {
            return Err(usage(format!("{option} is only for dlock latch {place}: leave it out")));
        }
    }
    let keep = keep.value;
    Ok(match action {
        LatchAction::Done => {
            let name = name(given)?;
            let missing = || usage("done needs a name, which is the same when it is repeated: add --as NAME");
            LatchAct::Done { name: name.ok_or_else(missing)?, keep }
        }
        LatchAction::Wait => {
            let missing = || usage("wait needs the number of names to wait for: add --count N");
            LatchAct::Wait { count: count.ok_or_else(missing)?.value }
        }
        LatchAction::Fail => {
            let name = name(given)?.or_else(host_name).unwrap_or_else(process_name);
            let mut reason = reason.map(|reason| reason.value).unwrap_or_default();
            let mut end = reason.len().min(MAX_REASON);
            while !reason.is_char_boundary(end) {
                end -= 1;
            }
            reason.truncate(end);
            LatchAct::Fail { name, reason, keep }
        }
        LatchAction::Forget => LatchAct::Forget,
        LatchAction::Show => LatchAct::Show { json },
    })
}

/// Returns the name that was given, checked; `None` if there is none.
fn name(given: Option<Given<String>>) -> Result<Option<String>, Failure> {
    let Some(Given { value: name, origin }) = given else { return Ok(None) };
    let problem = match name.len() {
        0 => "a name must not be empty: give one".to_owned(),
        length if length > MAX_NAME => {
            format!("a name has at most {MAX_NAME} bytes, this one has {length}: shorten it")
        }
        _ if name.chars().any(char::is_control) => "a name must not contain control characters: remove them".to_owned(),
        _ => return Ok(Some(name)),
    };
    Err(refused(&origin, format!("{origin}: {problem}")))
}

/// Returns the default name of a party: the host's, or the process id if the backend is on this host.
fn default_name(target: &Target) -> String {
    host_name().filter(|_| target.has_lease()).unwrap_or_else(process_name)
}

fn host_name() -> Option<String> {
    let host = nix::unistd::gethostname().ok()?.to_string_lossy().into_owned();
    Some(host).filter(|host| !host.is_empty())
}

fn process_name() -> String {
    std::process::id().to_string()
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, CommandFactory};

    use super::*;
    use crate::cli::Cli;

    /// Returns the action that `words` after `dlock latch --key k` ask for, or the message of the failure.
    fn asked(words: &[&str]) -> Result<LatchAct, String> {
        let matches = Cli::command().get_matches_from(["dlock", "latch", "--key", "k"].iter().chain(words));
        let (_, matches) = matches.subcommand().expect("latch");
        let layers = Layers::<LatchArgs>::with(matches, || LatchArgs::augment_args(Command::new("latch")), Vec::new())
            .expect("checked by the parser");
        act(&layers).map_err(|failure| match failure.event.as_deref() {
            Some(Event::Settings(text)) => text.clone(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn each_action_has_its_options() {
        let name = || "a".to_owned();
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));
        for (words, expected) in [
            (&["done", "--as", "a"][..], LatchAct::Done { name: name(), keep: day }),
            (&["--as", "a", "--keep", "1h", "done"], LatchAct::Done { name: name(), keep: hour }),
            (&["wait", "--count", "3"], LatchAct::Wait { count: 3 }),
            (
                &["fail", "--as", "a", "--reason", "red", "--keep", "1h"],
                LatchAct::Fail { name: name(), reason: "red".to_owned(), keep: hour },
            ),
            (&["forget"], LatchAct::Forget),
            (&["show", "--json"], LatchAct::Show { json: true }),
        ] {
            assert_eq!(asked(words), Ok(expected), "{words:?}");
        }
        for (words, part) in [
            (&["done"][..], "add --as NAME"),
            (&["wait"], "add --count N"),
            (&["wait", "--count", "3", "--as", "a"], "--as is only for dlock latch done and fail"),
            (&["done", "--as", "a", "--count", "3"], "--count is only for dlock latch wait"),
            (&["done", "--as", "a", "--reason", "red"], "--reason is only for dlock latch fail"),
            (&["wait", "--count", "3", "--json"], "--json is only for dlock latch show"),
            (&["forget", "--keep", "1h"], "--keep is only for dlock latch done and fail"),
            (&["done", "--as", ""], "--as: a name must not be empty"),
            (&["done", "--as", "a\nb"], "--as: a name must not contain control characters"),
        ] {
            let error = asked(words).expect_err("a mistake");
            assert!(error.contains(part), "{words:?}: {error}");
        }
        assert!(asked(&["done", "--as", &"x".repeat(MAX_NAME)]).is_ok());
        assert!(asked(&["done", "--as", &"x".repeat(MAX_NAME + 1)]).is_err());
    }

    #[test]
    fn a_long_reason_is_cut_and_whoever_fails_has_a_name() {
        let LatchAct::Fail { name, reason, .. } = asked(&["fail", "--reason", &"ü".repeat(MAX_REASON)]).expect("fail")
        else {
            panic!("another action")
        };
        assert!(!name.is_empty() && reason.len() <= MAX_REASON && reason.starts_with("üü"));
    }
}
