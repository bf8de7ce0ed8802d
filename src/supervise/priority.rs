/*!
Scheduling priorities, where this user may raise them: on an overloaded machine deadlines must come before the load, and
a killed process needs processor time to end.
*/

use libc::{c_int, pid_t};

/// The nice value of the guard and its ear once the command runs, where this user may set it.
pub(super) const PRIORITY: c_int = -15;
/// The nice value of a process that is to be killed, where this user may set it.
const FIRST: c_int = -20;

/// Raises the priority of a process that is being killed, where this user may do that: it needs processor time to end,
/// and on an overloaded machine it would otherwise be gone later than its lease.
pub(super) fn hurry(pid: pid_t) {
    let ours = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: a system call with integers.
    if unsafe { libc::sched_getscheduler(pid) } != ours {
        go_first(pid, FIRST);
    }
}

/// Raises the priority of a process (0: the calling one, not its children) above all normal processes, and above its
/// own real-time priority if it has one, where this user may do that. Sets this nice value too, where that is allowed.
pub(super) fn go_first(pid: pid_t, nice: c_int) {
    // On many machines a nice value counts only within a session or control group. The lowest real-time priority
    // precedes all normal processes.
    let mut priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: system calls with integers and a struct on the stack.
    unsafe {
        libc::sched_getparam(pid, &raw mut priority);
        priority.sched_priority += 1;
        libc::sched_setscheduler(pid, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const priority);
        libc::setpriority(libc::PRIO_PROCESS, pid.unsigned_abs(), nice);
    }
}
