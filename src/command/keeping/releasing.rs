/*!
Asks the keeper of a lock to let go of it, for `dlock release`.
*/

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::Instant;
use crate::command::gripping::{is_here, lost};
use crate::exit::{Exit, Failure};
use crate::handle::{Handle, Keeper};
use crate::here;
use crate::report::Report;
use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::supervise::keeper::{Answer, Request, connected};
use crate::supervise::process::{is_below, is_ending};
use crate::supervise::watched::{Unwatchable, Watched};

/// Pause before asking again.
const AGAIN: Duration = Duration::from_millis(50);

/// Time before a wait is reported.
const SILENT: Duration = Duration::from_millis(400);

/// The result of asking a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum Asked {
    /// The keeper was there, and has ended.
    Ended,
    /// The keeper was gone already.
    Gone,
}

/// The reaction of a keeper that was asked to let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    /// It has answered.
    Answered(Answer),
    /// It has ended.
    Ended,
    /// It has not answered.
    Silent,
    /// Nobody listens, or the listener is not the process that the handle names.
    Unreachable,
}

/// Asks `keeper`, which keeps the lock of `handle`, to let go, and waits until it has ended, for at most `limit`. The
/// keeper does not let go while a run under the handle is registered: that is waited for too.
///
/// No process is signalled: whoever made the handle chose the number in it.
pub(in crate::command) fn ask(
    handle: &Handle,
    keeper: &Keeper,
    limit: Duration,
    report: &Report,
) -> Result<Asked, Failure> {
    let key = handle.key.clone();
    let failure = |exit, event| Failure::new(exit, Event::Handle(event));
    if !is_here(keeper) {
        return Err(failure(Exit::Usage, HandleEvent::KeptElsewhere { key, host: keeper.host.clone() }));
    }
    let pid = keeper.pid;
    let by_another = |key| failure(Exit::Denied, HandleEvent::KeptByAnother { key, pid });
    let process = match Watched::open(pid) {
        Ok(process) => process,
        // Its start shows whether it is the keeper at all: another process may have the keeper's number by now.
        Err(Unwatchable::Denied) if here::is_there(pid, keeper.start) => return Err(by_another(key)),
        Err(Unwatchable::Refused(errno)) => {
            return Err(failure(Exit::Unavailable, HandleEvent::KeeperUnseen { key, pid, errno: Some(errno) }));
        }
        Err(_) => return Ok(Asked::Gone),
    };
    // After the process was opened: from here on, its number cannot mean another one.
    match here::start_of(pid) {
        Some(start) if start == keeper.start => {}
        None if !process.has_ended() => {
            return Err(failure(Exit::Unavailable, HandleEvent::KeeperUnseen { key, pid, errno: None }));
        }
        _ => return Ok(Asked::Gone),
    }
    let mut waiting = Waiting::new(handle, limit, report);
    loop {
        let end = Instant::now() + limit;
        return match told(handle, keeper, &process, end) {
            Reaction::Answered(Answer::Busy(run)) => {
                waiting.once_more(run, matches!(Watched::open(run), Err(Unwatchable::Missing)))?;
                continue;
            }
            Reaction::Answered(Answer::Yes) if ends_before(&process, end) => Ok(Asked::Ended),
            Reaction::Answered(Answer::Yes) | Reaction::Silent => {
                Err(failure(Exit::Unavailable, HandleEvent::KeeperStays { key, pid, limit }))
            }
            Reaction::Answered(Answer::Stopping) => {
                Err(lost(handle, "its keeper is stopping the process that counts on it".to_owned()))
            }
            Reaction::Answered(Answer::Denied) => Err(by_another(key)),
            Reaction::Ended => Ok(Asked::Ended),
            Reaction::Unreachable => Err(failure(Exit::Unavailable, HandleEvent::KeeperUnreachable { key, pid })),
        };
    }
}

/// Asks the keeper to let go, and waits for its answer until `end`.
fn told(handle: &Handle, keeper: &Keeper, process: &Watched, end: Instant) -> Reaction {
    let line = loop {
        match connected(handle.owner.as_str(), keeper.pid, keeper.start) {
            Ok(line) => break line,
            // The keeper's socket is closed before the keeper has ended.
            Err(_) if is_ending(keeper.pid) && ends_before(process, end) => return Reaction::Ended,
            Err(Errno::EAGAIN) if Instant::now() < end => std::thread::sleep(AGAIN),
            Err(Errno::EAGAIN) => return Reaction::Silent,
            Err(_) => return Reaction::Unreachable,
        }
    };
    Request::LetGo.send(&line);
    let mut both = [PollFd::new(line.as_fd(), PollFlags::POLLIN), PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    let _ = poll(&mut both, until(end));
    match Answer::receive(&line) {
        Some(answer) => Reaction::Answered(answer),
        None if ends_before(process, end) => Reaction::Ended,
        None => Reaction::Silent,
    }
}

fn ends_before(process: &Watched, end: Instant) -> bool {
    process.ends_within(until(end))
}

/// Returns the time until `end`.
fn until(end: Instant) -> PollTimeout {
    // Rounded up to the next millisecond, so that `end` has passed then.
    let left = end.since(Instant::now()) + Duration::from_millis(1);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

/// The wait for runs under a handle whose lock is to be released.
pub(in crate::command) struct Waiting<'a> {
    handle: &'a Handle,
    begun: Instant,
    /// Time limit for a run that is not being stopped.
    limit: Duration,
    report: &'a Report,
    is_told: bool,
}

impl<'a> Waiting<'a> {
    pub(in crate::command) fn new(handle: &'a Handle, limit: Duration, report: &'a Report) -> Self {
        Self { handle, begun: Instant::now(), limit, report, is_told: false }
    }

    /// Waits a moment for the run of this process. A run that `is_stopping` is waited for as long as the lease lasts.
    /// Fails if it has taken too long, or if the run waits for this process itself.
    pub(in crate::command) fn once_more(&mut self, pid: i32, is_stopping: bool) -> Result<(), Failure> {
        let limit = if is_stopping { self.handle.ttl } else { self.limit };
        let key = self.handle.key.clone();
        if Instant::now() >= self.begun + limit || is_around(pid) {
            return Err(Failure::new(Exit::Unavailable, Event::Handle(HandleEvent::RunGoesOn { key, pid })));
        }
        if Instant::now() >= self.begun + SILENT && !std::mem::replace(&mut self.is_told, true) {
            self.report.tell(&Event::Handle(HandleEvent::WaitingForRun { key, pid }));
        }
        std::thread::sleep(AGAIN);
        Ok(())
    }
}

/// Returns `true` if `pid` is an ancestor of this process, and so may be waiting for it.
pub(in crate::command) fn is_around(pid: i32) -> bool {
    is_below(nix::unistd::getpid().as_raw(), pid) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::Owner;
    use crate::key::{Key, Namespace};

    fn keeper(pid: i32) -> Keeper {
        Keeper {
            host: "web1".to_owned(),
            boot: here::boot().expect("a boot"),
            namespace: here::namespace().expect("a namespace"),
            pid,
            start: here::start_of(pid).expect("a start"),
        }
    }

    #[test]
    fn a_process_that_is_no_keeper_is_not_signalled() {
        let handle = Handle {
            backend: "redis://locks:6379".to_owned(),
            namespace: Namespace::parse("dlock").expect("valid"),
            key: Key::parse("backup".as_ref()).expect("valid"),
            owner: Owner::read("e457f1b7a38ab51a0c8ce773f17aabeb").expect("an id"),
            token: 7,
            ttl: Duration::from_secs(600),
            attempt: None,
            keeper: None,
        };
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
        let here = keeper(i32::try_from(process.id()).expect("an id"));
        let report = Report::new(crate::report::Verbosity::Quiet);
        let ask = |keeper: &Keeper| ask(&handle, keeper, Duration::ZERO, &report);
        for elsewhere in [
            Keeper { boot: "00000000".to_owned(), ..here.clone() },
            Keeper { boot: String::new(), ..here.clone() },
            Keeper { namespace: 1, ..here.clone() },
        ] {
            let failure = ask(&elsewhere).expect_err("elsewhere");
            assert_eq!(failure.exit, Exit::Usage);
            let event = HandleEvent::KeptElsewhere { key: handle.key.clone(), host: "web1".to_owned() };
            assert_eq!(failure.message(), Some(&Event::Handle(event)));
        }
        // The number is right, but the start is another one. A signal would end the process.
        assert!(matches!(ask(&Keeper { start: here.start + 1, ..here.clone() }), Ok(Asked::Gone)));
        assert!(matches!(ask(&Keeper { pid: i32::MAX, ..here.clone() }), Ok(Asked::Gone)));
        // A forged handle names exactly this process.
        let failure = ask(&here).expect_err("no keeper");
        assert_eq!(failure.exit, Exit::Unavailable);
        let event = HandleEvent::KeeperUnreachable { key: handle.key.clone(), pid: here.pid };
        assert_eq!(failure.message(), Some(&Event::Handle(event)));
        assert!(matches!(process.try_wait(), Ok(None)), "it was signalled");
        process.kill().and_then(|()| process.wait()).expect("its end");
    }
}
