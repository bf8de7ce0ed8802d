/*!
The settings of a run: the wait for the lock, the way it is held, the command, and what happens to the command.
*/

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::backend::url::Target;
use crate::cli::{Connects, Leftovers, OnLost, RunArgs};
use crate::exit::{FLOCK_CONFLICT, Failure};
use crate::handle::Handle;
use crate::key::Keys;
use crate::lease::timing::{Delay, Grace};
use crate::lock::admission::Mode;
use crate::report::Verbosity;
use crate::report::journal::Sink;
use crate::settings::config::is_of_all;
use crate::settings::layers::{Given, Layers};
use crate::settings::origin::Origin;
use crate::settings::usage::{refused, usage};

/// The limit of the wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Do not wait.
    None,
    /// Wait for at most this time.
    For(Duration),
    /// Wait without a limit.
    Endless,
}

/// The command and its arguments, or the mistake in them.
type Words = Result<Vec<OsString>, &'static str>;

/// The settings of a run, each with its origin; not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunValues {
    /// Limit of the wait for the lock.
    pub wait_limit: Given<WaitLimit>,
    /// The exit code if the lock is not acquired.
    pub conflict: Given<u8>,
    /// The length of the lease to ask for.
    pub ttl: Given<Duration>,
    /// Minimum time for which the lock stays taken.
    pub min_hold: Option<Given<Duration>>,
    /// Time beyond its lease for which the lock stays taken when its holder is gone.
    pub lock_delay: Option<Given<Duration>>,
    /// The length of the periods in each of which the command is to succeed once.
    pub once_per: Option<Given<Duration>>,
    /// The time between SIGTERM and SIGKILL.
    pub kill_after: Option<Given<Duration>>,
    /// Action on the command when the lock is lost.
    pub on_lost: Given<OnLost>,
    /// Time limit for the command.
    pub max_run: Option<Given<Duration>>,
    /// Action on processes that the command leaves running.
    pub leftovers: Given<Leftovers>,
    /// The command to run.
    pub command: Option<Given<Words>>,
    /// `true` if the command does not inherit the locked descriptor.
    pub close: Given<bool>,
    /// The text shown to waiters.
    pub reason: Option<Given<String>>,
    /// The destination of the events.
    pub events: Option<Given<PathBuf>>,
    /// The verbosity of reports.
    pub verbosity: Given<Verbosity>,
    /// The mode in which to hold the lock.
    pub mode: Given<Mode>,
}

/// Settings of a run that were checked.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The time between SIGTERM and SIGKILL.
    pub grace: Grace,
    /// Extra time for which the lock stays taken when its holder is gone.
    pub lock_delay: Delay,
    /// The length of the periods in each of which the command is to succeed once.
    pub once_per: Option<Duration>,
    /// The destination of the events.
    pub events: Option<Sink>,
}

impl RunValues {
    /// Returns the values of all `layers` together, with defaults for those that no layer has.
    #[must_use]
    pub(crate) fn settle(layers: &Layers) -> Self {
        Self {
            wait_limit: wait_limit(layers),
            conflict: layers.get("conflict-exit-code", |args| args.run.conflict_exit_code),
            ttl: layers.get("ttl", |args| args.run.ttl),
            min_hold: layers.find("min-hold", |args| args.run.min_hold),
            lock_delay: layers.find("lock-delay", |args| args.run.lock_delay),
            once_per: layers.find("once-per", |args| args.run.once_per),
            kill_after: layers.find("kill-after", |args| args.run.kill_after),
            on_lost: layers.get("on-lost", |args| args.run.on_lost),
            max_run: layers.find("max-run", |args| args.run.max_run),
            leftovers: layers.get("leftovers", |args| args.run.leftovers),
            command: layers.find("command", command),
            close: layers.get("close", |args| args.run.close),
            reason: layers.find("reason", |args| args.run.reason.clone()),
            events: layers.find("events", |args| args.run.events.clone()),
            verbosity: verbosity(layers, |args| (args.run.quiet, args.run.verbose)),
            mode: mode(layers),
        }
    }

    /// Returns these values for a lock that is held already, without those for taking a lock, which variables may set.
    #[must_use]
    pub(crate) fn under(self, handle: &Handle) -> Self {
        Self {
            ttl: Given::default(handle.ttl),
            min_hold: None,
            lock_delay: None,
            once_per: None,
            reason: None,
            mode: Given::default(Mode::Exclusive),
            ..self
        }
    }

    /// Returns these values with the defaults of flock: exit code 1 if the lock is not acquired, and errors only.
    #[must_use]
    pub(crate) fn of_flock(mut self) -> Self {
        if self.conflict.origin == Origin::Default {
            self.conflict.value = FLOCK_CONFLICT;
        }
        if self.verbosity.origin == Origin::Default {
            self.verbosity.value = Verbosity::Quiet;
        }
        self
    }

    /// Checks the values that depend on each other and on `target`.
    pub(crate) fn check(&self, target: &Target) -> Result<Checked, Failure> {
        Ok(Checked {
            grace: grace(self.kill_after.as_ref(), self.ttl.value, target)?,
            lock_delay: self.delay(target)?,
            once_per: self.once_per()?,
            events: sink(self.events.as_ref())?,
        })
    }

    /// Fails if the mode or `target` does not allow several `keys`.
    pub(crate) fn allow(&self, keys: &Keys, target: &Target) -> Result<(), Failure> {
        if keys.count() == 1 {
            return Ok(());
        }
        if matches!(self.mode.value, Mode::Slots(_)) {
            let origin = &self.mode.origin;
            let message = format!("{origin} is for one --key: take the others in a dlock run inside this one");
            return Err(refused(origin, message));
        }
        if target.is_one_lock() {
            return Err(usage(format!("{target} is one lock, whatever its key: use one --key")));
        }
        Ok(())
    }

    /// Returns the extra time for which the lock stays taken when its holder is gone, checked against the leases of
    /// `target`. If there are no leases, any value but 0 fails, whatever its origin: the lock would not stay taken.
    pub(super) fn delay(&self, target: &Target) -> Result<Delay, Failure> {
        let Some(Given { value: length, origin }) = &self.lock_delay else { return Ok(Delay::default()) };
        let length = *length;
        let Some(share) = target.delay_share() else {
            if length.is_zero() {
                return Ok(Delay::default());
            }
            let message = format!(
                "{origin} is only for locks with a lease, not for {target}, where a lock ends with the last process of its \
                 command: leave it out, or use --lock-delay 0"
            );
            return Err(refused(origin, message));
        };
        let delay = Delay { length, share };
        if !length.is_zero() && self.ttl.value < delay.least() {
            let most = self.ttl.value.checked_div(share).unwrap_or_default();
            let (most, ttl) = (humantime::format_duration(most), humantime::format_duration(self.ttl.value));
            return Err(refused(
                origin,
                format!(
                    "{origin} may be at most {most} with a --ttl of {ttl} on {}: lower it, or raise --ttl",
                    target.kind()
                ),
            ));
        }
        Ok(delay)
    }

    /// Returns the length of the periods in each of which the command is to succeed once. Fails if runs may hold the
    /// lock together, because all of them could succeed.
    pub(super) fn once_per(&self) -> Result<Option<Duration>, Failure> {
        match &self.once_per {
            Some(Given { origin, .. }) if self.mode.value != Mode::Exclusive => {
                let other = &self.mode.origin;
                let why = "several runs could succeed at the same time; leave one of them out";
                Err(refused(origin, format!("{origin} and {other} are mutually exclusive: {why}")))
            }
            given => Ok(given.as_ref().map(|given| given.value)),
        }
    }

    /// Returns the program and its arguments; never empty. Fails if there is no command.
    pub(crate) fn argv(&self) -> Result<Vec<OsString>, Failure> {
        match self.command.as_ref().map(|command| &command.value) {
            None => Err(usage("there is no command to run: add -- COMMAND, or -c 'SHELL COMMAND'")),
            Some(Err(mistake)) => Err(usage(mistake)),
            Some(Ok(argv)) => Ok(argv.clone()),
        }
    }
}

/// Returns the time between SIGTERM and SIGKILL for this `--kill-after`, checked against a lease of `ttl` at `target`.
pub(super) fn grace(kill_after: Option<&Given<Duration>>, ttl: Duration, target: &Target) -> Result<Grace, Failure> {
    let grace = Grace { asked: kill_after.map(|kill_after| kill_after.value), share: target.kill_after_share() };
    let most = ttl / grace.share;
    if let Some(Given { value, origin }) = kill_after
        && *value > most
    {
        let part = if grace.share == 2 { "half" } else { "a quarter" };
        let (most, ttl) = (humantime::format_duration(most), humantime::format_duration(ttl));
        let message = format!("{origin} may be at most {part} of --ttl ({most} of {ttl}): lower it, or raise --ttl");
        return Err(refused(origin, message));
    }
    Ok(grace)
}

/// Parses the destination of events. A config file may name no descriptor: it cannot know which ones are open.
pub(super) fn sink(given: Option<&Given<PathBuf>>) -> Result<Option<Sink>, Failure> {
    let Some(Given { value, origin }) = given else { return Ok(None) };
    match (Sink::read(value), origin) {
        (Ok(Sink::Descriptor(_)), Origin::File { .. }) => {
            Err(refused(origin, format!("{origin}: name a file: descriptors are only for the command line")))
        }
        // The file belongs to the user who creates it, and others may be unable to open it.
        (Ok(Sink::File(path)), Origin::File { place, .. }) if is_of_all(place) => Ok(Some(Sink::FileOfAll(path))),
        (Ok(sink), _) => Ok(Some(sink)),
        (Err(mistake), _) => Err(refused(origin, format!("{origin} {}: {mistake}", value.display()))),
    }
}

/// Returns the wait limit from `-n` or `-w`.
pub(super) fn wait_limit<A: Connects>(layers: &Layers<A>) -> Given<WaitLimit> {
    let nonblock = layers.on("nonblock", |args| args.waiting()?.nonblock);
    match (nonblock, layers.find("wait", |args| args.waiting()?.wait)) {
        (Some(nonblock), _) => nonblock.with(WaitLimit::None),
        (None, Some(wait)) if wait.value.is_zero() => wait.with(WaitLimit::None),
        (None, Some(Given { value, origin })) => Given { value: WaitLimit::For(value), origin },
        (None, None) => Given::default(WaitLimit::Endless),
    }
}

/// Returns the mode from `-x`, `-s` or `--slots`.
fn mode(layers: &Layers) -> Given<Mode> {
    let (exclusive, shared) =
        (layers.on("exclusive", |args| args.run.exclusive), layers.on("shared", |args| args.run.shared));
    match (layers.find("slots", |args| args.run.slots), shared, exclusive) {
        (Some(Given { value, origin }), ..) => Given { value: Mode::Slots(value), origin },
        (None, Some(shared), _) => shared.with(Mode::Shared),
        (None, None, Some(exclusive)) => exclusive.with(Mode::Exclusive),
        (None, None, None) => Given::default(Mode::Exclusive),
    }
}

/// Returns the verbosity from `-q` or `-v`.
pub(super) fn verbosity<A>(layers: &Layers<A>, flags: impl Fn(&A) -> (Option<bool>, Option<bool>)) -> Given<Verbosity> {
    match (layers.on("quiet", |args| flags(args).0), layers.on("verbose", |args| flags(args).1)) {
        (Some(quiet), _) => quiet.with(Verbosity::Quiet),
        (None, Some(verbose)) => verbose.with(Verbosity::Verbose),
        (None, None) => Given::default(Verbosity::Normal),
    }
}

/// Returns the command from `-c` or from the words of the command line.
fn command(args: &RunArgs) -> Option<Words> {
    match (&args.run.shell, args.run.argv.as_slice()) {
        (None, []) => None,
        (Some(shell), []) => Some(Ok(vec!["/bin/sh".into(), "-c".into(), shell.clone()])),
        (Some(_), _) => Some(Err("-c STRING and a command are mutually exclusive: use one of them")),
        (None, [program, ..]) if program.is_empty() => Some(Err("the command's name is empty: name a program")),
        (None, words) => Some(Ok(words.to_vec())),
    }
}
