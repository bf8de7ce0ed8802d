/*!
Finds and signals everything below a process, without allocating.

A subreaper gets every orphan back as its own child, even one that moved to its own session, so a sweep that is repeated
until `wait` fails with ECHILD leaves nothing behind. Nothing else proves that: a process that cannot be listed may
still be there.
*/

use std::os::fd::OwnedFd;
use std::time::Duration;

use libc::{c_int, pid_t};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::clock::{Instant, processor_time};
use crate::supervise::process::{self, ProcessState, is_busy, parent_of};
use crate::supervise::protocol::Unfit;
use crate::supervise::reaping::{Child, REAPING, child};
use crate::supervise::signalling::{Signalled, signal_below};

/// The number of processes that one pass can list; the next pass lists the rest. Ended ones count until they are
/// reaped, and a storm leaves tens of thousands of them.
const MAX_LISTED: usize = 1 << 15;
/// The number of times that one pass goes through all processes.
const ROUNDS: usize = 4;
/// The number of descriptors that a listing needs at a time.
const DESCRIPTORS: usize = 2;
/// The pause before the next pass, in multiples of the processor time that the last one took. Ended processes are
/// reaped meanwhile: the more of them there are, the longer a listing takes.
const COLLECTING: u32 = 4;
/// The longest such pause. Hundreds of processes end in that time.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The number of processes that are looked at to estimate the number of busy ones.
const SAMPLE: usize = 32;

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The number of processes that were signalled.
    pub signalled: usize,
    /// A process that this user may not signal, because it runs as another user.
    pub refused: Option<pid_t>,
}

/// The processes directly below one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Children<'a> {
    /// Those that could be listed.
    pub listed: &'a [pid_t],
    /// `true` if there are no others.
    pub complete: bool,
}

/// The buffers for a pass, allocated before they are needed.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// With room for [`MAX_LISTED`]. Memory that no pass has needed yet is not touched, and so costs nothing.
    listed: Vec<pid_t>,
    /// The parent of each one that is listed.
    parents: Vec<pid_t>,
    complete: bool,
    /// `true` if ended children of this process are removed from a list that is full.
    crowded: bool,
    /// `true` if this kernel does not list the children of a process, so that every process is asked for its parent.
    by_parent: bool,
    /// Descriptors in reserve, for when this process may open no more.
    spare: [Option<OwnedFd>; DESCRIPTORS],
    /// The processor time that the last pass of [`Self::kill_below`] took.
    cost: Duration,
}

impl Sweep {
    /// Allocates the buffers; the passes do not allocate.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            listed: Vec::with_capacity(MAX_LISTED),
            parents: Vec::with_capacity(MAX_LISTED),
            complete: true,
            crowded: false,
            by_parent: false,
            spare: [const { None }; DESCRIPTORS],
            cost: Duration::ZERO,
        }
    }

    /// Finds out how this kernel lists processes, and returns whether the children of this process can be listed at
    /// all.
    #[must_use]
    fn works(&mut self) -> bool {
        self.by_parent = !process::has_children_files();
        // SAFETY: getpid cannot fail.
        let me = unsafe { libc::getpid() };
        !self.by_parent || self.children(me).complete
    }

    /// Returns why processes cannot be watched here; `None` if they can.
    pub(crate) fn unfit(&mut self) -> Option<Unfit> {
        match process::is_own() {
            Some(true) => (!self.works()).then_some(Unfit::Proc),
            Some(false) => Some(Unfit::OtherProc),
            None => Some(Unfit::Proc),
        }
    }

    /// Opens the descriptors in reserve for later passes. Fails if this process may open no more.
    pub(crate) fn reserve(&mut self) -> nix::Result<()> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        for spare in self.spare.iter_mut().filter(|spare| spare.is_none()) {
            *spare = Some(nix::fcntl::open(c"/", flags, Mode::empty())?);
        }
        Ok(())
    }

    /// Sends `signals`, in this order, to every process below `root` except those in `spare` (and what is below
    /// them). Parents come before their children, so that a shell does not start its next command in between. The pass
    /// ends at `before` at the latest, even if there are very many processes.
    pub(crate) fn signal_below(
        &mut self,
        root: pid_t,
        signals: &[c_int],
        spare: &[pid_t],
        before: Option<Instant>,
    ) -> Tally {
        self.with_descriptors(|sweep| {
            sweep.list_below(root, spare, before);
            signal_each(root, sweep.listed_from(0), signals, before)
        })
    }

    /// Sends SIGKILL to every process below `root` except those in `spare`. Each is killed before its children are
    /// listed: a killed process starts no more of them, so even a command that forks without a pause is overtaken. If
    /// `root` is a subreaper, what escaped is found again as its child.
    pub(crate) fn kill_below(&mut self, root: pid_t, spare: &[pid_t]) -> Tally {
        let mut all = Tally::default();
        let begun = processor_time();
        for _ in 0..ROUNDS {
            let tally = self.with_descriptors(|sweep| sweep.kill_once(root, spare));
            all = Tally { signalled: all.signalled.max(tally.signalled), refused: all.refused.or(tally.refused) };
            self.cost = processor_time().saturating_sub(begun);
            // With very many processes, most have ended by now and are to be reaped first.
            if self.cost >= REAPING {
                break;
            }
        }
        all
    }

    /// Returns the time to kill again after the pass that has just ended: after `pause` at the earliest. The time for
    /// which others had the processor does not count: on a busy machine the pauses must not grow.
    #[must_use]
    pub(crate) fn again(&self, pause: Duration) -> Instant {
        Instant::now() + pause.max(LONGEST_PAUSE.min(self.cost * COLLECTING))
    }

    fn kill_once(&mut self, root: pid_t, spare: &[pid_t]) -> Tally {
        let mut all = Tally::default();
        self.clear();
        let (mut parent, mut next) = (root, 0);
        loop {
            let first = self.listed.len();
            self.list_below_one(parent, root, spare);
            // The youngest come last, and are killed first: thousands before them may have ended, and while those are
            // looked through a storm goes on.
            let tally = signal_each(root, self.listed_from(first).rev(), &[libc::SIGKILL], None);
            all = Tally { signalled: all.signalled + tally.signalled, refused: all.refused.or(tally.refused) };
            if parent == root {
                self.forget_ended(first, None);
            }
            if next == self.listed.len() {
                return all;
            }
            parent = self.listed[next];
            next += 1;
        }
    }

    /// Returns the listed processes from index `first` on, each with its parent.
    fn listed_from(&self, first: usize) -> impl DoubleEndedIterator<Item = (pid_t, pid_t)> {
        self.listed[first..].iter().copied().zip(self.parents[first..].iter().copied())
    }

    /// Returns the processes directly below `root`.
    pub(crate) fn children(&mut self, root: pid_t) -> Children<'_> {
        self.with_descriptors(|sweep| {
            sweep.clear();
            sweep.list(root);
        });
        Children { listed: &self.listed, complete: self.complete }
    }

    /// Returns `true` if the last pass met `pid`.
    #[must_use]
    pub(crate) fn met(&self, pid: pid_t) -> bool {
        self.listed.contains(&pid)
    }

    /// Counts the processes below `root`, and estimates the number of busy ones. Ends at `before` at the latest.
    pub(crate) fn busy_below(&mut self, root: pid_t, spare: &[pid_t], before: Instant) -> (usize, usize) {
        self.with_descriptors(|sweep| {
            sweep.list_below(root, spare, Some(before));
            let (all, step) = (sweep.listed.len(), sweep.listed.len().div_ceil(SAMPLE).max(1));
            let sample = sweep.listed.iter().step_by(step);
            (all, sample.filter(|&&pid| is_busy(pid)).count() * step)
        })
    }

    /// Runs `work` while the descriptors in reserve are free.
    pub(super) fn with_descriptors<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let kept = self.spare.iter().any(Option::is_some);
        self.spare = [const { None }; DESCRIPTORS];
        let done = work(self);
        if kept {
            // They were free a moment ago. If other code took them and still has them at the next pass, that pass
            // reports that it is not complete.
            let _ = self.reserve();
        }
        done
    }

    fn list_below(&mut self, root: pid_t, spare: &[pid_t], before: Option<Instant>) {
        self.clear();
        self.list_below_one(root, root, spare);
        self.forget_ended(0, before);
        let mut next = 0;
        while next < self.listed.len() && !has_come(before) {
            self.list_below_one(self.listed[next], root, spare);
            next += 1;
        }
    }

    /// Adds the children of `parent`, which is `root` or below it, to the list, except those in `spare`.
    fn list_below_one(&mut self, parent: pid_t, root: pid_t, spare: &[pid_t]) {
        let first = self.listed.len();
        self.crowded = parent == root;
        self.list(parent);
        self.crowded = false;
        self.leave_out(first, spare);
    }

    /// Removes the children of this process that have ended from the list, from index `from` on. Ends at `before` at
    /// the latest.
    fn forget_ended(&mut self, from: usize, before: Option<Instant>) {
        let mut kept = from;
        for index in from..self.listed.len() {
            if has_come(before) || child(self.listed[index]) != Some(Child::Ended) {
                (self.listed[kept], self.parents[kept]) = (self.listed[index], self.parents[index]);
                kept += 1;
            }
        }
        self.keep(kept);
    }

    /// Removes the processes in `spare` from the list, from index `from` on.
    fn leave_out(&mut self, from: usize, spare: &[pid_t]) {
        let mut kept = from;
        for index in from..self.listed.len() {
            if !spare.contains(&self.listed[index]) {
                (self.listed[kept], self.parents[kept]) = (self.listed[index], self.parents[index]);
                kept += 1;
            }
        }
        self.keep(kept);
    }

    /// Starts an empty list.
    fn clear(&mut self) {
        self.keep(0);
        self.complete = true;
    }

    /// Leaves only the first `count` processes on the list.
    fn keep(&mut self, count: usize) {
        self.listed.truncate(count);
        self.parents.truncate(count);
    }

    fn push(&mut self, parent: pid_t, pid: pid_t) {
        // Never more than there is room for: that would allocate.
        if pid > 0 && self.listed.len() < MAX_LISTED {
            self.listed.push(pid);
            self.parents.push(parent);
        }
        if self.crowded && self.complete && self.listed.len() == MAX_LISTED {
            self.forget_ended(0, None);
        }
        self.complete &= self.listed.len() < MAX_LISTED;
    }

    /// Adds the children of `parent` to the list.
    fn list(&mut self, parent: pid_t) {
        let seen = if self.by_parent {
            process::every_process(|pid| {
                if parent_of(pid) == Some(parent) {
                    self.push(parent, pid);
                }
            })
        } else {
            process::children(parent, |pid| self.push(parent, pid))
        };
        self.complete &= seen != ProcessState::Unknown;
    }
}

/// Signals `processes`, each given with its parent, if they are still below `root`. Ends at `before` at the latest.
fn signal_each(
    root: pid_t,
    processes: impl Iterator<Item = (pid_t, pid_t)>,
    signals: &[c_int],
    before: Option<Instant>,
) -> Tally {
    let mut tally = Tally::default();
    for (pid, parent) in processes {
        if has_come(before) {
            break;
        }
        match signal_below(root, parent, pid, signals) {
            Signalled::Refused => tally.refused = Some(pid),
            Signalled::Nobody => continue,
            Signalled::Done => {}
        }
        tally.signalled += 1;
    }
    tally
}

fn has_come(time: Option<Instant>) -> bool {
    time.is_some_and(|time| Instant::now() >= time)
}

impl Default for Sweep {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the children that this process had before it became dlock (`exporter & exec dlock …`). They do not belong to
/// the command.
#[must_use]
pub(crate) fn existing_children() -> Vec<pid_t> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waits for nothing and takes nothing away; `info` is a valid place for the answer.
    if unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } == -1 {
        return Vec::new();
    }
    // SAFETY: getpid cannot fail.
    let me = unsafe { libc::getpid() };
    let mut sweep = Sweep::new();
    // If nothing can be listed, the guard notices it too, and no command is started.
    let _ = sweep.works();
    sweep.children(me).listed.to_vec()
}

#[cfg(test)]
mod tests;
