/*!
Finding and signalling everything below a process, without allocating: the guard may not, and must work when memory
is short.

A subreaper sees every orphan come back as its own child, also what moved to its own session, so a sweep that is
repeated until `wait` says ECHILD leaves nothing behind.
*/

use std::io::Write;

use libc::{c_int, pid_t};

/// How many processes one pass can list; the next pass lists the rest.
const MAX_LISTED: usize = 8192;
const NAME: usize = 64;
/// The nice value of a process that is to be killed, where this user may set it.
const FIRST: c_int = -20;

/// What a pass met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many processes were signalled.
    pub signalled: usize,
    /// One that this user may not signal (another user's process).
    pub refused: Option<pid_t>,
}

/// Room for one pass, made before it is needed.
#[derive(Debug)]
pub(crate) struct Sweep {
    listed: Box<[pid_t]>,
    count: usize,
}

/// Lets a process that is about to be killed run before others, where this user may do that: to die takes a process its
/// own time on a processor, and on a machine with too much to do it would be gone later than its lease.
fn hurry(pid: pid_t) {
    go_first(pid, FIRST);
}

/// Lets a process (0: this one, and not what it starts) run before all that are not in a hurry themselves, and before
/// those of its own real-time priority if it has one, where this user may do that; otherwise with this nice value, if that.
pub(crate) fn go_first(pid: pid_t, nice: c_int) {
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

impl Sweep {
    /// Room for a sweep. Allocates; the passes do not.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self { listed: vec![0; MAX_LISTED].into_boxed_slice(), count: 0 }
    }

    /// Whether the process's own children can be listed here at all.
    #[must_use]
    pub(crate) fn works(&mut self) -> bool {
        // SAFETY: getpid cannot fail.
        let me = unsafe { libc::getpid() };
        self.count = 0;
        self.list_children(me) || self.list_by_parent(me)
    }

    /// Sends `signals`, in this order, to every process below `root` except those in `spare` (and what is below
    /// them). Parents come before their children, so that a shell does not start its next command in between.
    pub(crate) fn signal_below(&mut self, root: pid_t, signals: &[c_int], spare: &[pid_t]) -> Tally {
        self.list_below(root, spare);
        let mut tally = Tally::default();
        for &pid in &self.listed[..self.count] {
            for &signal in signals {
                if signal == libc::SIGKILL {
                    hurry(pid);
                }
                // SAFETY: kill has no memory effects; the pid is positive, so it names one process.
                let sent = unsafe { libc::kill(pid, signal) } == 0;
                if !sent && nix::errno::Errno::last() == nix::errno::Errno::EPERM {
                    tally.refused = Some(pid);
                }
            }
            tally.signalled += 1;
        }
        tally
    }

    /// The processes directly below `root`, of the last listing's room.
    pub(crate) fn children(&mut self, root: pid_t) -> &[pid_t] {
        self.count = 0;
        if !self.list_children(root) {
            self.list_by_parent(root);
        }
        &self.listed[..self.count]
    }

    fn list_below(&mut self, root: pid_t, spare: &[pid_t]) {
        self.count = 0;
        let mut parent = root;
        let mut next = 0;
        loop {
            let before = self.count;
            if !self.list_children(parent) {
                self.list_by_parent(parent);
            }
            let mut kept = before;
            for index in before..self.count {
                if !spare.contains(&self.listed[index]) {
                    self.listed[kept] = self.listed[index];
                    kept += 1;
                }
            }
            self.count = kept;
            if next == self.count {
                return;
            }
            parent = self.listed[next];
            next += 1;
        }
    }

    fn push(&mut self, pid: pid_t) {
        if pid > 0 && self.count < MAX_LISTED {
            self.listed[self.count] = pid;
            self.count += 1;
        }
    }

    /// Reads `/proc/PID/task/*/children`; false when this kernel has no such file.
    fn list_children(&mut self, pid: pid_t) -> bool {
        let mut name = [0; NAME];
        let Some(tasks) = Directory::open(path(&mut name, format_args!("/proc/{pid}/task\0"))) else {
            return false;
        };
        let mut listed = false;
        tasks.each_number(|task| {
            let mut name = [0; NAME];
            if let Some(file) = File::open(path(&mut name, format_args!("/proc/{pid}/task/{task}/children\0"))) {
                listed = true;
                let mut number: pid_t = 0;
                file.each_byte(|byte| {
                    if byte.is_ascii_digit() {
                        number = number.saturating_mul(10).saturating_add(pid_t::from(byte - b'0'));
                    } else {
                        self.push(number);
                        number = 0;
                    }
                });
                self.push(number);
            }
        });
        listed
    }

    /// Reads the parent of every process from `/proc/*/stat`, for kernels without `children` files.
    fn list_by_parent(&mut self, parent: pid_t) -> bool {
        let Some(processes) = Directory::open(c"/proc".to_bytes_with_nul()) else {
            return false;
        };
        let mut any = false;
        processes.each_number(|pid| {
            if let Some(found) = parent_of(pid) {
                any = true;
                if found == parent {
                    self.push(pid);
                }
            }
        });
        any
    }
}

impl Default for Sweep {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes this process the one to which orphans below it come.
pub(crate) fn become_subreaper() -> nix::Result<()> {
    // SAFETY: prctl with plain numbers.
    nix::errno::Errno::result(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }).map(drop)
}

/// The children that this process has already (`exporter & exec dlock …`): they are not the command's.
#[must_use]
pub(crate) fn existing_children() -> Vec<pid_t> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waits for nothing and takes nothing away; `info` is a valid place for the answer.
    if unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } == -1 {
        return Vec::new();
    }
    // SAFETY: getpid cannot fail.
    Sweep::new().children(unsafe { libc::getpid() }).to_vec()
}

/// Reaps whatever has ended below this process, and continues `guard` if somebody stopped it. Returns whether the
/// guard was found to have ended by itself, without an error.
pub(crate) fn reap(guard: pid_t) -> bool {
    let mut ended = false;
    loop {
        let mut status: c_int = 0;
        // SAFETY: `status` is a valid place for the result.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
        if pid <= 0 {
            return ended;
        }
        if pid == guard && libc::WIFSTOPPED(status) {
            // SAFETY: the guard is our child and has not ended.
            unsafe { libc::kill(guard, libc::SIGCONT) };
        }
        ended |= pid == guard && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    }
}

/// The parent of `pid`, from `/proc/PID/stat`; none when there is no such process or it is hidden.
#[must_use]
pub(crate) fn parent_of(pid: pid_t) -> Option<pid_t> {
    stat(pid, 1, |parent| std::str::from_utf8(parent).ok()?.parse().ok())
}

/// Whether `pid` has ended, also when its parent, which may be frozen, has not collected it yet.
#[must_use]
pub(crate) fn has_ended(pid: pid_t) -> bool {
    // SAFETY: signal 0 is not sent, only asked about.
    let is_gone = unsafe { libc::kill(pid, 0) } == -1 && nix::errno::Errno::last() == nix::errno::Errno::ESRCH;
    is_gone || stat(pid, 0, |state| Some(matches!(state, b"Z" | b"X"))).unwrap_or(false)
}

/// What `read` makes of a field of `/proc/PID/stat`, counted from the state as 0.
fn stat<T>(pid: pid_t, field: usize, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let mut name = [0; NAME];
    let file = File::open(path(&mut name, format_args!("/proc/{pid}/stat\0")))?;
    let mut text = [0_u8; 512];
    let mut length = 0;
    file.each_byte(|byte| {
        if let Some(place) = text.get_mut(length) {
            *place = byte;
            length += 1;
        }
    });
    // "pid (comm) state ppid …": comm may contain anything, so count from its last parenthesis.
    let text = &text[..length];
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = text[end + 1..].split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    read(fields.nth(field)?)
}

/// Writes a path that ends in NUL into `name`; an over-long one becomes empty, which opens nothing.
fn path<'a>(name: &'a mut [u8; NAME], text: std::fmt::Arguments<'_>) -> &'a [u8] {
    let mut place = name.as_mut_slice();
    if place.write_fmt(text).is_err() {
        name[0] = 0;
    }
    name
}

struct File(c_int);

impl File {
    fn open(path: &[u8]) -> Option<Self> {
        debug_assert!(path.contains(&0));
        // SAFETY: the path ends in NUL (see `path`).
        let descriptor = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (descriptor >= 0).then_some(Self(descriptor))
    }

    fn each_byte(&self, mut take: impl FnMut(u8)) {
        let mut buffer = [0_u8; 1024];
        loop {
            // SAFETY: reads at most the buffer's length into it.
            let read = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
            match usize::try_from(read) {
                Ok(read) if read > 0 => buffer[..read].iter().for_each(|&byte| take(byte)),
                _ => return,
            }
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours alone.
        unsafe { libc::close(self.0) };
    }
}

/// A directory read with `getdents64`, because `readdir` allocates.
struct Directory(File);

impl Directory {
    fn open(path: &[u8]) -> Option<Self> {
        File::open(path).map(Self)
    }

    /// Calls `take` with every entry whose name is a number.
    fn each_number(&self, mut take: impl FnMut(pid_t)) {
        #[repr(align(8))]
        struct Buffer([u8; 4096]);
        let mut buffer = Buffer([0; 4096]);
        // Offsets in linux_dirent64: d_ino 0, d_off 8, d_reclen 16, d_type 18, d_name 19.
        loop {
            // SAFETY: the kernel writes at most the given length into the buffer.
            let read =
                unsafe { libc::syscall(libc::SYS_getdents64, (self.0).0, buffer.0.as_mut_ptr(), buffer.0.len()) };
            let Some(mut entries) = usize::try_from(read).ok().filter(|&n| n > 0).and_then(|n| buffer.0.get(..n))
            else {
                return;
            };
            while let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, low, high, _, name @ ..] = entries {
                let length = usize::from(u16::from_ne_bytes([*low, *high]));
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                if let Some(number) = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()) {
                    take(number);
                }
                entries = entries.get(length.max(1)..).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> pid_t {
        pid_t::try_from(std::process::id()).expect("pid")
    }

    #[test]
    fn both_ways_of_listing_find_the_same_child() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
        let pid = pid_t::try_from(child.id()).expect("pid");
        let mut sweep = Sweep::new();
        assert!(sweep.works());
        assert!(sweep.children(me()).contains(&pid));
        sweep.count = 0;
        assert!(sweep.list_by_parent(me()));
        assert!(sweep.listed[..sweep.count].contains(&pid));
        assert_eq!(parent_of(pid), Some(me()));
        assert!(!has_ended(pid));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// On an overloaded machine, what waits for its turn to die outlives its lease.
    #[test]
    fn what_is_killed_goes_before_others_where_the_user_may() {
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 600 & kill -STOP $$"]).spawn().expect("sh");
        let root = pid_t::try_from(shell.id()).expect("pid");
        // While it is stopped, it does not collect its child, whose policy can be seen then.
        nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(root), Some(nix::sys::wait::WaitPidFlag::WUNTRACED))
            .expect("wait");
        let mut sweep = Sweep::new();
        let child = sweep.children(root)[0];
        assert_eq!(sweep.signal_below(root, &[libc::SIGKILL], &[]).signalled, 1);
        while !has_ended(child) {
            std::thread::yield_now();
        }
        let policy = stat(child, 38, |policy| std::str::from_utf8(policy).ok()?.parse().ok());
        let expected = if nix::unistd::geteuid().is_root() { libc::SCHED_RR } else { libc::SCHED_OTHER };
        assert_eq!(policy, Some(expected));
        shell.kill().expect("kill");
        shell.wait().expect("wait");
    }

    #[test]
    fn a_missing_process_has_no_parent_and_no_children() {
        assert_eq!(parent_of(pid_t::MAX), None);
        assert!(has_ended(pid_t::MAX));
        assert!(Sweep::new().children(pid_t::MAX).is_empty());
    }
}
