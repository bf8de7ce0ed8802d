/*!
Values for options from elsewhere than the command line and the variables: the options that may have one, checks of a
value, and parsing.
*/

use std::any::TypeId;
use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::cli::mistake::text;

/// The kind of value that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None: the option is on or off.
    Switch,
    /// The path of a file.
    Path,
    /// Anything else.
    Text,
}

/// Returns the options of `cli` that may have a value from elsewhere, by their long names: those with a variable,
/// except the command and the handle of a lock.
#[must_use]
pub(crate) fn options(cli: &Command) -> BTreeMap<String, Kind> {
    let options = cli.get_subcommands().flat_map(Command::get_arguments);
    options.filter(|option| is_allowed(option)).filter_map(|option| Some((name(option)?, kind(option)))).collect()
}

/// Returns `true` if some subcommand of `cli` has an option with this long name.
#[must_use]
pub(crate) fn is_option(cli: &Command, long: &str) -> bool {
    cli.get_subcommands().flat_map(Command::get_arguments).any(|option| option.get_long() == Some(long))
}

/// Checks `value` for the `option` of `cli` with this long name, in each subcommand that has it. The error says why.
pub(crate) fn check(cli: &Command, option: &str, value: &str) -> Result<(), String> {
    let options = cli.get_subcommands().flat_map(Command::get_arguments);
    let mut those = options.filter(|found| is_allowed(found) && found.get_long() == Some(option));
    those.try_for_each(|found| check_one(found, option, value))
}

fn check_one(option: &Arg, name: &str, value: &str) -> Result<(), String> {
    let word = format!("--{name}={value}");
    let alone = Command::new("option").no_binary_name(true).arg(alone(option.clone()));
    match alone.try_get_matches_from([word]) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::InvalidValue => {
            Err(format!("use one of {}", text(&error, ContextKind::ValidValue).unwrap_or_default()))
        }
        Err(error) => {
            Err(std::error::Error::source(&error).map_or_else(|| "a wrong value".to_owned(), ToString::to_string))
        }
    }
}

/// Parses `values`, by long names, for the options of `command`. Reads no variable, and applies no default.
pub(crate) fn read_with(command: Command, values: &BTreeMap<String, String>) -> Result<ArgMatches, clap::Error> {
    let value = |option: &Arg| values.get(option.get_long().filter(|_| is_allowed(option))?);
    let unsaid: Vec<clap::Id> = command
        .get_arguments()
        .filter(|option| value(option).is_none())
        .map(|option| option.get_id().clone())
        .collect();
    let with_values = command.no_binary_name(true).mut_args(|option| match value(&option) {
        Some(value) => alone(option).default_value(value.clone()),
        None => alone(option),
    });
    let mut matches = with_values.try_get_matches_from([""; 0])?;
    for id in unsaid {
        // Also switches, which the parser turns off by default.
        let _ = matches.try_clear_id(id.as_str());
    }
    Ok(matches)
}

/// Returns an option without its variable and its default, and not required: only its variable may have been given.
fn alone(option: Arg) -> Arg {
    let option = option.env(Resettable::Reset).default_value(Resettable::Reset);
    option.required(false).required_unless_present(Resettable::Reset)
}

/// Returns `true` if `option` may have a value from elsewhere.
pub(super) fn is_allowed(option: &Arg) -> bool {
    option.get_env().is_some() && !matches!(option.get_long(), None | Some("command" | "handle"))
}

fn name(option: &Arg) -> Option<String> {
    option.get_long().map(str::to_owned)
}

/// Returns the kind of value that `option` takes.
pub(crate) fn kind(option: &Arg) -> Kind {
    match option.get_action() {
        ArgAction::SetTrue => Kind::Switch,
        _ if option.get_value_parser().type_id() == TypeId::of::<PathBuf>() => Kind::Path,
        _ => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, CommandFactory};

    use super::*;
    use crate::cli::{Cli, RunArgs};

    #[test]
    fn options_have_kinds() {
        let options = options(&Cli::command());
        for (name, kind) in [
            ("wait", Some(Kind::Text)),
            ("nonblock", Some(Kind::Switch)),
            ("password-file", Some(Kind::Path)),
            ("tls-ca", Some(Kind::Path)),
            ("backend", Some(Kind::Text)),
            ("count", Some(Kind::Text)),
            ("key", None),
            ("command", None),
            ("handle", None),
        ] {
            assert_eq!(options.get(name).copied(), kind, "{name}");
        }
    }

    #[test]
    fn a_value_is_checked_alone() {
        for (option, value, error) in [
            ("wait", "10m", None),
            ("wait", "soon", Some("not a duration: use seconds (10, 0.5) or units (500ms, 1m30s, 1d)")),
            ("on-lost", "x", Some("use one of stop, kill, ignore")),
            ("ttl", "0", Some("a lease lasts at least 1s")),
            ("backend", "nonsense", None),
        ] {
            assert_eq!(check(&Cli::command(), option, value).err().as_deref(), error, "{option}={value}");
        }
    }

    #[test]
    fn only_what_has_a_value_is_read() {
        let values = [("wait", "1h"), ("nonblock", "false"), ("count", "3"), ("command", "x")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let run = read_with(RunArgs::augment_args(Command::new("run")), &values).expect("right");
        assert_eq!(run.ids().collect::<Vec<_>>(), ["nonblock", "wait"]);
        assert_eq!(run.get_one("nonblock"), Some(&false));
    }
}
