/*!
What is wrong with a command line, in one sentence: an error of the parser, its argument and its suggestion, in dlock's words.
*/

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::variables::of_option;

/// What is wrong, and where to read on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// What is wrong; perhaps with the one thing that was probably meant.
    pub text: String,
    /// The command whose help says more; `None` if the text has a suggestion.
    pub help: Option<String>,
}

/// The mistake in `words`, a command line for `cli`, that `error` reports. `is_variable` says whether the wrong value comes from a variable.
pub(super) fn mistake(error: &Error, cli: &Command, words: &[OsString], is_variable: bool) -> Mistake {
    let argument = text(error, ContextKind::InvalidArg).unwrap_or_default();
    // "--wait <DURATION>"
    let name = argument.split([' ', '=']).next().unwrap_or_default();
    let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
    let given = match name.strip_prefix("--") {
        Some(option) if is_variable => format!("{}={value}", of_option(option)),
        _ if value.is_empty() => format!("{name}="),
        _ => format!("{name} {value}"),
    };
    let text = match error.kind() {
        ErrorKind::UnknownArgument if ["-k", "--key"].contains(&name) && command(cli, words) == "dlock list" => {
            "list takes a prefix: dlock list PREFIX; for one lock: dlock status --key KEY".to_owned()
        }
        ErrorKind::UnknownArgument if command(cli, words) == "dlock status" && !name.starts_with('-') => {
            format!("{name} is one argument too many: did you mean --key {name}?")
        }
        ErrorKind::UnknownArgument if name.starts_with('-') => format!("there is no option {name}"),
        ErrorKind::UnknownArgument => format!("{name} is one argument too many"),
        ErrorKind::InvalidSubcommand => {
            format!("there is no subcommand {}", text(error, ContextKind::InvalidSubcommand).unwrap_or_default())
        }
        ErrorKind::MissingRequiredArgument => format!("{argument} is missing"),
        ErrorKind::InvalidValue if value.is_empty() => format!("{argument}: the value is missing"),
        ErrorKind::InvalidValue => {
            format!("{given}: use one of {}", text(error, ContextKind::ValidValue).unwrap_or_default())
        }
        ErrorKind::ValueValidation => {
            let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("{given}: {reason}")
        }
        ErrorKind::TooManyValues => format!("{name} takes no value"),
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8".to_owned(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "there is no subcommand: use dlock run --key KEY -- COMMAND".to_owned()
        }
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    };
    let meant = in_other_tools(error)
        .or_else(|| suggestion(error))
        .or_else(|| without_run(error, cli, words, name))
        .or_else(|| bare_key(error, words));
    match meant {
        Some(meant) => Mistake { text: format!("{text}: did you mean {meant}?"), help: None },
        None => Mistake { text, help: Some(command(cli, words)) },
    }
}

/// The subcommand that other tools call by the unknown name.
fn in_other_tools(error: &Error) -> Option<String> {
    let ours = match text(error, ContextKind::InvalidSubcommand)?.as_str() {
        "lock" => "run",
        "unlock" => "release",
        "force-unlock" | "steal" => "break",
        "who" | "ps" => "status",
        "doctor" | "ping" => "check",
        "completion" | "completions" => "generate bash",
        "version" => "--version",
        _ => return None,
    };
    Some(ours.to_owned())
}

/// What was probably meant.
fn suggestion(error: &Error) -> Option<String> {
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(one) => Some(one.clone()),
        ContextValue::Strings(several) => several.first().cloned(),
        _ => None,
    })
}

/// What was probably meant by an option of `dlock run` that follows `dlock`, as flock's options follow `flock`.
fn without_run(error: &Error, cli: &Command, words: &[OsString], name: &str) -> Option<String> {
    let run = cli.find_subcommand("run").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let is_meant = |spelled: Option<String>| spelled.as_deref() == Some(name);
    let known = run.get_arguments().any(|option| {
        is_meant(option.get_short().map(|short| format!("-{short}")))
            || is_meant(option.get_long().map(|long| format!("--{long}")))
    });
    (known && command(cli, words) == "dlock").then(|| format!("dlock run {name}"))
}

/// What was probably meant by one word between `dlock run` and `--`, as flock has its lock file.
fn bare_key(error: &Error, words: &[OsString]) -> Option<String> {
    let [_, run, key, dashes, ..] = words else { return None };
    let key = key.to_str().filter(|key| !key.starts_with('-'))?;
    let is_meant = error.kind() == ErrorKind::MissingRequiredArgument && run == "run" && dashes == "--";
    is_meant.then(|| format!("--key {key}"))
}

/// The command that `words` name as far as there is one: `dlock run`.
fn command(cli: &Command, words: &[OsString]) -> String {
    let name = words.get(1).and_then(|word| word.to_str());
    match name.and_then(|name| cli.find_subcommand(name)) {
        Some(subcommand) => format!("dlock {}", subcommand.get_name()),
        None => "dlock".to_owned(),
    }
}

/// One thing that `error` says.
pub(super) fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(one) => Some(one.clone()),
        ContextValue::Strings(several) => Some(several.join(", ")),
        _ => None,
    }
}

/// Whether the value that `error` is about comes from a variable: without variables, `words` have another error or none.
pub(super) fn is_of_a_variable(error: &Error, without_variables: Command, words: &[OsString]) -> bool {
    let about = |error: &Error| (error.kind(), text(error, ContextKind::InvalidArg));
    match without_variables.try_get_matches_from(words) {
        Ok(_) => true,
        Err(other) => about(&other) != about(error),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_mistake_is_one_sentence_with_one_hint() {
        for (words, is_variable, expected, help) in [
            (&["run", "--unknown"][..], false, "there is no option --unknown", Some("dlock run")),
            (&["run", "-Z"], false, "there is no option -Z", Some("dlock run")),
            (&["-n", "/var/lock/x", "true"], false, "there is no option -n: did you mean dlock run -n?", None),
            (&["--wait", "1"], false, "there is no option --wait: did you mean dlock run --wait?", None),
            (&["-Z"], false, "there is no option -Z", Some("dlock")),
            (&["run", "--nonblok"], false, "there is no option --nonblok: did you mean --nonblock?", None),
            (&["generate", "man", "run", "x"], false, "x is one argument too many", Some("dlock generate")),
            (
                &["list", "-k", "job"],
                false,
                "list takes a prefix: dlock list PREFIX; for one lock: dlock status --key KEY",
                Some("dlock list"),
            ),
            (&["status", "job"], false, "job is one argument too many: did you mean --key job?", Some("dlock status")),
            (&["mutex"], false, "there is no subcommand mutex", Some("dlock")),
            (&["rum"], false, "there is no subcommand rum: did you mean run?", None),
            (&["lock", "x"], false, "there is no subcommand lock: did you mean run?", None),
            (&["force-unlock"], false, "there is no subcommand force-unlock: did you mean break?", None),
            (&["completions"], false, "there is no subcommand completions: did you mean generate bash?", None),
            (&["run", "true"], false, "--key <KEY> is missing", Some("dlock run")),
            (&["run", "job", "--", "true"], false, "--key <KEY> is missing: did you mean --key job?", None),
            (&["generate"], false, "<WHAT> is missing", Some("dlock generate")),
            (&["run", "-k", "k", "-w"], false, "--wait <DURATION>: the value is missing", Some("dlock run")),
            (
                &["run", "-k", "k", "-w", "soon"],
                false,
                "--wait soon: not a duration: use seconds (10, 0.5) or units (1m30s, 500ms)",
                Some("dlock run"),
            ),
            (&["run", "-k", "k", "-t", "0"], true, "DLOCK_TTL=0: a lease lasts at least 1s", Some("dlock run")),
            (
                &["run", "-k", "k", "--on-lost", "x"],
                false,
                "--on-lost x: use one of stop, kill, ignore",
                Some("dlock run"),
            ),
            (&["run", "-k", "k", "--slots", "0"], false, "--slots 0: use a number from 1 to 1000", Some("dlock run")),
            (
                &["generate", "fsh"],
                false,
                "<WHAT> fsh: use one of man, bash, zsh, fish, postgres, mysql: did you mean fish?",
                None,
            ),
            (&["run", "-k", "k", "--close=x"], false, "--close takes no value", Some("dlock run")),
            (&[], false, "there is no subcommand: use dlock run --key KEY -- COMMAND", Some("dlock")),
        ] {
            let words: Vec<OsString> = std::iter::once(&"dlock").chain(words).map(OsString::from).collect();
            let error = Cli::command().try_get_matches_from(&words).expect_err("a mistake");
            let found = mistake(&error, &Cli::command(), &words, is_variable);
            let expected = Mistake { text: expected.to_owned(), help: help.map(str::to_owned) };
            assert_eq!(found, expected, "{words:?}");
        }
    }
}
