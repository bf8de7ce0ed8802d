/*!
The command as a process: everything that `execve` needs is prepared before the guard is forked, because the guard and
its child may not allocate.
*/

use std::ffi::{CString, OsString, c_char, c_int};
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use super::surroundings;
use crate::clock::Instant;

unsafe extern "C" {
    /// The environment that `execvp` hands on and whose `PATH` it searches.
    static mut environ: *const *const c_char;
}

/// Room for a variable's name, `=`, a number and NUL.
const SLOT: usize = 48;

/// A command that is ready to be executed.
#[derive(Debug)]
pub(crate) struct Command {
    /// Owns what `argv` points to.
    _arguments: Vec<CString>,
    argv: Vec<*const c_char>,
    /// Owns what `envp` points to.
    _variables: Vec<CString>,
    envp: Vec<*const c_char>,
    token: Slot,
    ttl: Slot,
    exec_errno: &'static AtomicI32,
}

/// A variable whose value is known only when the lock has been granted.
#[derive(Debug)]
struct Slot {
    text: Box<[u8; SLOT]>,
    value_at: usize,
}

impl Slot {
    fn new(name: &str) -> Self {
        let mut text = Box::new([0; SLOT]);
        let value_at = name.len() + 1;
        text[..name.len()].copy_from_slice(name.as_bytes());
        text[name.len()] = b'=';
        Self { text, value_at }
    }

    fn set(&mut self, value: std::fmt::Arguments<'_>) {
        let mut place = &mut self.text[self.value_at..SLOT - 1];
        // The room fits any number that is set here.
        let _ = place.write_fmt(value);
    }
}

impl Command {
    /// Prepares `arguments` (the program first) with `environment`, to which the variables `token` and `ttl` will be
    /// added when the command is started. Fails on a NUL byte, which no real argument can contain, and when memory
    /// for one shared number cannot be mapped.
    pub(crate) fn prepare(
        arguments: Vec<OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        token: &str,
        ttl: &str,
    ) -> Result<Self, Errno> {
        let c_string = |text: OsString| CString::new(text.into_vec()).map_err(|_| Errno::EINVAL);
        let arguments = arguments.into_iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
        let variables = environment
            .into_iter()
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                c_string(name)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let (token, ttl) = (Slot::new(token), Slot::new(ttl));
        let end = std::iter::once(std::ptr::null());
        let argv = arguments.iter().map(|argument| argument.as_ptr()).chain(end.clone()).collect();
        let slots = [token.text.as_ptr().cast(), ttl.text.as_ptr().cast()];
        let envp = variables.iter().map(|variable| variable.as_ptr()).chain(slots).chain(end).collect();
        let exec_errno = shared_number()?;
        Ok(Self { _arguments: arguments, argv, _variables: variables, envp, token, ttl, exec_errno })
    }

    /// Why the command could not be executed, once its process has ended; 0 when it was.
    #[must_use]
    pub(crate) fn exec_errno(&self) -> i32 {
        self.exec_errno.load(Ordering::Acquire)
    }

    /// Fills in what was granted: the fencing token, and the lease in seconds, 0 for a lock without one.
    pub(crate) fn granted(&mut self, token: u64, ttl: Option<Duration>) {
        self.token.set(format_args!("{token}"));
        let ttl = ttl.unwrap_or_default();
        match ttl.subsec_millis() {
            0 => self.ttl.set(format_args!("{}", ttl.as_secs())),
            millis => self.ttl.set(format_args!("{}.{millis:03}", ttl.as_secs())),
        }
    }

    /// Becomes the command. For a freshly forked child only; returns only by ending it.
    ///
    /// With `dies_with` the command is killed when that parent, its guard, dies. `inherit` is a descriptor that stays
    /// open in the command. From `too_late` on it is not executed any more, and [`Command::exec_errno`] is `ETIME`.
    pub(crate) fn execute(
        &self,
        dies_with: Option<libc::pid_t>,
        inherit: Option<BorrowedFd<'_>>,
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
            if let Some(descriptor) = inherit {
                libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0);
            }
            surroundings::restore_in_child();
            // This process may have been kept from running since the guard looked at the time.
            if too_late.is_some_and(|at| Instant::now() >= at) {
                self.exec_errno.store(libc::ETIME, Ordering::Release);
                libc::_exit(126);
            }
            environ = self.envp.as_ptr();
            libc::execvp(self.argv[0], self.argv.as_ptr());
            let errno = Errno::last_raw();
            self.exec_errno.store(errno, Ordering::Release);
            libc::_exit(if errno == libc::ENOENT { 127 } else { 126 });
        }
    }
}

/// A number that a forked child can set for its parent to read.
fn shared_number() -> Result<&'static AtomicI32, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh anonymous mapping, zeroed by the kernel and never unmapped, is a valid atomic for ever.
    unsafe {
        let place = libc::mmap(std::ptr::null_mut(), size_of::<AtomicI32>(), protection, flags, -1, 0);
        if place == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(&*place.cast::<AtomicI32>()) }
    }
}

/// How a process ended.
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

    #[test]
    fn slots_hold_what_was_granted() {
        let mut command = Command::prepare(vec!["true".into()], [], "T", "D").expect("prepared");
        for (token, ttl, expected) in [
            (u64::MAX, Some(Duration::from_millis(1500)), ("T=18446744073709551615", "D=1.500")),
            (1, Some(Duration::from_secs(30)), ("T=1", "D=30")),
        ] {
            let mut fresh = Command::prepare(vec!["true".into()], [], "T", "D").expect("prepared");
            fresh.granted(token, ttl);
            let text = |slot: &Slot| {
                std::ffi::CStr::from_bytes_until_nul(slot.text.as_slice())
                    .expect("NUL")
                    .to_str()
                    .expect("text")
                    .to_owned()
            };
            assert_eq!((text(&fresh.token).as_str(), text(&fresh.ttl).as_str()), expected);
        }
        command.granted(7, None);
        assert!(command.ttl.text.starts_with(b"D=0\0"));
    }

    #[test]
    fn a_nul_is_refused() {
        assert_eq!(Command::prepare(vec!["a\0b".into()], [], "T", "D").err(), Some(Errno::EINVAL));
    }
}
