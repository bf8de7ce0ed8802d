/*!
The layers of settings: flags over variables. Each layer is the same struct, in which every field is optional. A value comes
from the first layer that has it, together with its origin. The defaults, for values that no layer has, are elsewhere.

A config file will be one more layer of the same struct, after the variables.
*/

use std::fmt;

use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};

use crate::cli::RunArgs;
use crate::variables::of_option;

/// Where a layer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The command line.
    Flags,
    /// The variables, one for each option.
    Environment,
}

/// Where a value comes from. Options are named by their long form, without the dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The flag of this option.
    Flag(&'static str),
    /// The variable of this option.
    Variable(&'static str),
    /// No value was given.
    Default,
}

/// As the user spells it: `--ttl`, `DLOCK_TTL` or `default`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(option) => write!(f, "--{option}"),
            Self::Variable(option) => f.write_str(&of_option(option)),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Given<T> {
    /// Whether the value comes from a flag. A flag is meant for this run; a variable may be set for all runs.
    #[must_use]
    pub(crate) fn is_flag(&self) -> bool {
        matches!(self.origin, Origin::Flag(_))
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
    /// The layers of a subcommand, as parsed and checked by clap.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let layer = |source, from| A::from_arg_matches(&only(matches, from)).map(|args| Layer { source, args });
        Ok(Self(vec![
            layer(Source::Flags, ValueSource::CommandLine)?,
            layer(Source::Environment, ValueSource::EnvVariable)?,
        ]))
    }
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
            let origin = match layer.source {
                Source::Flags => Origin::Flag(option),
                Source::Environment => Origin::Variable(option),
            };
            Some(Given { value, origin })
        })
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
