/*!
The surroundings that dlock inherited (signal mask, dispositions, closed standard descriptors), recorded before Rust's
runtime changes them, so that the command inherits exactly the same.

Rust's runtime, or [`settle`] in its place, opens `/dev/null` on closed standard descriptors and ignores SIGPIPE before
`main`; hence a function in `.init_array`, which runs first.
*/

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::SigSet;

/// The least stack limit, in bytes, that is enough for dlock.
const ENOUGH: u64 = 1 << 20;
/// The size of the stack that dlock makes if the limit is lower, in bytes.
const STACK: usize = 8 << 20;

/// The signals whose disposition dlock or Rust's runtime changes. What was inherited for all others is still in effect.
const CHANGED: [c_int; 4] = [libc::SIGPIPE, libc::SIGCHLD, libc::SIGSEGV, libc::SIGBUS];

/// No set of signals, for the kernel. Its own calls are used because the functions of the C libraries leave out the
/// signals 32 and 33, and musl also 34.
const NO_SET: *mut u64 = std::ptr::null_mut();

static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// Those of [`CHANGED`] that were ignored.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The place of the process's arguments in memory.
static ARGUMENTS: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// The length of the arguments in bytes, with the NUL after each.
static ARGUMENTS_LENGTH: AtomicUsize = AtomicUsize::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn(c_int, *const *mut c_char) = record;

extern "C" fn record(count: c_int, arguments: *const *mut c_char) {
    // Only glibc hands the arguments to these functions.
    if cfg!(target_env = "gnu") {
        record_arguments(usize::try_from(count).unwrap_or(0), arguments);
    } else {
        record_arguments_below_environment();
    }
    let (mut blocked, mut ignored) = (0, 0);
    // SAFETY: a null new set only reads the mask into `blocked`, which has the kernel's size.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, NO_SET, &raw mut blocked, size_of::<u64>()) };
    for signal in CHANGED {
        if is_ignored(signal) {
            ignored |= bit(signal);
        }
    }
    BLOCKED.store(blocked, Ordering::Relaxed);
    IGNORED.store(ignored, Ordering::Relaxed);
    let mut closed = 0;
    for descriptor in 0..3 {
        // SAFETY: F_GETFD reads a flag and fails harmlessly on a closed descriptor.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            closed |= 1 << descriptor;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Returns `true` if `signal` is ignored at present.
fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the current one.
    let read = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed memory is a valid `sigaction`, and the call above filled it.
    read == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Does what Rust's start does before `main`: a file that is opened must not become a standard descriptor, and a write
/// to a closed pipe is an error.
#[cfg(all(target_env = "gnu", not(test)))]
pub(crate) fn settle() {
    for descriptor in 0..3 {
        // SAFETY: system calls; the path is a C string, and the lowest free number is that of the closed descriptor.
        if was_closed(descriptor) && unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } != descriptor {
            std::process::abort();
        }
    }
    // SAFETY: ignoring a signal runs none of our code.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Finds the arguments where the kernel has put them: their number, a pointer to each, a null pointer, and then the
/// environment, to which `environ` still points.
fn record_arguments_below_environment() {
    unsafe extern "C" {
        static environ: *const *mut c_char;
    }
    let mut count = 0;
    // SAFETY: reads only what the kernel laid out. No pointer has so low an address as the number of pointers after it.
    unsafe {
        let end = environ.sub(1);
        while (*end.sub(count + 1)).addr() != count {
            count += 1;
        }
        record_arguments(count, end.sub(count));
    }
}

fn record_arguments(count: usize, arguments: *const *mut c_char) {
    let mut end: *mut c_char = std::ptr::null_mut();
    for index in 0..count {
        // SAFETY: the kernel laid out `count` pointers to texts that end in NUL.
        unsafe {
            let argument = *arguments.add(index);
            if index == 0 {
                ARGUMENTS.store(argument.cast(), Ordering::Relaxed);
            } else if argument != end {
                break;
            }
            end = argument.add(libc::strlen(argument) + 1);
            let length = end.offset_from_unsigned(ARGUMENTS.load(Ordering::Relaxed).cast());
            ARGUMENTS_LENGTH.store(length, Ordering::Relaxed);
        }
    }
}

/// Changes the name and the arguments of this process in process lists, which it would otherwise share with its parent.
/// For the guard, its listener and keepers: the arguments are gone afterwards. Allocates nothing.
pub(crate) fn rename_process(name: &CStr) {
    // SAFETY: the name is a C string of which the kernel takes the first 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    let (place, length) = (ARGUMENTS.load(Ordering::Relaxed), ARGUMENTS_LENGTH.load(Ordering::Relaxed));
    let name = name.to_bytes();
    if let Some(rest) = length.checked_sub(name.len()).filter(|&rest| rest > 0) {
        // SAFETY: the arguments' own memory, which nothing in the guard reads any more, and exactly as much of it.
        unsafe {
            std::ptr::copy_nonoverlapping(name.as_ptr(), place, name.len());
            std::ptr::write_bytes(place.add(name.len()), 0, rest);
        }
    }
}

/// Overwrites a password in the arguments of this process, where `ps` shows it to every user: each `:password@`. Must
/// be called while there is one thread; what was parsed from the arguments is not changed.
pub(crate) fn hide_in_arguments(password: &str) {
    let (place, length) = (ARGUMENTS.load(Ordering::Relaxed), ARGUMENTS_LENGTH.load(Ordering::Relaxed));
    if !place.is_null() {
        // SAFETY: the arguments' own memory, which is this process's to change, and exactly as much of it. Others read
        // it only as text that ends in NUL, and not at this moment.
        mask(unsafe { std::slice::from_raw_parts_mut(place, length) }, password.as_bytes());
    }
}

/// Overwrites `password` in `text` wherever it stands between a colon and an at sign.
fn mask(text: &mut [u8], password: &[u8]) {
    let whole = [b":", password, b"@"].concat();
    let places: Vec<usize> =
        text.windows(whole.len()).enumerate().filter(|(_, part)| *part == whole).map(|(place, _)| place + 1).collect();
    for place in places {
        text[place..place + password.len()].fill(b'*');
    }
}

/// Keeps other processes of this user out of the memory, the environment and the descriptors of this process and of its
/// forks, and allows no core dump of them. The programs that they execute are open to inspection again.
pub(crate) fn close_to_inspection() {
    // SAFETY: prctl with plain numbers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
}

/// Returns the bit of `signal` in a set of signals.
#[must_use]
pub(crate) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Returns `true` if dlock was started with `signal` ignored.
#[must_use]
pub(crate) fn was_ignored(signal: i32) -> bool {
    if CHANGED.contains(&signal) { IGNORED.load(Ordering::Relaxed) & bit(signal) != 0 } else { is_ignored(signal) }
}

/// Returns `true` if dlock was started with `signal` blocked.
#[must_use]
pub(crate) fn was_blocked(signal: i32) -> bool {
    BLOCKED.load(Ordering::Relaxed) & bit(signal) != 0
}

/// Returns this process's pending signals, which it blocks, as [`bit`]s. Async-signal-safe, allocates nothing.
#[must_use]
pub(crate) fn pending() -> u64 {
    let mut pending = 0;
    // SAFETY: the kernel writes a set of its own size.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, size_of::<u64>()) };
    pending
}

/// Returns `true` for a standard descriptor that was closed when dlock was started; it is `/dev/null` now.
#[must_use]
pub(crate) fn was_closed(descriptor: i32) -> bool {
    (0..3).contains(&descriptor) && CLOSED.load(Ordering::Relaxed) & (1 << descriptor) != 0
}

/// Restores the inherited dispositions, closed standard descriptors and, last, the signal mask. For a freshly forked
/// child only. Async-signal-safe, allocates nothing.
pub(crate) fn restore_in_child() {
    for signal in CHANGED {
        let inherited = if was_ignored(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: setting a default or ignored disposition runs none of our code.
        unsafe { libc::signal(signal, inherited) };
    }
    for descriptor in 0..3 {
        if was_closed(descriptor) {
            // SAFETY: the runtime's `/dev/null` on a descriptor that was closed; nothing in this child uses it.
            unsafe { libc::close(descriptor) };
        }
    }
    let mask = BLOCKED.load(Ordering::Relaxed);
    // SAFETY: the kernel reads a set of its own size, and writes none.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, NO_SET, size_of::<u64>()) };
}

/// Makes `command` inherit what this process inherited, but for an ignored SIGCHLD, which would hide exit statuses.
pub(crate) fn hand_on(command: &mut Command) {
    let default = || {
        // SAFETY: the default disposition runs none of our code.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    };
    default();
    let in_child = move || {
        restore_in_child();
        default();
        Ok(())
    };
    // SAFETY: async-signal-safe calls that allocate nothing.
    unsafe { command.pre_exec(in_child) };
}

/// Closes what was inherited for the command: standard input and output become `/dev/null`, so that their other ends
/// see end-of-file when the command closes them, and of the rest only standard error and `keep` stay open.
pub(crate) fn let_go_of_the_rest(mut keep: Vec<RawFd>) {
    keep.push(2);
    close_all_but(&mut keep);
    // SAFETY: plain system calls on descriptors that were closed above; the path is a C string.
    unsafe {
        if libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == 0 {
            libc::dup(0);
        }
    }
}

/// Closes every descriptor but those in `keep`, so that no pipe that the command inherited stays open in another
/// process. Sorts them, and allocates nothing.
pub(crate) fn close_all_but(keep: &mut [RawFd]) {
    keep.sort_unstable();
    let mut first = 0;
    for &mut kept in keep {
        close_range(first, kept - 1);
        first = first.max(kept + 1);
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the caller names every descriptor that this process still uses.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == -1 {
        // A kernel before 5.9: close one by one what may be open.
        for descriptor in first..=last.min(65_535) {
            // SAFETY: as above.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Does `work` in this thread or, if a limit (`ulimit -s`) leaves its stack too little room, in one with its own stack.
/// This thread then takes no signal. The limit stays as it is, for the command.
pub(crate) fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(limit, _)| limit >= ENOUGH) {
        return work();
    }
    // It is still here if no thread can be made.
    let work = Mutex::new(Some(work));
    let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mask = SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty());
    let done = std::thread::scope(|scope| {
        let _ = SigSet::all().thread_block();
        let in_thread = || {
            let _ = mask.thread_set_mask();
            take().map(|work| work())
        };
        std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, in_thread).ok()?.join().ok()?
    });
    done.unwrap_or_else(|| {
        let _ = mask.thread_set_mask();
        match take() {
            Some(work) => work(),
            // The panic hook has ended the process.
            None => std::process::abort(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_masked_where_it_stands_in_a_url_and_nowhere_else() {
        for (text, masked) in [
            ("run\0-b\0redis://u:pw@h\0-k\0pw\0", "run\0-b\0redis://u:**@h\0-k\0pw\0"),
            ("--backend=redis://:pw@h\0--\0x\0redis://:pw@h\0", "--backend=redis://:**@h\0--\0x\0redis://:**@h\0"),
            ("pw@h\0:pw", "pw@h\0:pw"),
            ("", ""),
        ] {
            let mut bytes = text.as_bytes().to_vec();
            mask(&mut bytes, b"pw");
            assert_eq!(String::from_utf8_lossy(&bytes), masked);
        }
    }
}
