/*!
`dlock run`: acquire, spawn, hold until the first of exit, loss and time-out, stop, release.
*/

mod acquire;
mod backstop;
mod environment;
mod hold;
mod nested;
mod rescue;
#[cfg(test)]
mod simulation;
mod wait;

use std::fmt::Display;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use tokio::sync::mpsc;

use self::acquire::Waited;
use self::backstop::deadline;
use self::hold::{Cause, Held, Hold};
use self::rescue::{Below, Left};
use crate::backend::{Backend, Claim, Grant, Lease, Released};
use crate::clock::{Instant, before};
use crate::exit::{Exit, Failure};
use crate::holder::Owner;
use crate::key::Key;
use crate::lease::acquire::{TAKE_BACK, give_back};
use crate::lease::keeper;
use crate::lease::renewal::LeaseNews;
use crate::lease::timing::Schedule;
use crate::report::event::{Event, Lack, NotRun, Step};
use crate::report::{Farewell, Report};
use crate::settings::{Patience, RunSettings};
use crate::supervise::command::{Command, Ended};
use crate::supervise::guard::{self, Forked, Guard, fork_guard};
use crate::supervise::protocol::{Notice, Spawn, Unfit};
use crate::supervise::signals::{SignalStream, Signals};
use crate::supervise::surroundings;
use crate::supervise::sweep::{Sweep, become_subreaper, existing_children};
use crate::variables;

/// The guard may take this long to start, however short the wait.
const GUARD_START: Duration = Duration::from_secs(1);

/// Runs a command under a lock. Everything that decides how dlock ends is in the returned [`Exit`].
pub(crate) fn run(settings: &RunSettings) -> Exit {
    let report = Report::new(settings.verbosity);
    match prepare(settings, &report) {
        Ok(prepared) => start(settings, &report, prepared),
        Err(failure) => refuse(&report, &failure),
    }
}

fn refuse(report: &Report, failure: &Failure) -> Exit {
    if let Some(event) = &failure.event {
        report.end(event);
    }
    failure.exit
}

/// What exists before there is an event loop.
struct Prepared {
    claim: Claim,
    signals: Signals,
    guard: Forked,
    backend: Box<dyn Backend>,
    below: Below,
    /// The locked file of an outer run.
    inherited: Option<OwnedFd>,
}

fn lacking(step: Step, reason: Lack) -> Failure {
    Failure::new(Exit::Unavailable, Event::Lacking { step, reason })
}

/// What is lacking where the system refuses a step; its reason.
fn refused(step: Step) -> impl Fn(&dyn Display) -> Failure {
    move |reason| lacking(step, Lack::System(reason.to_string()))
}

/// Forks the guard before anything else: from the main thread, with nothing open and no other thread.
fn prepare(settings: &RunSettings, report: &Report) -> Result<Prepared, Failure> {
    let owner = Owner::random().map_err(|error| refused(Step::OwnerId)(&error))?;
    let about = environment::about(settings);
    let spared = existing_children();
    let kind = settings.connection.target.kind();
    let variables = environment::for_command(&settings.key, &owner, kind);
    let command = Command::prepare(settings.argv.clone(), variables, variables::TOKEN, variables::LEASE_TTL)
        .map_err(|error| refused(Step::Command)(&error))?;
    let signals = Signals::block().map_err(|error| refused(Step::Signals)(&error))?;
    become_subreaper().map_err(|error| refused(Step::Subreaper)(&error))?;
    let address = guard::address(owner.as_str()).map_err(|error| refused(Step::GuardName)(&error))?;
    // Written now: the guard allocates nothing after its start.
    let farewell = Farewell::new(&Event::DlockKilled { lock: settings.lock(), program: settings.program() });
    let guard = fork_guard(command, &address, Box::new(move || farewell.say()))
        .map_err(|errno| lacking(Step::Guard, Lack::NoProcess(errno as i32)))?;
    // A certificate may be in a descriptor that was handed to us (`--tls-key <(…)`).
    let backend = settings
        .connection
        .target
        .open(&settings.connection.options)
        .map_err(|mistake| Failure::new(Exit::Usage, Event::Settings(mistake)))?;
    let outer = if settings.connection.target.has_lease() { Vec::new() } else { nested::Outer::inherited() };
    let inherited = if outer.is_empty() { None } else { nested::inherited_lock(&outer) };
    let lock = inherited.as_ref().map_or(2, AsRawFd::as_raw_fd);
    surroundings::let_go_of_the_rest([signals.as_raw(), guard.as_raw(), lock]);
    let mut sweep = Sweep::new();
    if !sweep.works() {
        return Err(lacking(Step::Supervision, Lack::Unfit(Unfit::Proc)));
    }
    sweep.reserve().map_err(|_| lacking(Step::Supervision, Lack::Unfit(Unfit::Descriptors)))?;
    let below = Below { spared, sweep };
    if !settings.connection.chosen {
        report.tell(&Event::NoBackendChosen);
    }
    let claim = Claim {
        key: settings.key.clone(),
        namespace: settings.connection.namespace.clone(),
        owner,
        ttl: settings.ttl,
        about,
    };
    Ok(Prepared { claim, signals, guard, backend, below, inherited })
}

fn start(settings: &RunSettings, report: &Report, prepared: Prepared) -> Exit {
    let Prepared { claim, signals, guard, backend, below, inherited } = prepared;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(report, &refused(Step::EventLoop)(&error)),
    };
    let outcome = runtime.block_on(async {
        let signals = SignalStream::new(signals).map_err(|error| refused(Step::WatchSignals)(&error))?;
        let guard = guard.connect().map_err(|error| refused(Step::WatchGuard)(&error))?;
        let mut run =
            Run { settings, report, claim, signals, guard, backend, below, inherited, left: false, guard_done: false };
        let outcome = run.story().await;
        // What could not be stopped stays the guard's to watch.
        if !run.left {
            run.guard.end(run.guard_done);
        }
        outcome
    });
    // A name server that does not answer must not keep us.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|failure| refuse(report, &failure))
}

/// One run, with all that it works with.
struct Run<'a> {
    settings: &'a RunSettings,
    report: &'a Report,
    claim: Claim,
    signals: SignalStream,
    guard: Guard,
    backend: Box<dyn Backend>,
    below: Below,
    /// The locked file of an outer run.
    inherited: Option<OwnedFd>,
    /// Something of the command is left that could not be stopped.
    left: bool,
    /// The guard has done all that it was there for.
    guard_done: bool,
}

impl Run<'_> {
    async fn story(&mut self) -> Result<Exit, Failure> {
        match self.wait().await? {
            Waited::Granted(grant) => self.hold(grant).await,
            Waited::Covered(cover) => self.hold_under(cover).await,
            Waited::Told(signal) => {
                // The queue is left at once; what could not be taken back runs out by itself.
                let _ = give_back(self.backend.as_mut(), &self.claim, TAKE_BACK).await;
                Ok(Exit::Signal(signal))
            }
        }
    }

    async fn wait(&mut self) -> Result<Waited, Failure> {
        let guard = self.guard.pid();
        let acquiring = async {
            let ready = expect_ready(&mut self.guard, &self.claim.key);
            match start_within(self.settings) {
                Some(limit) => before(Instant::now() + limit, ready).await.map_err(|_| slow_guard(limit))??,
                None => ready.await?,
            }
            acquire::acquire(self.settings, self.report, self.backend.as_mut(), &self.claim, &mut self.inherited).await
        };
        let waited = tokio::select! {
            biased;
            signal = wait::told_to_stop(&mut self.signals, guard) => Ok(Waited::Told(signal)),
            waited = acquiring => waited,
        };
        self.report.clear();
        waited
    }

    /// Runs the command under the granted lock, and gives the lock back.
    async fn hold(&mut self, grant: Grant) -> Result<Exit, Failure> {
        let settings = self.settings;
        let (sent, ttl) = match grant.lease {
            Lease::Until { sent, ttl, .. } => (Some(sent), Some(ttl)),
            Lease::Unlimited { .. } => (None, None),
        };
        let kill_after = settings.grace.within(ttl);
        let schedule = sent.zip(ttl).map(|(sent, ttl)| Schedule { sent, ttl, kill_after });
        // The guard looks again, but with --on-lost ignore it knows no deadline.
        if schedule.is_some_and(|schedule| Instant::now() >= schedule.stop_at()) {
            let held = Held { cause: Some(Cause::TooLate), ..Held::default() };
            return self.finish(&held, schedule).await;
        }
        for concern in self.backend.concerns() {
            self.report.tell(&Event::Concern { lock: settings.lock(), concern });
        }
        if let Some(ttl) =
            ttl.filter(|&ttl| settings.grace.asked.is_some_and(|asked| kill_after < asked && kill_after < ttl))
        {
            self.report.tell(&Event::ShortGrace { lock: settings.lock(), kill_after, ttl });
        }
        self.report.tell(&Event::Acquired { lock: settings.lock(), token: grant.token });
        let deadline = schedule.and_then(|schedule| deadline(&schedule, settings.on_lost));
        let descriptor = self.backend.descriptor();
        let spawn = Spawn {
            token: grant.token,
            ttl,
            lease: deadline,
            kill_after,
            outlives: deadline.is_none(),
            inherit: descriptor.is_some() && !settings.close,
            stay: settings.leftovers != crate::cli::Leftovers::Leave,
        };
        let spawned = self.guard.spawn(spawn, descriptor);
        let (sender, news) = mpsc::unbounded_channel();
        let held = {
            let keeping = keeper::keep(self.backend.as_mut(), &self.claim, grant.lease, kill_after, |news| {
                // The receiver lives as long as this block.
                let _ = sender.send(news);
            });
            let hold = Hold::new(
                settings,
                self.report,
                &mut self.guard,
                &mut self.signals,
                kill_after,
                schedule,
                &mut self.below,
            );
            match spawned {
                Ok(()) => hold.until_over(keeping, news).await,
                Err(_) => hold.without_guard(keeping, news).await,
            }
        };
        self.finish(&held, schedule).await
    }

    /// Runs the command under the lock that an outer `dlock run` holds.
    async fn hold_under(&mut self, cover: nested::Cover) -> Result<Exit, Failure> {
        let settings = self.settings;
        let kill_after = settings.grace.within(None);
        let spawn = Spawn {
            token: cover.token,
            ttl: cover.ttl,
            lease: None,
            kill_after,
            outlives: false,
            inherit: false,
            stay: settings.leftovers != crate::cli::Leftovers::Leave,
        };
        self.report.tell(&Event::Covered(self.claim.key.clone()));
        let spawned = self.guard.spawn(spawn, cover.line());
        let (sender, news) = mpsc::unbounded_channel();
        let watching = async {
            cover.ended().await;
            // The receiver lives as long as this block.
            let _ = sender.send(LeaseNews::KeeperEnded);
        };
        let hold =
            Hold::new(settings, self.report, &mut self.guard, &mut self.signals, kill_after, None, &mut self.below);
        let outcome = match spawned {
            Ok(()) => hold.until_over(watching, news).await,
            Err(_) => hold.without_guard(watching, news).await,
        };
        (self.left, self.guard_done) = (outcome.left.is_some(), outcome.guard_done);
        // What stopped the command can be what ended the outer run: its guard sweeps this run too.
        if outcome.cause.is_none() && outcome.ran() && !outcome.told_of_loss && cover.has_ended() {
            let ended = Event::OuterEnded { lock: settings.lock(), program: settings.program() };
            if settings.on_lost != crate::cli::OnLost::Ignore {
                return Err(Failure::new(Exit::Lost, ended));
            }
            self.report.tell(&ended);
        }
        self.verdict(&outcome)
    }

    /// Gives the lock back and says how it all ended.
    async fn finish(&mut self, held: &Held, schedule: Option<Schedule>) -> Result<Exit, Failure> {
        (self.left, self.guard_done) = (held.left.is_some(), held.guard_done);
        if let Some(left) = held.left {
            let process = match left {
                Left::Process(pid) => Some(pid),
                Left::Unknown => None,
            };
            self.report.tell(&Event::NotReleased { key: self.claim.key.clone(), process, expires: schedule.is_some() });
            return self.verdict(held);
        }
        let ignore = self.settings.on_lost == crate::cli::OnLost::Ignore;
        // The guard lets no command live beyond the lease: one that ended by itself ended within it, and what has run out
        // since (dlock was frozen, the server silent) was not lost while it ran.
        let ran_out = held.schedule.is_some_and(|schedule| Instant::now() >= schedule.dead_at()) && !ignore;
        let released = give_back(self.backend.as_mut(), &self.claim, self.settings.connection.connect_timeout).await;
        match released {
            Ok(Released::Freed) => self.report.tell(&Event::Released(self.claim.key.clone())),
            // With --on-lost ignore the command has gone on after the one warning.
            _ if held.told_of_loss => {}
            Ok(Released::NotMine) if held.cause.is_none() && held.ran() && !ran_out => {
                let lost = Event::LostBeforeTheEnd { lock: self.settings.lock(), program: self.settings.program() };
                if !ignore {
                    return Err(Failure::new(Exit::Lost, lost));
                }
                self.report.tell(&lost);
            }
            Err(reason) => {
                let ttl = schedule.map(|schedule| schedule.ttl);
                self.report.tell(&Event::ReleaseFailed { lock: self.settings.lock(), reason, ttl });
            }
            Ok(Released::NotMine) => {}
        }
        self.verdict(held)
    }

    fn verdict(&self, held: &Held) -> Result<Exit, Failure> {
        let key = &self.claim.key;
        let cannot = |exit, reason| Err(Failure::new(exit, Event::NotRun { program: self.settings.program(), reason }));
        match (held.cause, held.exited) {
            (Some(Cause::Lost), _) => Ok(Exit::Lost),
            (Some(Cause::MaxRun), _) => Ok(Exit::MaxRun),
            (Some(Cause::NotSpawned(errno)), _) => cannot(Exit::Unavailable, NotRun::NoProcess(errno)),
            (Some(Cause::TooLate), _) | (None, Some((_, libc::ETIME))) => {
                cannot(Exit::Unavailable, NotRun::TooLate(key.clone()))
            }
            (None, Some((_, libc::ENOENT))) => cannot(Exit::NotFound, NotRun::NotFound),
            (None, Some((Ended::Code(code), 0))) => Ok(Exit::Command(code)),
            (None, Some((Ended::Signal(signal), 0))) => Ok(Exit::Signal(signal)),
            (None, Some((_, errno))) => cannot(Exit::NotExecutable, NotRun::NotExecutable(errno)),
            (Some(Cause::GuardKilled), _) | (None, None) => Err(killed_guard(key)),
        }
    }
}

/// How long the guard's start may take: as long as the user waits, but long enough for a busy machine.
fn start_within(settings: &RunSettings) -> Option<Duration> {
    match settings.patience {
        Patience::None => Some(settings.connection.connect_timeout),
        Patience::For(patience) => Some(patience),
        Patience::Endless => None,
    }
    .map(|limit| limit.max(GUARD_START))
}

fn slow_guard(limit: Duration) -> Failure {
    lacking(Step::Supervision, Lack::SlowGuard(limit))
}

/// Finds out whether a command can be supervised here, before anything is acquired.
async fn expect_ready(guard: &mut Guard, key: &Key) -> Result<(), Failure> {
    match guard.next().await {
        Some(Notice::Ready) => Ok(()),
        Some(Notice::Unfit(code)) => Err(lacking(Step::Supervision, Lack::Unfit(Unfit::of(code)))),
        _ => Err(killed_guard(key)),
    }
}

fn killed_guard(key: &Key) -> Failure {
    Failure::new(Exit::Internal, Event::GuardKilled(key.clone()))
}
