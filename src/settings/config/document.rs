/*!
The contents of a config file: options and their values, at its top and in the tables of its profiles.
*/

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::backend::url::without_password;
use crate::cli::defaults::{Kind, check, is_option, options};
use crate::cli::parser;

/// The option for the password itself, which only config files have.
pub(super) const PASSWORD: &str = "password";
/// The option for the file with the password.
const PASSWORD_FILE: &str = "password-file";
/// The option for the destination of events.
const EVENTS: &str = "events";
/// The option for the paths that `dlock flock` locks at the backend, which only config files have.
pub(crate) const FLOCK_PATHS: &str = "flock-paths";
/// The name of the tables of profiles. If its value is a string, that is the profile to use by default.
const PROFILE: &str = "profile";
/// Minimum similarity of an unknown name and a suggestion for it, from 0 to 1 (Jaro-Winkler).
const LEAST_LIKENESS: f64 = 0.7;
/// Maximum number of characters of an unknown name in messages.
const MOST_SHOWN: usize = 60;

/// A config file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    /// The entries at its top.
    pub top: Vec<Entry>,
    /// The entries of each profile.
    pub profiles: BTreeMap<String, Vec<Entry>>,
    /// The profile to use by default, with its line.
    pub profile: Option<(String, usize)>,
}

/// An option and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The option's long name.
    pub option: String,
    /// Its value as on the command line; `true` or `false` for a switch. Paths for flock are a JSON array.
    pub value: String,
    /// The line, from 1 on.
    pub line: usize,
}

/// A mistake in a config file, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// The line, from 1 on.
    pub line: usize,
    /// The mistake and its remedy.
    pub text: String,
}

/// Parses the text of a config file in `directory`, from which relative paths start.
pub(super) fn document(text: &str, directory: &Path) -> Result<Document, Mistake> {
    let parser = parser();
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(end, _)| end + 1)).collect();
    let reader = Reader { starts, directory, options: options(&parser), parser };
    let table = DeTable::parse(text).map_err(|error| Mistake {
        line: reader.line(error.span().map_or(0, |span| span.start)),
        text: syntax(error.message()),
    })?;
    let mut document = Document::default();
    for (name, value) in in_order(table.get_ref()) {
        match value.get_ref() {
            DeValue::Table(profiles) if name.get_ref() == PROFILE => {
                for (name, value) in in_order(profiles) {
                    let DeValue::Table(entries) = value.get_ref() else {
                        let what = format!("{} is in no profile: write [profile.NAME] above it", short(name.get_ref()));
                        return Err(reader.mistake(name, what));
                    };
                    document.profiles.insert(name.get_ref().to_string(), reader.entries(in_order(entries))?);
                }
            }
            DeValue::String(profile) if name.get_ref() == PROFILE => {
                document.profile = Some((profile.to_string(), reader.line(name.span().start)));
            }
            DeValue::Table(_) if !reader.is_known(name.get_ref()) => {
                let name_shown = short(name.get_ref());
                return Err(reader
                    .mistake(name, format!("there is no table {name_shown}: did you mean [profile.{name_shown}]?")));
            }
            _ => document.top.push(reader.entry(name, value)?),
        }
    }
    check_secrets(&document.top)?;
    Ok(document)
}

/// A name and its value, as the TOML parser returns them.
type Pair<'a, 'b> = (&'b Spanned<Cow<'a, str>>, &'b Spanned<DeValue<'a>>);

/// Returns the names and values of a table in the order of the text, so that the first mistake is the one reported.
fn in_order<'a, 'b>(table: &'b DeTable<'a>) -> Vec<Pair<'a, 'b>> {
    let mut pairs: Vec<Pair<'a, 'b>> = table.iter().collect();
    pairs.sort_by_key(|(name, _)| name.span().start);
    pairs
}

/// Returns a name from the file for messages: cut to [`MOST_SHOWN`] characters, and without a password if it is a URL.
fn short(name: &str) -> String {
    without_password(name).chars().take(MOST_SHOWN).collect()
}

/// Returns the TOML parser's message, in plainer words where possible.
fn syntax(message: &str) -> String {
    if message.starts_with("cannot extend value of type string") {
        return "a file that has profiles cannot choose one: use --profile or DLOCK_PROFILE".to_owned();
    }
    if message.starts_with("string values must be quoted") {
        return "a text must be in quotes: \"text\"".to_owned();
    }
    message.to_owned()
}

struct Reader<'a> {
    /// The byte at which each line begins.
    starts: Vec<usize>,
    directory: &'a Path,
    options: BTreeMap<String, Kind>,
    parser: clap::Command,
}

impl Reader<'_> {
    /// Reads the entries of a profile.
    fn entries(&self, pairs: Vec<Pair<'_, '_>>) -> Result<Vec<Entry>, Mistake> {
        let entries: Vec<Entry> =
            pairs.into_iter().map(|(name, value)| self.entry(name, value)).collect::<Result<_, _>>()?;
        check_secrets(&entries)?;
        Ok(entries)
    }

    fn is_known(&self, option: &str) -> bool {
        [PASSWORD, FLOCK_PATHS].contains(&option) || self.options.contains_key(option)
    }

    fn entry(&self, name: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> Result<Entry, Mistake> {
        let option = name.get_ref().as_ref();
        let wrong = |text: String| self.mistake(name, format!("{option}: {text}"));
        if option == FLOCK_PATHS {
            let value = patterns(value.get_ref()).ok_or_else(|| wrong(format!("use a list of {PATTERNS}")))?;
            return Ok(Entry { option: option.to_owned(), value, line: self.line(name.span().start) });
        }
        let kind = match self.options.get(option) {
            Some(_) if option == PROFILE => {
                return Err(wrong("a profile chooses no other: set it at the top of the file".to_owned()));
            }
            Some(kind) => *kind,
            None if option == PASSWORD => Kind::Text,
            None => return Err(self.mistake(name, self.unknown(option))),
        };
        let value = match (kind, value.get_ref()) {
            (Kind::Switch, DeValue::Boolean(on)) => on.to_string(),
            (Kind::Switch, _) => return Err(wrong("use true or false".to_owned())),
            (_, DeValue::String(text)) => text.to_string(),
            (_, DeValue::Integer(number)) if number.radix() == 10 => number.as_str().replace('_', ""),
            (_, DeValue::Float(number)) => number.as_str().replace('_', ""),
            _ => return Err(wrong("use a text in quotes, or a number".to_owned())),
        };
        if value.contains('\0') {
            return Err(wrong("the value contains a NUL byte".to_owned()));
        }
        let value = match kind {
            Kind::Path if !is_descriptor(option, &value) => self.place(value).map_err(wrong)?,
            _ => value,
        };
        // The password is kept away from the parser, whose errors could repeat it.
        if option != PASSWORD && kind != Kind::Switch {
            check(&self.parser, option, &value).map_err(wrong)?;
        }
        Ok(Entry { option: option.to_owned(), value, line: self.line(name.span().start) })
    }

    /// Resolves a path: a relative one starts at the directory of the config file.
    fn place(&self, path: String) -> Result<String, String> {
        if Path::new(&path).is_absolute() {
            return Ok(path);
        }
        let place = self.directory.join(path).into_os_string().into_string();
        place.map_err(|_| "use an absolute path, because the name of this directory is not UTF-8".to_owned())
    }

    /// Returns the message for an option that config files do not have.
    fn unknown(&self, option: &str) -> String {
        if is_option(&self.parser, option) {
            return format!("{option} is only for the command line");
        }
        let known = self.options.keys().map(String::as_str).chain([PASSWORD, FLOCK_PATHS]);
        let alike = known.map(|known| (strsim::jaro_winkler(option, known), known));
        let best = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
        match best.filter(|(likeness, _)| *likeness >= LEAST_LIKENESS) {
            Some((_, meant)) => format!("there is no option {}: did you mean {meant}?", short(option)),
            None => format!("there is no option {}; see dlock config --help", short(option)),
        }
    }

    fn mistake<N>(&self, at: &Spanned<N>, text: String) -> Mistake {
        Mistake { line: self.line(at.span().start), text }
    }

    /// Returns the line of the byte at this position, from 1 on.
    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }
}

/// The elements of [`FLOCK_PATHS`], for messages.
const PATTERNS: &str = "absolute paths, in which * is any name: [\"/var/lock/jobs/*\"]";

/// Returns the paths for flock as a JSON array; `None` unless `value` is a list of absolute paths without NUL.
fn patterns(value: &DeValue<'_>) -> Option<String> {
    let DeValue::Array(values) = value else { return None };
    let pattern = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) if text.starts_with('/') && !text.contains('\0') => Some(text.to_string()),
        _ => None,
    };
    serde_json::to_string(&values.iter().map(pattern).collect::<Option<Vec<_>>>()?).ok()
}

/// Fails if `entries` have both a password and a file for it.
fn check_secrets(entries: &[Entry]) -> Result<(), Mistake> {
    let of = |option: &str| entries.iter().find(|entry| entry.option == option);
    match (of(PASSWORD), of(PASSWORD_FILE)) {
        (Some(one), Some(other)) => {
            let text = format!("{PASSWORD} and {PASSWORD_FILE} are mutually exclusive: use one of them");
            Err(Mistake { line: one.line.max(other.line), text })
        }
        _ => Ok(()),
    }
}

/// Returns `true` if the value of this option names standard input or an open descriptor, which are in no directory.
fn is_descriptor(option: &str, value: &str) -> bool {
    [PASSWORD_FILE, EVENTS].contains(&option) && value.starts_with("fd:") || option == PASSWORD_FILE && value == "-"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Document, Mistake> {
        document(text, Path::new("/etc/dlock"))
    }

    fn entry(option: &str, value: &str, line: usize) -> Entry {
        Entry { option: option.to_owned(), value: value.to_owned(), line }
    }

    #[test]
    fn options_and_profiles() {
        let text = "backend = \"redis://a\"\nwait = 10\n\nttl = 0x0\n";
        assert_eq!(read(text), Err(Mistake { line: 4, text: "ttl: use a text in quotes, or a number".to_owned() }));
        let text = "backend = \"redis://a\"\nnonblock = true\nwait = 1_0.5\npassword-file = \"p\"\n\
                    [profile.ci]\ntls-ca = \"/x\"\npassword-file = \"fd:3\"\n[profile.\"a b\"]\n";
        let read = read(text).expect("right");
        let top = [
            entry("backend", "redis://a", 1),
            entry("nonblock", "true", 2),
            entry("wait", "10.5", 3),
            entry("password-file", "/etc/dlock/p", 4),
        ];
        assert_eq!(read.top, top);
        let mut ci = read.profiles["ci"].clone();
        ci.sort_by_key(|entry| entry.line);
        assert_eq!(ci, [entry("tls-ca", "/x", 6), entry("password-file", "fd:3", 7)]);
        assert_eq!(read.profiles["a b"], []);
    }

    #[test]
    fn mistakes_name_their_line_and_what_to_do() {
        for (text, line, expected) in [
            ("\nwiat = 1", 2, "there is no option wiat: did you mean wait?"),
            ("zzzz = 1", 1, "there is no option zzzz; see dlock config --help"),
            ("command = \"x\"", 1, "command is only for the command line"),
            ("key = \"x\"", 1, "key is only for the command line"),
            ("wait = \"soon\"", 1, "wait: not a duration: use seconds (10, 0.5) or units (500ms, 1m30s, 1d)"),
            ("on-lost = \"x\"", 1, "on-lost: use one of stop, kill, ignore"),
            ("nonblock = \"yes\"", 1, "nonblock: use true or false"),
            ("wait = true", 1, "wait: use a text in quotes, or a number"),
            ("wait = [1]", 1, "wait: use a text in quotes, or a number"),
            ("reason = \"a\\u0000\"", 1, "reason: the value contains a NUL byte"),
            (
                "flock-paths = [\"jobs/*\"]",
                1,
                "flock-paths: use a list of absolute paths, in which * is any name: [\"/var/lock/jobs/*\"]",
            ),
            (
                "flock-paths = \"/var/lock/jobs/*\"",
                1,
                "flock-paths: use a list of absolute paths, in which * is any name: [\"/var/lock/jobs/*\"]",
            ),
            ("flock-path = []", 1, "there is no option flock-path: did you mean flock-paths?"),
            ("[profile]\nwait = 1", 2, "wait is in no profile: write [profile.NAME] above it"),
            ("[profile.a]\nprofile = \"b\"", 2, "profile: a profile chooses no other: set it at the top of the file"),
            ("[ci]\nwait = 1", 1, "there is no table ci: did you mean [profile.ci]?"),
            ("ttl = 0\nbackend = 1\nwiat = 1", 1, "ttl: a lease lasts at least 1s"),
            (
                "password-file = \"a\"\npassword = \"b\"",
                2,
                "password and password-file are mutually exclusive: use one of them",
            ),
            (
                "profile = \"a\"\n[profile.a]\n",
                2,
                "a file that has profiles cannot choose one: use --profile or DLOCK_PROFILE",
            ),
            ("wait = 10m", 1, "a text must be in quotes: \"text\""),
            ("backend = redis://h", 1, "a text must be in quotes: \"text\""),
            ("[profile.a]\nwiat = 1", 2, "there is no option wiat: did you mean wait?"),
        ] {
            assert_eq!(read(text), Err(Mistake { line, text: expected.to_owned() }), "{text}");
        }
        for text in ["wait = ", "wait = 1\nwait = 2", "[profile.a]\n[profile.a]", "= 1"] {
            let Mistake { text: said, .. } = read(text).expect_err(text);
            assert!(!said.is_empty() && !said.contains('\n'), "{text}: {said}");
        }
    }

    #[test]
    fn no_mistake_repeats_a_password() {
        for text in ["password = [\"secret\"]", "password = \"secret\\u0000\"", "passwort = \"secret\""] {
            let said = read(text).expect_err(text).text;
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn twenty_typos_are_understood() {
        for (typo, meant) in [
            ("wiat", "wait"),
            ("bakend", "backend"),
            ("backned", "backend"),
            ("name-space", "namespace"),
            ("namspace", "namespace"),
            ("connect_timeout", "connect-timeout"),
            ("connection-timeout", "connect-timeout"),
            ("usr", "user"),
            ("username", "user"),
            ("pasword", "password"),
            ("password_file", "password-file"),
            ("passwordfile", "password-file"),
            ("tls_ca", "tls-ca"),
            ("tls-cart", "tls-cert"),
            ("tls-servername", "tls-server-name"),
            ("non-block", "nonblock"),
            ("nonblocking", "nonblock"),
            ("kill_after", "kill-after"),
            ("maxrun", "max-run"),
            ("leftover", "leftovers"),
            ("require_backend", "require-backend"),
        ] {
            let said = read(&format!("{typo} = 1")).expect_err(typo).text;
            assert_eq!(said, format!("there is no option {typo}: did you mean {meant}?"));
        }
    }
}
