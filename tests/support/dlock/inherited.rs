//! What a dlock inherits that is neither argument nor variable: its group and session, signals, umask, limits and
//! descriptors.

use std::os::fd::{AsRawFd, OwnedFd};
use std::{io, mem};

use nix::sys::signal::Signal;

use super::Dlock;

impl Dlock {
    /// Runs `hook` in the new process, after its user, group and standard streams are set.
    ///
    /// # Safety
    /// It runs between fork and exec of a process with threads: only async-signal-safe calls, and no allocation.
    pub unsafe fn pre_exec(mut self, hook: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Makes it the leader of a new process group.
    pub fn new_process_group(self) -> Self {
        // SAFETY: setpgid is async-signal-safe.
        unsafe { self.pre_exec(|| done(libc::setpgid(0, 0))) }
    }

    /// Makes it the leader of a new session, without a terminal.
    pub fn new_session(self) -> Self {
        // SAFETY: setsid is async-signal-safe.
        unsafe { self.pre_exec(|| done(libc::setsid())) }
    }

    /// Starts it with `signal` ignored, as under nohup.
    pub fn ignoring(self, signal: Signal) -> Self {
        // SAFETY: signal is async-signal-safe.
        unsafe {
            self.pre_exec(move || {
                let before = libc::signal(signal as libc::c_int, libc::SIG_IGN);
                if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
            })
        }
    }

    /// Starts it with `signal` blocked.
    pub fn blocking(self, signal: Signal) -> Self {
        // SAFETY: these work on a set on the stack and on this thread's mask, and are async-signal-safe.
        unsafe {
            self.pre_exec(move || {
                let mut set = mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, signal as libc::c_int);
                done(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
            })
        }
    }

    /// Starts it with this umask.
    pub fn umask(self, mask: libc::mode_t) -> Self {
        // SAFETY: umask is async-signal-safe.
        unsafe {
            self.pre_exec(move || {
                libc::umask(mask);
                Ok(())
            })
        }
    }

    /// Starts it with both limits of `resource` (such as `libc::RLIMIT_NOFILE`) set to `limit`.
    pub fn limit(self, resource: libc::__rlimit_resource_t, limit: u64) -> Self {
        // SAFETY: setrlimit reads a struct on the stack, and is a plain system call.
        unsafe {
            self.pre_exec(move || {
                let limits = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                done(libc::setrlimit(resource, &raw const limits))
            })
        }
    }

    /// Starts it with a copy of `descriptor` as its own descriptor `number`.
    pub fn with_fd(self, descriptor: impl Into<OwnedFd>, number: i32) -> Self {
        let descriptor = descriptor.into();
        // SAFETY: dup2 and fcntl are async-signal-safe.
        unsafe {
            self.pre_exec(move || {
                // A descriptor that has the number already would be closed by the exec; a copy would not.
                let has_it = descriptor.as_raw_fd() == number;
                done(if has_it {
                    libc::fcntl(number, libc::F_SETFD, 0)
                } else {
                    libc::dup2(descriptor.as_raw_fd(), number)
                })
            })
        }
    }

    /// Starts it without descriptor `fd`, such as one of the standard streams.
    pub fn without_fd(self, fd: i32) -> Self {
        // SAFETY: close is async-signal-safe; nothing but an exec follows in this process.
        unsafe {
            self.pre_exec(move || {
                libc::close(fd);
                Ok(())
            })
        }
    }
}

/// The result of a system call that returns a negative number on failure.
fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
