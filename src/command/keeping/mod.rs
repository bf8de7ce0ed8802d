/*!
`dlock acquire --while-pid`: a keeper, which is forked before anything else, takes the lock and hands its handle to the
caller. It stays behind and renews the lock until the given process has ended.

The caller is the process that the user has started: it prints the handle, and exits as the keeper says.
*/

mod caller;
mod keep;
mod line;
pub(super) mod releasing;
mod runs;

use nix::unistd::{chdir, setsid};
use tokio::io::unix::AsyncFd;

use self::caller::{Side, fork_keeper};
use self::keep::Keep;
use self::line::{Channel, Word};
use self::runs::Runs;
use crate::backend::contract::contender::{Grant, Lease, Used};
use crate::clock::Instant;
use crate::command::session::{play, refuse, told_to_stop};
use crate::command::taking::{Prepared, Taking, begin, prepare};
use crate::exit::{Exit, Failure};
use crate::handle::Keeper;
use crate::here;
use crate::key::Key;
use crate::lease::taking::{TAKE_BACK, give_back};
use crate::report::event::handle::HandleEvent;
use crate::report::event::{Event, Lack, Step};
use crate::report::{self, Report};
use crate::settings::{AcquireSettings, Keeping};
use crate::supervise::signals::SignalStream;
use crate::supervise::surroundings::{let_go_of_the_rest, rename_process};
use crate::supervise::watched::{Unwatchable, Watched};

/// The name of a keeper with a lock in process lists: `pkill dlock` spares it.
const NAME: &std::ffi::CStr = c"lock-keeper";

/// Makes a keeper take the lock, and prints its handle; returns dlock's exit.
pub(super) fn acquire(settings: &AcquireSettings, keeping: &Keeping) -> Exit {
    let report = Report::new(settings.verbosity);
    match fork_keeper() {
        Ok(Side::Caller(caller)) => {
            let outcome = caller.outcome(&settings.key);
            outcome.unwrap_or_else(|failure| refuse(&report, &failure))
        }
        Ok(Side::Keeper(line)) => be_keeper(settings, keeping, report, &line),
        Err(failure) => refuse(&report, &failure),
    }
}

/// Runs the keeper to its end.
#[allow(clippy::exit)]
fn be_keeper(settings: &AcquireSettings, keeping: &Keeping, mut report: Report, line: &Channel) -> ! {
    let started = start(settings, keeping, &mut report, line);
    let exit = match started {
        Ok((prepared, process)) => perform(settings, keeping, &report, prepared, process, line),
        Err(failure) => refuse(&report, &failure),
    };
    report.close_journal(exit.code());
    // The caller may be gone; it is, once it has the handle.
    line.say(&Word::End(exit));
    std::process::exit(i32::from(exit.code()))
}

/// Prepares everything, and closes inherited descriptors: a process that waits for their end waits for the caller only.
fn start(
    settings: &AcquireSettings,
    keeping: &Keeping,
    report: &mut Report,
    line: &Channel,
) -> Result<(Prepared, Watched), Failure> {
    let owner = begin(settings, report)?;
    let process = Watched::open(keeping.pid).map_err(|why| unwatchable(keeping.pid, why))?;
    let mut prepared = prepare(settings, report, owner)?;
    prepared.handle.keeper = Some(this());
    if !prepared.handle.fits() {
        return Err(Failure::new(Exit::Usage, Event::Handle(HandleEvent::TooLong(settings.key.clone()))));
    }
    let own = [line.as_raw(), prepared.signals.as_raw(), std::os::fd::AsRawFd::as_raw_fd(&process)];
    let_go_of_the_rest(own.into_iter().chain(report.journal()).collect());
    Ok((prepared, process))
}

/// Returns this process, as a handle names it.
fn this() -> Keeper {
    let pid = nix::unistd::getpid().as_raw();
    Keeper {
        host: here::host(),
        boot: here::boot().unwrap_or_default(),
        namespace: here::namespace().unwrap_or_default(),
        pid,
        start: here::start_of(pid).unwrap_or_default(),
    }
}

fn unwatchable(pid: i32, why: Unwatchable) -> Failure {
    let what = match why {
        Unwatchable::Missing => "there is no such process, or it has ended".to_owned(),
        Unwatchable::Denied => "it belongs to another user, and could not be stopped if the lock were lost".to_owned(),
        Unwatchable::Init => "no signal stops process 1 if the lock is lost: use dlock run".to_owned(),
        Unwatchable::Refused(errno) => format!("it cannot be watched: {}", nix::errno::Errno::from_raw(errno).desc()),
    };
    Failure::new(Exit::Usage, Event::Settings(format!("--while-pid {pid}: {what}")))
}

fn perform(
    settings: &AcquireSettings,
    keeping: &Keeping,
    report: &Report,
    prepared: Prepared,
    process: Watched,
    line: &Channel,
) -> Exit {
    let Prepared { signals, contender, mut handle, traces } = prepared;
    play(report, signals, |mut signals| async move {
        let process = process.connect().map_err(|error| unwatchable(keeping.pid, refused(&error)))?;
        // Before anybody knows the handle.
        let runs = Runs::listen(handle.owner.as_str(), keeping.pid).map_err(|error| {
            let reason = Lack::System(error.to_string());
            Failure::new(Exit::Unavailable, Event::Lacking { step: Step::Keeper, reason })
        })?;
        let mut taking = Taking::new(settings, report, contender, traces);
        let given_up = tokio::select! {
            biased;
            given_up = given_up(&mut signals, &process, line) => given_up,
            taken = taking.take() => {
                let (grant, waited) = taken?;
                let text = taking.granted(&mut handle, &grant, waited);
                match hand_over(line, &text, &process, &grant) {
                    Ok(()) => {
                        taking.tell_acquired(&handle, &grant, waited);
                        detach();
                        line.say(&Word::End(Exit::Success));
                        return keep(taking, Keep::new(settings, keeping, report, process, runs), &grant, &mut signals).await;
                    }
                    Err(given_up) => given_up,
                }
            }
        };
        report.keep();
        // The queue is left at once; what could not be taken back will expire.
        let _ = give_back(taking.contender.as_mut(), Used::No, TAKE_BACK).await;
        given_up.ending(&settings.key, keeping.pid)
    })
}

fn refused(error: &std::io::Error) -> Unwatchable {
    Unwatchable::Refused(error.raw_os_error().unwrap_or_default())
}

/// The reason why the lock is no longer wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenUp {
    /// The keeper got this signal.
    Signal(i32),
    /// The process for which the lock was wanted has ended.
    Ended,
    /// The caller has ended.
    Alone,
    /// The caller took too long to print the handle.
    Unread,
}

impl GivenUp {
    fn ending(self, key: &Key, pid: i32) -> Result<Exit, Failure> {
        match self {
            Self::Signal(signal) => Ok(Exit::Signal(signal)),
            Self::Unread => {
                let reason = format!("nobody read it before {key} could be lost");
                Err(Failure::new(Exit::Unavailable, Event::OutputFailed(reason)))
            }
            Self::Ended => Err(unwatchable(pid, Unwatchable::Missing)),
            // Nobody is left to be told.
            Self::Alone => Err(Failure::quiet(Exit::Internal, Event::Handle(HandleEvent::NotKept(key.clone())))),
        }
    }
}

/// Waits until the lock is no longer wanted; returns the reason.
async fn given_up(signals: &mut SignalStream, process: &AsyncFd<Watched>, line: &Channel) -> GivenUp {
    tokio::select! {
        biased;
        signal = told_to_stop(signals) => GivenUp::Signal(signal),
        _ = process.readable() => GivenUp::Ended,
        () = line.ended() => GivenUp::Alone,
    }
}

/// Gives the caller the handle, and waits until it has printed it.
fn hand_over(line: &Channel, text: &str, process: &AsyncFd<Watched>, grant: &Grant) -> Result<(), GivenUp> {
    if !line.say(&Word::Print(text.to_owned())) || !line.hears_printed() {
        return Err(GivenUp::Alone);
    }
    if process.get_ref().has_ended() {
        return Err(GivenUp::Ended);
    }
    // Nothing has renewed the lease meanwhile.
    let is_late = |lease| matches!(lease, Lease::Until { sent, ttl, .. } if Instant::now() >= sent + ttl / 2);
    if is_late(grant.lease) { Err(GivenUp::Unread) } else { Ok(()) }
}

/// Leaves the caller's session, and gives up everything whose end somebody could wait for.
fn detach() {
    // Fails only for the leader of a process group, which a forked process is not.
    let _ = setsid();
    let _ = chdir("/");
    rename_process(NAME);
    report::leave();
}

async fn keep(
    mut taking: Taking<'_>,
    keep: Keep<'_>,
    grant: &Grant,
    signals: &mut SignalStream,
) -> Result<Exit, Failure> {
    keep.until_over(taking.contender.as_mut(), grant, signals, &mut taking.traces).await
}
