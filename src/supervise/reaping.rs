/*!
The children of this process, including those that it inherits as a subreaper: their state, and reaping them.
*/

use std::time::Duration;

use libc::{c_int, pid_t};
use nix::errno::Errno;

use crate::clock::Instant;

/// Time for which ended processes are reaped before it is time to look at what is due. A command that starts processes
/// without end must not keep us from stopping it; nor may zombies pile up until no process can be started.
pub(super) const REAPING: Duration = Duration::from_millis(3);
/// The number of children to reap between two looks at the clock.
const BETWEEN_LOOKS: usize = 64;

/// Makes this process the parent of orphans among its descendants (`PR_SET_CHILD_SUBREAPER`).
pub(crate) fn become_subreaper() -> nix::Result<()> {
    // SAFETY: prctl with plain numbers.
    nix::errno::Errno::result(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }).map(drop)
}

/// The state of a child of this process that has not been reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// It lives.
    Living,
    /// It has ended.
    Ended,
}

/// Returns the state of `pid`, if it is a child of this process that has not been reaped. Needs no descriptor.
#[must_use]
pub(crate) fn child(pid: pid_t) -> Option<Child> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waits for nothing and takes nothing away; `info` is a valid place for the answer, and valid when zeroed.
    unsafe {
        let answer = libc::waitid(libc::P_PID, pid.unsigned_abs(), info.as_mut_ptr(), options);
        (answer == 0).then(|| if info.assume_init().si_pid() == 0 { Child::Living } else { Child::Ended })
    }
}

/// The progress of reaping ended children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    /// There may be more.
    Some,
    /// There is none for now.
    All,
    /// There is no child left at all, nor can there be another one: the only proof that nothing is left.
    NoneLeft,
}

/// The result of reaping dlock's ended children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reaped {
    /// The guard had exited on its own, with code 0.
    pub guard_done: bool,
    /// The progress of the reaping.
    pub collected: Collected,
}

/// Reaps children, and calls `changed` with each one that has ended or, as far as `options` of `waitpid` ask for it,
/// otherwise changed its state. Returns when there is none, or after a time in which thousands can be reaped.
pub(crate) fn collect(options: c_int, mut changed: impl FnMut(pid_t, c_int)) -> Collected {
    let until = Instant::now() + REAPING;
    loop {
        for _ in 0..BETWEEN_LOOKS {
            let mut status: c_int = 0;
            // SAFETY: `status` is a valid place for the result.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | options) };
            if pid == -1 && Errno::last() == Errno::ECHILD {
                return Collected::NoneLeft;
            }
            if pid <= 0 {
                return Collected::All;
            }
            changed(pid, status);
        }
        if Instant::now() >= until {
            return Collected::Some;
        }
    }
}

/// Reaps the ended children of this process, and continues `guard` if it was stopped.
pub(crate) fn reap(guard: pid_t) -> Reaped {
    let mut guard_done = false;
    let collected = collect(libc::WUNTRACED, |pid, status| {
        if pid == guard && libc::WIFSTOPPED(status) {
            // SAFETY: the guard is our child and has not ended.
            unsafe { libc::kill(guard, libc::SIGCONT) };
        }
        guard_done |= pid == guard && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    });
    Reaped { guard_done, collected }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of ended children: several times as many as are collected between two looks at the clock.
    const CHILDREN: usize = 4 * BETWEEN_LOOKS;

    /// Runs [`collect`] in a process with [`CHILDREN`] ended children, where handling each one takes `each`. Returns
    /// its result, and the number of children that it handled.
    fn collected(each: Duration) -> (Collected, usize) {
        // SAFETY: the forked process only makes system calls, does not allocate, and ends here.
        unsafe {
            let parent = libc::fork();
            if parent != 0 {
                let mut status = 0;
                assert_eq!(libc::waitpid(parent, &raw mut status, 0), parent);
                assert!(libc::WIFEXITED(status), "{status}");
                let code = usize::try_from(libc::WEXITSTATUS(status)).unwrap_or_default();
                let came = if code >= 100 { Collected::Some } else { Collected::NoneLeft };
                return (came, code % 100 * BETWEEN_LOOKS);
            }
            let mut children = [0; CHILDREN];
            for child in &mut children {
                *child = libc::fork();
                if *child == 0 {
                    libc::_exit(0);
                }
            }
            for child in children {
                let mut ended = std::mem::zeroed();
                let options = libc::WEXITED | libc::WNOWAIT;
                libc::waitid(libc::P_PID, child.unsigned_abs(), &raw mut ended, options);
            }
            let mut count = 0;
            let came = collect(0, |_, _| {
                count += 1;
                let pause = libc::timespec { tv_sec: 0, tv_nsec: i64::from(each.subsec_nanos()) };
                libc::nanosleep(&raw const pause, std::ptr::null_mut());
            });
            let rounds = libc::c_int::try_from(count / BETWEEN_LOOKS).unwrap_or(99);
            libc::_exit(rounds + if came == Collected::Some { 100 } else { 0 });
        }
    }

    #[test]
    fn collecting_ends_after_its_time_however_many_there_are() {
        assert_eq!(collected(Duration::from_millis(1)), (Collected::Some, BETWEEN_LOOKS));
    }
}
