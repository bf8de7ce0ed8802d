/*!
A `dlock run` inside a `dlock run` that holds the same lock: it passes straight through.

`DLOCK_HELD` lists the runs around the command. An entry counts only where the backend itself says that the lock is
that owner's, and where that run's process is an ancestor of ours: a stale variable in a daemon must not skip a lock.
Comparing owners instead of URLs finds the outer run however the backend is spelled, so nobody waits for himself.
*/

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use super::environment::{OWNER, TOKEN};
use crate::backend::Busy;
use crate::exit::{Exit, Failure};
use crate::holder::{Holder, Owner};
use crate::readable::readable;
use crate::supervise::sweep::parent_of;

/// The variable with the locks that are held around the command.
pub(super) const HELD: &str = "DLOCK_HELD";
/// How many runs may be nested in each other.
const MAX_DEPTH: usize = 256;

/// A run around this one, as `DLOCK_HELD` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outer {
    /// The owner's id.
    id: String,
    /// The process id of its dlock.
    pid: i32,
    /// When that process was started, in clock ticks after boot: process ids are used again.
    start: u64,
    /// The PID namespace in which `pid` means anything.
    namespace: u64,
    /// Its fencing token, as far as the runs further in were told: not every service can be asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

impl Outer {
    /// Reads the list of runs; nonsense counts as none.
    fn read(text: &str) -> Vec<Self> {
        let mut outer: Vec<Self> = serde_json::from_str(text).unwrap_or_default();
        outer.truncate(MAX_DEPTH);
        outer
    }

    /// The runs around this one, as the environment has them.
    pub(super) fn inherited() -> Vec<Self> {
        let mut outer = Self::read(&std::env::var(HELD).unwrap_or_default());
        // The run right around this one could not put its own token into the list: it was made before the grant.
        let [owner, token] = [OWNER, TOKEN].map(|name| std::env::var(name).unwrap_or_default());
        for run in outer.iter_mut().filter(|run| run.id == owner) {
            run.token = token.parse().ok();
        }
        outer
    }

    /// The value for the command: the runs around this one, and this one.
    pub(super) fn inherited_and(owner: &Owner) -> String {
        let mut held = Self::inherited();
        let pid = nix::unistd::getpid().as_raw();
        held.push(Self {
            id: owner.as_str().to_owned(),
            pid,
            start: start_of(pid).unwrap_or_default(),
            namespace: pid_namespace(),
            token: None,
        });
        // Numbers and texts always serialize.
        serde_json::to_string(&held).unwrap_or_default()
    }

    fn is_ancestor(&self) -> bool {
        let mut pid = nix::unistd::getpid().as_raw();
        for _ in 0..1 << 16 {
            match parent_of(pid) {
                Some(parent) if parent == self.pid => return start_of(parent) == Some(self.start),
                Some(parent) if parent > 0 => pid = parent,
                _ => return false,
            }
        }
        false
    }
}

/// The lock as an outer run holds it.
#[derive(Debug)]
pub(super) struct Cover {
    /// The outer run's fencing token.
    pub(super) token: u64,
    /// The outer run's lease.
    pub(super) ttl: Option<Duration>,
    pid: i32,
    process: AsyncFd<OwnedFd>,
}

impl Cover {
    /// Resolves when the outer dlock has ended.
    pub(super) async fn ended(&self) {
        let _ = self.process.readable().await;
    }

    /// Whether the outer dlock has ended by now, or is about to: its guard sees its descriptors close, and sweeps, a
    /// moment before the kernel announces the end.
    pub(super) fn has_ended(&self) -> bool {
        let is_ending = stat_field(self.pid, FLAGS).is_none_or(|flags| flags & EXITING != 0);
        is_ending
            || matches!(poll(&mut [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO), Ok(1))
    }
}

/// Whether one of the `outer` runs holds the lock for us, by what the backend says of its holder; `conflict` is the exit
/// code for a lock that cannot be had.
pub(super) fn cover(outer: &[Outer], busy: &Busy, conflict: u8) -> Result<Option<Cover>, Failure> {
    let Holder::Dlock(published) = &busy.holder else { return Ok(None) };
    let Some(holder) = outer.iter().find(|outer| outer.id == published.id) else { return Ok(None) };
    if holder.namespace != pid_namespace() {
        let message = "the lock is held by the dlock run around this one, which is in another PID namespace and cannot \
                       be watched from here: take the lock once, outside";
        return Err(Failure::told(Exit::NotAcquired(conflict), message));
    }
    // The backend names the process too: an ancestor that is not the holder covers nothing.
    if published.about.pid != holder.pid || !holder.is_ancestor() {
        return Ok(None);
    }
    let process = pidfd_open(holder.pid).and_then(|process| readable(process).map_err(|_| Errno::EIO));
    match process {
        // It may have ended, and its number may be another's by now, before the descriptor was opened.
        Ok(process) if start_of(holder.pid) == Some(holder.start) => Ok(Some(Cover {
            token: holder.token.or(published.token).unwrap_or_default(),
            ttl: published.about.ttl.map(Duration::from_millis),
            pid: holder.pid,
            process,
        })),
        Ok(_) | Err(Errno::ESRCH) => Ok(None),
        Err(errno) => Err(Failure::told(
            Exit::Unavailable,
            format!(
                "could not watch the dlock run around this one: pidfd_open: {}; allow it in the container's seccomp profile",
                errno.desc()
            ),
        )),
    }
}

fn pidfd_open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open has no memory effects.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = i32::try_from(Errno::result(descriptor)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Where a process's `stat` has the time of its start, counted from the parenthesis (field 22 of proc(5)).
const START: usize = 19;
/// Where it has the kernel's flags (field 9).
const FLAGS: usize = 6;
/// The flag of a process that is on its way out (`PF_EXITING`).
const EXITING: u64 = 4;

/// When a process was started, in clock ticks after boot.
fn start_of(pid: i32) -> Option<u64> {
    stat_field(pid, START)
}

/// A number from a process's `stat`; none when there is no such process.
fn stat_field(pid: i32, index: usize) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(index)?.parse().ok()
}

/// The number of this process's PID namespace; 0 where it cannot be told.
fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    fn runs() -> impl Strategy<Value = Vec<Outer>> {
        let run = (any::<String>(), any::<i32>(), any::<u64>(), any::<u64>(), option::of(any::<u64>()));
        let run = run.prop_map(|(id, pid, start, namespace, token)| Outer { id, pid, start, namespace, token });
        vec(run, 0..4)
    }

    #[test]
    fn a_list_of_runs_is_read_back_and_nonsense_is_an_empty_one() {
        const PIECES: &str = "\
            [|]|{|}|,|:|\"id\":|\"x\"|\"pid\":|\"start\":|\"namespace\":|1|-1|1e9|null\
            |[{\"id\":\"x\",\"pid\":1,\"start\":1,\"namespace\":1|}]";
        holds(1000, (runs(), made_of(PIECES)), |(runs, noise)| {
            let text = serde_json::to_string(&runs).expect("numbers and texts");
            prop_assert_eq!(Outer::read(&text), runs.clone());
            // A newer dlock may say more of each.
            let more = text.replace("\"pid\":", "\"shiny\":[1],\"pid\":");
            prop_assert!(Outer::read(&more).len() == runs.len());
            for read in [Outer::read(&noise), Outer::read(&(text + &noise))] {
                prop_assert!(read.len() <= MAX_DEPTH);
                // What does not name a process that exists, and was started then, covers nothing.
                prop_assert!(read.iter().all(|run| run.start > 1 || !run.is_ancestor()), "{read:?}");
            }
            Ok(())
        });
    }

    #[test]
    fn a_list_that_is_too_long_is_cut() {
        let text = serde_json::to_string(&vec![outer(1); MAX_DEPTH + 10]).expect("numbers and texts");
        assert_eq!(Outer::read(&text).len(), MAX_DEPTH);
        assert_eq!(Outer::read(&"[".repeat(100_000)), []);
    }

    fn outer(pid: i32) -> Outer {
        Outer {
            id: "x".to_owned(),
            pid,
            start: start_of(pid).unwrap_or_default(),
            namespace: pid_namespace(),
            token: None,
        }
    }

    #[test]
    fn a_parent_is_an_ancestor_and_a_later_process_with_its_number_is_not() {
        let parent = nix::unistd::getppid().as_raw();
        assert!(outer(parent).is_ancestor());
        assert!(!Outer { start: 0, ..outer(parent) }.is_ancestor());
        assert!(!outer(nix::unistd::getpid().as_raw()).is_ancestor());
    }
}
