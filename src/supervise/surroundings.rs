/*!
What dlock inherited (signal mask, dispositions, closed standard descriptors), recorded before Rust's runtime changes
it, so that the command inherits exactly the same.

The runtime opens `/dev/null` on closed standard descriptors and ignores SIGPIPE before `main`; hence a function in
`.init_array`, which runs first.
*/

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The highest signal number on Linux.
const MAX_SIGNAL: i32 = 64;

static BLOCKED: AtomicU64 = AtomicU64::new(0);
static IGNORED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The place of the process's arguments in memory.
static ARGUMENTS: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// How many bytes the arguments have, with the NUL after each.
static ARGUMENTS_LENGTH: AtomicUsize = AtomicUsize::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn(c_int, *const *mut c_char) = record;

extern "C" fn record(count: c_int, arguments: *const *mut c_char) {
    // Only glibc hands the arguments to these functions.
    if cfg!(target_env = "gnu") {
        record_arguments(count, arguments);
    }
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a null new set only reads the mask into `mask`, which is large enough and zeroed.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), mask.as_mut_ptr()) };
    let (mut blocked, mut ignored) = (0, 0);
    for signal in 1..=MAX_SIGNAL {
        // SAFETY: `mask` was initialised above, and the number is a valid signal.
        if unsafe { libc::sigismember(mask.as_ptr(), signal) } == 1 {
            blocked |= bit(signal);
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a null new action only reads the current one.
        let read = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: zeroed memory is a valid `sigaction`, and the call above filled it.
        if read == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN {
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

fn record_arguments(count: c_int, arguments: *const *mut c_char) {
    let mut end: *mut c_char = std::ptr::null_mut();
    for index in 0..usize::try_from(count).unwrap_or(0) {
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
/// For the guard, its ear and keepers: the arguments are gone afterwards. Allocates nothing.
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

/// Overwrites a password in the arguments of this process, where `ps` shows it to every user: each `:password@`. To be
/// called while there is one thread; what was parsed from the arguments is not changed.
pub(crate) fn hide_in_arguments(password: &str) {
    let (place, length) = (ARGUMENTS.load(Ordering::Relaxed), ARGUMENTS_LENGTH.load(Ordering::Relaxed));
    if !place.is_null() {
        // SAFETY: the arguments' own memory, which is this process's to change, and exactly as much of it. Others read it
        // only as text that ends in NUL, and not at this moment.
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

/// Keeps other processes of this user out of the memory, the environment and the descriptors of this process and of those
/// that are forked from it, and allows no core of them. What they execute is open to inspection again.
pub(crate) fn close_to_inspection() {
    // SAFETY: prctl with plain numbers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
}

/// The bit of `signal` in a set of signals.
#[must_use]
pub(crate) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether dlock was started with `signal` ignored.
#[must_use]
pub(crate) fn was_ignored(signal: i32) -> bool {
    IGNORED.load(Ordering::Relaxed) & bit(signal) != 0
}

/// Whether dlock was started with `signal` blocked.
#[must_use]
pub(crate) fn was_blocked(signal: i32) -> bool {
    BLOCKED.load(Ordering::Relaxed) & bit(signal) != 0
}

/// The pending signals of this process, which blocks them, as a set of [`bit`]s. Async-signal-safe, allocates nothing.
#[must_use]
pub(crate) fn pending() -> u64 {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is large enough, and zeroed also where the call fails.
    unsafe { libc::sigpending(set.as_mut_ptr()) };
    // SAFETY: as above, and the numbers are valid.
    let waits = |signal: &i32| unsafe { libc::sigismember(set.as_ptr(), *signal) } == 1;
    (1..=MAX_SIGNAL).filter(waits).fold(0, |pending, signal| pending | bit(signal))
}

/// Whether this standard descriptor was closed when dlock was started; it is `/dev/null` now.
#[must_use]
pub(crate) fn was_closed(descriptor: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << descriptor) != 0
}

/// Restores the inherited dispositions, closed standard descriptors and, last, the signal mask. For a freshly forked
/// child only. Async-signal-safe, allocates nothing.
pub(crate) fn restore_in_child() {
    for signal in 1..=MAX_SIGNAL {
        let inherited = if was_ignored(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: setting a default or ignored disposition runs none of our code; it fails for KILL, STOP and the
        // signals that libc reserves, which nothing here changed.
        unsafe { libc::signal(signal, inherited) };
    }
    for descriptor in 0..3 {
        if was_closed(descriptor) {
            // SAFETY: the runtime's `/dev/null` on a descriptor that was closed; nothing in this child uses it.
            unsafe { libc::close(descriptor) };
        }
    }
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `mask` is initialised by sigemptyset, and only valid numbers are added to it.
    unsafe {
        libc::sigemptyset(mask.as_mut_ptr());
        for signal in 1..=MAX_SIGNAL {
            if was_blocked(signal) {
                libc::sigaddset(mask.as_mut_ptr(), signal);
            }
        }
        libc::sigprocmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut());
    }
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
