/*!
A mistake in a command line, in one sentence: an error of the parser, its argument and its suggestion, in dlock's words.
*/

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use crate::cli::flock::{Object, Request, read};
use crate::printable::{nearest, quoted};
use crate::variables::of_option;

/// A mistake in a command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// The message; perhaps with the one thing that was probably meant.
    pub text: String,
    /// The command whose help says more; `None` if the text has a suggestion.
    pub help: Option<String>,
}

/// Explains `error` in `words`, a command line for `cli`. `is_variable` is `true` if a variable has the wrong value.
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
        ErrorKind::UnknownArgument => unknown(name, words),
        ErrorKind::InvalidSubcommand => {
            format!("there is no subcommand {}", text(error, ContextKind::InvalidSubcommand).unwrap_or_default())
        }
        // Only dlock break has that option.
        ErrorKind::MissingRequiredArgument if argument.starts_with("--owner") => {
            format!("{argument} is missing: dlock status shows it")
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
            "no command given; try: dlock run --key KEY -- COMMAND".to_owned()
        }
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    };
    let meant = as_flock(error, words)
        .or_else(|| in_other_tools(error))
        .or_else(|| alike(error, cli, words, name))
        .or_else(|| without_run(error, cli, words, name))
        .or_else(|| bare_key(error, words));
    match meant {
        Some(meant) => Mistake { text: format!("{text}: did you mean {meant}?"), help: None },
        None => Mistake { text, help: Some(command(cli, words)) },
    }
}

/// Says what is wrong with an option or argument that the subcommand of `words` does not have, and what it has instead.
fn unknown(name: &str, words: &[OsString]) -> String {
    let subcommand = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let is_key = ["-k", "--key"].contains(&name);
    let has = |option: &str| words.iter().any(|word| word.as_bytes().starts_with(option.as_bytes()));
    let has_key = has("-k") || has("--key");
    match subcommand {
        "list" if is_key => "list takes a prefix: dlock list PREFIX; for one lock: dlock status --key KEY".to_owned(),
        "renew" | "release" if is_key => {
            format!("there is no option {name}; {subcommand} takes the handle that dlock acquire printed")
        }
        _ if name.starts_with('-') => format!("there is no option {name}"),
        "latch" | "barrier" if words.iter().any(|word| word == "--") => {
            format!("{subcommand} runs no command; write: dlock {subcommand} … && COMMAND")
        }
        "status" | "latch" | "barrier" if !has_key => {
            format!("unexpected argument {name}: did you mean --key {name}?")
        }
        "latch" if !has("--as") && ["done", "fail"].iter().any(|action| has(action)) => {
            format!("unexpected argument {name}: did you mean --as {name}?")
        }
        _ => format!("unexpected argument {name}"),
    }
}

/// Returns the subcommand that other tools call by the unknown name.
fn in_other_tools(error: &Error) -> Option<String> {
    let ours = match text(error, ContextKind::InvalidSubcommand)?.as_str() {
        "lock" | "exec" => "run",
        "unlock" => "break, or release HANDLE",
        "refresh" | "extend" => "renew",
        "force-unlock" | "steal" => "break",
        "who" | "ps" | "show" => "status",
        "ls" => "list",
        "doctor" | "ping" | "test" => "check",
        "completion" | "completions" => "generate bash",
        "man" => "generate man",
        "version" => "--version",
        _ => return None,
    };
    Some(ours.to_owned())
}

/// Returns the subcommand, option or value that is spelled almost like the unknown one.
fn alike(error: &Error, cli: &Command, words: &[OsString], name: &str) -> Option<String> {
    let of_this = || words.get(1).and_then(|word| cli.find_subcommand(word)).unwrap_or(cli);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = text(error, ContextKind::InvalidSubcommand)?;
            nearest(&typed, cli.get_subcommands().map(Command::get_name)).map(str::to_owned)
        }
        ErrorKind::UnknownArgument => {
            let options = of_this().get_arguments().filter_map(Arg::get_long_and_visible_aliases).flatten();
            let option = nearest(name.strip_prefix("--")?, options.chain(["help", "version"]))?;
            Some(format!("--{option}"))
        }
        ErrorKind::InvalidValue => {
            let typed = text(error, ContextKind::InvalidValue)?;
            let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) else { return None };
            nearest(&typed, known.iter().map(String::as_str)).map(str::to_owned)
        }
        _ => None,
    }
}

/// Returns the `dlock flock` line for a command line of flock: `-n /var/lock/x COMMAND`, perhaps after `dlock run`.
fn as_flock(error: &Error, words: &[OsString]) -> Option<String> {
    let rest = match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => words.get(1..)?,
        ErrorKind::MissingRequiredArgument if words.get(1).is_some_and(|word| word == "run") => words.get(2..)?,
        _ => return None,
    };
    let Ok(Request::Lock(_, Object::Path { file, argv })) = read(rest.to_vec(), None) else { return None };
    let file = file.to_str()?;
    let is_lock = ["/var/lock/", "/run/lock/", "/tmp/"].iter().any(|place| file.starts_with(place))
        || [".lock", ".lck"].iter().any(|ending| file.ends_with(ending));
    // Otherwise it is the key of a dlock run.
    let is_flocks = is_lock && argv.first().is_none_or(|first| first != "--");
    let rest: Option<Vec<String>> = rest.iter().map(|word| word.to_str().map(quoted)).collect();
    rest.filter(|_| is_flocks).map(|rest| format!("dlock flock {}", rest.join(" ")))
}

/// Returns the suggestion for an option of `dlock run` that follows `dlock`, as flock's options follow `flock`.
fn without_run(error: &Error, cli: &Command, words: &[OsString], name: &str) -> Option<String> {
    let run = cli.find_subcommand("run").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let is_meant = |spelled: Option<String>| spelled.as_deref() == Some(name);
    let known = run.get_arguments().any(|option| {
        is_meant(option.get_short().map(|short| format!("-{short}")))
            || is_meant(option.get_long().map(|long| format!("--{long}")))
    });
    (known && command(cli, words) == "dlock").then(|| format!("dlock run {name}"))
}

/// Returns the suggestion for one word between `dlock run` and `--`, where flock has its lock file.
fn bare_key(error: &Error, words: &[OsString]) -> Option<String> {
    let [_, run, key, dashes, ..] = words else { return None };
    let key = key.to_str().filter(|key| !key.starts_with('-'))?;
    let is_meant = error.kind() == ErrorKind::MissingRequiredArgument && run == "run" && dashes == "--";
    is_meant.then(|| format!("--key {key}"))
}

/// Returns the command that `words` name, such as `dlock run`; `dlock` if they name no subcommand.
fn command(cli: &Command, words: &[OsString]) -> String {
    let name = words.get(1).and_then(|word| word.to_str());
    match name.and_then(|name| cli.find_subcommand(name)) {
        Some(subcommand) => format!("dlock {}", subcommand.get_name()),
        None => "dlock".to_owned(),
    }
}

/// Returns one part of the context of `error`.
pub(super) fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(one) => Some(one.clone()),
        ContextValue::Strings(several) => Some(several.join(", ")),
        _ => None,
    }
}

/// Returns `true` if `error` is about the value of a variable: without variables, `words` have another error or none.
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

    /// A wrong command line, `true` for a wrong variable, the message, and the command whose help says more.
    type Row = (&'static [&'static str], bool, &'static str, Option<&'static str>);

    fn check(rows: &[Row]) {
        for &(words, is_variable, expected, help) in rows {
            let words: Vec<OsString> = std::iter::once(&"dlock").chain(words).map(OsString::from).collect();
            let error = Cli::command().try_get_matches_from(&words).expect_err("a mistake");
            let found = mistake(&error, &Cli::command(), &words, is_variable);
            let expected = Mistake { text: expected.to_owned(), help: help.map(str::to_owned) };
            assert_eq!(found, expected, "{words:?}");
        }
    }

    #[test]
    fn every_mistake_is_one_sentence_with_one_hint() {
        check(&[
            (&["run", "--unknown"], false, "there is no option --unknown", Some("dlock run")),
            (&["run", "-Z"], false, "there is no option -Z", Some("dlock run")),
            (
                &["-n", "/var/lock/x", "echo", "a b"],
                false,
                "there is no option -n: did you mean dlock flock -n /var/lock/x echo 'a b'?",
                None,
            ),
            (&["x.lock", "true"], false, "there is no subcommand x.lock: did you mean dlock flock x.lock true?", None),
            (
                &["run", "-n", "/var/lock/x", "true"],
                false,
                "--key <KEY> is missing: did you mean dlock flock -n /var/lock/x true?",
                None,
            ),
            (&["-n", "x", "true"], false, "there is no option -n: did you mean dlock run -n?", None),
            (&["run", "--dry-run"], false, "there is no option --dry-run", Some("dlock run")),
            (&["run", "--conflict"], false, "there is no option --conflict: did you mean --conflict-exit-code?", None),
            (&["run", "--tiemout", "1"], false, "there is no option --tiemout: did you mean --timeout?", None),
            (&["--wait", "1"], false, "there is no option --wait: did you mean dlock run --wait?", None),
            (&["-Z"], false, "there is no option -Z", Some("dlock")),
            (&["run", "--nonblok"], false, "there is no option --nonblok: did you mean --nonblock?", None),
            (&["generate", "man", "run", "x"], false, "unexpected argument x", Some("dlock generate")),
            (
                &["list", "-k", "job"],
                false,
                "list takes a prefix: dlock list PREFIX; for one lock: dlock status --key KEY",
                Some("dlock list"),
            ),
            (&["status", "job"], false, "unexpected argument job: did you mean --key job?", Some("dlock status")),
            (&["latch", "-k", "job", "show", "unit"], false, "unexpected argument unit", Some("dlock latch")),
            (
                &["latch", "-k", "job", "done", "unit"],
                false,
                "unexpected argument unit: did you mean --as unit?",
                Some("dlock latch"),
            ),
            (&["latch", "done", "job"], false, "unexpected argument job: did you mean --key job?", Some("dlock latch")),
            (
                &["barrier", "-k", "job", "--parties", "2", "--", "true"],
                false,
                "barrier runs no command; write: dlock barrier … && COMMAND",
                Some("dlock barrier"),
            ),
            (
                &["release", "-k", "job"],
                false,
                "there is no option -k; release takes the handle that dlock acquire printed",
                Some("dlock release"),
            ),
            (&["mutex"], false, "there is no subcommand mutex", Some("dlock")),
            (&["rum"], false, "there is no subcommand rum: did you mean run?", None),
            (&["run", "true"], false, "--key <KEY> is missing", Some("dlock run")),
            (&["run", "job", "--", "true"], false, "--key <KEY> is missing: did you mean --key job?", None),
        ]);
    }

    #[test]
    fn a_missing_or_wrong_value_is_named() {
        check(&[
            (&["generate"], false, "<WHAT> is missing", Some("dlock generate")),
            (&["run", "-k", "k", "-w"], false, "--wait <DURATION>: the value is missing", Some("dlock run")),
            (
                &["run", "-k", "k", "-w", "soon"],
                false,
                "--wait soon: not a duration: use seconds (10, 0.5) or units (500ms, 1m30s, 1d)",
                Some("dlock run"),
            ),
            (&["run", "-k", "k", "-t", "0"], true, "DLOCK_TTL=0: a lease lasts at least 1s", Some("dlock run")),
            (
                &["run", "-k", "k", "--on-lost", "x"],
                false,
                "--on-lost x: use one of stop, kill, ignore",
                Some("dlock run"),
            ),
            (
                &["run", "-k", "k", "--slots", "0"],
                false,
                "--slots 0: must be a whole number from 1 to 1000",
                Some("dlock run"),
            ),
            (
                &["generate", "fsh"],
                false,
                "<WHAT> fsh: use one of man, bash, zsh, fish, postgres, mysql: did you mean fish?",
                None,
            ),
            (&["run", "-k", "k", "--close=x"], false, "--close takes no value", Some("dlock run")),
            (&[], false, "no command given; try: dlock run --key KEY -- COMMAND", Some("dlock")),
        ]);
    }

    #[test]
    fn a_subcommand_of_other_tools_or_with_a_slip_names_the_right_one() {
        for (typed, meant) in [
            ("relase", Some("release")),
            ("refresh", Some("renew")),
            ("extend", Some("renew")),
            ("lock", Some("run")),
            ("rnu", Some("run")),
            ("unlock", Some("break, or release HANDLE")),
            ("force-unlock", Some("break")),
            ("steal", Some("break")),
            ("who", Some("status")),
            ("ps", Some("status")),
            ("stauts", Some("status")),
            ("stat", Some("status")),
            ("ls", Some("list")),
            ("doctor", Some("check")),
            ("ping", Some("check")),
            ("completion", Some("generate bash")),
            ("completions", Some("generate bash")),
            ("version", Some("--version")),
            ("mutex", None),
            ("reset", None),
            ("start", None),
            ("x", None),
        ] {
            let words: Vec<OsString> = ["dlock", typed].map(OsString::from).to_vec();
            let error = Cli::command().try_get_matches_from(&words).expect_err("a mistake");
            let text = mistake(&error, &Cli::command(), &words, false).text;
            let meant = meant.map(|meant| format!(": did you mean {meant}?")).unwrap_or_default();
            assert_eq!(text, format!("there is no subcommand {typed}{meant}"));
        }
    }
}
