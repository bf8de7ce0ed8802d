/*!
The settings of `dlock check`.
*/

use std::time::Duration;

use clap::ArgMatches;

use crate::cli::CheckArgs;
use crate::exit::Failure;
use crate::report::Verbosity;
use crate::report::event::Event;
use crate::settings::connection::{Connection, ConnectionValues};
use crate::settings::effective::effective;
use crate::settings::layers::Layers;
use crate::settings::origin::Origin;
use crate::settings::unknown;

/// Everything that `dlock check` needs to know.
#[derive(Debug)]
pub(crate) struct CheckSettings {
    /// The connection to the lock service.
    pub connection: Connection,
    /// The origin of the backend's URL, as the user spells it.
    pub origin: String,
    /// The length of lease that runs ask for.
    pub ttl: Duration,
    /// `true` to print a JSON document.
    pub json: bool,
    /// The verbosity of reports.
    pub verbosity: Verbosity,
    /// `true` if a flag asks for no output. A variable or config file applies to all subcommands, and hides no answer.
    pub is_silent: bool,
    /// The warning about unknown variables; `None` if there are none.
    pub unknown: Option<Event>,
}

impl CheckSettings {
    /// Reads the settings of `dlock check` from the parsed arguments, and the password file. Fails for settings of a
    /// run that `dlock run` would refuse.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        effective()?;
        let layers = Layers::<CheckArgs>::read(matches)?;
        let way = ConnectionValues::settle(&layers);
        let quiet = layers.get("quiet", |args| args.quiet);
        Ok(Self {
            origin: way.backend.as_ref().map_or_else(|| Origin::Default.place(), |given| given.origin.place()),
            connection: way.check()?,
            ttl: layers.get("ttl", |args| args.ttl).value,
            json: layers.get("json", |args| args.json).value,
            verbosity: if quiet.value { Verbosity::Quiet } else { Verbosity::Normal },
            is_silent: quiet.value && quiet.is_flag(),
            unknown: unknown::variables(),
        })
    }
}
