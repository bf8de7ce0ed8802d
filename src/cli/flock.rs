/*!
The command line of flock(1) from util-linux 2.38, read as `getopt_long` reads it.
*/

use std::ffi::{OsStr, OsString};
use std::num::IntErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// The name by which dlock takes flock's command line.
const NAME: &str = "flock";
/// The shell of `-c` if `SHELL` names none.
const SHELL: &str = "/bin/sh";

/// The long description of `dlock flock`.
pub(super) const FLOCK_ABOUT: &str = "\
Takes the command line of flock(1) from util-linux 2.38. A link called flock that points to dlock does the \
same, so crontabs and scripts need no edit. Without a configured backend, this is flock(2) on FILE itself, a directory or an \
open descriptor, with the exit codes of flock, and excludes every other flock on this host.

With DLOCK_BACKEND, it is a dlock run whose key is the absolute path of FILE as it was typed: links are not followed, and FILE \
is neither opened nor created. A backend in a config file applies only to the paths that flock-paths names there (see \
dlock-config(5)). All other paths stay on this host, so that the scripts of the system's packages do not wait for a server.";

/// The end of the help of `dlock flock`.
pub(super) const FLOCK_EXAMPLES: &str = "\
With this link, lines that say flock run dlock:
  ln -s \"$(command -v dlock)\" /usr/local/bin/flock

What changes with a backend, and what a server cannot do: man dlock-flock";

/// `dlock flock`, for the help, pages and completions; [`read`] reads it.
#[derive(Debug)]
pub(crate) struct FlockArgs;

impl FromArgMatches for FlockArgs {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl Args for FlockArgs {
    fn augment_args(command: Command) -> Command {
        command.override_usage(USAGE).args(arguments()).disable_help_flag(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

const USAGE: &str = "flock [OPTIONS] <FILE>|<DIRECTORY> <COMMAND> [ARG]...
       flock [OPTIONS] <FILE>|<DIRECTORY> -c <STRING>
       flock [OPTIONS] <DESCRIPTOR>";

/// An option of flock.
struct Definition {
    /// Its letters; the help shows the first.
    letters: &'static str,
    /// Its long names; the help shows the first two.
    names: &'static [&'static str],
    /// The name of its value, if it takes one.
    value: Option<&'static str>,
    /// Its description in the help.
    help: &'static str,
}

/// The options, in the order in which the message about an ambiguous abbreviation lists them.
const OPTIONS: &[Definition] = &[
    Definition {
        letters: "s",
        names: &["shared"],
        value: None,
        help: "Hold the lock together with others that share it",
    },
    Definition { letters: "xe", names: &["exclusive"], value: None, help: "Hold the lock alone, which is the default" },
    Definition {
        letters: "u",
        names: &["unlock"],
        value: None,
        help: "Drop the lock of the open file; usually unnecessary, because it is dropped when the last process closes the file",
    },
    Definition {
        letters: "n",
        names: &["nonblock", "nb", "nonblocking"],
        value: None,
        help: "Do not wait: exit with 1 when the lock is held",
    },
    Definition {
        letters: "w",
        names: &["timeout", "wait"],
        value: Some("SECONDS"),
        help: "Wait at most this long, such as 10 or 0.5; 0 is -n",
    },
    Definition {
        letters: "E",
        names: &["conflict-exit-code"],
        value: Some("N"),
        help: "Exit code when the lock was not acquired, instead of 1",
    },
    Definition {
        letters: "o",
        names: &["close"],
        value: None,
        help: "Do not let the command inherit the locked descriptor",
    },
    Definition {
        letters: "F",
        names: &["no-fork"],
        value: None,
        help: "Become the command instead of starting it; with a backend, dlock stays to keep the lock",
    },
    Definition {
        letters: "",
        names: &["verbose"],
        value: None,
        help: "Also report how long it took to acquire the lock, or why it was not acquired",
    },
    Definition { letters: "h", names: &["help"], value: None, help: "Print help" },
    Definition { letters: "V", names: &["version"], value: None, help: "Print version" },
];

/// Returns the options and words for the parser, which makes the help, pages and completions of them.
fn arguments() -> Vec<Arg> {
    let argument = |option: &Definition| {
        let (name, aliases) = (option.names[0], option.names.iter().skip(1));
        let argument = Arg::new(name).long(name).visible_aliases(aliases.take(1)).help(option.help);
        let argument = option.letters.chars().next().map_or(argument.clone(), |letter| argument.short(letter));
        match option.value {
            Some(value) => argument.value_name(value),
            // The parser's own option would promise a longer help.
            None if name == "help" => argument.action(ArgAction::Help),
            None => argument.action(ArgAction::SetTrue),
        }
    };
    // The parser already has --version.
    let own = OPTIONS.iter().filter(|option| option.names[0] != "version");
    let command = Arg::new("command").short('c').long("command").value_name("STRING");
    let command = command.help("After FILE only: run STRING with $SHELL -c, or with /bin/sh if SHELL is not set");
    let words = Arg::new("words").value_name("FILE").num_args(0..).trailing_var_arg(true).help(
        "A file, which is created if it is missing, or a directory, and the command to run under its lock; or the number of \
         an open descriptor",
    );
    own.map(argument).chain([command, words]).collect()
}

/// The request of a command line of flock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// Lock or unlock something.
    Lock(FlockOptions, Object),
}

/// An operation on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Hold it alone.
    Exclusive,
    /// Hold it together with others.
    Shared,
    /// Release it.
    Unlock,
}

/// The limit of the wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// At most this time; zero means not to wait.
    For(Duration),
    /// A time that no timer can be set to: it is negative, too long, or not a number.
    Impossible,
}

/// The options of flock.
#[derive(Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "these are switches of a command line")]
pub(crate) struct FlockOptions {
    /// The operation, if one was given.
    pub operation: Option<Operation>,
    /// `true` if a held lock is not waited for.
    pub nonblock: bool,
    /// The limit of the wait.
    pub timeout: Option<Timeout>,
    /// The exit code if the lock is not acquired.
    pub conflict: Option<u8>,
    /// `true` if the command does not inherit the locked descriptor.
    pub close: bool,
    /// `true` if dlock becomes the command instead of starting it.
    pub no_fork: bool,
    /// `true` to report more.
    pub verbose: bool,
}

/// The object to lock or to unlock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// An open descriptor.
    Descriptor(i32),
    /// A file or directory, to lock while a command runs.
    Path {
        /// Its path, as it was typed.
        file: OsString,
        /// The program and its arguments; never empty.
        argv: Vec<OsString>,
    },
}

/// A mistake in a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misuse {
    /// The message.
    pub text: String,
    /// `true` if the help says more.
    pub has_help: bool,
}

/// Returns the words after the name, if this process was called as flock.
pub(crate) fn words() -> Option<Vec<OsString>> {
    called(std::env::args_os().collect())
}

fn called(words: Vec<OsString>) -> Option<Vec<OsString>> {
    let is_link = words.first().is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(NAME)));
    let skipped = if is_link { 1 } else { 2 };
    (is_link || words.get(1).is_some_and(|name| name == NAME)).then(|| words.into_iter().skip(skipped).collect())
}

/// Reads the words of a command line. `shell` is the value of `SHELL`.
pub(crate) fn read(words: Vec<OsString>, shell: Option<OsString>) -> Result<Request, Misuse> {
    if words.is_empty() {
        return Err(Misuse { text: "not enough arguments".to_owned(), has_help: true });
    }
    let (mut words, mut options) = (words.into_iter().peekable(), FlockOptions::default());
    while let Some(word) = words.next_if(|word| word.len() > 1 && word.as_bytes().starts_with(b"-")) {
        if word == "--" {
            break;
        }
        for (name, value) in options_in(&word, &mut words)? {
            match name {
                "help" => return Ok(Request::Help),
                "version" => return Ok(Request::Version),
                name => options.set(name, &value)?,
            }
        }
    }
    if options.no_fork && options.close {
        return Err(misuse("the --no-fork and --close options are incompatible"));
    }
    object(words.collect(), shell).map(|object| Request::Lock(options, object))
}

/// Returns the object that the words after the options name.
fn object(words: Vec<OsString>, shell: Option<OsString>) -> Result<Object, Misuse> {
    let mut words = words.into_iter();
    let file = words.next().ok_or_else(|| misuse("requires file descriptor, file or directory"))?;
    let argv: Vec<OsString> = words.collect();
    match argv.first() {
        None => number(&file, "bad file descriptor").map(Object::Descriptor),
        Some(option) if option == "-c" || option == "--command" => {
            let [_, command] = argv.as_slice() else {
                let option = option.to_string_lossy();
                return Err(misuse(format!("{option} requires exactly one command argument")));
            };
            let shell = shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| SHELL.into());
            Ok(Object::Path { file, argv: vec![shell, "-c".into(), command.clone()] })
        }
        Some(_) => Ok(Object::Path { file, argv }),
    }
}

impl FlockOptions {
    fn set(&mut self, name: &str, value: &OsStr) -> Result<(), Misuse> {
        match name {
            "shared" => self.operation = Some(Operation::Shared),
            "exclusive" => self.operation = Some(Operation::Exclusive),
            "unlock" => self.operation = Some(Operation::Unlock),
            "nonblock" => self.nonblock = true,
            "close" => self.close = true,
            "no-fork" => self.no_fork = true,
            "verbose" => self.verbose = true,
            "timeout" => {
                let seconds = value.to_str().and_then(|text| text.trim_start().parse().ok());
                let seconds = seconds.ok_or_else(|| quoting("invalid timeout value", value))?;
                let length = Duration::try_from_secs_f64(seconds).ok();
                let length = length.filter(|length| i64::try_from(length.as_secs()).is_ok());
                // The timer of flock counts microseconds.
                let whole = |length: Duration| if length.as_micros() == 0 { Duration::ZERO } else { length };
                self.timeout = Some(length.map_or(Timeout::Impossible, |length| Timeout::For(whole(length))));
            }
            _ => {
                let code = number(value, "invalid exit code")?;
                let code = u8::try_from(code).map_err(|_| misuse("exit code out of range (expected 0 to 255)"))?;
                self.conflict = Some(code);
            }
        }
        Ok(())
    }
}

/// Reads a decimal number as `strtol` does; `what` begins the message for a wrong one.
fn number(text: &OsStr, what: &str) -> Result<i32, Misuse> {
    let number = text.to_str().map(|text| text.trim_start().parse::<i32>());
    match number {
        Some(Ok(number)) => Ok(number),
        Some(Err(error)) if matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
            let Misuse { text, .. } = quoting(what, text);
            Err(misuse(format!("{text}: Numerical result out of range")))
        }
        _ => Err(quoting(what, text)),
    }
}

fn misuse(text: impl Into<String>) -> Misuse {
    Misuse { text: text.into(), has_help: false }
}

fn quoting(what: &str, value: &OsStr) -> Misuse {
    misuse(format!("{what}: '{}'", value.to_string_lossy()))
}

/// The first name of an option, and its value, which is empty for a switch.
type Given = (&'static str, OsString);

/// Returns the options in a `word` that begins with a dash; the value of the last one may be the next of `words`.
fn options_in(word: &OsStr, words: &mut impl Iterator<Item = OsString>) -> Result<Vec<Given>, Misuse> {
    if let Some(long) = word.as_bytes().strip_prefix(b"--") {
        return Ok(vec![long_option(long, words)?]);
    }
    let (letters, mut given) = (&word.as_bytes()[1..], Vec::new());
    for (at, &letter) in letters.iter().enumerate() {
        let letter = char::from(letter);
        let option = OPTIONS.iter().find(|option| option.letters.contains(letter));
        let option = option.ok_or_else(|| with_help(format!("invalid option -- '{letter}'")))?;
        if option.value.is_none() {
            given.push((option.names[0], OsString::new()));
            continue;
        }
        let rest = OsStr::from_bytes(&letters[at + 1..]);
        let value = if rest.is_empty() { words.next() } else { Some(rest.to_owned()) };
        let value = value.ok_or_else(|| with_help(format!("option requires an argument -- '{letter}'")))?;
        given.push((option.names[0], value));
        break;
    }
    Ok(given)
}

/// Returns the option of a word, without its dashes, that begins with a long name or an abbreviation of one.
fn long_option(word: &[u8], words: &mut impl Iterator<Item = OsString>) -> Result<Given, Misuse> {
    let mut parts = word.splitn(2, |&byte| byte == b'=');
    let typed = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let value = parts.next().map(|value| OsStr::from_bytes(value).to_owned());
    let (option, name) = meant(&typed)?;
    match (option.value, value) {
        (None, None) => Ok((option.names[0], OsString::new())),
        (None, Some(_)) => Err(with_help(format!("option '--{name}' doesn't allow an argument"))),
        (Some(_), value) => match value.or_else(|| words.next()) {
            Some(value) => Ok((option.names[0], value)),
            None => Err(with_help(format!("option '--{name}' requires an argument"))),
        },
    }
}

/// Returns the option whose long name is `typed` or begins with it, and that name.
fn meant(typed: &str) -> Result<(&'static Definition, &'static str), Misuse> {
    let all = |is_it: &dyn Fn(&str) -> bool| -> Vec<(&'static Definition, &'static str)> {
        // The longest, because flock has no name that others of the same option begin with.
        let name = |option: &'static Definition| {
            let names = option.names.iter().filter(|name| is_it(name));
            Some((option, *names.max_by_key(|name| name.len())?))
        };
        OPTIONS.iter().filter_map(name).collect()
    };
    let mut found = all(&|name| name == typed);
    if found.is_empty() {
        found = all(&|name| name.starts_with(typed));
    }
    match found.as_slice() {
        [] => Err(with_help(format!("unrecognized option '--{typed}'"))),
        [one] => Ok(*one),
        several => {
            let list: Vec<String> = several.iter().map(|(_, name)| format!("'--{name}'")).collect();
            Err(with_help(format!("option '--{typed}' is ambiguous; possibilities: {}", list.join(" "))))
        }
    }
}

fn with_help(text: String) -> Misuse {
    Misuse { text, has_help: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_words(words: &[&str]) -> Result<Request, String> {
        let words = words.iter().map(OsString::from).collect();
        read(words, Some("/bin/bash".into())).map_err(|misuse| misuse.text)
    }

    fn path(file: &str, argv: &[&str]) -> Object {
        Object::Path { file: file.into(), argv: argv.iter().map(OsString::from).collect() }
    }

    #[test]
    fn options_end_at_the_file_and_may_be_shortened() {
        for (words, options, object) in [
            (&["/f", "-F", "true"][..], FlockOptions::default(), path("/f", &["-F", "true"])),
            (&["--", "-f", "true"], FlockOptions::default(), path("-f", &["true"])),
            (
                &["-snw5", "--nb", "--conf=3", "/f", "-c", "x"],
                FlockOptions {
                    operation: Some(Operation::Shared),
                    nonblock: true,
                    timeout: Some(Timeout::For(Duration::from_secs(5))),
                    conflict: Some(3),
                    ..FlockOptions::default()
                },
                path("/f", &["/bin/bash", "-c", "x"]),
            ),
            (
                &["-se", "--wait", " .5", "-o", "--verb", "9"],
                FlockOptions {
                    operation: Some(Operation::Exclusive),
                    timeout: Some(Timeout::For(Duration::from_millis(500))),
                    close: true,
                    verbose: true,
                    ..FlockOptions::default()
                },
                Object::Descriptor(9),
            ),
            (
                &["-uF", "9"],
                FlockOptions { operation: Some(Operation::Unlock), no_fork: true, ..FlockOptions::default() },
                Object::Descriptor(9),
            ),
        ] {
            assert_eq!(read_words(words), Ok(Request::Lock(options, object)), "{words:?}");
        }
        assert_eq!(read_words(&["-xh", "--foo"]), Ok(Request::Help));
        assert_eq!(read_words(&["-V", "-w"]), Ok(Request::Version));
    }

    #[test]
    fn a_timeout_is_what_a_timer_can_be_set_to() {
        for (text, timeout) in [
            ("1e1", Timeout::For(Duration::from_secs(10))),
            ("0", Timeout::For(Duration::ZERO)),
            ("-0", Timeout::For(Duration::ZERO)),
            ("1e-9", Timeout::For(Duration::ZERO)),
            ("-1", Timeout::Impossible),
            ("inf", Timeout::Impossible),
            ("nan", Timeout::Impossible),
            ("1e19", Timeout::Impossible),
        ] {
            let Ok(Request::Lock(options, _)) = read_words(&["-w", text, "9"]) else { panic!("{text}") };
            assert_eq!(options.timeout, Some(timeout), "{text}");
        }
    }

    #[test]
    fn the_shell_is_sh_where_none_is_named() {
        for shell in [None, Some(OsString::new())] {
            let found = read(["/f", "-c", "x"].map(OsString::from).to_vec(), shell);
            let object = path("/f", &["/bin/sh", "-c", "x"]);
            assert_eq!(found.ok(), Some(Request::Lock(FlockOptions::default(), object)));
        }
    }

    #[test]
    fn a_link_and_a_subcommand_are_flock() {
        let called = |words: &[&str]| called(words.iter().map(OsString::from).collect());
        let rest = Some(vec![OsString::from("-n")]);
        assert_eq!(called(&["/usr/local/bin/flock", "-n"]), rest);
        assert_eq!(called(&["flock", "-n"]), rest);
        assert_eq!(called(&["/usr/bin/dlock", "flock", "-n"]), rest);
        assert_eq!(called(&["dlock", "run", "flock"]), None);
        assert_eq!(called(&["flocked", "-n"]), None);
        assert_eq!(called(&["flock"]), Some(Vec::new()));
    }
}
