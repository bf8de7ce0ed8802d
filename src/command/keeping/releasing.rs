/*!
Asking the keeper of a lock to let go of it, for `dlock release`.
*/

use std::time::Duration;

use crate::clock::Instant;
use crate::command::gripping::lost;
use crate::command::keeping::keep::{LET_GO, STOPPING};
use crate::exit::{Exit, Failure};
use crate::handle::{Handle, Keeper};
use crate::here;
use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::supervise::watched::{Unwatchable, Watched};
use nix::errno::Errno;

/// How often it is looked what the keeper does.
const LOOK: u8 = 20;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum Asked {
    /// It was there, and has ended.
    Ended,
    /// It was not there any more.
    Gone,
}

/// Asks `keeper`, which keeps the lock of `handle`, to let go, and waits until it has ended, for `limit` at most.
pub(in crate::command) fn ask(handle: &Handle, keeper: &Keeper, limit: Duration) -> Result<Asked, Failure> {
    let key = handle.key.clone();
    let failure = |exit, event| Failure::new(exit, Event::Handle(event));
    if !is_here(keeper) {
        return Err(failure(Exit::Usage, HandleEvent::KeptElsewhere { key, host: keeper.host.clone() }));
    }
    let pid = keeper.pid;
    let by_another = |key| failure(Exit::Denied, HandleEvent::KeptByAnother { key, pid });
    let process = match Watched::open(pid) {
        Ok(process) => process,
        // Whose it is shows whether it is the keeper at all: another process may have its number by now.
        Err(Unwatchable::Denied) if here::is_there(pid, keeper.start) => return Err(by_another(key)),
        Err(Unwatchable::Refused(errno)) => {
            return Err(failure(Exit::Unavailable, HandleEvent::KeeperUnseen { key, pid, errno: Some(errno) }));
        }
        Err(_) => return Ok(Asked::Gone),
    };
    // After the process was opened: from here on its number means no other one.
    match here::start_of(pid) {
        Some(start) if start == keeper.start => {}
        None if !process.has_ended() => {
            return Err(failure(Exit::Unavailable, HandleEvent::KeeperUnseen { key, pid, errno: None }));
        }
        _ => return Ok(Asked::Gone),
    }
    match process.signal(LET_GO) {
        Err(Errno::EPERM) => Err(by_another(key)),
        _ => wait(&process, handle, pid, limit),
    }
}

/// Waits until the keeper has ended. One that stops its process may have to wait for whoever waits here.
fn wait(process: &Watched, handle: &Handle, pid: i32, limit: Duration) -> Result<Asked, Failure> {
    let end = Instant::now() + limit;
    while !process.ends_within(LOOK) {
        let key = handle.key.clone();
        if here::program_of(pid).as_bytes() == STOPPING.to_bytes() {
            return Err(lost(handle, "its keeper is stopping the process that counts on it".to_owned()));
        }
        if Instant::now() >= end {
            let event = HandleEvent::KeeperStays { key, pid, limit };
            return Err(Failure::new(Exit::Unavailable, Event::Handle(event)));
        }
    }
    Ok(Asked::Ended)
}

/// Whether the keeper's number means a process here: on this host, since its last start, in this PID namespace.
fn is_here(keeper: &Keeper) -> bool {
    !keeper.boot.is_empty()
        && here::boot().as_ref() == Some(&keeper.boot)
        && here::namespace() == Some(keeper.namespace)
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
    fn a_process_of_another_host_boot_or_container_is_not_signalled() {
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
        let ask = |keeper: &Keeper| ask(&handle, keeper, Duration::ZERO);
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
        // The process has the number, and began at another time. A signal would end it.
        assert!(matches!(ask(&Keeper { start: here.start + 1, ..here.clone() }), Ok(Asked::Gone)));
        assert!(matches!(ask(&Keeper { pid: i32::MAX, ..here }), Ok(Asked::Gone)));
        assert!(matches!(process.try_wait(), Ok(None)), "it was signalled");
        process.kill().and_then(|()| process.wait()).expect("its end");
    }
}
