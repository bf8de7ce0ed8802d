/*!
A `dlock run` inside a `dlock run` that holds the same lock: its command starts at once.

`DLOCK_HELD` lists the outer runs. An entry counts only if the backend confirms its owner and if its process is an ancestor
of this one: a stale variable in a daemon must not skip a lock. Owners are compared instead of URLs, because one backend can
be spelled in several ways; otherwise a run could wait for itself.

The outer run must not release the lock while a run that it covers lives. So the inner run registers with the outer guard,
which stops it first. A lock file stays locked after its dlock was killed, as long as a process has the locked descriptor;
then the inherited descriptor is what counts.
*/

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, connect, getsockopt, recv, socket};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use crate::clock::{Instant, before};
use crate::exit::{Exit, Failure};
use crate::holder::{BESIDE, Holder, LOCK_FILE, Owner, Published};
use crate::lock::admission::Mode;
use crate::readable::readable;
use crate::report::event::Event;
use crate::settings::RunSettings;
use crate::supervise::guard;
use crate::supervise::process::{is_ending, parent_of, pidfd_open, start_of};
use crate::variables::{HELD, OWNER, SLOT, TOKEN};

/// How many runs may be nested in each other.
const MAX_DEPTH: usize = 256;
/// How much of a lock file is read to find an outer run, in bytes: room for thousands of holders.
const LONGEST: usize = 32 << 20;
/// How long the guard of an outer run may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// An outer run, as `DLOCK_HELD` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outer {
    /// The owner's id.
    id: String,
    /// The process id of its dlock.
    pid: i32,
    /// When that process was started, in clock ticks after boot, because process ids are reused.
    start: u64,
    /// The PID namespace to which `pid` belongs.
    namespace: u64,
    /// Its fencing token, if known to the inner runs: not every service can be asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// Its slot, if it has one and that is known to the inner runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<u32>,
}

impl Outer {
    /// Reads the list of runs; a value that cannot be read is an empty list.
    fn read(text: &str) -> Vec<Self> {
        let mut outer: Vec<Self> = serde_json::from_str(text).unwrap_or_default();
        outer.truncate(MAX_DEPTH);
        outer
    }

    /// The outer runs, from the environment.
    pub(super) fn inherited() -> Vec<Self> {
        let mut outer = Self::read(&std::env::var(HELD).unwrap_or_default());
        // The innermost outer run made the list before its grant, so its own token is not in it.
        let [owner, token, slot] = [OWNER, TOKEN, SLOT].map(|name| std::env::var(name).unwrap_or_default());
        for run in outer.iter_mut().filter(|run| run.id == owner) {
            (run.token, run.slot) = (token.parse().ok(), slot.parse().ok());
        }
        outer
    }

    /// The value for the command: the outer runs, and this one.
    pub(super) fn inherited_and(owner: &Owner) -> String {
        let mut held = Self::inherited();
        let pid = nix::unistd::getpid().as_raw();
        held.push(Self {
            id: owner.as_str().to_owned(),
            pid,
            start: start_of(pid).unwrap_or_default(),
            namespace: pid_namespace(),
            token: None,
            slot: None,
        });
        // Numbers and texts always serialize.
        serde_json::to_string(&held).unwrap_or_default()
    }

    /// Its owner's id.
    pub(super) fn id(&self) -> String {
        self.id.clone()
    }

    fn is_ancestor(&self) -> bool {
        is_above_us(self.pid) && start_of(self.pid) == Some(self.start)
    }
}

/// A lock that is held by an outer run.
#[derive(Debug)]
pub(super) struct Cover {
    /// The outer run's fencing token.
    pub(super) token: u64,
    /// The outer run's slot, where one is wanted; 0 where it has the whole lock.
    pub(super) slot: Option<u32>,
    /// The outer run's lease.
    pub(super) ttl: Option<Duration>,
    /// The outer dlock, if it lives.
    dlock: Option<(i32, AsyncFd<OwnedFd>)>,
    /// The connection to the outer guard, which stops this run before it lets the lock be released.
    guard: Option<AsyncFd<OwnedFd>>,
    /// The inherited locked file: the lock does not end before this run.
    locked: Option<OwnedFd>,
}

impl Cover {
    /// Resolves when the outer run does not keep the lock any more.
    pub(super) async fn ended(&self) {
        if self.locked.is_some() {
            return std::future::pending().await;
        }
        let readable = async |process: Option<&AsyncFd<OwnedFd>>| match process {
            Some(process) => drop(process.readable().await),
            None => std::future::pending().await,
        };
        tokio::select! {
            () = readable(self.keeper().map(|(_, process)| process)) => {}
            () = readable(self.guard.as_ref()) => {}
        }
    }

    /// Whether the outer dlock has ended or is about to end, and its lock with it. Its guard sees the descriptors close, and
    /// stops this run, a moment before the kernel reports the end of the process.
    pub(super) fn has_ended(&self) -> bool {
        self.keeper().is_some_and(|(pid, process)| {
            is_ending(*pid)
                || matches!(poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO), Ok(1))
        })
    }

    /// The outer dlock, if the lock ends with it. A lock without a lease is kept by the guard or by the locked descriptor.
    fn keeper(&self) -> Option<&(i32, AsyncFd<OwnedFd>)> {
        self.dlock.as_ref().filter(|_| self.ttl.is_some())
    }

    /// The connection to the outer guard, which stays open as long as any process of this run lives.
    pub(super) fn line(&self) -> Option<BorrowedFd<'_>> {
        self.guard.as_ref().map(|guard| guard.as_fd())
    }
}

/// The locked file of one of the `outer` runs, if this process has inherited it.
pub(super) fn inherited_lock(outer: &[Outer]) -> Option<OwnedFd> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let descriptors = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    descriptors.filter(|&descriptor| descriptor > 2).find_map(|descriptor| {
        // SAFETY: the descriptor is only borrowed, and a copy of one that is closed meanwhile fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let copy = borrowed.try_clone_to_owned().ok()?;
        outer.iter().any(|outer| names(&copy, &outer.id).is_some()).then_some(copy)
    })
}

/// What the owner `id` has published in `file` or in a file beside it, if that is a lock file and it holds the lock.
fn names(file: &OwnedFd, id: &str) -> Option<Box<Published>> {
    let beside = || {
        let mut path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?.into_os_string();
        path.push(BESIDE);
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
    };
    let says = |file: std::fs::File| says(&file, id);
    file.try_clone().ok().and_then(|file| says(file.into())).or_else(|| beside().and_then(says))
}

/// What the owner `id` has published in this lock file: each holder has a line there.
fn says(file: &std::fs::File, id: &str) -> Option<Box<Published>> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut beginning = [0; LOCK_FILE.len()];
    file.read_exact_at(&mut beginning, 0).ok()?;
    if beginning.as_slice() != LOCK_FILE.as_bytes() {
        return None;
    }
    let mut content = vec![0; usize::try_from(metadata.len()).map_or(LONGEST, |length| length.min(LONGEST))];
    let length = file.read_at(&mut content, 0).ok()?;
    let quoted = format!("\"id\":\"{id}\"");
    let lines = content[..length].split(|&byte| byte == b'\n' || byte == 0);
    let mut named = lines.filter(|line| line.windows(quoted.len()).any(|part| part == quoted.as_bytes()));
    named.find_map(|line| match Holder::read(line) {
        Holder::Dlock(published) if published.id == id && !published.done => Some(published),
        _ => None,
    })
}

/// Whether `file` names the owner `id` and is locked by the descriptor that this process has inherited. The kernel is only
/// asked: to take the lock again would turn a shared one into an exclusive one, or lose it.
fn keeps(file: &OwnedFd, id: &str) -> bool {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap_or_default();
    let is_locked = about.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK"));
    // In this order: what a release removes from the file is removed while it is still locked.
    is_locked && names(file, id).is_some()
}

/// The answer of an outer guard to a nested run.
enum Registered {
    /// It keeps the lock until this connection is closed.
    Yes(OwnedFd),
    /// It is about to release the lock, or does not accept this process as a part of its command.
    No,
    /// It cannot be reached.
    Unreachable,
}

/// Registers with the guard of the run with this owner.
async fn register(owner: &str) -> Registered {
    let line = || -> nix::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let line = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        connect(line.as_raw_fd(), &guard::address(owner)?)?;
        Ok(line)
    };
    let Ok(line) = line() else { return Registered::Unreachable };
    // Any process can listen at a name that is not taken; the guard must be an ancestor.
    let peer = getsockopt(&line, PeerCredentials).map_or(0, |peer| peer.pid());
    if !is_above_us(peer) {
        return Registered::Unreachable;
    }
    let Ok(line) = readable(line) else { return Registered::Unreachable };
    let mut answer = [0; guard::COVERED.len()];
    match before(Instant::now() + ANSWER, line.readable()).await {
        Ok(Ok(_)) => {}
        _ => return Registered::Unreachable,
    }
    match recv(line.as_raw_fd(), &mut answer, MsgFlags::empty()) {
        Ok(_) if answer == guard::COVERED => Registered::Yes(line.into_inner()),
        _ => Registered::No,
    }
}

/// Finds the outer run that holds the lock according to the backend, where `published` is its text. `inherited` is the locked
/// file of one of the `outer` runs. Fails where the outer run's mode does not cover the one that is wanted: it would wait for
/// itself.
pub(super) async fn cover(
    outer: &[Outer],
    inherited: &mut Option<OwnedFd>,
    published: &Published,
    settings: &RunSettings,
) -> Result<Option<Cover>, Failure> {
    // What only a finished run's minimum hold keeps taken covers nothing.
    if published.done {
        return Ok(None);
    }
    let Some(holder) = outer.iter().find(|outer| outer.id == published.id) else { return Ok(None) };
    if holder.namespace != pid_namespace() {
        return Err(Failure::new(Exit::NotAcquired(settings.conflict), Event::OuterElsewhere));
    }
    if published.about.pid != holder.pid {
        return Ok(None);
    }
    let ttl = published.about.ttl.map(Duration::from_millis);
    let dlock = if holder.is_ancestor() { watch(holder)? } else { None };
    let locked = inherited.take().filter(|file| ttl.is_none() && keeps(file, &holder.id));
    // The process must be an ancestor, or else the lock must be kept without it.
    if dlock.is_none() && ttl.is_some() {
        return Ok(None);
    }
    let guard = match register(&holder.id).await {
        Registered::Yes(line) => Some(readable(line).map_err(|error| unreachable_guard(Some(error.to_string())))?),
        Registered::Unreachable if dlock.is_some() => return Err(unreachable_guard(None)),
        // A locked file whose dlock is gone is released by nothing but the end of its descriptors.
        Registered::No | Registered::Unreachable if dlock.is_none() && locked.is_some() => None,
        Registered::No | Registered::Unreachable => return Ok(None),
    };
    // A newer dlock may hold it in a mode that this one does not know: at least as weak as shared.
    let mode = published.mode().unwrap_or(Mode::Shared);
    if !mode.covers(settings.mode) {
        let (key, wanted) = (settings.key.clone(), settings.mode);
        return Err(Failure::new(Exit::Usage, Event::Upgrade { key, outer: mode, wanted }));
    }
    let token = holder.token.or(published.token).unwrap_or_default();
    let slot = settings.mode.slots().map(|_| holder.slot.or(published.slot).unwrap_or_default());
    Ok(Some(Cover { token, slot, ttl, dlock, guard, locked }))
}

fn unreachable_guard(reason: Option<String>) -> Failure {
    Failure::new(Exit::Unavailable, Event::OuterGuardUnreachable(reason))
}

/// Watches the dlock of an outer run; `None` if it has ended.
fn watch(holder: &Outer) -> Result<Option<(i32, AsyncFd<OwnedFd>)>, Failure> {
    match pidfd_open(holder.pid).and_then(|process| readable(process).map_err(|_| Errno::EIO)) {
        // It may have ended, and its number may be another's by now, before the descriptor was opened.
        Ok(process) if start_of(holder.pid) == Some(holder.start) => Ok(Some((holder.pid, process))),
        Ok(_) | Err(Errno::ESRCH) => Ok(None),
        Err(errno) => Err(Failure::new(Exit::Unavailable, Event::OuterUnwatchable(errno as i32))),
    }
}

fn is_above_us(pid: i32) -> bool {
    ancestors().any(|ancestor| ancestor == pid)
}

/// The processes above this one, from its parent on.
fn ancestors() -> impl Iterator<Item = i32> {
    let me = nix::unistd::getpid().as_raw();
    std::iter::successors(parent_of(me), |&pid| parent_of(pid)).take_while(|&pid| pid > 0).take(1 << 16)
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
        let granted = (option::of(any::<u64>()), option::of(any::<u32>()));
        let run = (any::<String>(), any::<i32>(), any::<u64>(), any::<u64>(), granted);
        let run =
            run.prop_map(|(id, pid, start, namespace, (token, slot))| Outer { id, pid, start, namespace, token, slot });
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
            slot: None,
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
