/*!
The layers of settings: flags over variables over config files over the defaults. Each layer is the same struct, in
which every field is optional. A value comes from the first layer that has it, together with its origin. `dlock config`
shows the texts in the same layers.
*/

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};

use crate::cli::defaults::{Kind, kind, read_with};
use crate::cli::plain::defaults;
use crate::cli::{EXCLUSIONS, PlainRun, RunArgs, misunderstood, read_run};
use crate::exit::{Exit, Failure};
use crate::report::event::Event;
use crate::settings::config::{Chosen, Section, files};
use crate::settings::origin::Origin;
use crate::settings::usage::{refused, usage};
use crate::variables::{BACKEND, PASSWORD, of_option};

/// The source of a layer.
#[derive(Debug)]
pub(crate) enum Source {
    /// The command line.
    Flags,
    /// The variables, one for each option.
    Environment,
    /// A config file.
    File(Section),
    /// The declarations of the options.
    Defaults,
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given<T> {
    /// The value.
    pub value: T,
    /// The origin of the value.
    pub origin: Origin,
}

impl<T> Given<T> {
    /// Returns a value that no layer gives.
    #[must_use]
    pub(crate) fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// Returns another value with the same origin.
    #[must_use]
    pub(crate) fn with<U>(self, value: U) -> Given<U> {
        Given { value, origin: self.origin }
    }

    /// Returns `true` if the value comes from a flag. A flag is meant for this run; the others may be for all runs.
    #[must_use]
    pub(crate) fn is_flag(&self) -> bool {
        matches!(self.origin, Origin::Flag(_))
    }

    /// Returns `true` if the value comes from a flag or a variable, neither of which another shell has.
    #[must_use]
    pub(crate) fn is_of_this_run(&self) -> bool {
        matches!(self.origin, Origin::Flag(_) | Origin::Variable(_))
    }
}

/// The settings from one source.
#[derive(Debug)]
struct Layer<A> {
    source: Source,
    /// The settings as the parser returns them.
    matches: ArgMatches,
    /// The settings as the arguments of a subcommand; missing ones are `None`.
    args: A,
}

/// All layers; each overrides those after it. Of mutually exclusive options, one counts.
#[derive(Debug)]
pub(crate) struct Layers<A = RunArgs>(Vec<Layer<A>>);

impl<A: Args> Layers<A> {
    /// Reads the layers of a subcommand: flags and variables from the parsed arguments, and the config files.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        Self::over(matches, files(chosen(matches))?.sections)
    }

    /// Returns the layers of `matches` over these sections of config files.
    pub(crate) fn over(matches: &ArgMatches, sections: Vec<Section>) -> Result<Self, Failure> {
        Self::with(matches, || A::augment_args(Command::new("options")), sections)
    }

    /// Returns the layers of `matches` over the values for `options` in these sections.
    pub(super) fn with(
        matches: &ArgMatches,
        options: impl Fn() -> Command,
        sections: Vec<Section>,
    ) -> Result<Self, Failure> {
        let mut layers = vec![
            (Source::Flags, only(matches, ValueSource::CommandLine)),
            (Source::Environment, only(matches, ValueSource::EnvVariable)),
        ];
        for section in sections {
            // The values were checked when the file was read.
            let said = read_with(options(), &section.values()).map_err(|error| misread(&error))?;
            layers.push((Source::File(section), said));
        }
        Self::of(layers, only(matches, ValueSource::DefaultValue))
    }

    /// Puts these layers over the `defaults`, and settles options that exclude each other.
    pub(super) fn of(mut layers: Vec<(Source, ArgMatches)>, defaults: ArgMatches) -> Result<Self, Failure> {
        EXCLUSIONS.iter().try_for_each(|group| settle(group, &mut layers))?;
        layers.push((Source::Defaults, defaults));
        let read = |(source, matches): (Source, ArgMatches)| {
            let args = A::from_arg_matches(&matches).map_err(|error| misread(&error))?;
            Ok(Layer { source, matches, args })
        };
        layers.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl Layers {
    /// Returns the layers of a run whose command line and variables were read without the parser.
    pub(crate) fn plain(run: PlainRun) -> Result<Self, Failure> {
        let sections = files(None)?.sections;
        if sections.is_empty() {
            Ok(Self::of_args(run.flags, run.environment))
        } else {
            Self::of_words(&run.words, sections)
        }
    }

    /// Returns the layers of a run without config files, in which no options exclude each other.
    pub(crate) fn of_args(flags: RunArgs, environment: RunArgs) -> Self {
        let layer = |source, args| Layer { source, matches: ArgMatches::default(), args };
        Self(vec![
            layer(Source::Flags, flags),
            layer(Source::Environment, environment),
            layer(Source::Defaults, defaults()),
        ])
    }

    /// Returns the layers of the `words` of a `dlock run` and the variables, over these sections of config files.
    pub(super) fn of_words(words: &[OsString], sections: Vec<Section>) -> Result<Self, Failure> {
        let parsed = read_run(words).map_err(|error| misunderstood(&error, words))?;
        let (_, matches) = parsed.subcommand().ok_or_else(|| usage("the command line was not understood"))?;
        Self::over(matches, sections)
    }

    /// Returns the arguments of all layers, for tests.
    #[cfg(test)]
    pub(crate) fn args(&self) -> Vec<&RunArgs> {
        self.0.iter().map(|layer| &layer.args).collect()
    }
}

/// Of a `group` of mutually exclusive options, keeps those of the first layer that turns one of them on. The last of
/// several flags counts. In other layers options have no order, and several of them are an error.
fn settle(group: &[&'static str], layers: &mut [(Source, ArgMatches)]) -> Result<(), Failure> {
    let mut is_settled = false;
    let mut off = Vec::new();
    for (source, matches) in layers {
        let mut on = Vec::new();
        for &option in group {
            match matches.try_get_one(option) {
                Ok(Some(false)) => off.push(option),
                _ if off.contains(&option) => {}
                _ if matches.try_contains_id(option).unwrap_or(false) => on.push(option),
                _ => {}
            }
        }
        if matches!(source, Source::Flags) {
            on.sort_by_key(|option| matches.indices_of(option).and_then(Iterator::max));
            let last = on.pop();
            clear(matches, &on);
            on = last.into_iter().collect();
        }
        // With --wait 0, --nonblock means the same.
        let is_short = matches!(matches.try_get_one("wait"), Ok(Some(&Duration::ZERO)));
        match *on {
            _ if is_settled => clear(matches, group),
            [one, other, ..] if one != "nonblock" || !is_short => return Err(contradiction(source, one, other)),
            _ => is_settled = !on.is_empty(),
        }
    }
    Ok(())
}

fn clear(matches: &mut ArgMatches, options: &[&str]) {
    for option in options {
        // An option that the subcommand does not have needs no clearing.
        let _ = matches.try_clear_id(option);
    }
}

/// Returns the failure for two options that exclude each other.
fn contradiction(source: &Source, one: &'static str, other: &'static str) -> Failure {
    let origin = source.origin(one);
    let message = match &origin {
        Origin::File { place, .. } => format!("{place}: {one} and {other} are mutually exclusive: use one of them"),
        _ => format!("{} and {} are mutually exclusive: unset one of them", of_option(one), of_option(other)),
    };
    refused(&origin, message)
}

/// Returns the profile that a flag or else a variable chooses. A flag may choose no profile at all, with an empty name.
pub(super) fn chosen(matches: &ArgMatches) -> Option<Chosen> {
    let name = matches.get_one::<String>("profile")?.clone();
    let origin = match matches.value_source("profile")? {
        ValueSource::CommandLine => Origin::Flag("profile".into()),
        _ => Origin::Variable("profile".into()),
    };
    Some(Chosen { name, origin })
}

/// Returns the failure for a contradiction within the parser.
fn misread(error: &clap::Error) -> Failure {
    Failure::new(Exit::Internal, Event::Settings(error.to_string()))
}

impl<A> Layers<A> {
    /// Returns the value of `option` from the first layer that has it.
    pub(crate) fn find<T>(&self, option: &'static str, get: impl Fn(&A) -> Option<T>) -> Option<Given<T>> {
        let found =
            |Layer { source, args, .. }: &Layer<A>| Some(Given { value: get(args)?, origin: source.origin(option) });
        self.0.iter().find_map(found)
    }

    /// Returns the value of an `option` whose declaration has a default, as that of every switch has.
    pub(crate) fn get<T: Default>(&self, option: &'static str, get: impl Fn(&A) -> Option<T>) -> Given<T> {
        let found = self.find(option, get);
        debug_assert!(found.is_some(), "--{option} has no default");
        found.unwrap_or_else(|| Given::default(T::default()))
    }

    /// Returns the value of a switch, if it is on.
    pub(crate) fn on(&self, option: &'static str, get: impl Fn(&A) -> Option<bool>) -> Option<Given<bool>> {
        self.find(option, get).filter(|given| given.value)
    }

    /// Returns the value of `option` as on the command line; `true` or `false` for a switch.
    pub(super) fn text(&self, option: &Arg) -> Option<Given<String>> {
        let (id, name) = (option.get_id().as_str(), option.get_long()?);
        self.0.iter().find_map(|Layer { source, matches, .. }| {
            let value = match kind(option) {
                Kind::Switch => matches.try_get_one::<bool>(id).ok()??.to_string(),
                Kind::Path | Kind::Text => matches.try_get_raw(id).ok()??.next()?.to_string_lossy().into_owned(),
            };
            Some(Given { value, origin: source.origin(name.to_owned()) })
        })
    }

    /// Returns the backends that the variable and the config files name, even if the subcommand has no such option.
    pub(super) fn backends(&self) -> [Option<Given<OsString>>; 2] {
        let variable = std::env::var_os(BACKEND).filter(|url| !url.is_empty());
        let variable = variable.map(|value| Given { value, origin: Origin::Variable("backend".into()) });
        [variable, self.in_files("backend").map(|Given { value, origin }| Given { value: value.into(), origin })]
    }

    /// Returns the value of `option` in the config files. It may be an option that no subcommand has.
    pub(super) fn in_files(&self, option: &str) -> Option<Given<String>> {
        self.0.iter().find_map(|layer| {
            let Source::File(section) = &layer.source else { return None };
            Some(Given { value: section.values().remove(option)?, origin: section.origin(option) })
        })
    }

    /// Returns the password or the file that holds it, from the first layer that has either.
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

/// A password, or the file to read it from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    /// The file.
    File(PathBuf),
    /// The password itself.
    Text(OsString),
}

/// Hides the password.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "File({})", path.display()),
            Self::Text(_) => f.write_str("Text(***)"),
        }
    }
}

impl Source {
    /// Returns the origin of a value for `option` in this layer.
    fn origin(&self, option: impl Into<Cow<'static, str>>) -> Origin {
        match self {
            Self::Flags => Origin::Flag(option.into()),
            Self::Environment => Origin::Variable(option.into()),
            Self::File(section) => section.origin(&option.into()),
            Self::Defaults => Origin::Default,
        }
    }

    /// Returns the password that this layer itself contains.
    fn password(&self) -> Option<(Secret, Origin)> {
        let text = match self {
            Self::Flags | Self::Defaults => None,
            Self::Environment => std::env::var_os(PASSWORD).filter(|password| !password.is_empty()),
            Self::File(section) => section.password().map(OsString::from),
        };
        Some((Secret::Text(text?), self.origin("password")))
    }
}

/// Returns the part of `matches` that comes from `source`.
pub(super) fn only(matches: &ArgMatches, source: ValueSource) -> ArgMatches {
    let mut only = matches.clone();
    for id in matches.ids().map(clap::Id::as_str).filter(|id| matches.value_source(id) != Some(source)) {
        // Cannot fail: the id comes from the matches themselves.
        let _ = only.try_clear_id(id);
    }
    only
}
