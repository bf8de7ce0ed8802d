/*!
A wall clock that a test moves, of one process: of a server, or of dlock.

A small library that the process preloads (`clock_shim.c`) adds to what the kernel says; see there what it leaves alone.
Programs that do not ask the C library for the time, as those in Go, are out of its reach.
*/

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use super::daemon::need;
use super::scratch;

/// An hour in seconds, as [`ClockShim::set`] wants it.
pub const HOUR: i64 = 3600;

const LIBRARY_NAME: &str = "clock_shim.so";
const FILE_NAME: &str = "clock";

/// The library, compiled once for all tests of this process.
static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = scratch::directory("dlock-clock-");
    let library = directory.path().join(LIBRARY_NAME);
    let mut compiler = Command::new(need("cc", "gcc libc6-dev"));
    compiler.args(["-x", "c", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&library).arg("-");
    let mut compiler = compiler.stdin(Stdio::piped()).spawn().unwrap();
    compiler.stdin.take().unwrap().write_all(include_bytes!("clock_shim.c")).unwrap();
    assert!(compiler.wait().unwrap().success(), "cannot compile clock_shim.c");
    fs::read(library).unwrap()
});

/// The wall clock of every process that is started with [`Self::environment`], and of what that starts in turn: right at
/// first.
///
/// Processes of every user can have it. It moves for all of them at the same moment, back too, while they run.
pub struct ClockShim {
    directory: TempDir,
    /// Shared with the processes.
    seconds: NonNull<AtomicI64>,
    /// All that it was ever set to.
    past: Mutex<Vec<i64>>,
}

// SAFETY: what it points to is atomic, and is there as long as this.
unsafe impl Send for ClockShim {}
// SAFETY: the same.
unsafe impl Sync for ClockShim {}

impl ClockShim {
    #[track_caller]
    pub fn new() -> Self {
        let directory = scratch::directory("dlock-clock-");
        let readable = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            // Apart from making it, because the umask does not apply here.
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            path
        };
        readable(LIBRARY_NAME, &LIBRARY);
        let file = File::options().read(true).write(true).open(readable(FILE_NAME, &[0; 8])).unwrap();
        let (access, length) = (libc::PROT_READ | libc::PROT_WRITE, size_of::<AtomicI64>());
        // SAFETY: a new mapping at a place of the kernel's choice.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert!(map != libc::MAP_FAILED, "cannot map a clock: {}", std::io::Error::last_os_error());
        Self { directory, seconds: NonNull::new(map.cast()).unwrap(), past: Mutex::new(vec![0]) }
    }

    /// What a process needs in its environment to go by this clock.
    pub fn environment(&self) -> [(OsString, OsString); 2] {
        let path = |name: &str| Path::join(self.directory.path(), name).into_os_string();
        [("LD_PRELOAD".into(), path(LIBRARY_NAME)), ("CLOCK_SHIM_FILE".into(), path(FILE_NAME))]
    }

    /// Lets `command` go by this clock.
    pub fn attach(&self, command: &mut Command) {
        command.envs(self.environment());
    }

    /// Whether the process `pid` goes by this clock, and not only its children will.
    pub fn is_in(&self, pid: i32) -> bool {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let library = self.directory.path().join(LIBRARY_NAME).into_os_string().into_encoded_bytes();
        maps.windows(library.len()).any(|window| window == library)
    }

    /// Makes the clock so many seconds ahead of the true time; less than 0 is behind it.
    pub fn set(&self, seconds: i64) {
        // Before anybody can see the new time.
        self.past.lock().unwrap_or_else(PoisonError::into_inner).push(seconds);
        // SAFETY: mapped until this is dropped, aligned to a page, and everybody else only reads it.
        unsafe { self.seconds.as_ref() }.store(seconds, Ordering::SeqCst);
    }

    /// Moves the clock by so many seconds from where it is.
    pub fn step(&self, seconds: i64) {
        self.set(self.ahead() + seconds);
    }

    /// By how many seconds it is ahead of the true time.
    pub fn ahead(&self) -> i64 {
        // SAFETY: as above.
        unsafe { self.seconds.as_ref() }.load(Ordering::SeqCst)
    }

    /// When it was `shown` (since 1970) by this clock, by the true one, where `now` is by the true one too: of all that
    /// it can have been, the latest moment that is not after `now`, give or take a second.
    pub fn true_time(&self, shown: Duration, now: Duration) -> Duration {
        let shown = i64::try_from(shown.as_nanos()).unwrap();
        let now = i64::try_from(now.as_nanos()).unwrap();
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let meant =
            past.iter().map(|seconds| shown - seconds * 1_000_000_000).filter(|meant| *meant <= now + 1_000_000_000);
        let meant = meant.max().expect("a time that this clock has not shown yet");
        Duration::from_nanos(meant.min(now).try_into().unwrap())
    }
}

impl Drop for ClockShim {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and nothing points there any more.
        unsafe { libc::munmap(self.seconds.as_ptr().cast(), size_of::<AtomicI64>()) };
    }
}
