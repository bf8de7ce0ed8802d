//! Meeting other processes: "ready" is a message, "go on" is a message, "dead" is an end-of-file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::mkfifo;

/// How long any wait may take before it fails the test.
pub const CAP: Duration = Duration::from_secs(30);

/// The shortest pause between two looks where there is no event to wait for.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest one: looks that come to nothing would take the processor away from what is waited for.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The clock by which leases are measured: time since boot, suspend included.
pub fn boottime() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap())
}

/// Calls `look` again and again until it returns something; fails the test after [`CAP`], naming `what` never came.
#[track_caller]
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    eventually_within(CAP, look).unwrap_or_else(|| panic!("timed out after {CAP:?} waiting for {what}"))
}

/// Calls `look` again and again until it returns something; returns `None` if it does not within `cap`.
pub fn eventually_within<T>(cap: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        // Taken before looking, so that a machine that stalls in between still gets its last look.
        let waited = start.elapsed();
        if let Some(answer) = look() {
            return Some(answer);
        }
        if waited >= cap {
            return None;
        }
        thread::sleep((waited / 32).clamp(PAUSE, LONGEST_PAUSE));
    }
}

/// Sleeps until `end`, by [`boottime`], so that a fault lasts that long. Not for waiting: there are events for that.
pub fn last_until(end: Duration) {
    while let Some(left) = end.checked_sub(boottime()).filter(|left| !left.is_zero()) {
        thread::sleep(left);
    }
}

/// A named pipe through which commands send words to the test, one per line.
///
/// Every user may write to it. Words are never lost: they wait in the pipe, in the order in which they were written.
pub struct Fifo {
    path: PathBuf,
    pipe: File,
    read: Vec<u8>,
}

impl Fifo {
    /// Creates the pipe at `path`, which must not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        make_fifo(&path);
        // Opened before anyone can write, so that no writer waits for the test, and without waiting for one.
        let pipe = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        Self { path, pipe, read: Vec::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Shell code that writes `word`.
    pub fn say(&self, word: &str) -> String {
        format!("echo {word} > '{}'", self.path.display())
    }

    /// Waits for the next word from any writer.
    #[track_caller]
    pub fn word(&mut self) -> String {
        let start = Instant::now();
        loop {
            if let Some(word) = self.try_word() {
                return word;
            }
            let left = CAP.checked_sub(start.elapsed());
            let left = left
                .unwrap_or_else(|| panic!("timed out after {CAP:?} waiting for a word from {}", self.path.display()));
            if self.poll(left).contains(PollFlags::POLLHUP) {
                // All writers so far are gone, which stays an event until another process opens the pipe.
                thread::sleep(PAUSE);
            }
        }
    }

    /// Waits for the next word, which must be this one.
    #[track_caller]
    pub fn expect(&mut self, word: &str) {
        assert_eq!(self.word(), word, "from {}", self.path.display());
    }

    /// The next word if it has been written already.
    pub fn try_word(&mut self) -> Option<String> {
        if !self.read.contains(&b'\n') {
            self.read_available();
        }
        let end = self.read.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.read.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Waits until every process that had the pipe open for writing has closed it or is dead; returns the words that
    /// were left. A process must have opened it before, or must still do so.
    #[track_caller]
    pub fn closed(&mut self) -> Vec<String> {
        let start = Instant::now();
        loop {
            let left = CAP.checked_sub(start.elapsed());
            let left = left
                .unwrap_or_else(|| panic!("timed out after {CAP:?} waiting for the end of {}", self.path.display()));
            let events = self.poll(left);
            self.read_available();
            if events.contains(PollFlags::POLLHUP) {
                return std::iter::from_fn(|| self.try_word()).collect();
            }
        }
    }

    fn poll(&self, cap: Duration) -> PollFlags {
        let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::try_from(cap).unwrap());
        fds[0].revents().unwrap_or(PollFlags::empty())
    }

    fn read_available(&mut self) {
        match self.pipe.read_to_end(&mut self.read) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("cannot read {}: {error}", self.path.display()),
        }
    }
}

/// A named pipe at which commands wait until the test lets them go on.
///
/// When the gate is dropped, all commands that wait there go on too (their `read` fails).
pub struct Gate {
    path: PathBuf,
    pipe: File,
}

impl Gate {
    /// Creates the gate at `path`, which must not exist. It is closed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        make_fifo(&path);
        // With both ends in one hand, neither the test nor a waiting command ever blocks in open.
        let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Self { path, pipe }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Shell code that waits at the gate.
    pub fn wait(&self) -> String {
        format!("read -r _ < '{}'", self.path.display())
    }

    /// Lets one command through: one that waits, or the next to come.
    pub fn open(&self) {
        (&self.pipe).write_all(b"\n").unwrap();
    }
}

/// Creates a named pipe that every user may use.
pub fn make_fifo(path: &Path) {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap_or_else(|error| panic!("mkfifo {}: {error}", path.display()));
    // A step of its own, because the umask does not apply here.
    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
}

/// Tells exactly when the last process of a tree is gone.
///
/// The tree inherits the write end of a pipe, and the kernel closes that with the last of them: no process has to be
/// found or asked, and one that moved to another session, parent or user counts too. A process that closes unknown
/// descriptors (dlock and its guard do, as does Python's `subprocess`) does not count.
pub struct Lifeline {
    closed: Arc<(Mutex<Option<Duration>>, Condvar)>,
}

/// The end of a [`Lifeline`] that a process tree holds. As long as one of these exists, the line is open.
pub struct LifelineEnd(OwnedFd);

impl Lifeline {
    /// A lifeline, and the end to pass to a process.
    pub fn pair() -> (Self, LifelineEnd) {
        let (mut reader, writer) = io::pipe().unwrap();
        let closed = Arc::new((Mutex::new(None), Condvar::new()));
        let shared = Arc::clone(&closed);
        thread::spawn(move || {
            go_first();
            let mut ignored = [0; 512];
            while reader.read(&mut ignored).is_ok_and(|length| length > 0) {}
            *shared.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(boottime());
            shared.1.notify_all();
        });
        (Self { closed }, LifelineEnd(writer.into()))
    }

    /// Waits until the last process that held the line is gone; returns when that was, by [`boottime`]. Never too
    /// early, and late only by the time it takes to wake a thread.
    #[track_caller]
    pub fn closed_at(&self) -> Duration {
        let (closed, changed) = &*self.closed;
        let (at, _) = changed.wait_timeout_while(closed.lock().unwrap(), CAP, |at| at.is_none()).unwrap();
        at.unwrap_or_else(|| panic!("timed out after {CAP:?} waiting for the last process of the tree to go"))
    }

    /// Whether any process still holds the line.
    pub fn is_open(&self) -> bool {
        self.closed.0.lock().unwrap().is_none()
    }
}

/// Lets this thread run before all others as soon as it has something to do, where that is allowed (as root): what it
/// measures must not be the load of the machine.
pub fn go_first() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: a system call that reads a struct on the stack; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
}

impl LifelineEnd {
    /// Makes processes that `command` starts inherit this end, as a descriptor above 99, where no shell has its own. It
    /// stays open until `command` is dropped too.
    pub fn attach(self, command: &mut Command) {
        let inherit = move || {
            // SAFETY: fcntl is async-signal-safe, and the descriptor lives as long as this closure.
            let copy = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_DUPFD, 100) };
            if copy < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        // SAFETY: the closure makes one system call and does not allocate.
        unsafe { command.pre_exec(inherit) };
    }

    /// Another end of the same line, for another tree.
    pub fn another(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }
}
