/*!
The command as a process: everything that `execve` needs is prepared before the guard is forked, because the guard and
its child may not allocate.
*/

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::clock::Instant;
use crate::supervise::surroundings;
use crate::supervise::tokens::Tokens;

unsafe extern "C" {
    /// The environment that `execvp` hands on and whose `PATH` it searches.
    static mut environ: *const *const c_char;
}

/// The size of the buffer for a variable's name, `=`, one number for each of the most locks there can be with a space
/// between them, and NUL.
const BLANK: usize = 384;

/// Runs scripts without a `#!` line.
const SHELL: &CStr = c"/bin/sh";

/// A command that is ready to be executed.
#[derive(Debug)]
pub(crate) struct Command {
    /// Owns what `argv` points to.
    _arguments: Vec<CString>,
    argv: Vec<*const c_char>,
    /// The arguments with which the shell runs the command, if it is a script that does not name its interpreter.
    script: Vec<*const c_char>,
    /// Owns what `envp` points to.
    _variables: Vec<CString>,
    envp: Vec<*const c_char>,
    token: Blank,
    tokens: Blank,
    ttl: Blank,
    /// `None` if the lock has no slots.
    slot: Option<Blank>,
    shared: &'static Shared,
}

/// A variable whose value is known only when the lock has been granted.
#[derive(Debug)]
struct Blank {
    text: Box<[u8; BLANK]>,
    value_at: usize,
}

impl Blank {
    fn new(name: &str) -> Self {
        let mut text = Box::new([0; BLANK]);
        let value_at = name.len() + 1;
        text[..name.len()].copy_from_slice(name.as_bytes());
        text[name.len()] = b'=';
        Self { text, value_at }
    }

    fn set(&mut self, value: std::fmt::Arguments<'_>) {
        let mut place = &mut self.text[self.value_at..BLANK - 1];
        // The buffer is large enough for all that is set here.
        let _ = place.write_fmt(value);
    }

    /// Sets a list of numbers, separated by spaces.
    fn set_list(&mut self, numbers: &[u64]) {
        let mut place = &mut self.text[self.value_at..BLANK - 1];
        for (index, number) in numbers.iter().enumerate() {
            let separator = if index == 0 { "" } else { " " };
            // As above.
            let _ = write!(place, "{separator}{number}");
        }
    }
}

impl Command {
    /// Prepares `arguments` (the program first) with `environment`, to which the variables `token`, `tokens`, `ttl` and
    /// perhaps `slot` will be added when the command is started. Fails on a NUL byte, which no real argument can
    /// contain, and if memory for one shared number cannot be mapped.
    pub(crate) fn prepare(
        arguments: Vec<OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        [token, tokens, ttl]: [&str; 3],
        slot: Option<&str>,
    ) -> Result<Self, Errno> {
        let c_string = |text: OsString| CString::new(text.into_vec()).map_err(|_| Errno::EINVAL);
        let environment: Vec<_> = environment.into_iter().collect();
        let path = environment.iter().find_map(|(name, value)| (name == "PATH").then_some(value.as_os_str()));
        let file = arguments.first().map(|name| found(name, path)).unwrap_or_default();
        let mut arguments = arguments.into_iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
        let variables = environment
            .into_iter()
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                c_string(name)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let ([token, tokens, ttl], slot) = ([token, tokens, ttl].map(Blank::new), slot.map(Blank::new));
        let end = std::iter::once(std::ptr::null());
        let argv: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).chain(end.clone()).collect();
        arguments.push(c_string(file.into_os_string())?);
        let file = arguments.last().map_or(std::ptr::null(), |file| file.as_ptr());
        let script = [SHELL.as_ptr(), file].into_iter().chain(argv.iter().skip(1).copied()).collect();
        let blanks = [Some(&token), Some(&tokens), Some(&ttl), slot.as_ref()];
        let blanks = blanks.into_iter().flatten().map(|blank| blank.text.as_ptr().cast());
        let envp = variables.iter().map(|variable| variable.as_ptr()).chain(blanks).chain(end).collect();
        let shared = Shared::map()?;
        Ok(Self { _arguments: arguments, argv, script, _variables: variables, envp, token, tokens, ttl, slot, shared })
    }

    /// Returns the errno of the failed execution, once the command's process has ended; 0 if it was executed.
    #[must_use]
    pub(crate) fn exec_errno(&self) -> i32 {
        self.shared.exec_errno.load(Ordering::Acquire)
    }

    /// Lets a freshly forked child continue, once its parent has recorded the signals that it got before the fork.
    pub(crate) fn go(&self) {
        self.shared.go.store(1, Ordering::Release);
        self.shared.futex(libc::FUTEX_WAKE, 1, std::ptr::null());
    }

    /// Returns `true` if `signal` was pending for the child when it was about to restore its signal mask: then it was
    /// sent after the fork, and reaches the command. `None` until that is known.
    #[must_use]
    pub(crate) fn was_pending(&self, signal: i32) -> Option<bool> {
        let pending = self.shared.pending.load(Ordering::Acquire);
        (pending & SAMPLED != 0).then_some(pending & surroundings::bit(signal) != 0)
    }

    /// Fills in what was granted: the fencing tokens, the number of the slot, and the lease in seconds, 0 for a lock
    /// without one.
    pub(crate) fn granted(&mut self, tokens: &Tokens, slot: Option<u32>, ttl: Option<Duration>) {
        self.token.set(format_args!("{}", tokens.first()));
        self.tokens.set_list(tokens.as_slice());
        if let (Some(blank), Some(slot)) = (&mut self.slot, slot) {
            blank.set(format_args!("{slot}"));
        }
        let ttl = ttl.unwrap_or_default();
        match ttl.subsec_millis() {
            0 => self.ttl.set(format_args!("{}", ttl.as_secs())),
            millis => self.ttl.set(format_args!("{}.{millis:03}", ttl.as_secs())),
        }
    }

    /// Executes the command in a freshly forked child. Does not return.
    ///
    /// It waits for [`Command::go`] first. With `dies_with`, the command is killed when that parent, its guard, dies.
    /// The descriptors `inherit` stay open in the command. From `too_late` on, the command is no longer executed, and
    /// [`Command::exec_errno`] is `ETIME`.
    pub(crate) fn execute(
        &self,
        dies_with: Option<libc::pid_t>,
        inherit: &[Option<OwnedFd>],
        too_late: Option<Instant>,
    ) -> ! {
        // SAFETY: async-signal-safe calls on memory prepared before the fork; the process has one thread.
        unsafe {
            if let Some(guard) = dies_with {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The guard may have died before the line above took effect.
                if libc::getppid() != guard {
                    libc::_exit(126);
                }
            }
            for descriptor in inherit.iter().flatten() {
                libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0);
            }
            self.shared.wait_for_go();
            // It was set before the parent took note of the signals for this process, and so they agree.
            self.shared.pending.store(surroundings::pending() | SAMPLED, Ordering::Release);
            surroundings::restore_in_child();
            // This process may have been kept from running since the guard looked at the time.
            if too_late.is_some_and(|at| Instant::now() >= at) {
                self.shared.exec_errno.store(libc::ETIME, Ordering::Release);
                libc::_exit(126);
            }
            environ = self.envp.as_ptr();
            libc::execvp(self.argv[0], self.argv.as_ptr());
            let errno = Errno::last_raw();
            if errno == libc::ENOEXEC {
                libc::execv(SHELL.as_ptr(), self.script.as_ptr());
            }
            self.shared.exec_errno.store(errno, Ordering::Release);
            libc::_exit(if errno == libc::ENOENT { 127 } else { 126 });
        }
    }
}

/// Returns the file that `execvp` finds for `name`. glibc's passes a script without a `#!` line to the shell itself, so
/// the file is looked for only with another C library.
fn found(name: &OsStr, path: Option<&OsStr>) -> PathBuf {
    let searched = !cfg!(target_env = "gnu") && !name.as_bytes().contains(&b'/');
    let directories = searched.then_some(path.unwrap_or(OsStr::new("/usr/local/bin:/bin:/usr/bin")));
    let mut files = directories.into_iter().flat_map(std::env::split_paths).map(|directory| directory.join(name));
    let found = files.find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok());
    found.unwrap_or_else(|| name.into())
}

/// The bit that marks the pending signals as known. It is the bit of signal 64, which is never passed on.
const SAMPLED: u64 = 1 << 63;
/// Time that a child waits for [`Command::go`] before it checks whether its parent is alive.
static WAIT: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Memory that a forked child shares with its parent.
#[derive(Debug)]
struct Shared {
    /// The errno with which the command could not be executed.
    exec_errno: AtomicI32,
    /// Not 0 once the child may continue.
    go: AtomicU32,
    /// The signals that were pending for the child, and [`SAMPLED`].
    pending: AtomicU64,
}

impl Shared {
    fn map() -> Result<&'static Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping, zeroed by the kernel and never unmapped, holds valid atomics.
        unsafe {
            let place = libc::mmap(std::ptr::null_mut(), size_of::<Self>(), protection, flags, -1, 0);
            if place == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(&*place.cast::<Self>()) }
        }
    }

    /// Waits for [`Command::go`], and ends this process if its parent dies before.
    fn wait_for_go(&self) {
        // SAFETY: async-signal-safe calls with integers.
        unsafe {
            let parent = libc::getppid();
            while self.go.load(Ordering::Acquire) == 0 {
                self.futex(libc::FUTEX_WAIT, 0, &raw const WAIT);
                if libc::getppid() != parent && self.go.load(Ordering::Acquire) == 0 {
                    libc::_exit(126);
                }
            }
        }
    }

    fn futex(&self, operation: c_int, value: u32, timeout: *const libc::timespec) {
        // SAFETY: the word is in a mapping that is never unmapped, and the timeout is null or valid.
        unsafe { libc::syscall(libc::SYS_futex, self.go.as_ptr(), operation, value, timeout) };
    }
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(c_int),
}

impl Ended {
    /// Reads a wait status of an ended process.
    #[must_use]
    pub(crate) fn from_status(status: c_int) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            // The kernel keeps eight bits of an exit code.
            Self::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::tokens::MOST_LOCKS;

    #[test]
    fn blanks_hold_what_was_granted() {
        let prepared =
            || Command::prepare(vec!["true".into()], [], ["T", "DLOCK_TOKENS", "D"], Some("S")).expect("prepared");
        let mut command = prepared();
        let most = ["18446744073709551615"; MOST_LOCKS].join(" ");
        for (tokens, ttl, expected) in [
            (&[u64::MAX; MOST_LOCKS][..], Some(Duration::from_millis(1500)), ("T=18446744073709551615", "D=1.500")),
            (&[1], Some(Duration::from_secs(30)), ("T=1", "D=30")),
            (&[9, 7], Some(Duration::from_secs(30)), ("T=9", "D=30")),
        ] {
            let mut fresh = prepared();
            fresh.granted(&Tokens::new(tokens), Some(7), ttl);
            let text = |blank: &Blank| {
                std::ffi::CStr::from_bytes_until_nul(blank.text.as_slice())
                    .expect("NUL")
                    .to_str()
                    .expect("text")
                    .to_owned()
            };
            assert_eq!((text(&fresh.token).as_str(), text(&fresh.ttl).as_str()), expected);
            assert_eq!(fresh.slot.as_ref().map(text).as_deref(), Some("S=7"));
            let list = match tokens {
                [one] => one.to_string(),
                [_, _] => "9 7".to_owned(),
                _ => most.clone(),
            };
            assert_eq!(text(&fresh.tokens), format!("DLOCK_TOKENS={list}"));
        }
        command.granted(&Tokens::new(&[7]), None, None);
        assert!(command.ttl.text.starts_with(b"D=0\0"));
    }

    #[test]
    fn a_nul_is_refused() {
        let prepared = Command::prepare(vec!["a\0b".into()], [], ["T", "U", "D"], Some("S"));
        assert_eq!(prepared.err(), Some(Errno::EINVAL));
    }
}
