/*!
Who runs before others, where this user may decide that: on a machine with too much to do a deadline must come before the
load, and to die takes a process its own time on a processor.
*/

use libc::{c_int, pid_t};

/// The nice value of the guard and its ear once the command runs, where this user may set it.
pub(super) const PRIORITY: c_int = -15;
/// The nice value of a process that is to be killed, where this user may set it.
const FIRST: c_int = -20;

/// Lets a process that is about to be killed run before others, where this user may do that: to die takes a process its
/// own time on a processor, and on a machine with too much to do it would be gone later than its lease.
pub(super) fn hurry(pid: pid_t) {
    let ours = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: a system call with integers.
    if unsafe { libc::sched_getscheduler(pid) } != ours {
        go_first(pid, FIRST);
    }
}

/// Lets a process (0: this one, and not what it starts) run before all that are not in a hurry themselves, and before
/// those of its own real-time priority if it has one, where this user may do that; otherwise with this nice value, if that.
pub(super) fn go_first(pid: pid_t, nice: c_int) {
    // Within its own session or control group is all that a nice value means on many machines. The lowest of the real-time
    // priorities goes before every one of them.
    let mut priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: system calls with integers and a struct on the stack.
    unsafe {
        libc::sched_getparam(pid, &raw mut priority);
        priority.sched_priority += 1;
        libc::sched_setscheduler(pid, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const priority);
        libc::setpriority(libc::PRIO_PROCESS, pid.unsigned_abs(), nice);
    }
}
