/*!
The preparations of a run before it may acquire a lock: the guard, which is forked before anything else, and everything
needed to supervise a command. If something is missing, no command is started.
*/

use std::fmt::Display;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::backend::contract::claim::{Claim, Once};
use crate::backend::contract::contender::Contender;
use crate::backend::contract::service::Service;
use crate::command::run::rescue::Below;
use crate::command::run::{environment, nested};
use crate::command::session::begin_reports;
use crate::command::traces::Traces;
use crate::command::{gripping, journal};
use crate::exit::{Exit, Failure};
use crate::holder::Owner;
use crate::key::{Key, Keys, MOST_KEYS};
use crate::lease::several::Several;
use crate::report::event::{Event, Lack, Step};
use crate::report::{Farewell, Report};
use crate::settings::{RunSettings, WaitLimit, inherited_handle};
use crate::supervise::command::Command;
use crate::supervise::guard::{self, Forked, Guard, fork_guard};
use crate::supervise::protocol::{Notice, Unfit};
use crate::supervise::reaping::become_subreaper;
use crate::supervise::signals::Signals;
use crate::supervise::surroundings;
use crate::supervise::sweep::{Sweep, existing_children};
use crate::supervise::tokens::MOST_LOCKS;
use crate::variables;

// Each lock has one descriptor at most for the guard.
const _: () = assert!(MOST_KEYS <= MOST_LOCKS);

/// The least time that the guard has to start, however short the wait.
const GUARD_START: Duration = Duration::from_secs(1);

/// The results of the preparations, before there is an event loop.
pub(super) struct Prepared {
    pub(super) signals: Signals,
    pub(super) guard: Forked,
    pub(super) contender: Box<dyn Contender>,
    pub(super) below: Below,
    /// The locked files of outer runs.
    pub(super) inherited: Vec<OwnedFd>,
    /// The reader of the locks' last breaks.
    pub(super) traces: Traces,
}

fn lacking(step: Step, reason: Lack) -> Failure {
    Failure::new(Exit::Unavailable, Event::Lacking { step, reason })
}

/// Returns a function that turns the system's reason into the failure of this step.
pub(super) fn refused(step: Step) -> impl Fn(&dyn Display) -> Failure {
    move |reason| lacking(step, Lack::System(reason.to_string()))
}

/// Prepares the run. Forks the guard first: in the main thread, with nothing open and no other thread.
pub(super) fn prepare(settings: &RunSettings, report: &mut Report) -> Result<Prepared, Failure> {
    if settings.connection.has_password {
        surroundings::close_to_inspection();
    }
    let (owners, name) = owners(settings)?;
    // Before anything else is opened, which could get the number of a descriptor that is named but not open.
    if let Some(sink) = &settings.events {
        journal::open(report, sink, &settings.connection, settings.keys.first(), owners.first(), &settings.program())?;
    }
    let spared = existing_children();
    let kind = settings.connection.target.kind();
    let variables = environment::for_command(settings, &owners, &name, kind);
    let slot = settings.mode.slots().map(|_| variables::SLOT);
    let granted = [variables::TOKEN, variables::TOKENS, variables::LEASE_TTL];
    let command = Command::prepare(settings.argv.clone(), variables, granted, slot)
        .map_err(|error| refused(Step::Command)(&error))?;
    let signals = Signals::block().map_err(|error| refused(Step::Signals)(&error))?;
    become_subreaper().map_err(|error| refused(Step::Subreaper)(&error))?;
    let address = guard::address(&name).map_err(|error| refused(Step::GuardName)(&error))?;
    // Made now, because the guard allocates nothing after its start.
    let farewell = Farewell::new(&Event::DlockKilled { lock: settings.lock(), program: settings.program() });
    let guard = fork_guard(command, &address, Box::new(move || farewell.say()))
        .map_err(|errno| lacking(Step::Guard, Lack::NoProcess(errno as i32)))?;
    report.start_journal().map_err(|error| refused(Step::Journal)(&error))?;
    // Before descriptors are closed: a certificate may be in an inherited one (`--tls-key <(…)`).
    let service = settings
        .connection
        .target
        .open(&settings.connection.options)
        .map_err(|mistake| Failure::new(Exit::Usage, Event::Settings(mistake)))?;
    let mut outer: Vec<String> = nested::Outer::inherited().iter().map(nested::Outer::id).collect();
    let has_files = !settings.connection.target.has_lease() && !outer.is_empty();
    let inherited = if has_files { nested::inherited_locks(&outer) } else { Vec::new() };
    let locks = inherited.iter().map(AsRawFd::as_raw_fd);
    let keep: Vec<RawFd> =
        [signals.as_raw(), guard.as_raw()].into_iter().chain(report.journal()).chain(locks).collect();
    surroundings::let_go_of_the_rest(keep);
    announce(settings, &name)?;
    let mut sweep = Sweep::new();
    if let Some(unfit) = sweep.unfit() {
        return Err(lacking(Step::Supervision, Lack::Unfit(unfit)));
    }
    sweep.reserve().map_err(|_| lacking(Step::Supervision, Lack::Unfit(Unfit::Descriptors)))?;
    let below = Below { spared, sweep };
    begin_reports(&settings.connection, report);
    if !settings.connection.chosen {
        report.tell(&Event::NoBackendChosen);
    }
    if let Some(unknown) = &settings.unknown {
        report.tell(unknown);
    }
    outer.extend(inherited_handle().map(|handle| handle.owner.as_str().to_owned()));
    let contender = match &settings.handle {
        Some(handle) => service.contend(gripping::claim(handle)),
        None => contender(settings, service.as_ref(), &owners, &outer),
    };
    let traces = Traces::new(report, service, settings.connection.namespace.clone(), &owners);
    Ok(Prepared { signals, guard, contender, below, inherited, traces })
}

/// Announces a run under a handle, so that a release of its lock finds it even when the guard of this name is gone.
fn announce(settings: &RunSettings, guard: &str) -> Result<(), Failure> {
    let announced = settings.handle.as_ref().map(|_| guard::under::announce(guard));
    announced.transpose().map(drop).map_err(|error| refused(Step::GuardName)(&error))
}

/// Returns the owner of each lock, and the name of the guard: the owner that the command knows, except under a handle,
/// where several runs may go on.
fn owners(settings: &RunSettings) -> Result<(Vec<Owner>, String), Failure> {
    let random = || Owner::random().map_err(|error| refused(Step::OwnerId)(&error));
    if let Some(handle) = &settings.handle {
        let name = guard::under::name(handle.owner.as_str(), random()?.as_str());
        return Ok((vec![handle.owner.clone()], name));
    }
    let owners = settings.keys.iter().map(|_| random()).collect::<Result<Vec<_>, _>>()?;
    let name = owners.first().map(|owner| owner.as_str().to_owned()).unwrap_or_default();
    Ok((owners, name))
}

/// Makes the contender for the lock, or for all locks, each with the owner at the same position. `outer` are the owners
/// of outer runs.
fn contender(settings: &RunSettings, service: &dyn Service, owners: &[Owner], outer: &[String]) -> Box<dyn Contender> {
    let about = environment::about(settings);
    let once_per = settings.once_per.map(Once::now);
    let contend = |(key, owner): (&Key, Owner)| {
        service.contend(Claim {
            key: key.clone(),
            namespace: settings.connection.namespace.clone(),
            owner,
            mode: settings.mode,
            outer: outer.to_vec(),
            ttl: settings.lease(),
            min_hold: settings.min_hold,
            once_per,
            about: about.clone(),
        })
    };
    let mut contenders: Vec<Box<dyn Contender>> =
        settings.keys.iter().zip(owners.iter().cloned()).map(contend).collect();
    match contenders.pop() {
        Some(only) if contenders.is_empty() => only,
        last => {
            contenders.extend(last);
            Box::new(Several::new(contenders, settings.grace, settings.lock_delay.length))
        }
    }
}

/// Returns the time limit for the guard's start: that of `--wait`, or of connecting, but at least [`GUARD_START`].
pub(super) fn start_within(settings: &RunSettings) -> Option<Duration> {
    match settings.wait_limit {
        WaitLimit::None => Some(settings.connection.connect_timeout),
        WaitLimit::For(wait_limit) => Some(wait_limit),
        WaitLimit::Endless => None,
    }
    .map(|limit| limit.max(GUARD_START))
}

/// Returns the failure for a guard that did not start within `limit`.
pub(super) fn slow_guard(limit: Duration) -> Failure {
    lacking(Step::Supervision, Lack::SlowGuard(limit))
}

/// Waits for the guard to report whether a command can be supervised here.
pub(super) async fn expect_ready(guard: &mut Guard, keys: &Keys) -> Result<(), Failure> {
    match guard.next().await {
        Some(Notice::Ready) => Ok(()),
        Some(Notice::Unfit(code)) => Err(lacking(Step::Supervision, Lack::Unfit(Unfit::of(code)))),
        _ => Err(Failure::new(Exit::Internal, Event::GuardKilled(keys.clone()))),
    }
}
