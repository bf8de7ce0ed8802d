/*!
flock(1) itself: flock(2) on a file, a directory or an open descriptor of this host, with util-linux's messages.
*/

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::sys::signal::{SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction};
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::{AccessFlags, access};

use crate::cli::flock::{FlockOptions, Object, Operation, Timeout};
use crate::clock::Instant;
use crate::exit::{Exit, FLOCK_CONFLICT};
use crate::output;
use crate::report;
use crate::supervise::surroundings;

/// The exit code for wrong usage (`EX_USAGE`).
pub(super) const USAGE: u8 = 64;
/// The exit code for a descriptor that cannot be locked (`EX_DATAERR`).
const DATA: u8 = 65;
/// The exit code for a file that cannot be opened (`EX_NOINPUT`).
const NO_INPUT: u8 = 66;
/// The exit code for a command that cannot be executed (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;
/// The exit code for a failure of the system (`EX_OSERR`).
const SYSTEM: u8 = 71;
/// The exit code for a file that cannot be created (`EX_CANTCREAT`).
const CANNOT_CREATE: u8 = 73;
/// Interval at which the alarm repeats, in case it goes off just before the wait begins.
const REPEAT: Duration = Duration::from_millis(10);

/// The early end of flock.
pub(super) struct Stop {
    code: u8,
    /// The message, if any.
    text: Option<String>,
}

impl Stop {
    /// Makes an end with this exit code and a message.
    pub(super) fn new(code: u8, text: String) -> Self {
        Self { code, text: Some(text) }
    }

    /// Makes an end with a message that gives the system's reason.
    pub(super) fn of(code: u8, what: &str, error: &io::Error) -> Self {
        let reason = error.to_string();
        // As in strerror(3).
        let reason = reason.split(" (os error").next().unwrap_or_default();
        Self::new(code, format!("{what}: {reason}"))
    }

    /// Returns the end for a timeout that no timer can be set to.
    pub(super) fn no_timer() -> Self {
        Self::of(SYSTEM, "cannot set up timer", &Errno::EINVAL.into())
    }
}

/// Reports the early end, and returns its exit code.
pub(super) fn stopped(stop: &Stop) -> Exit {
    if let Some(text) = &stop.text {
        report::show(&format!("flock: {text}\n"));
    }
    Exit::Command(stop.code)
}

/// Locks a file or a descriptor, and runs the command if there is one.
pub(super) fn lock(options: &FlockOptions, object: &Object) -> Exit {
    let done = match object {
        Object::Descriptor(number) => lock_descriptor(options, *number),
        Object::Path { file, argv } => lock_path(options, file, argv),
    };
    done.unwrap_or_else(|stop| stopped(&stop))
}

fn lock_descriptor(options: &FlockOptions, number: RawFd) -> Result<Exit, Stop> {
    if surroundings::was_closed(number) {
        return Err(Stop::of(DATA, &number.to_string(), &Errno::EBADF.into()));
    }
    let waited =
        Wait::new(options)?.until_locked(number).map_err(|errno| refused(options, &number.to_string(), errno))?;
    say(options, &took(waited));
    Ok(Exit::Success)
}

fn lock_path(options: &FlockOptions, file: &OsStr, argv: &[OsString]) -> Result<Exit, Stop> {
    let mut opened = opened(file, OFlag::O_RDONLY)?;
    let wait = Wait::new(options)?;
    let mut locked = wait.until_locked(opened.as_raw_fd());
    // NFS wants a file that is open for writing.
    let may_write = || access(file, AccessFlags::R_OK | AccessFlags::W_OK).is_ok();
    if let Err(Errno::EBADF | Errno::EIO) = locked
        && options.operation != Some(Operation::Shared)
        && may_write()
    {
        opened = self::opened(file, OFlag::O_RDWR)?;
        locked = wait.until_locked(opened.as_raw_fd());
    }
    let waited = locked.map_err(|errno| refused(options, &file.to_string_lossy(), errno))?;
    drop(wait);
    if options.close {
        // This process keeps it open, the command does not inherit it.
        let _ = fcntl(&opened, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    }
    run(options, argv, &took(waited))
}

/// Runs the command, or becomes it.
fn run(options: &FlockOptions, argv: &[OsString], took: &str) -> Result<Exit, Stop> {
    let [program, arguments @ ..] = argv else { return Ok(Exit::Success) };
    let said = format!("{took}flock: executing {}\n", program.to_string_lossy());
    // If the output is no terminal, these lines follow those of the command, as with any program that buffers them.
    let is_terminal = output::terminal().is_some();
    if is_terminal {
        say(options, &said);
    }
    let mut command = Command::new(program);
    command.args(arguments);
    surroundings::hand_on(&mut command);
    let failed =
        |error: &io::Error| Stop::of(UNAVAILABLE, &format!("failed to execute {}", program.to_string_lossy()), error);
    if options.no_fork {
        return Err(failed(&command.exec()));
    }
    let started = command.spawn();
    let ended = started.map(|mut child| child.wait());
    if !is_terminal {
        say(options, &said);
    }
    let ended = ended.map_err(|error| failed(&error))?;
    let status = ended.map_err(|error| Stop::of(SYSTEM, "waitpid failed", &error))?;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).and_then(|code| u8::try_from(code).ok());
    Ok(Exit::Command(code.unwrap_or(SYSTEM)))
}

fn took(waited: Duration) -> String {
    format!("flock: getting lock took {}.{:06} seconds\n", waited.as_secs(), waited.subsec_micros())
}

/// With `--verbose`, writes lines to standard output.
fn say(options: &FlockOptions, lines: &str) {
    if options.verbose {
        // Only the lock matters: an error here is ignored.
        let _ = output::print(lines.as_bytes());
    }
}

/// Opens a file, creating it if it is missing, or a directory. The command inherits the descriptor.
fn opened(file: &OsStr, access: OFlag) -> Result<OwnedFd, Stop> {
    let permissions = Mode::from_bits_truncate(0o666);
    let flags = access | OFlag::O_NOCTTY;
    let result = match open(file, flags | OFlag::O_CREAT, permissions) {
        Err(Errno::EISDIR) => open(file, flags, permissions),
        other => other,
    };
    result.map_err(|errno| {
        let code = match errno {
            Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE => SYSTEM,
            Errno::EROFS | Errno::ENOSPC => CANNOT_CREATE,
            _ => NO_INPUT,
        };
        Stop::of(code, &format!("cannot open lock file {}", file.to_string_lossy()), &errno.into())
    })
}

/// Returns the end for the failure to lock `name`.
fn refused(options: &FlockOptions, name: &str, errno: Errno) -> Stop {
    let conflict = |text: &str| Stop {
        code: options.conflict.unwrap_or(FLOCK_CONFLICT),
        text: options.verbose.then(|| text.to_owned()),
    };
    match errno {
        Errno::EWOULDBLOCK => conflict("failed to get lock"),
        Errno::ETIME => conflict("timeout while waiting to get lock"),
        Errno::ENOLCK | Errno::ENOMEM => Stop::of(SYSTEM, name, &errno.into()),
        _ => Stop::of(DATA, name, &errno.into()),
    }
}

/// A wait for a lock.
struct Wait {
    operation: libc::c_int,
    /// The timer that interrupts the wait, and the instant from which it does.
    alarm: Option<(Timer, Instant)>,
}

impl Wait {
    fn new(options: &FlockOptions) -> Result<Self, Stop> {
        let (length, is_zero) = match options.timeout {
            Some(Timeout::Impossible) => return Err(Stop::no_timer()),
            Some(Timeout::For(length)) => (Some(length).filter(|length| !length.is_zero()), length.is_zero()),
            None => (None, false),
        };
        let nonblock = if options.nonblock || is_zero { libc::LOCK_NB } else { 0 };
        let operation = match options.operation {
            Some(Operation::Shared) => libc::LOCK_SH,
            Some(Operation::Unlock) => libc::LOCK_UN,
            Some(Operation::Exclusive) | None => libc::LOCK_EX,
        };
        let alarm = length.map(alarm).transpose();
        let alarm = alarm.map_err(|errno| Stop::of(SYSTEM, "cannot set up timer", &errno.into()))?;
        Ok(Self { operation: operation | nonblock, alarm })
    }

    /// Locks a descriptor; returns the time that took, or `ETIME` if it took too long.
    fn until_locked(&self, descriptor: RawFd) -> Result<Duration, Errno> {
        let began = Instant::now();
        loop {
            // SAFETY: flock has no memory effects.
            match Errno::result(unsafe { libc::flock(descriptor, self.operation) }) {
                Ok(_) => return Ok(Instant::now().since(began)),
                Err(Errno::EINTR) if self.alarm.as_ref().is_some_and(|(_, at)| Instant::now() >= *at) => {
                    return Err(Errno::ETIME);
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Makes SIGALRM interrupt system calls after this time and then repeatedly, until the returned timer is dropped.
fn alarm(length: Duration) -> Result<(Timer, Instant), Errno> {
    extern "C" fn ring(_: libc::c_int) {}
    // Without SA_RESTART.
    let action = SigAction::new(SigHandler::Handler(ring), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGALRM, &action) }?;
    let notify = SigevNotify::SigevSignal { signal: Signal::SIGALRM, si_value: 0 };
    let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify))?;
    let expiration = Expiration::IntervalDelayed(TimeSpec::from_duration(length), TimeSpec::from_duration(REPEAT));
    let at = Instant::now() + length;
    timer.set(expiration, TimerSetTimeFlags::empty())?;
    Ok((timer, at))
}
