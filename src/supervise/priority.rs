/*!
Scheduling priorities, if this user may raise them: on an overloaded machine deadlines must come before the load, and a
killed process needs processor time to end.

The scheduler is asked by system calls: musl's functions of these names only fail with `ENOSYS`.
*/

use libc::{c_int, c_long, pid_t};

/// The nice value of the guard and its listener once the command runs, if this user may set it.
pub(super) const PRIORITY: c_int = -15;
/// The nice value of a process that is to be killed, if this user may set it.
const FIRST: c_int = -20;

/// Raises the priority of a process that is being killed, if this user may do that: it needs processor time to end, and
/// on an overloaded machine it would otherwise be gone later than its lease.
pub(super) fn hurry(pid: pid_t) {
    if policy(pid) != c_long::from(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK) {
        go_first(pid, FIRST);
    }
}

/// Raises the priority of a process (0: the calling one, not its children) above all normal processes, and above its
/// own real-time priority if it has one, if this user may do that. Sets this nice value too, if that is allowed.
pub(super) fn go_first(pid: pid_t, nice: c_int) {
    // On many machines a nice value counts only within a session or control group. The lowest real-time priority
    // precedes all normal processes.
    // The kernel's `sched_param` is this one number.
    let mut priority: c_int = 0;
    // SAFETY: system calls with integers and a number on the stack.
    unsafe {
        libc::syscall(libc::SYS_sched_getparam, pid, &raw mut priority);
        priority += 1;
        let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
        libc::syscall(libc::SYS_sched_setscheduler, pid, policy, &raw const priority);
        libc::setpriority(libc::PRIO_PROCESS, pid.unsigned_abs(), nice);
    }
}

/// Takes back the real-time priority that [`go_first`] gave to this process, if it did. The nice value stays.
pub(super) fn step_back() {
    if rank() != Rank::First {
        return;
    }
    let mut priority: c_int = 0;
    // SAFETY: system calls with integers and a number on the stack.
    unsafe {
        libc::syscall(libc::SYS_sched_getparam, 0, &raw mut priority);
        priority = (priority - 1).max(0);
        let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_RR };
        // Only a privileged process may clear this flag.
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy | libc::SCHED_RESET_ON_FORK, &raw const priority);
    }
}

/// The rank of a process among the normal ones that want its processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rank {
    /// As one of them.
    #[default]
    Equal,
    /// Its nice value gives it a larger share. When woken up, it can still have to wait for a turn of each of them.
    Favoured,
    /// Its real-time policy puts it before all of them.
    First,
}

/// Returns the rank of this process.
#[must_use]
pub(super) fn rank() -> Rank {
    if policy(0) & !c_long::from(libc::SCHED_RESET_ON_FORK) == c_long::from(libc::SCHED_RR) {
        return Rank::First;
    }
    // SAFETY: a system call with integers.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    if nice < 0 { Rank::Favoured } else { Rank::Equal }
}

/// Returns the scheduling policy of a process (0: the calling one) with its flag, or -1.
fn policy(pid: pid_t) -> c_long {
    // SAFETY: a system call with an integer.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, pid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_raised_is_taken_back() {
        // Priorities are those of a thread.
        let played = std::thread::spawn(|| {
            go_first(0, 0);
            let raised = rank();
            go_first(0, 0);
            step_back();
            assert_eq!(rank(), raised);
            step_back();
            assert_ne!(rank(), Rank::First);
        });
        played.join().expect("the ranks");
    }
}
