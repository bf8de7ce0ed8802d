/*!
Values for options from elsewhere than the command line and the variables: which options may have one, whether a value is
right, and a command line read with such values.
*/

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::cli::mistake::text;

/// What kind of value an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None: the option is on or off.
    Switch,
    /// The path of a file.
    Path,
    /// Anything else.
    Text,
}

/// The options of `cli` that may have a value from elsewhere, by their long names: those with a variable, but neither the command nor
/// the handle of a lock.
#[must_use]
pub(crate) fn options(cli: &Command) -> BTreeMap<String, Kind> {
    let options = cli.get_subcommands().flat_map(Command::get_arguments);
    options.filter(|option| is_allowed(option)).filter_map(|option| Some((name(option)?, kind(option)))).collect()
}

/// Whether some subcommand of `cli` has an option with this long name.
#[must_use]
pub(crate) fn is_option(cli: &Command, long: &str) -> bool {
    cli.get_subcommands().flat_map(Command::get_arguments).any(|option| option.get_long() == Some(long))
}

/// Why `value` is wrong for the `option` of `cli` with this long name, in any subcommand that has it; nothing if it is right.
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

/// Reads `words`, a whole command line for `cli`, with these `values` for options that it does not give. No variable is read, and no
/// other option has a default: whatever was not given comes from `values`.
pub(crate) fn read_with(
    cli: Command,
    words: &[OsString],
    values: &BTreeMap<String, String>,
) -> Result<ArgMatches, clap::Error> {
    let cli = cli.mut_subcommands(|subcommand| {
        subcommand.mut_args(|option| {
            let value = name(&option).filter(|_| is_allowed(&option)).and_then(|name| values.get(&name));
            let bare = alone(option);
            match value {
                Some(value) => bare.default_value(value.clone()),
                None => bare,
            }
        })
    });
    cli.try_get_matches_from(words)
}

/// An option without its variable and its default, which may be missing: its variable may be what was given.
fn alone(option: Arg) -> Arg {
    let option = option.env(Resettable::Reset).default_value(Resettable::Reset);
    option.required(false).required_unless_present(Resettable::Reset)
}

/// Whether `option` may have a value from elsewhere.
pub(super) fn is_allowed(option: &Arg) -> bool {
    option.get_env().is_some() && !matches!(option.get_long(), None | Some("command" | "handle"))
}

fn name(option: &Arg) -> Option<String> {
    option.get_long().map(str::to_owned)
}

/// What kind of value `option` takes.
pub(crate) fn kind(option: &Arg) -> Kind {
    match option.get_action() {
        ArgAction::SetTrue => Kind::Switch,
        _ if option.get_value_parser().type_id() == TypeId::of::<PathBuf>() => Kind::Path,
        _ => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::parser::ValueSource;

    use super::*;
    use crate::cli::Cli;

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
            ("wait", "soon", Some("not a duration: use seconds (10, 0.5) or units (1m30s, 500ms)")),
            ("on-lost", "x", Some("use one of stop, kill, ignore")),
            ("ttl", "0", Some("a lease lasts at least 1s")),
            ("backend", "nonsense", None),
        ] {
            assert_eq!(check(&Cli::command(), option, value).err().as_deref(), error, "{option}={value}");
        }
    }

    #[test]
    fn the_command_line_comes_before_other_values() {
        let words = ["dlock", "run", "-k", "k", "-w", "5", "true"].map(OsString::from);
        let values = [("wait", "1h"), ("ttl", "9"), ("nonblock", "true"), ("count", "3")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let matches = read_with(Cli::command(), &words, &values).expect("right");
        let (_, run) = matches.subcommand().expect("run");
        let source = |id| run.value_source(id);
        assert_eq!(source("wait"), Some(ValueSource::CommandLine));
        assert_eq!(source("ttl"), Some(ValueSource::DefaultValue));
        assert_eq!(run.get_one("nonblock"), Some(&true));
        assert_eq!(source("namespace"), None);
    }
}
