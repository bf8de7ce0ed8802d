/*!
A `dlock run` inside a `dlock run` that holds the same lock: its command starts at once.

`DLOCK_HELD` lists the outer runs. An entry counts only if the backend confirms its owner and if its process is an
ancestor of this one: a stale variable in a daemon must not skip a lock. Owners are compared instead of URLs, because
one backend can have several URLs, and a run that misses its outer run would wait for itself.

The outer run must not release the lock while a run that it covers lives. So the inner run registers with the outer
guard, which stops it first. A lock file stays locked after its dlock was killed, as long as a process has the locked
descriptor; then the inherited descriptor decides.

A run that holds several locks has an owner for each of them, and its guard is named after the first one.
*/

mod line;
mod locked;

pub(crate) use self::locked::inherited_locks;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use self::line::{OuterConnection, Registered, is_above_us, register, starts_itself, unreachable_guard};
use self::locked::keeps;
use crate::exit::{Exit, Failure};
use crate::holder::{Owner, Published};
use crate::key::Key;
use crate::lock::admission::Mode;
use crate::readable::readable;
use crate::report::event::Event;
use crate::settings::RunSettings;
use crate::supervise::process::{is_ending, pidfd_open, start_of};
use crate::variables::{HELD, OWNER, SLOT, TOKEN, TOKENS};

/// A lock of an outer run, as `DLOCK_HELD` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outer {
    /// The owner's id.
    id: String,
    /// The process id of its dlock.
    pid: i32,
    /// The start of that process, in clock ticks after boot, because process ids are reused.
    start: u64,
    /// The PID namespace to which `pid` belongs.
    namespace: u64,
    /// The name of its guard, if that is not this id: the owner of the first of several locks, or a separate name for a
    /// lock that is held by its handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard: Option<String>,
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
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the outer runs, from the environment.
    pub(crate) fn inherited() -> Vec<Self> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let mut outer = Self::read(&variable(HELD));
        let tokens = tokens(&variable(TOKEN), &variable(TOKENS));
        Self::granted(&mut outer, &variable(OWNER), &tokens, variable(SLOT).parse().ok());
        outer
    }

    /// Adds the grant of the innermost of these runs, the one with this `owner`: the list was made before the grant.
    fn granted(outer: &mut [Self], owner: &str, tokens: &[u64], slot: Option<u32>) {
        // The guard of a run under a handle has a name of its own.
        let innermost = outer.iter_mut().filter(|run| run.guard_name() == owner || run.id == owner);
        for (index, run) in innermost.enumerate() {
            (run.token, run.slot) = (tokens.get(index).copied(), slot);
        }
    }

    /// Returns the value for the command: the outer runs, and this one with its locks' owners and its guard's name.
    pub(super) fn inherited_and(owners: &[Owner], guard: &str) -> String {
        let mut held = Self::inherited();
        let pid = nix::unistd::getpid().as_raw();
        held.extend(owners.iter().map(|owner| Self {
            id: owner.as_str().to_owned(),
            pid,
            start: start_of(pid).unwrap_or_default(),
            namespace: pid_namespace(),
            guard: (owner.as_str() != guard).then(|| guard.to_owned()),
            token: None,
            slot: None,
        }));
        // Numbers and texts always serialize.
        serde_json::to_string(&held).unwrap_or_default()
    }

    /// Returns its owner's id.
    pub(crate) fn id(&self) -> String {
        self.id.clone()
    }

    /// Returns the name of its guard.
    fn guard_name(&self) -> &str {
        self.guard.as_deref().unwrap_or(&self.id)
    }

    fn is_ancestor(&self) -> bool {
        is_above_us(self.pid) && start_of(self.pid) == Some(self.start)
    }
}

/// Returns the tokens of a run, from its variables for the `first` one and for `all` of them. An older release sets
/// only the first, and passes on the others as an outer run has set them.
fn tokens(first: &str, all: &str) -> Vec<u64> {
    let Ok(first) = first.parse() else { return Vec::new() };
    let all: Vec<u64> = all.split(' ').map_while(|token| token.parse().ok()).collect();
    if all.first() == Some(&first) { all } else { vec![first] }
}

/// A lock that is held by an outer run.
#[derive(Debug)]
pub(super) struct Cover {
    /// The key of the lock.
    pub(super) key: Key,
    /// The outer run's fencing token.
    pub(super) token: u64,
    /// The outer run's slot, if one is wanted; 0 if it has the whole lock.
    pub(super) slot: Option<u32>,
    /// The outer run's lease.
    pub(super) ttl: Option<Duration>,
    /// The outer dlock, if it lives.
    dlock: Option<(i32, AsyncFd<OwnedFd>)>,
    /// The connection to the outer guard, which stops this run before it lets the lock be released.
    guard: Option<OuterConnection>,
    /// The inherited locked file: the lock does not end before this run.
    locked: Option<OwnedFd>,
}

impl Cover {
    /// Resolves when the outer run no longer keeps the lock.
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
            () = readable(self.guard.as_ref().map(|line| &*line.connection)) => {}
        }
    }

    /// Returns `true` if the outer dlock has ended or is about to end, and its lock with it. Its guard sees the
    /// descriptors close, and stops this run, a moment before the kernel reports the end of the process.
    pub(super) fn has_ended(&self) -> bool {
        self.keeper().is_some_and(|(pid, process)| {
            is_ending(*pid)
                || matches!(poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO), Ok(1))
        })
    }

    /// Returns the outer dlock if the lock ends with it. The guard or the descriptor keeps a lock without a lease.
    fn keeper(&self) -> Option<&(i32, AsyncFd<OwnedFd>)> {
        self.dlock.as_ref().filter(|_| self.ttl.is_some())
    }
}

/// Returns the connections to the outer guards of these locks, one to each.
pub(super) fn lines(covers: &[Cover]) -> Vec<BorrowedFd<'_>> {
    let lines = covers.iter().filter_map(|cover| cover.guard.as_ref());
    let lines: BTreeMap<&str, &OuterConnection> = lines.map(|line| (line.guard.as_str(), line)).collect();
    lines.into_values().map(|line| line.connection.as_fd()).collect()
}

/// An outer run that keeps a lock for this process.
struct Keeper<'a> {
    holder: &'a Outer,
    ttl: Option<Duration>,
    dlock: Option<(i32, AsyncFd<OwnedFd>)>,
    guard: Option<OuterConnection>,
    locked: Option<OwnedFd>,
}

/// Returns `true` if one of the `outer` runs holds the lock according to the backend, where its holder has `published`
/// this, and keeps it for this process. `inherited` are their locked files.
pub(crate) async fn is_kept(
    outer: &[Outer],
    inherited: &mut Vec<OwnedFd>,
    published: &Published,
    key: &Key,
) -> Result<bool, Failure> {
    Ok(keeper(outer, inherited, published, key, &[]).await?.is_some())
}

/// Finds the outer run that holds the lock `key` according to the backend, where it has `published` this. `inherited`
/// are the locked files of the `outer` runs, and `known` the locks that they are known to hold. Fails if the outer run
/// lives and cannot cover this one, which would then wait for itself.
async fn keeper<'a>(
    outer: &'a [Outer],
    inherited: &mut Vec<OwnedFd>,
    published: &Published,
    key: &Key,
    known: &[Cover],
) -> Result<Option<Keeper<'a>>, Failure> {
    // A lock that only the minimum hold of a finished run keeps taken covers nothing.
    if published.done {
        return Ok(None);
    }
    let Some(holder) = outer.iter().find(|outer| outer.id == published.id) else { return Ok(None) };
    if holder.namespace != pid_namespace() {
        return Err(Failure::new(Exit::Usage, Event::OuterElsewhere));
    }
    // A lock with a handle was taken by another process than the one that keeps it now.
    if published.about.pid != holder.pid && !published.about.handle {
        return Ok(None);
    }
    let ttl = published.lease();
    let dlock = if holder.is_ancestor() { watch(holder)? } else { None };
    let locked = inherited.iter().position(|file| ttl.is_none() && keeps(file, &holder.id));
    let locked = locked.map(|place| inherited.swap_remove(place));
    // The process must be an ancestor, unless the lock is kept without it.
    if dlock.is_none() && ttl.is_some() {
        return Ok(None);
    }
    let name = holder.guard_name();
    let registered = known.iter().filter_map(|cover| cover.guard.as_ref()).find(|line| line.guard == name);
    let registered = match registered {
        Some(line) => Registered::Yes(line.clone()),
        None => register(name).await?,
    };
    let guard = match registered {
        Registered::Yes(line) => Some(line),
        // A locked file whose dlock is gone is released only by the end of its descriptors.
        _ if dlock.is_none() && locked.is_some() => None,
        // Otherwise it would wait for itself.
        Registered::Full => return Err(Failure::new(Exit::Unavailable, Event::OuterFull(key.clone()))),
        Registered::Unreachable if dlock.is_some() => return Err(unreachable_guard(None)),
        Registered::No | Registered::Unreachable => return Ok(None),
    };
    Ok(Some(Keeper { holder, ttl, dlock, guard, locked }))
}

/// Finds the [`keeper`] of the lock `key`. Also fails if the mode of that lock does not cover the requested one.
pub(super) async fn cover(
    outer: &[Outer],
    inherited: &mut Vec<OwnedFd>,
    published: &Published,
    key: Key,
    settings: &RunSettings,
    known: &[Cover],
) -> Result<Option<Cover>, Failure> {
    let Some(keeper) = keeper(outer, inherited, published, &key, known).await? else { return Ok(None) };
    let Keeper { holder, ttl, dlock, guard, locked } = keeper;
    if starts_itself() {
        return Err(Failure::new(Exit::Usage, Event::StartsItself(key)));
    }
    if settings.once_per.is_some() {
        return Err(Failure::new(Exit::Usage, Event::OnceInside(key)));
    }
    // A newer dlock may hold it in a mode that this one does not know: at least as weak as shared.
    let mode = published.mode().unwrap_or(Mode::Shared);
    if !mode.covers(settings.mode) {
        let wanted = settings.mode;
        return Err(Failure::new(Exit::Usage, Event::Upgrade { key, outer: mode, wanted }));
    }
    let token = holder.token.or(published.token).unwrap_or_default();
    let slot = settings.mode.slots().map(|_| holder.slot.or(published.slot).unwrap_or_default());
    Ok(Some(Cover { key, token, slot, ttl, dlock, guard, locked }))
}

/// Watches the dlock of an outer run; `None` if it has ended.
fn watch(holder: &Outer) -> Result<Option<(i32, AsyncFd<OwnedFd>)>, Failure> {
    match pidfd_open(holder.pid).and_then(|process| readable(process).map_err(|_| Errno::EIO)) {
        // It may have ended, and its number may have been reused, before the descriptor was opened.
        Ok(process) if start_of(holder.pid) == Some(holder.start) => Ok(Some((holder.pid, process))),
        Ok(_) | Err(Errno::ESRCH) => Ok(None),
        Err(errno) => Err(Failure::new(Exit::Unavailable, Event::OuterUnwatchable(errno as i32))),
    }
}

/// Returns the number of this process's PID namespace; 0 if it is unknown.
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
        let run = (any::<String>(), any::<i32>(), any::<u64>(), any::<u64>(), option::of(any::<String>()), granted);
        let run = run.prop_map(|(id, pid, start, namespace, guard, (token, slot))| Outer {
            id,
            pid,
            start,
            namespace,
            guard,
            token,
            slot,
        });
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
            // A newer dlock may add fields.
            let more = text.replace("\"pid\":", "\"shiny\":[1],\"pid\":");
            prop_assert!(Outer::read(&more).len() == runs.len());
            for read in [Outer::read(&noise), Outer::read(&(text + &noise))] {
                // An entry that does not name an existing process with this start covers nothing.
                prop_assert!(read.iter().all(|run| run.start > 1 || !run.is_ancestor()), "{read:?}");
            }
            Ok(())
        });
    }

    #[test]
    fn a_list_may_be_long_and_not_deep() {
        let text = serde_json::to_string(&vec![outer(1); 1000]).expect("numbers and texts");
        assert_eq!(Outer::read(&text).len(), 1000);
        assert_eq!(Outer::read(&"[".repeat(100_000)), []);
    }

    fn outer(pid: i32) -> Outer {
        Outer {
            id: "x".to_owned(),
            pid,
            start: start_of(pid).unwrap_or_default(),
            namespace: pid_namespace(),
            guard: None,
            token: None,
            slot: None,
        }
    }

    #[test]
    fn the_innermost_run_is_known_by_its_first_owner_and_its_tokens_are_in_the_order_of_its_locks() {
        let run = |id: &str, guard: Option<&str>| {
            let (id, guard) = (id.to_owned(), guard.map(str::to_owned));
            Outer { id, guard, ..outer(1) }
        };
        let mut runs = vec![run("o", None), run("a", None), run("b", Some("a")), run("c", Some("a"))];
        Outer::granted(&mut runs, "a", &tokens("7", "7 5 9"), None);
        let granted: Vec<_> = runs.iter().map(|run| (run.guard_name(), run.token)).collect();
        assert_eq!(granted, [("o", None), ("a", Some(7)), ("a", Some(5)), ("a", Some(9))]);
        // With one lock, the text is that of earlier releases.
        assert!(!serde_json::to_string(&runs[0]).expect("numbers and texts").contains("guard"));
        for (first, all, expected) in [
            ("7", "7", &[7][..]),
            ("7", "", &[7]),
            ("7", "8 9", &[7]),
            ("7", "7 x", &[7]),
            ("", "7", &[]),
            ("x", "", &[]),
        ] {
            assert_eq!(tokens(first, all), expected, "{first:?} {all:?}");
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
