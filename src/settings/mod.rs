/*!
Settings of a subcommand: flags over variables over config files over defaults, with their origins, checked together.
*/

mod breaking;
mod check;
pub(crate) mod config;
mod connection;
mod effective;
pub(crate) mod flock;
mod handle;
mod key;
mod layers;
mod look;
mod meeting;
mod origin;
mod password;
mod reach;
mod run;
mod shell;
mod source;
#[cfg(test)]
mod tests;
mod trust;
mod unknown;
mod usage;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use clap::ArgMatches;

pub(crate) use self::breaking::BreakSettings;
pub(crate) use self::check::CheckSettings;
pub(crate) use self::connection::Connection;
use self::connection::ConnectionValues;
pub(crate) use self::effective::{Setting, effective};
pub(crate) use self::handle::{AcquireSettings, Form, HandleSettings, Keeping, inherited_handle};
use self::key::keys;
use self::layers::Given;
pub(crate) use self::layers::Layers;
pub(crate) use self::look::{HeldSettings, ListSettings, LookSettings, StatusSettings};
pub(crate) use self::meeting::{BarrierSettings, LatchAct, LatchSettings};
pub(crate) use self::run::WaitLimit;
use self::run::{Checked, RunValues};
pub(crate) use self::unknown::variables as unknown_variables;
use crate::backend::url::without_password;
use crate::cli::{Leftovers, OnLost, PlainRun};
use crate::exit::Failure;
use crate::handle::Handle;
use crate::key::Keys;
use crate::lease::timing::{Delay, Grace};
use crate::lock::admission::Mode;
use crate::report::Verbosity;
use crate::report::event::{Event, Lock};
use crate::report::journal::Sink;

/// Everything that `dlock run` needs to know.
#[derive(Debug)]
pub(crate) struct RunSettings {
    /// The names of the locks, which are held as one.
    pub keys: Keys,
    /// The handle by which the lock is held already; `None` for a run that takes it.
    pub handle: Option<Handle>,
    /// The connection to the lock service.
    pub connection: Connection,
    /// The mode in which to hold the lock.
    pub mode: Mode,
    /// Limit of the wait for the lock.
    pub wait_limit: WaitLimit,
    /// The exit code if the lock is not acquired.
    pub conflict: u8,
    /// The length of the lease that the command is to have.
    pub ttl: Duration,
    /// Extra time for which the lock stays taken when its holder is gone.
    pub lock_delay: Delay,
    /// Minimum time for which the lock stays taken; zero for no longer than it is in use.
    pub min_hold: Duration,
    /// The length of the periods in each of which the command is to succeed once; `None` for no such limit.
    pub once_per: Option<Duration>,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Grace,
    /// Action on the command when the lock is lost.
    pub on_lost: OnLost,
    /// Time limit for the command.
    pub max_run: Option<Duration>,
    /// Action on processes that the command leaves running.
    pub leftovers: Leftovers,
    /// The program and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// `true` if the command does not inherit the locked descriptor.
    pub close: bool,
    /// The text shown to waiters.
    pub reason: Option<String>,
    /// The destination of the events.
    pub events: Option<Sink>,
    /// The verbosity of reports.
    pub verbosity: Verbosity,
    /// The warning about unknown variables; `None` if there are none.
    pub unknown: Option<Event>,
}

impl RunSettings {
    /// Reads the settings of `dlock run` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        Self::of(&Layers::read(matches)?)
    }

    /// Reads the settings of a run whose command line was read without the parser, and the password file.
    pub(crate) fn plain(run: PlainRun) -> Result<Self, Failure> {
        Self::of(&Layers::plain(run)?)
    }

    /// Reads the settings from these layers.
    fn of(layers: &Layers) -> Result<Self, Failure> {
        Self::with(layers, RunValues::settle(layers), || keys(layers, |args| &args.key))
    }

    /// Reads the settings from `layers` and the `run` values of them. Calls `keys` if there is no handle.
    fn with(
        layers: &Layers,
        mut run: RunValues,
        keys: impl FnOnce() -> Result<Keys, Failure>,
    ) -> Result<Self, Failure> {
        let handle = handle::of_run(layers)?;
        let mut way = ConnectionValues::settle(layers);
        let keys = match &handle {
            Some(Given { value, origin }) => {
                way = handle::way(way, value, origin);
                run = run.under(value);
                Keys::from(value.key.clone())
            }
            None => keys()?,
        };
        let connection = way.check()?;
        let connection = if handle.is_some() { handle::for_runs(connection)? } else { connection };
        let Checked { grace, lock_delay, once_per, events } = run.check(&connection.target)?;
        run.allow(&keys, &connection.target)?;
        let argv = run.argv()?;
        Ok(Self {
            keys,
            handle: handle.map(|handle| handle.value),
            connection,
            mode: run.mode.value,
            wait_limit: run.wait_limit.value,
            conflict: run.conflict.value,
            ttl: run.ttl.value,
            lock_delay,
            min_hold: run.min_hold.map(|min_hold| min_hold.value).unwrap_or_default(),
            once_per,
            grace,
            on_lost: run.on_lost.value,
            max_run: run.max_run.map(|max_run| max_run.value),
            leftovers: run.leftovers.value,
            argv,
            close: run.close.value,
            reason: run.reason.map(|reason| reason.value).filter(|reason| !reason.is_empty()),
            events,
            verbosity: run.verbosity.value,
            unknown: unknown::variables(),
        })
    }
}

impl RunSettings {
    /// Returns the length of the lease to ask the service for.
    #[must_use]
    pub(crate) fn lease(&self) -> Duration {
        self.ttl + self.lock_delay.length
    }

    /// Returns the lock, or all locks that are held as one, for people.
    #[must_use]
    pub(crate) fn lock(&self) -> Lock {
        self.lock_of(self.keys.clone())
    }

    /// Returns one or some of the locks, for people.
    #[must_use]
    pub(crate) fn lock_of(&self, key: impl Into<Keys>) -> Lock {
        self.connection.lock(key)
    }

    /// Returns the command as it was given, without its arguments. If `--backend` was forgotten, it is a URL: a
    /// password in it is left out.
    #[must_use]
    pub(crate) fn command(&self) -> String {
        let first = self.argv.first().map_or(OsStr::new(""), OsString::as_os_str);
        without_password(&first.to_string_lossy())
    }

    /// Returns the command's name: [`Self::command`] without its directory.
    #[must_use]
    pub(crate) fn program(&self) -> String {
        let first = self.command();
        Path::new(&first).file_name().map_or_else(|| first.clone(), |name| name.to_string_lossy().into_owned())
    }
}
