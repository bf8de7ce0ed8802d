/*!
The settings of locks that outlive the process that took them: `dlock acquire`, `renew`, `release` and `run --handle`.
*/

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::ArgMatches;

use crate::backend::contract::contender::NO_HANDLES;
use crate::cli::{AcquireArgs, HandleArgs, OnLost, RunArgs};
use crate::exit::{CONFLICT, Failure};
use crate::handle::Handle;
use crate::key::Key;
use crate::lease::timing::Grace;
use crate::report::Verbosity;
use crate::report::event::{Event, Lock};
use crate::report::journal::Sink;
use crate::settings::connection::{Connection, ConnectionValues};
use crate::settings::key::one_key;
use crate::settings::layers::{Given, Layers};
use crate::settings::origin::Origin;
use crate::settings::reach::Configured;
use crate::settings::run::{WaitLimit, grace, sink, verbosity, wait_limit};
use crate::settings::usage::usage;
use crate::settings::{shell, unknown};
use crate::variables::HANDLE;

/// The length of a lease that a keeper renews.
const TTL: Duration = Duration::from_secs(30);

/// The form in which a handle is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As one word.
    Word,
    /// As a line for `eval` in a shell, which writes its own process id in this way.
    Shell(&'static str),
    /// As a JSON document.
    Json,
}

/// The settings for keeping a lock while a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeping {
    /// The process.
    pub pid: i32,
    /// Action on the process when the lock is lost.
    pub on_lost: OnLost,
    /// Time between its SIGTERM and its SIGKILL.
    pub grace: Grace,
}

/// Everything that `dlock acquire` needs to know.
#[derive(Debug)]
pub(crate) struct AcquireSettings {
    /// The lock's name.
    pub key: Key,
    /// The connection to the lock service. Its locks have handles, unless the lock is kept.
    pub connection: Connection,
    /// Limit of the wait for the lock.
    pub wait_limit: WaitLimit,
    /// The exit code if the lock is not acquired.
    pub conflict: u8,
    /// The length of the lease to ask for.
    pub ttl: Duration,
    /// The settings for keeping the lock; `None` if nothing renews it.
    pub keeping: Option<Keeping>,
    /// The text shown to waiters.
    pub reason: Option<String>,
    /// The destination of the events.
    pub events: Option<Sink>,
    /// The form in which the handle is printed.
    pub form: Form,
    /// The verbosity of reports.
    pub verbosity: Verbosity,
    /// The warning about unknown variables; `None` if there are none.
    pub unknown: Option<Event>,
}

/// Everything that `dlock renew` and `dlock release` need to know.
#[derive(Debug)]
pub(crate) struct HandleSettings {
    /// The handle, and the connection to its lock service; `None` if the handle is empty.
    pub held: Option<(Handle, Connection)>,
    /// The key of a lock that another shell has acquired, and the process id of that shell; then `held` is `None`.
    pub elsewhere: Option<(Key, i32)>,
    /// The verbosity of reports.
    pub verbosity: Verbosity,
    /// The warning about unknown variables; `None` if there are none.
    pub unknown: Option<Event>,
}

impl AcquireSettings {
    /// Reads the settings of `dlock acquire` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let layers = Layers::<AcquireArgs>::read(matches)?;
        let is_on = |name, value: fn(&AcquireArgs) -> Option<bool>| layers.get(name, value).value;
        let key = one_key(&layers, |args| &args.key)?;
        let form = match (is_on("shell", |args| args.shell), is_on("json", |args| args.json)) {
            (true, true) => return Err(usage("--shell and --json are mutually exclusive: use one of them")),
            (true, false) => Form::Shell(shell::own_id()),
            (false, true) => Form::Json,
            (false, false) => Form::Word,
        };
        let connection = ConnectionValues::settle(&layers).check()?;
        let while_pid = layers.find("while-pid", |args| args.while_pid).map(|pid| pid.value);
        let ttl = match layers.find("ttl", |args| args.ttl) {
            Some(ttl) => ttl.value,
            None if while_pid.is_some() => TTL,
            None if connection.target.has_handles() => {
                return Err(usage(
                    "--ttl is missing: add --ttl 10m, after which the lock ends, or --while-pid $$ for the rest of a script",
                ));
            }
            // `with_handles` refuses this backend below.
            None => TTL,
        };
        let conflict = layers.get("conflict-exit-code", |args| args.conflict_exit_code);
        let conflict = match conflict.value {
            0 if conflict.is_flag() => {
                return Err(usage(
                    "--conflict-exit-code 0 would start the next step without the lock: use another number",
                ));
            }
            // Meant for dlock run, where it skips the command.
            0 => CONFLICT,
            code => code,
        };
        let connection = if while_pid.is_some() { connection } else { with_handles(connection)? };
        let keeping = keeping(&layers, while_pid, ttl, &connection)?;
        let events = sink(layers.find("events", |args| args.events.clone()).as_ref())?;
        Ok(Self {
            key,
            connection,
            wait_limit: wait_limit(&layers).value,
            conflict,
            ttl,
            keeping,
            reason: layers
                .find("reason", |args| args.reason.clone())
                .map(|reason| reason.value)
                .filter(|text| !text.is_empty()),
            events,
            form,
            verbosity: verbosity(&layers, |args| (args.messages.quiet, args.messages.verbose)).value,
            unknown: unknown::variables(),
        })
    }

    /// Returns the lock, for people.
    #[must_use]
    pub(crate) fn lock(&self) -> Lock {
        self.connection.lock(self.key.clone())
    }
}

impl HandleSettings {
    /// Reads the settings of `dlock renew` from the parsed arguments, and the password file.
    pub(crate) fn of_renewal(matches: &ArgMatches) -> Result<Self, Failure> {
        let settings = Self::of(matches, |_| None)?;
        match &settings.held {
            Some((handle, connection)) if handle.keeper.is_some() && !connection.target.has_handles() => {
                let target = &connection.target;
                Err(usage(format!("a lock at {target} is renewed by its keeper alone: leave dlock renew out")))
            }
            _ => Ok(settings),
        }
    }

    /// Reads the settings of `dlock release` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        Self::of(matches, shell::another)
    }

    /// Reads the settings for the lock of a handle. An inherited one that `another` shell has acquired does not count.
    fn of(matches: &ArgMatches, another: fn(&Handle) -> Option<i32>) -> Result<Self, Failure> {
        let layers = Layers::<HandleArgs>::read(matches)?;
        let verbosity = verbosity(&layers, |args| (args.messages.quiet, args.messages.verbose)).value;
        let Some(given) = layers.find("handle", |args| args.handle.clone()) else {
            return Err(usage(format!(
                "there is no handle: name the HANDLE that dlock acquire has printed, or set {HANDLE}"
            )));
        };
        let (mut held, mut elsewhere) = (None, None);
        if !given.value.is_empty() {
            let handle = handle(&given.value, "the handle")?;
            if let Some(shell) = another(&handle).filter(|_| !given.is_flag()) {
                elsewhere = Some((handle.key, shell));
            } else {
                let connection = way(ConnectionValues::settle(&layers), &handle, &given.origin).check()?;
                let connection = if handle.keeper.is_some() { connection } else { with_handles(connection)? };
                held = Some((handle, connection));
            }
        }
        Ok(Self { held, elsewhere, verbosity, unknown: unknown::variables() })
    }
}

/// Reads the settings for keeping the lock while the process of `--while-pid` lives. Fails for flags that need it.
fn keeping(
    layers: &Layers<AcquireArgs>,
    while_pid: Option<i32>,
    ttl: Duration,
    connection: &Connection,
) -> Result<Option<Keeping>, Failure> {
    let on_lost = layers.get("on-lost", |args| args.stopping.on_lost);
    let kill_after = layers.find("kill-after", |args| args.stopping.kill_after);
    let Some(pid) = while_pid else {
        let flags = [
            Some(on_lost).filter(Given::is_flag).map(|given| given.origin),
            kill_after.filter(Given::is_flag).map(|given| given.origin),
        ];
        return match flags.into_iter().flatten().next() {
            Some(origin) => {
                Err(usage(format!("{origin} is only for --while-pid: without it there is no process to stop")))
            }
            None => Ok(None),
        };
    };
    let grace = grace(kill_after.as_ref(), ttl, &connection.target)?;
    Ok(Some(Keeping { pid, on_lost: on_lost.value, grace }))
}

/// Returns the handle of `dlock run --handle`; `None` for a run that takes its lock. A `--key` overrides the variable.
pub(super) fn of_run(layers: &Layers) -> Result<Option<Given<Handle>>, Failure> {
    let has_key = layers.find("key", |args| Some(()).filter(|()| !args.key.is_empty())).is_some();
    let Some(given) = layers.find("handle", |args| args.handle.clone()) else { return Ok(None) };
    if has_key && !given.is_flag() {
        return Ok(None);
    }
    let origin = given.origin;
    for (option, is_there) in beside(layers) {
        if is_there {
            return Err(usage(format!(
                "--{option} and {origin} are mutually exclusive: the handle says which lock it is"
            )));
        }
    }
    let value = handle(&given.value, &origin.to_string())?;
    Ok(Some(Given { value, origin }))
}

/// Returns the options that say which lock is taken and how, each with `true` if it is given as a flag.
fn beside(layers: &Layers) -> [(&'static str, bool); 10] {
    fn flag<T>(layers: &Layers, option: &'static str, get: impl Fn(&RunArgs) -> Option<T>) -> (&'static str, bool) {
        (option, layers.find(option, get).is_some_and(|given| given.is_flag()))
    }
    [
        flag(layers, "key", |args| Some(()).filter(|()| !args.key.is_empty())),
        flag(layers, "backend", |args| args.place.backend.clone()),
        flag(layers, "namespace", |args| args.place.namespace.clone()),
        flag(layers, "shared", |args| args.run.shared),
        flag(layers, "slots", |args| args.run.slots),
        flag(layers, "ttl", |args| args.run.ttl),
        flag(layers, "min-hold", |args| args.run.min_hold),
        flag(layers, "lock-delay", |args| args.run.lock_delay),
        flag(layers, "once-per", |args| args.run.once_per),
        flag(layers, "reason", |args| args.run.reason.clone()),
    ]
}

/// Parses a handle, which error messages call `name`.
fn handle(text: &OsStr, name: &str) -> Result<Handle, Failure> {
    Handle::read(&text.to_string_lossy()).map_err(|mistake| usage(format!("{name}: {mistake}")))
}

/// Returns the values of a connection to the lock of `handle`, which comes from `origin`.
pub(super) fn way(values: ConnectionValues, handle: &Handle, origin: &Origin) -> ConnectionValues {
    ConnectionValues {
        backend: Some(Given { value: OsString::from(&handle.backend), origin: origin.clone() }),
        namespace: Given { value: handle.namespace.as_str().to_owned(), origin: origin.clone() },
        configured: Configured { by_handle: true, ..values.configured },
        ..values
    }
}

/// Returns the connection if locks of its backend have handles, and fails otherwise.
fn with_handles(connection: Connection) -> Result<Connection, Failure> {
    if connection.target.has_handles() {
        return Ok(connection);
    }
    Err(usage(format!("{}: {NO_HANDLES}: use dlock acquire --while-pid PID, in a script $$", connection.target)))
}

/// Returns the connection if commands can run under handles of its backend, and fails otherwise.
pub(super) fn for_runs(connection: Connection) -> Result<Connection, Failure> {
    if connection.target.has_handles() {
        return Ok(connection);
    }
    let target = &connection.target;
    Err(usage(format!("a lock at {target} is kept by its keeper alone: run the command without dlock run")))
}

/// Returns the handle in the environment; `None` if it is missing or malformed.
pub(crate) fn inherited_handle() -> Option<Handle> {
    Handle::read(&std::env::var(HANDLE).ok()?).ok()
}
