/*!
`dlock run`: acquire, spawn, hold until the first of exit, loss and time-out, stop, release.
*/

mod acquire;
mod backstop;
mod environment;
mod hold;
#[cfg(test)]
mod model;
mod nested;
mod wait;

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::mpsc;

use self::acquire::Waited;
use self::backstop::window;
use self::hold::{Below, Cause, Held, Hold, Left};
use crate::backend::url::without_password;
use crate::backend::{Backend, Claim, Grant, Lease, Released};
use crate::clock::{Instant, before};
use crate::exit::{Exit, Failure};
use crate::holder::Owner;
use crate::key::Key;
use crate::lease::acquire::{TAKE_BACK, give_back};
use crate::lease::keeper::{self, News};
use crate::lease::timing::Term;
use crate::report::{Farewell, Report};
use crate::settings::{Patience, RunSettings};
use crate::supervise::command::{Command, Ended};
use crate::supervise::guard::{self, Forked, Guard, fork_guard};
use crate::supervise::protocol::{Notice, Spawn, Unfit};
use crate::supervise::signals::{SignalStream, Signals};
use crate::supervise::surroundings;
use crate::supervise::sweep::{Sweep, become_subreaper, existing_children};

/// The guard may take this long to start, however short the wait.
const GUARD_START: Duration = Duration::from_secs(1);

/// What the guard says when dlock has been killed; nobody else can say it then.
fn farewell(settings: &RunSettings) -> String {
    let (program, key, target) = (program(&settings.argv), &settings.key, &settings.connection.target);
    format!("dlock itself was killed: {program} is stopped, because nobody keeps its lock {key} at {target} alive")
}

/// Runs a command under a lock. Everything that decides how dlock ends is in the returned [`Exit`].
pub(crate) fn run(settings: &RunSettings) -> Exit {
    let report = Report::new(settings.verbosity);
    match prepare(settings, &report) {
        Ok(prepared) => start(settings, &report, prepared),
        Err(failure) => refuse(&report, &failure),
    }
}

fn refuse(report: &Report, failure: &Failure) -> Exit {
    if let Some(error) = &failure.error {
        report.error(&format!("{error:#}"));
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

fn lacking(what: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::told(Exit::Unavailable, format!("could not {what}: {reason}; no command was started"))
}

/// Why there is no new process, in the words of those who set limits.
fn no_process_reason(errno: Errno) -> String {
    match errno {
        Errno::EAGAIN => "no more processes are allowed here (ulimit -u, or the limit of the control group)".to_owned(),
        Errno::EMFILE => Unfit::reason(Unfit::Descriptors as u64).to_owned(),
        errno => format!("no process could be made: {}", errno.desc().to_lowercase()),
    }
}

/// Forks the guard before anything else: from the main thread, with nothing open and no other thread.
fn prepare(settings: &RunSettings, report: &Report) -> Result<Prepared, Failure> {
    let owner = Owner::random().map_err(|error| lacking("get random numbers for an owner id", error))?;
    let about = environment::about(settings);
    let spared = existing_children();
    let kind = settings.connection.target.kind();
    let variables = environment::for_command(&settings.key, &owner, kind);
    let command = Command::prepare(settings.argv.clone(), variables, environment::TOKEN, environment::LEASE_TTL)
        .map_err(|error| lacking("prepare the command", error))?;
    let signals = Signals::block().map_err(|error| lacking("take over the signals", error))?;
    become_subreaper().map_err(|error| lacking("become a subreaper", error))?;
    let address = guard::address(owner.as_str()).map_err(|error| lacking("name the guard's socket", error))?;
    // Written now: the guard allocates nothing after its start.
    let farewell = Farewell::new(&farewell(settings));
    let guard = fork_guard(command, &address, Box::new(move || farewell.say()))
        .map_err(|errno| lacking("start the guard", no_process_reason(errno)))?;
    // A certificate may be in a descriptor that was handed to us (`--tls-key <(…)`).
    let backend = settings
        .connection
        .target
        .open(&settings.connection.options)
        .map_err(|error| Failure::told(Exit::Usage, error))?;
    let outer = if settings.connection.target.has_lease() { Vec::new() } else { nested::Outer::inherited() };
    let inherited = if outer.is_empty() { None } else { nested::inherited_lock(&outer) };
    let lock = inherited.as_ref().map_or(2, AsRawFd::as_raw_fd);
    surroundings::let_go_of_the_rest([signals.as_raw(), guard.as_raw(), lock]);
    let mut sweep = Sweep::new();
    if !sweep.works() {
        return Err(lacking("supervise a command here", Unfit::reason(Unfit::Proc as u64)));
    }
    sweep.reserve().map_err(|_| lacking("supervise a command here", Unfit::reason(Unfit::Descriptors as u64)))?;
    let below = Below { spared, sweep };
    if !settings.connection.chosen {
        report.note(
            "no backend was chosen, so this lock holds on this host only (choose with --backend or DLOCK_BACKEND)",
        );
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
        Err(error) => return refuse(report, &lacking("start the event loop", error)),
    };
    let outcome = runtime.block_on(async {
        let signals = SignalStream::new(signals).map_err(|error| lacking("watch the signals", error))?;
        let guard = guard.connect().map_err(|error| lacking("watch the guard", error))?;
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
        let (key, target) = (self.claim.key.clone(), &settings.connection.target);
        let (sent, ttl) = match grant.lease {
            Lease::Until { sent, ttl, .. } => (Some(sent), Some(ttl)),
            Lease::Unlimited { .. } => (None, None),
        };
        let kill_after = settings.grace.within(ttl);
        let term = sent.zip(ttl).map(|(sent, ttl)| Term { sent, ttl, kill_after });
        // The guard looks again, but with --on-lost ignore it knows no deadline.
        if term.is_some_and(|term| Instant::now() >= term.term_at()) {
            let held = Held { cause: Some(Cause::TooLate), ..Held::default() };
            return self.finish(&held, term).await;
        }
        for concern in self.backend.concerns() {
            self.report.note(&format!("{key} at {target}: {concern}"));
        }
        if let Some(ttl) =
            ttl.filter(|&ttl| settings.grace.asked.is_some_and(|asked| kill_after < asked && kill_after < ttl))
        {
            let (given, ttl) = (humantime::format_duration(kill_after), humantime::format_duration(ttl));
            self.report.note(&format!(
                "{key} at {target}: --kill-after is only {given}, because the server grants no more than {ttl} of lease"
            ));
        }
        self.report.detail(&format!("acquired {key} at {target}, token {}", grant.token));
        let window = term.and_then(|term| window(&term, settings.on_lost));
        let descriptor = self.backend.descriptor();
        let spawn = Spawn {
            token: grant.token,
            ttl,
            lease: window,
            kill_after,
            outlives: window.is_none(),
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
            let hold =
                Hold::new(settings, self.report, &mut self.guard, &mut self.signals, kill_after, term, &mut self.below);
            match spawned {
                Ok(()) => hold.until_over(keeping, news).await,
                Err(_) => hold.without_guard(keeping, news).await,
            }
        };
        self.finish(&held, term).await
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
        self.report.detail(&format!("{} is held by the dlock run around this one; running under it", self.claim.key));
        let spawned = self.guard.spawn(spawn, cover.line());
        let (sender, news) = mpsc::unbounded_channel();
        let watching = async {
            cover.ended().await;
            // The receiver lives as long as this block.
            let _ = sender.send(News::NotMine("the dlock run around this one has ended".to_owned()));
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
            let program = program(&settings.argv);
            let (key, target) = (&self.claim.key, &settings.connection.target);
            let message = format!("lost {key} at {target}: the dlock run around this one ended before {program} did");
            if settings.on_lost != crate::cli::OnLost::Ignore {
                return Err(Failure::told(Exit::Lost, message));
            }
            self.report.warning(&message);
        }
        self.verdict(&outcome)
    }

    /// Gives the lock back and says how it all ended.
    async fn finish(&mut self, held: &Held, term: Option<Term>) -> Result<Exit, Failure> {
        (self.left, self.guard_done) = (held.left.is_some(), held.guard_done);
        if let Some(left) = held.left {
            let runs_out = term.map_or("", |_| ", it will expire on its own");
            let why = match left {
                Left::Process(pid) => format!("process {pid} could not be stopped by this user"),
                Left::Unknown => "processes cannot be listed, so something may still run".to_owned(),
            };
            self.report.warning(&format!("{why}: {} is not released{runs_out}", self.claim.key));
            return self.verdict(held);
        }
        let ignore = self.settings.on_lost == crate::cli::OnLost::Ignore;
        // The guard lets no command live beyond the lease: one that ended by itself ended within it, and what has run out
        // since (dlock was frozen, the server silent) was not lost while it ran.
        let ran_out = held.term.is_some_and(|term| Instant::now() >= term.expiry()) && !ignore;
        let released = give_back(self.backend.as_mut(), &self.claim, self.settings.connection.connect_timeout).await;
        match released {
            Ok(Released::Freed) => self.report.detail(&format!("released {}", self.claim.key)),
            // With --on-lost ignore the command has gone on after the one warning.
            _ if held.told_of_loss => {}
            Ok(Released::NotMine) if held.cause.is_none() && held.ran() && !ran_out => {
                let message = format!(
                    "lost {} at {} while {} ran: it was not ours any more when it ended",
                    self.claim.key,
                    self.settings.connection.target,
                    program(&self.settings.argv)
                );
                if !ignore {
                    return Err(Failure::told(Exit::Lost, message));
                }
                self.report.warning(&message);
            }
            Err(error) => {
                let within =
                    |term: Term| format!("; it runs out by itself within {}", humantime::format_duration(term.ttl));
                let runs_out = term.map(within).unwrap_or_default();
                self.report.warning(&format!("could not release {}: {error}{runs_out}", self.claim.key));
            }
            Ok(Released::NotMine) => {}
        }
        self.verdict(held)
    }

    fn verdict(&self, held: &Held) -> Result<Exit, Failure> {
        let program = program(&self.settings.argv);
        let key = &self.claim.key;
        let cannot = |exit, reason: &str| Err(Failure::told(exit, format!("could not run {program}: {reason}")));
        match (held.cause, held.exited) {
            (Some(Cause::Lost), _) => Ok(Exit::Lost),
            (Some(Cause::MaxRun), _) => Ok(Exit::MaxRun),
            (Some(Cause::NotSpawned(errno)), _) => {
                cannot(Exit::Unavailable, &no_process_reason(Errno::from_raw(errno)))
            }
            (Some(Cause::TooLate), _) | (None, Some((_, libc::ETIME))) => cannot(
                Exit::Unavailable,
                &format!("the lease of {key} had all but ended before it could start: use a longer --ttl"),
            ),
            (None, Some((_, libc::ENOENT))) => cannot(Exit::NotFound, "not found"),
            (None, Some((Ended::Code(code), 0))) => Ok(Exit::Command(code)),
            (None, Some((Ended::Signal(signal), 0))) => Ok(Exit::Signal(signal)),
            (None, Some((_, errno))) => cannot(Exit::NotExecutable, &errno_text(errno)),
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
    lacking("supervise a command here", format!("the guard did not start within {}", humantime::format_duration(limit)))
}

/// Finds out whether a command can be supervised here, before anything is acquired.
async fn expect_ready(guard: &mut Guard, key: &Key) -> Result<(), Failure> {
    match guard.next().await {
        Some(Notice::Ready) => Ok(()),
        Some(Notice::Unfit(code)) => Err(lacking("supervise a command here", Unfit::reason(code))),
        _ => Err(killed_guard(key)),
    }
}

fn killed_guard(key: &Key) -> Failure {
    let message = format!("somebody killed the guard process; the command was stopped (lock {key})");
    Failure::told(Exit::Internal, message)
}

fn errno_text(errno: i32) -> String {
    Errno::from_raw(errno).desc().to_lowercase()
}

/// The command's name for messages, without its directory; never its arguments. Where `--backend` was forgotten it is
/// a URL, and shown without the password.
fn program(argv: &[std::ffi::OsString]) -> String {
    let first = without_password(&argv.first().map_or(OsStr::new(""), |first| first.as_os_str()).to_string_lossy());
    Path::new(&first).file_name().map_or_else(|| first.clone(), |name| name.to_string_lossy().into_owned())
}
