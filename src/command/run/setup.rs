/*!
What a run needs before it may acquire a lock: the guard, which is forked before anything else, and everything for
supervising a command. If something is missing, no command is started.
*/

use std::fmt::Display;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::backend::{Claim, Contender};
use crate::command::run::rescue::Below;
use crate::command::run::{environment, nested};
use crate::exit::{Exit, Failure};
use crate::holder::Owner;
use crate::key::Key;
use crate::report::event::{Event, Lack, Step};
use crate::report::{Farewell, Report};
use crate::settings::{Patience, RunSettings};
use crate::supervise::command::Command;
use crate::supervise::guard::{self, Forked, Guard, fork_guard};
use crate::supervise::protocol::{Notice, Unfit};
use crate::supervise::reaping::become_subreaper;
use crate::supervise::signals::Signals;
use crate::supervise::surroundings;
use crate::supervise::sweep::{Sweep, existing_children};
use crate::variables;

/// The guard may take this long to start, however short the wait.
const GUARD_START: Duration = Duration::from_secs(1);

/// What exists before there is an event loop.
pub(super) struct Prepared {
    pub(super) signals: Signals,
    pub(super) guard: Forked,
    pub(super) contender: Box<dyn Contender>,
    pub(super) below: Below,
    /// The locked file of an outer run.
    pub(super) inherited: Option<OwnedFd>,
}

fn lacking(step: Step, reason: Lack) -> Failure {
    Failure::new(Exit::Unavailable, Event::Lacking { step, reason })
}

/// The failure of a step that the system refuses, as a function of the reason.
pub(super) fn refused(step: Step) -> impl Fn(&dyn Display) -> Failure {
    move |reason| lacking(step, Lack::System(reason.to_string()))
}

/// Forks the guard before anything else: from the main thread, with nothing open and no other thread.
pub(super) fn prepare(settings: &RunSettings, report: &Report) -> Result<Prepared, Failure> {
    if settings.connection.has_password {
        surroundings::close_to_inspection();
    }
    let owner = Owner::random().map_err(|error| refused(Step::OwnerId)(&error))?;
    let about = environment::about(settings);
    let spared = existing_children();
    let kind = settings.connection.target.kind();
    let variables = environment::for_command(&settings.key, &owner, kind);
    let slot = settings.mode.slots().map(|_| variables::SLOT);
    let command = Command::prepare(settings.argv.clone(), variables, [variables::TOKEN, variables::LEASE_TTL], slot)
        .map_err(|error| refused(Step::Command)(&error))?;
    let signals = Signals::block().map_err(|error| refused(Step::Signals)(&error))?;
    become_subreaper().map_err(|error| refused(Step::Subreaper)(&error))?;
    let address = guard::address(owner.as_str()).map_err(|error| refused(Step::GuardName)(&error))?;
    // Made now, because the guard allocates nothing after its start.
    let farewell = Farewell::new(&Event::DlockKilled { lock: settings.lock(), program: settings.program() });
    let guard = fork_guard(command, &address, Box::new(move || farewell.say()))
        .map_err(|errno| lacking(Step::Guard, Lack::NoProcess(errno as i32)))?;
    // Before descriptors are closed: a certificate may be in an inherited one (`--tls-key <(…)`).
    let service = settings
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
    if let Some(file) = &settings.connection.exposed {
        report.tell(&Event::PasswordExposed(file.display().to_string()));
    }
    if !settings.connection.chosen {
        report.tell(&Event::NoBackendChosen);
    }
    if let Some(unknown) = &settings.unknown {
        report.tell(unknown);
    }
    let claim = Claim {
        key: settings.key.clone(),
        namespace: settings.connection.namespace.clone(),
        owner,
        mode: settings.mode,
        around: nested::Outer::inherited().iter().map(nested::Outer::id).collect(),
        ttl: settings.ttl,
        min_hold: settings.min_hold,
        about,
    };
    Ok(Prepared { signals, guard, contender: service.contend(claim), below, inherited })
}

/// How long the guard's start may take: as long as `--wait`, but at least long enough for a busy machine.
pub(super) fn start_within(settings: &RunSettings) -> Option<Duration> {
    match settings.patience {
        Patience::None => Some(settings.connection.connect_timeout),
        Patience::For(patience) => Some(patience),
        Patience::Endless => None,
    }
    .map(|limit| limit.max(GUARD_START))
}

/// The failure of a guard that did not start within `limit`.
pub(super) fn slow_guard(limit: Duration) -> Failure {
    lacking(Step::Supervision, Lack::SlowGuard(limit))
}

/// Waits for the guard to report whether a command can be supervised here.
pub(super) async fn expect_ready(guard: &mut Guard, key: &Key) -> Result<(), Failure> {
    match guard.next().await {
        Some(Notice::Ready) => Ok(()),
        Some(Notice::Unfit(code)) => Err(lacking(Step::Supervision, Lack::Unfit(Unfit::of(code)))),
        _ => Err(Failure::new(Exit::Internal, Event::GuardKilled(key.clone()))),
    }
}
