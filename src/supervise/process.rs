/*!
Other processes: what `/proc` says about them, and descriptors that refer to them. Nothing here allocates: the guard
must not, and must work when memory is short.
*/

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, pid_t};
use nix::errno::Errno;

const NAME: usize = 64;
/// Room for the path of a file anywhere.
pub(super) const LONG_NAME: usize = 4096;
/// The maximum number of processes between one and another that is below it.
const DEPTH: usize = 1 << 16;

/// The result of looking at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// It was looked at.
    There,
    /// There is no such process any more.
    Gone,
    /// It could not be looked at, for example because no descriptor is free. The process may be there or not.
    Unknown,
}

impl ProcessState {
    fn failed() -> Self {
        match Errno::last() {
            Errno::ENOENT | Errno::ESRCH => Self::Gone,
            _ => Self::Unknown,
        }
    }
}

/// Returns `true` if `/proc` belongs to this PID namespace. That of another one lists unrelated processes. `None` if it is
/// missing.
#[must_use]
pub(crate) fn is_own() -> Option<bool> {
    let mut target = [0_u8; NAME];
    // SAFETY: the path is a C string, and at most the buffer's length is written; getpid cannot fail.
    let (length, me) = unsafe {
        let length = libc::readlink(c"/proc/self".as_ptr(), target.as_mut_ptr().cast(), target.len());
        (length, libc::getpid())
    };
    let target = target.get(..usize::try_from(length).ok()?)?;
    Some(std::str::from_utf8(target).ok()?.parse() == Ok(me))
}

/// Calls `take` with every child of `pid` that `/proc/PID/task/*/children` names.
pub(crate) fn children(pid: pid_t, mut take: impl FnMut(pid_t)) -> ProcessState {
    let mut name = [0; NAME];
    let Some(tasks) = Directory::open(path(&mut name, format_args!("/proc/{pid}/task\0"))) else {
        return ProcessState::failed();
    };
    let mut seen = ProcessState::Gone;
    let read = tasks.each_number(|task| {
        let mut name = [0; NAME];
        let Some(file) = File::open(path(&mut name, format_args!("/proc/{pid}/task/{task}/children\0"))) else {
            // One thread of several may have ended meanwhile; its children belong to another one then, and are found by
            // the next listing.
            if ProcessState::failed() == ProcessState::Unknown {
                seen = ProcessState::Unknown;
            }
            return;
        };
        if seen == ProcessState::Gone {
            seen = ProcessState::There;
        }
        let mut number: pid_t = 0;
        file.each_byte(|byte| {
            if byte.is_ascii_digit() {
                number = number.saturating_mul(10).saturating_add(pid_t::from(byte - b'0'));
            } else {
                take(number);
                number = 0;
            }
        });
        take(number);
    });
    if read == ProcessState::Unknown { read } else { seen }
}

/// Returns `true` if this kernel has `children` files at all (`CONFIG_PROC_CHILDREN`).
#[must_use]
pub(crate) fn has_children_files() -> bool {
    File::open(b"/proc/thread-self/children\0").is_some()
}

/// Calls `take` with the id of every process that `/proc` lists.
pub(crate) fn every_process(take: impl FnMut(pid_t)) -> ProcessState {
    match Directory::open(c"/proc".to_bytes_with_nul()) {
        Some(processes) => processes.each_number(take),
        None => ProcessState::Unknown,
    }
}

/// Returns the parent of `pid`, from `/proc/PID/stat`; `None` if there is no such process, or it is hidden.
#[must_use]
pub(crate) fn parent_of(pid: pid_t) -> Option<pid_t> {
    stat(pid, 1, |parent| std::str::from_utf8(parent).ok()?.parse().ok())
}

/// Returns the start of a process, in clock ticks after boot. It tells two processes with the same id apart.
#[must_use]
pub(crate) fn start_of(pid: pid_t) -> Option<u64> {
    stat(pid, 19, number)
}

/// Returns `true` if a process is exiting, and also if there is no such process.
#[must_use]
pub(crate) fn is_ending(pid: pid_t) -> bool {
    /// `PF_EXITING` of the kernel's flags.
    const EXITING: u64 = 4;
    stat(pid, 6, number).is_none_or(|flags| flags & EXITING != 0)
}

/// Returns `true` if a signal has suspended a process.
#[must_use]
pub(crate) fn is_stopped(pid: pid_t) -> bool {
    stat(pid, 0, |state| Some(state == b"T")).unwrap_or(false)
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns a descriptor that refers to the process with this id while it is open, and is readable once that has ended.
pub(crate) fn pidfd_open(pid: pid_t) -> nix::Result<OwnedFd> {
    // SAFETY: pidfd_open has no memory effects.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = c_int::try_from(Errno::result(descriptor)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Sends `signal` to the process that a descriptor of [`pidfd_open`] refers to, and to none that got its id later.
pub(crate) fn pidfd_signal(process: &OwnedFd, signal: c_int) -> nix::Result<()> {
    // SAFETY: pidfd_send_signal has no memory effects without a siginfo.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    Errno::result(sent).map(drop)
}

/// Returns `true` if `pid` is below `root`; `None` if that is unknown: a process on the way has ended or is hidden.
#[must_use]
pub(crate) fn is_below(pid: pid_t, root: pid_t) -> Option<bool> {
    let mut ancestor = pid;
    for _ in 0..DEPTH {
        match parent_of(ancestor)? {
            parent if parent == root => return Some(true),
            parent if parent > 1 => ancestor = parent,
            _ => return Some(false),
        }
    }
    None
}

/// Returns `true` if every thread of `pid` has ended, even if its parent, which may be frozen, has not reaped it yet.
/// The state of its first thread says little: the others can live on.
#[must_use]
pub(crate) fn has_ended(pid: pid_t) -> bool {
    // SAFETY: signal 0 is not sent, only asked about.
    let is_gone = unsafe { libc::kill(pid, 0) } == -1 && Errno::last() == Errno::ESRCH;
    if is_gone {
        return true;
    }
    let mut name = [0; NAME];
    let Some(tasks) = Directory::open(path(&mut name, format_args!("/proc/{pid}/task\0"))) else {
        return ProcessState::failed() == ProcessState::Gone;
    };
    let mut ended = true;
    let read = tasks.each_number(|task| {
        let mut name = [0; NAME];
        let file = path(&mut name, format_args!("/proc/{pid}/task/{task}/stat\0"));
        ended &= match stat_of(file, 0, |state| Some(matches!(state, b"Z" | b"X"))) {
            Some(ended) => ended,
            None => ProcessState::failed() == ProcessState::Gone,
        };
    });
    ended && read != ProcessState::Unknown
}

/// Returns `true` if `pid` sleeps and has no pending signal, so that it has received all signals that it was sent;
/// `false` if that is unknown.
#[must_use]
pub(crate) fn waits_without_signals(pid: pid_t) -> bool {
    let mut name = [0; NAME];
    let mut text = [0_u8; 4096];
    let Some(file) = File::open(path(&mut name, format_args!("/proc/{pid}/status\0"))) else { return false };
    let text = file.read(&mut text);
    let line = |name: &[u8]| text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name));
    let sleeps = line(b"State:\t").is_some_and(|state| state.starts_with(b"S"));
    sleeps && line(b"ShdPnd:\t").is_some_and(|signals| signals.iter().all(|&digit| digit == b'0'))
}

/// Returns `true` if a process runs, or would if it had a processor; `false` if there is no such process.
#[must_use]
pub(super) fn is_busy(pid: pid_t) -> bool {
    stat(pid, 0, |state| Some(state == b"R")).unwrap_or(false)
}

/// Reads the file at this path, which ends in NUL, as far as it fits into `text`; `None` if it cannot be opened.
pub(super) fn contents<'a>(path: &[u8], text: &'a mut [u8]) -> Option<&'a [u8]> {
    File::open(path).map(|file| file.read(text))
}

/// Reads a field of `/proc/PID/stat` with `read`; fields are counted from the state, which is 0.
pub(crate) fn stat<T>(pid: pid_t, field: usize, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let mut name = [0; NAME];
    stat_of(path(&mut name, format_args!("/proc/{pid}/stat\0")), field, read)
}

fn stat_of<T>(file: &[u8], field: usize, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let file = File::open(file)?;
    let mut text = [0_u8; 512];
    // "pid (comm) state ppid …": comm may contain anything, so count from its last parenthesis.
    let text = file.read(&mut text);
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
        (descriptor >= 0).then(|| Self(descriptor))
    }

    /// Reads as much of the file as fits into `text`.
    fn read<'a>(&self, text: &'a mut [u8]) -> &'a [u8] {
        let mut length = 0;
        while let Some(room) = text.get_mut(length..).filter(|room| !room.is_empty()) {
            // SAFETY: reads at most the room's length into it.
            let read = unsafe { libc::read(self.0, room.as_mut_ptr().cast(), room.len()) };
            match usize::try_from(read) {
                Ok(read) if read > 0 => length += read,
                _ => break,
            }
        }
        &text[..length]
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

/// A directory that is read with `getdents64`, because `readdir` allocates.
struct Directory(File);

impl Directory {
    fn open(path: &[u8]) -> Option<Self> {
        File::open(path).map(Self)
    }

    /// Calls `take` with every entry whose name is a number.
    fn each_number(&self, mut take: impl FnMut(pid_t)) -> ProcessState {
        #[repr(align(8))]
        struct Buffer([u8; 4096]);
        let mut buffer = Buffer([0; 4096]);
        // Offsets in linux_dirent64: d_ino 0, d_off 8, d_reclen 16, d_type 18, d_name 19.
        loop {
            // SAFETY: the kernel writes at most the given length into the buffer.
            let read =
                unsafe { libc::syscall(libc::SYS_getdents64, (self.0).0, buffer.0.as_mut_ptr(), buffer.0.len()) };
            let Ok(read) = usize::try_from(read) else { return ProcessState::failed() };
            let Some(mut entries) = buffer.0.get(..read).filter(|entries| !entries.is_empty()) else {
                return ProcessState::There;
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

    #[test]
    fn proc_is_our_own_and_names_no_process_that_is_missing() {
        assert_eq!(is_own(), Some(true));
        assert_eq!(parent_of(pid_t::MAX), None);
        assert!(has_ended(pid_t::MAX));
        assert_eq!(is_below(pid_t::MAX, 1), None);
        // SAFETY: these cannot fail.
        let (me, parent) = unsafe { (libc::getpid(), libc::getppid()) };
        assert_eq!((is_below(me, parent), is_below(parent, me)), (Some(true), Some(false)));
        assert_eq!(children(pid_t::MAX, |_| panic!("a child of nobody")), ProcessState::Gone);
    }

    /// For example a Java process whose main thread has returned.
    #[test]
    fn a_process_whose_first_thread_has_ended_has_not_ended_while_another_works() {
        // SAFETY: the child makes system calls only, on memory of its own; `thread` runs in it until it is killed.
        let child = unsafe {
            extern "C" fn thread(_: *mut libc::c_void) -> *mut libc::c_void {
                loop {
                    // SAFETY: waits for a signal.
                    unsafe { libc::pause() };
                }
            }
            match libc::fork() {
                0 => {
                    let mut id = std::mem::zeroed();
                    libc::pthread_create(&raw mut id, std::ptr::null(), thread, std::ptr::null_mut());
                    libc::syscall(libc::SYS_exit, 0);
                    libc::_exit(1)
                }
                child => child,
            }
        };
        while stat(child, 0, |state| Some(state == b"Z")) != Some(true) {
            std::thread::yield_now();
        }
        assert!(!has_ended(child));
        // SAFETY: our own child, which has not been waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(has_ended(child));
    }
}
