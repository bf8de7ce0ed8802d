/*!
The short help, `-h`: the options that most people need, one line each. All options are in `--help`.
*/

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command};

/// The narrowest terminal that is supported, in columns.
const COLUMNS: usize = 80;

/// The options in a subcommand's short help: the long name and the text of each.
type Lines = &'static [(&'static str, &'static str)];

const KEY: (&str, &str) = ("key", "The lock's name");
const BACKEND: (&str, &str) = ("backend", "The backend; file: (this host) by default");
const PASSWORD_FILE: (&str, &str) = ("password-file", "Read the backend's password from FILE");
const QUIET: (&str, &str) = ("quiet", "Errors only");
const JSON: (&str, &str) = ("json", "Print one JSON document");
const NONBLOCK: (&str, &str) = ("nonblock", "Do not wait for the lock");
const CONFLICT: (&str, &str) = ("conflict-exit-code", "Exit code without the lock, instead of 75");
const RAN_OUT: (&str, &str) = ("conflict-exit-code", "Exit code when the wait ran out, instead of 75");
const VERBOSE: (&str, &str) = ("verbose", "Also report what was done");
const WAIT: (&str, &str) = ("wait", "Wait at most this long, such as 30s or 10m");

/// The subcommands whose options do not fit on one screen.
const BRIEF: &[(&str, Lines)] = &[
    (
        "run",
        &[
            ("key", "The lock's name; repeat it to hold several locks"),
            ("handle", "Run under a lock that dlock acquire has taken"),
            BACKEND,
            NONBLOCK,
            WAIT,
            ("shared", "Hold the lock together with other readers"),
            ("slots", "Let up to N runs hold the lock at once"),
            ("conflict-exit-code", "Exit code without the lock; -E 0: skip quietly"),
            ("ttl", "How long a dead host keeps the lock (30s)"),
            ("once-per", "Succeed at most once per period (1h, 1d, ...)"),
            ("min-hold", "Keep the lock for at least this long"),
            ("max-run", "Stop the command after this long"),
            ("command", "Run STRING with /bin/sh -c"),
            ("reason", "Text shown to those who wait"),
            QUIET,
            ("verbose", "Also report when the lock is acquired and freed"),
            PASSWORD_FILE,
        ],
    ),
    (
        "acquire",
        &[
            KEY,
            BACKEND,
            ("ttl", "How long the lock lasts unless it is renewed"),
            ("while-pid", "Renew the lock until process PID has ended"),
            NONBLOCK,
            WAIT,
            CONFLICT,
            ("reason", "Text shown to those who wait"),
            ("shell", "Print a line for eval in a shell"),
            JSON,
            QUIET,
            VERBOSE,
            PASSWORD_FILE,
        ],
    ),
    (
        "status",
        &[
            KEY,
            BACKEND,
            ("done-within", "Check that a --once-per run has succeeded"),
            JSON,
            ("watch", "Refresh the output until Ctrl-C"),
            ("quiet", "Print nothing; the exit code tells"),
            PASSWORD_FILE,
        ],
    ),
    (
        "list",
        &[
            BACKEND,
            ("limit", "Show at most N locks (1000); 0 for all"),
            JSON,
            ("watch", "Refresh the output until Ctrl-C"),
            ("quiet", "No remarks"),
            PASSWORD_FILE,
        ],
    ),
    (
        "break",
        &[
            KEY,
            ("owner", "The owner id that dlock status shows"),
            BACKEND,
            ("reason", "Why; shown to the holder and by dlock status"),
            WAIT,
            ("now", "Take the lock away at once: two may run"),
            ("yes", "Do not ask for confirmation"),
            QUIET,
            PASSWORD_FILE,
        ],
    ),
    (
        "check",
        &[
            BACKEND,
            ("ttl", "The lease that runs will ask for (30s)"),
            JSON,
            ("quiet", "Print nothing; the exit code tells"),
            PASSWORD_FILE,
        ],
    ),
    ("held", &[("key", "The lock's name; repeat it to ask for several locks"), BACKEND]),
    ("config", &[BACKEND, ("profile", "Use the values of this profile"), JSON]),
    ("renew", &[QUIET, VERBOSE, PASSWORD_FILE]),
    ("release", &[QUIET, VERBOSE, PASSWORD_FILE]),
    (
        "latch",
        &[
            ("key", "The latch's name"),
            BACKEND,
            ("as", "done, fail: the name of the job"),
            ("count", "wait: how many names must be done (1 to 1000)"),
            ("reason", "fail: why, for those who wait"),
            ("keep", "done, fail: how long it is remembered (24h)"),
            ("json", "show: print one JSON document"),
            WAIT,
            RAN_OUT,
            QUIET,
            VERBOSE,
            PASSWORD_FILE,
        ],
    ),
    (
        "barrier",
        &[
            ("key", "The barrier's name"),
            BACKEND,
            ("parties", "How many parties must be there (1 to 100)"),
            ("as", "This party's name (the host's)"),
            ("patient", "Go on waiting when others leave or die"),
            WAIT,
            RAN_OUT,
            QUIET,
            VERBOSE,
            PASSWORD_FILE,
        ],
    ),
];

/// Returns the short help that `words` ask for; `None` if they ask for `--help`, or for a help that is short anyway.
pub(super) fn help(cli: &Command, words: &[OsString]) -> Option<String> {
    let is_long = words.iter().take_while(|word| *word != "--").any(|word| word == "--help");
    let name = words.get(1).filter(|_| !is_long)?.to_str()?;
    let (name, lines) = BRIEF.iter().find(|(known, _)| *known == name)?;
    Some(of(cli, name, lines))
}

fn of(cli: &Command, name: &str, lines: Lines) -> String {
    let mut all = cli.clone();
    all.build();
    let count = all.find_subcommand(name).map_or(0, options_of);
    let mut cli = cli.clone().mut_subcommand(name, |command| short(command, name, lines, count));
    cli.build();
    cli.find_subcommand_mut(name).map(|command| command.render_help().to_string()).unwrap_or_default()
}

/// Returns the `command` of this `name` with only the options of `lines`; it has `count` options in all.
fn short(command: Command, name: &str, lines: Lines, count: usize) -> Command {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = examples.split("\n\n").next().filter(|text| text.starts_with("Example"));
    let examples = examples.map(|examples| format!("{examples}\n\n")).unwrap_or_default();
    let line = |arg: &Arg| lines.iter().find(|(long, _)| arg.get_long() == Some(*long)).map(|(_, line)| *line);
    let help =
        Arg::new("help").short('h').long("help").action(ArgAction::Help).help("Print this help; --help: all of it");
    let help = help.help_heading(Resettable::Reset);
    command
        .mut_args(|arg| {
            let (line, is_positional) = (line(&arg), arg.is_positional());
            let arg = bare(arg).hide(line.is_none() && !is_positional);
            if let Some(line) = line { arg.help(line).help_heading(Resettable::Reset) } else { arg }
        })
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(help)
        .term_width(COLUMNS)
        .after_help(format!("{examples}All {count} options: dlock {name} --help\nThe manual: man dlock-{name}"))
}

/// Returns the number of options of a `command`.
fn options_of(command: &Command) -> usize {
    command.get_arguments().filter(|arg| !arg.is_positional()).count()
}

/// Returns the argument without anything that the help adds to its text.
fn bare(arg: Arg) -> Arg {
    let has_value = !matches!(arg.get_action(), ArgAction::SetTrue);
    arg.hide_env(true).hide_default_value(has_value).hide_possible_values(has_value).visible_alias(Resettable::Reset)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// Returns the lines of `help` that begin with an option.
    fn options(help: &str) -> Vec<&str> {
        help.lines().filter(|line| line.trim_start().starts_with('-')).collect()
    }

    #[test]
    fn the_short_help_has_a_line_for_each_common_option() {
        for (name, lines) in BRIEF {
            let help = of(&Cli::command(), name, lines);
            assert!(help.lines().all(|line| line.chars().count() <= COLUMNS), "{name}: {help}");
            assert_eq!(options(&help).len(), lines.len() + 1, "{name}: {help}");
            let mut cli = Cli::command();
            cli.build();
            let all = options_of(cli.find_subcommand(name).expect("a subcommand"));
            assert!(
                help.ends_with(&format!("All {all} options: dlock {name} --help\nThe manual: man dlock-{name}\n")),
                "{help}"
            );
            for (long, line) in *lines {
                let is_it = |text: &&str| text.contains(&format!("--{long} ")) && text.ends_with(line);
                assert_eq!(options(&help).into_iter().filter(is_it).count(), 1, "{name} --{long}: {help}");
            }
        }
    }

    #[test]
    fn a_subcommand_with_many_options_has_a_short_help() {
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands().filter(|command| options_of(command) > 15) {
            assert!(BRIEF.iter().any(|(name, _)| *name == command.get_name()), "{}", command.get_name());
        }
    }

    #[test]
    fn only_a_short_help_is_short() {
        let help = |words: &[&str]| help(&Cli::command(), &words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(help(&["dlock", "run", "-nh"]).is_some());
        assert!(help(&["dlock", "run", "-h", "--", "x", "--help"]).is_some());
        for words in [&["dlock", "run", "--help"][..], &["dlock", "-h"], &["dlock", "generate", "-h"]] {
            assert_eq!(help(words), None, "{words:?}");
        }
    }

    /// The common options come first in the long help, too.
    #[test]
    fn what_is_rare_stands_last() {
        let mut cli = Cli::command();
        cli.build();
        let help = cli.find_subcommand_mut("run").expect("run").render_long_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text}: {help}"));
        assert!(at("--max-run <") < at("Connection options:"), "{help}");
        assert!(at("--password-file <") < at("Rarely needed options:"), "{help}");
        for rare in ["-x, --exclusive", "--lock-delay <", "--on-lost <", "-o, --close", "--strict-fencing\n"] {
            assert!(at(rare) > at("Rarely needed options:"), "{rare}: {help}");
        }
    }

    /// A reader of README who types `-h` finds the options that README shows.
    #[test]
    fn options_that_readme_shows_are_in_the_short_help() {
        let readme = include_str!("../../README.md");
        // Code is in a line or in a block; there is nothing between two of the three backticks around a block.
        let code = readme.split('`').skip(1).step_by(2).flat_map(str::lines);
        let mut count = 0;
        for (name, lines) in BRIEF {
            let mut cli = Cli::command();
            cli.build();
            let all = cli.find_subcommand(name).expect("a subcommand");
            let short = of(&Cli::command(), name, lines);
            for line in code.clone().filter(|line| line.contains(&format!("dlock {name} "))) {
                let ours = line.split(&format!("dlock {name} ")).nth(1).unwrap_or_default();
                let ours = ours.split([';', '|', ')']).next().unwrap_or_default();
                for word in
                    ours.split_whitespace().take_while(|word| *word != "--").filter(|word| word.starts_with('-'))
                {
                    let is_it = |arg: &&Arg| {
                        arg.get_long().is_some_and(|long| format!("--{long}") == word)
                            || arg.get_short().is_some_and(|short| format!("-{short}") == word)
                    };
                    let Some(option) = all.get_arguments().find(is_it).and_then(Arg::get_long) else { continue };
                    count += 1;
                    assert!(
                        options(&short).iter().any(|line| line.contains(&format!("--{option} "))),
                        "{line}: {short}"
                    );
                }
            }
        }
        assert!(count > 20, "{count}");
    }
}
