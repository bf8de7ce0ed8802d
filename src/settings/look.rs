/*!
The settings of the subcommands that only look: `dlock status`, `dlock list` and `dlock held`.
*/

use std::time::Duration;

use clap::ArgMatches;

use crate::cli::{Connects, HeldArgs, ListArgs, Showing, StatusArgs};
use crate::exit::Failure;
use crate::key::{Key, Keys};
use crate::report::Verbosity;
use crate::report::event::Event;
use crate::settings::connection::{Connection, ConnectionValues};
use crate::settings::key::{keys, one_key};
use crate::settings::layers::Layers;
use crate::settings::unknown;

/// The settings of every look.
#[derive(Debug)]
pub(crate) struct LookSettings {
    /// The connection to the lock service.
    pub connection: Connection,
    /// `true` to print the picture as JSON.
    pub json: bool,
    /// `true` to keep the picture up to date.
    pub watch: bool,
    /// The verbosity of reports.
    pub verbosity: Verbosity,
    /// `true` if a flag asks for no output. A variable or config file applies to all subcommands, and hides no answer.
    pub is_silent: bool,
    /// The warning about unknown variables; `None` if there are none.
    pub unknown: Option<Event>,
}

/// Everything that `dlock status` needs to know.
#[derive(Debug)]
pub(crate) struct StatusSettings {
    /// The lock's name.
    pub key: Key,
    /// Time within which a run with `--once-per` must have succeeded; `None` if that is not to be checked.
    pub done_within: Option<Duration>,
    /// The settings of every look.
    pub look: LookSettings,
}

/// Everything that `dlock held` needs to know.
#[derive(Debug)]
pub(crate) struct HeldSettings {
    /// The names of the locks.
    pub keys: Keys,
    /// The settings of every look.
    pub look: LookSettings,
}

/// Everything that `dlock list` needs to know.
#[derive(Debug)]
pub(crate) struct ListSettings {
    /// Prefix of the names of the locks.
    pub prefix: String,
    /// Maximum number of locks to show; `None` for all.
    pub limit: Option<usize>,
    /// The settings of every look.
    pub look: LookSettings,
}

/// The options of a subcommand that shows something.
trait Shows: Connects {
    /// Returns the options for the output.
    fn showing(&self) -> &Showing;
}

impl Shows for StatusArgs {
    fn showing(&self) -> &Showing {
        &self.showing
    }
}

impl Shows for ListArgs {
    fn showing(&self) -> &Showing {
        &self.showing
    }
}

impl LookSettings {
    fn read<A: Shows>(layers: &Layers<A>) -> Result<Self, Failure> {
        let is_on = |name, value: fn(&Showing) -> Option<bool>| layers.get(name, |args| value(args.showing())).value;
        let quiet = layers.get("quiet", |args| args.showing().quiet);
        let verbosity = if quiet.value { Verbosity::Quiet } else { Verbosity::Normal };
        let is_silent = quiet.value && quiet.is_flag();
        let (json, watch) = (is_on("json", |showing| showing.json), is_on("watch", |showing| showing.watch));
        let connection = ConnectionValues::settle(layers).check()?;
        Ok(Self { connection, json, watch, verbosity, is_silent, unknown: unknown::variables() })
    }

    /// Returns the settings of a look by a subcommand that has no [`Showing`] options.
    pub(super) fn new<A: Connects>(layers: &Layers<A>, quiet: bool, unknown: Option<Event>) -> Result<Self, Failure> {
        let verbosity = if quiet { Verbosity::Quiet } else { Verbosity::Normal };
        let connection = ConnectionValues::settle(layers).check()?;
        Ok(Self { connection, json: false, watch: false, verbosity, is_silent: false, unknown })
    }
}

impl StatusSettings {
    /// Reads the settings of `dlock status` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let layers = Layers::<StatusArgs>::read(matches)?;
        let key = one_key(&layers, |args| &args.key)?;
        let done_within = layers.find("done-within", |args| args.done_within).map(|given| given.value);
        Ok(Self { key, done_within, look: LookSettings::read(&layers)? })
    }
}

impl HeldSettings {
    /// Reads the settings of `dlock held` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let layers = Layers::<HeldArgs>::read(matches)?;
        let keys = keys(&layers, |args| &args.key)?;
        Ok(Self { keys, look: LookSettings::new(&layers, true, unknown::variables())? })
    }
}

impl ListSettings {
    /// Reads the settings of `dlock list` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let layers = Layers::<ListArgs>::read(matches)?;
        let prefix = layers.find("prefix", |args| args.prefix.clone()).map(|prefix| prefix.value).unwrap_or_default();
        let limit = Some(layers.get("limit", |args| args.limit).value).filter(|limit| *limit > 0);
        Ok(Self { prefix, limit, look: LookSettings::read(&layers)? })
    }
}
