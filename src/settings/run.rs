/*!
How a command is run under a lock: how long to wait, what to run, and what happens to it.
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

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Do not wait.
    None,
    /// Wait for at most this long.
    For(Duration),
    /// Wait without a limit.
    Endless,
}

/// The command and its arguments, or what is wrong with them.
type Words = Result<Vec<OsString>, &'static str>;

/// The settings of a run, each with its origin; not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunValues {
    /// How long to wait for the lock.
    pub wait_limit: Given<WaitLimit>,
    /// The exit code when it was not acquired.
    pub conflict: Given<u8>,
    /// The length of lease to ask for.
    pub ttl: Given<Duration>,
    /// How long the lock stays taken at least.
    pub min_hold: Option<Given<Duration>>,
    /// How much longer than its lease the lock stays taken when its holder is gone.
    pub lock_delay: Option<Given<Duration>>,
    /// The length of the periods in each of which the command is to succeed once.
    pub once_per: Option<Given<Duration>>,
    /// The time between SIGTERM and SIGKILL.
    pub kill_after: Option<Given<Duration>>,
    /// What to do when the lock is lost.
    pub on_lost: Given<OnLost>,
    /// How long the command may run.
    pub max_run: Option<Given<Duration>>,
    /// What to do with processes that it leaves running.
    pub leftovers: Given<Leftovers>,
    /// What to run.
    pub command: Option<Given<Words>>,
    /// Whether the command does not inherit the locked descriptor.
    pub close: Given<bool>,
    /// The text shown to waiters.
    pub reason: Option<Given<String>>,
    /// Where the events go.
    pub events: Option<Given<PathBuf>>,
    /// How much is reported.
    pub verbosity: Given<Verbosity>,
    /// How the lock is to be held.
    pub mode: Given<Mode>,
}

/// Settings of a run that were checked.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The time between SIGTERM and SIGKILL.
    pub grace: Grace,
    /// How much longer the lock stays taken when its holder is gone.
    pub lock_delay: Delay,
    /// The length of the periods in each of which the command is to succeed once.
    pub once_per: Option<Duration>,
    /// Where the events go.
    pub events: Option<Sink>,
}

impl RunValues {
    /// The values of all `layers` together, with defaults for those that no layer has.
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

    /// These values for a lock that is held already: what says how it is taken, as a variable may, means nothing.
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

    /// These values for a command line of flock, which has defaults of its own: 1 when the lock was not acquired, and no word.
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

    /// What depends on each other and on `target`, checked.
    pub(crate) fn check(&self, target: &Target) -> Result<Checked, Failure> {
        Ok(Checked {
            grace: grace(self.kill_after.as_ref(), self.ttl.value, target)?,
            lock_delay: self.delay(target)?,
            once_per: self.once_per()?,
            events: sink(self.events.as_ref())?,
        })
    }

    /// Fails if several `keys` do not go together with the mode, or with `target`.
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

    /// How much longer the lock stays taken when its holder is gone, checked against what the leases of `target` allow. Fails
    /// where there are no leases, wherever the value comes from: the lock would not be kept as it says.
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

    /// The length of the periods in each of which the command is to succeed once. Fails where runs may hold the lock together:
    /// all of them could succeed.
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

    /// The program and its arguments; never empty.
    pub(crate) fn argv(&self) -> Result<Vec<OsString>, Failure> {
        match self.command.as_ref().map(|command| &command.value) {
            None => Err(usage("there is no command to run: add -- COMMAND, or -c 'SHELL COMMAND'")),
            Some(Err(mistake)) => Err(usage(mistake)),
            Some(Ok(argv)) => Ok(argv.clone()),
        }
    }
}

/// The time between SIGTERM and SIGKILL of which this is what was given, checked against a lease of `ttl` at `target`.
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

/// Where the events go, read from what was given. A config file cannot know which descriptors are open.
pub(super) fn sink(given: Option<&Given<PathBuf>>) -> Result<Option<Sink>, Failure> {
    let Some(Given { value, origin }) = given else { return Ok(None) };
    match (Sink::read(value), origin) {
        (Ok(Sink::Descriptor(_)), Origin::File { .. }) => {
            Err(refused(origin, format!("{origin}: name a file: descriptors are only for the command line")))
        }
        // The first user's file may be closed to the others.
        (Ok(Sink::File(path)), Origin::File { place, .. }) if is_of_all(place) => Ok(Some(Sink::FileOfAll(path))),
        (Ok(sink), _) => Ok(Some(sink)),
        (Err(mistake), _) => Err(refused(origin, format!("{origin} {}: {mistake}", value.display()))),
    }
}

/// `-n` or `-w`.
pub(super) fn wait_limit<A: Connects>(layers: &Layers<A>) -> Given<WaitLimit> {
    let nonblock = layers.on("nonblock", |args| args.waiting()?.nonblock);
    match (nonblock, layers.find("wait", |args| args.waiting()?.wait)) {
        (Some(nonblock), _) => nonblock.with(WaitLimit::None),
        (None, Some(wait)) if wait.value.is_zero() => wait.with(WaitLimit::None),
        (None, Some(Given { value, origin })) => Given { value: WaitLimit::For(value), origin },
        (None, None) => Given::default(WaitLimit::Endless),
    }
}

/// `-x`, `-s` or `--slots`.
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

/// `-q` or `-v`.
pub(super) fn verbosity<A>(layers: &Layers<A>, told: impl Fn(&A) -> (Option<bool>, Option<bool>)) -> Given<Verbosity> {
    match (layers.on("quiet", |args| told(args).0), layers.on("verbose", |args| told(args).1)) {
        (Some(quiet), _) => quiet.with(Verbosity::Quiet),
        (None, Some(verbose)) => verbose.with(Verbosity::Verbose),
        (None, None) => Given::default(Verbosity::Normal),
    }
}

/// `-c` or a command.
fn command(args: &RunArgs) -> Option<Words> {
    match (&args.run.shell, args.run.argv.as_slice()) {
        (None, []) => None,
        (Some(shell), []) => Some(Ok(vec!["/bin/sh".into(), "-c".into(), shell.clone()])),
        (Some(_), _) => Some(Err("-c STRING and a command are mutually exclusive: use one of them")),
        (None, [program, ..]) if program.is_empty() => Some(Err("the command's name is empty: name a program")),
        (None, words) => Some(Ok(words.to_vec())),
    }
}
