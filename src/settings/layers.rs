/*!
The layers of settings: flags over variables over what config files say. Each layer is the same struct, in which every field is
optional. A value comes from the first layer that has it, together with its origin. The defaults, for values that no layer has,
are elsewhere.
*/

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};

use crate::cli::defaults::read_with;
use crate::cli::{RunArgs, parser};
use crate::exit::{Exit, Failure};
use crate::report::event::Event;
use crate::settings::config::{Chosen, Section, files};
use crate::settings::origin::Origin;
use crate::variables::PASSWORD;

/// Where a layer comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The command line.
    Flags,
    /// The variables, one for each option.
    Environment,
    /// A config file.
    File(Section),
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Given<T> {
    /// Whether the value comes from a flag. A flag is meant for this run; a variable or a config file may be for all runs.
    #[must_use]
    pub(crate) fn is_flag(&self) -> bool {
        matches!(self.origin, Origin::Flag(_))
    }

    /// Whether the value is that of this command line alone: another shell has neither its flags nor its variables.
    #[must_use]
    pub(crate) fn is_of_this_run(&self) -> bool {
        matches!(self.origin, Origin::Flag(_) | Origin::Variable(_))
    }
}

/// What one source says, as the arguments of a subcommand.
#[derive(Debug)]
pub(crate) struct Layer<A = RunArgs> {
    /// The source.
    pub source: Source,
    /// The values it gives; all other fields are `None`.
    pub args: A,
}

/// All layers; each overrides those after it.
#[derive(Debug)]
pub(crate) struct Layers<A = RunArgs>(Vec<Layer<A>>);

impl<A: FromArgMatches> Layers<A> {
    /// The layers of a subcommand: what the parser found on the command line and in the variables, and what the config files
    /// say.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let words: Vec<OsString> = std::env::args_os().collect();
        Self::with(matches, &words, files(chosen(matches))?.sections)
    }

    /// The layers of `words`, in which the parser found `matches`, with what config files say.
    pub(super) fn with(matches: &ArgMatches, words: &[OsString], sections: Vec<Section>) -> Result<Self, Failure> {
        let flags = only(matches, ValueSource::CommandLine);
        let environment = only(matches, ValueSource::EnvVariable);
        let mut off = off(matches, ValueSource::EnvVariable);
        let mut layers = vec![layer(Source::Flags, &flags)?, layer(Source::Environment, &environment)?];
        for section in sections {
            layers.push(of_file(section, words, &mut off)?);
        }
        Ok(Self(layers))
    }
}

/// The profile that a flag or else a variable chooses. A flag may choose none at all, by an empty name.
pub(super) fn chosen(matches: &ArgMatches) -> Option<Chosen> {
    let name = matches.get_one::<String>("profile")?.clone();
    let origin = match matches.value_source("profile")? {
        ValueSource::CommandLine => Origin::Flag("profile".into()),
        _ => Origin::Variable("profile".into()),
    };
    Some(Chosen { name, origin })
}

/// What a config file says, but for switches that are turned `off` before it; adds those that it turns off.
fn of_file<A: FromArgMatches>(
    section: Section,
    words: &[OsString],
    off: &mut BTreeSet<String>,
) -> Result<Layer<A>, Failure> {
    let mut values = section.values();
    values.retain(|option, _| !off.contains(option));
    off.extend(values.iter().filter(|(_, value)| *value == "false").map(|(option, _)| option.clone()));
    // The values were checked when the file was read.
    let all = read_with(parser(), words, &values).map_err(|error| misread(&error))?;
    let matches = all.subcommand().map(|(_, matches)| only(matches, ValueSource::DefaultValue));
    layer(Source::File(section), &matches.unwrap_or_default())
}

fn layer<A: FromArgMatches>(source: Source, matches: &ArgMatches) -> Result<Layer<A>, Failure> {
    let args = A::from_arg_matches(matches).map_err(|error| misread(&error))?;
    Ok(Layer { source, args })
}

/// The failure where the parser contradicts itself.
fn misread(error: &clap::Error) -> Failure {
    Failure::new(Exit::Internal, Event::Settings(error.to_string()))
}

/// The switches that `source` turns off, by their long names.
fn off(matches: &ArgMatches, source: ValueSource) -> BTreeSet<String> {
    let is_off = |id: &&str| {
        matches.value_source(id) == Some(source) && matches!(matches.try_get_one::<bool>(id), Ok(Some(false)))
    };
    matches.ids().map(clap::Id::as_str).filter(is_off).map(|id| id.replace('_', "-")).collect()
}

impl<A> Layers<A> {
    /// Layers made by a test.
    #[cfg(test)]
    pub(super) fn of(layers: Vec<Layer<A>>) -> Self {
        Self(layers)
    }

    /// The value of one `option`, from the first layer that has it.
    pub(crate) fn find<T>(&self, option: &'static str, get: impl Fn(&A) -> Option<T>) -> Option<Given<T>> {
        self.settle(|args| get(args).map(|value| (option, value)))
    }

    /// The combined value of several options, from the first layer that has one of them; `get` names the option that decides.
    pub(crate) fn settle<T>(&self, get: impl Fn(&A) -> Option<(&'static str, T)>) -> Option<Given<T>> {
        self.0.iter().find_map(|layer| {
            let (option, value) = get(&layer.args)?;
            Some(Given { value, origin: layer.source.origin(option) })
        })
    }
}

impl<A> Layers<A> {
    /// The password or the file that holds it, from the first layer that has either.
    pub(crate) fn secret(&self, file: impl Fn(&A) -> Option<PathBuf>) -> Option<Given<Secret>> {
        self.0.iter().find_map(|layer| {
            let secret = match file(&layer.args) {
                Some(path) => (Secret::File(path), layer.source.origin("password-file")),
                None => layer.source.password()?,
            };
            Some(Given { value: secret.0, origin: secret.1 })
        })
    }
}

/// A password, or where it is to be read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    /// The file.
    File(PathBuf),
    /// The password itself.
    Text(OsString),
}

/// Without the password.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "File({})", path.display()),
            Self::Text(_) => f.write_str("Text(***)"),
        }
    }
}

impl Source {
    /// Where a value for `option` in this layer comes from.
    fn origin(&self, option: &'static str) -> Origin {
        match self {
            Self::Flags => Origin::Flag(option.into()),
            Self::Environment => Origin::Variable(option.into()),
            Self::File(section) => section.origin(option),
        }
    }

    /// The password that stands in this layer itself.
    fn password(&self) -> Option<(Secret, Origin)> {
        let text = match self {
            Self::Flags => None,
            Self::Environment => std::env::var_os(PASSWORD).filter(|password| !password.is_empty()),
            Self::File(section) => section.password().map(OsString::from),
        };
        Some((Secret::Text(text?), self.origin("password")))
    }
}

/// A value that may be missing, and its default.
pub(crate) trait OrDefault<T> {
    /// The value, or `default`.
    fn or_default(self, default: T) -> Given<T>;
}

impl<T> OrDefault<T> for Option<Given<T>> {
    fn or_default(self, default: T) -> Given<T> {
        self.unwrap_or(Given { value: default, origin: Origin::Default })
    }
}

/// The part of `matches` that comes from `source`. An option that its variable turns off counts as not given.
pub(super) fn only(matches: &ArgMatches, source: ValueSource) -> ArgMatches {
    let mut only = matches.clone();
    for id in matches.ids().map(clap::Id::as_str) {
        let is_off = matches!(matches.try_get_one::<bool>(id), Ok(Some(false)));
        if matches.value_source(id) != Some(source) || is_off {
            // An id that the matches have is known to them.
            let _ = only.try_clear_id(id);
        }
    }
    if source == ValueSource::CommandLine {
        keep_last(&mut only, ["exclusive", "shared"]);
    }
    only
}

/// Of two flags that are both given, the later one counts. The parser's own way of overriding one by the other takes a
/// variable for a second flag.
fn keep_last(matches: &mut ArgMatches, flags: [&str; 2]) {
    let last = |flag: &str| matches.ids().any(|id| id == flag).then(|| matches.indices_of(flag)?.max()).flatten();
    if let [Some(one), Some(other)] = flags.map(last) {
        // The matches have both.
        let _ = matches.try_clear_id(flags[usize::from(one > other)]);
    }
}
