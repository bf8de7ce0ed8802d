/*!
A clock of one process, a server or dlock, that a test can change. The wall clock can be set, and the rate of all clocks
can be changed.

The process preloads a small library (`clock_shim.c`) that adds an offset to the kernel's time; its head says what it
leaves alone. It does not affect programs that do not ask the C library for the time, such as those written in Go.
*/

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use super::programs::compile_library;
use super::scratch;

/// An hour in seconds, as [`ClockShim::set`] wants it.
pub const HOUR: i64 = 3600;

/// The most that chronyd slews a clock, in parts per million.
pub const SLEW: i64 = 83_333;
/// One is a million parts.
const WHOLE: i64 = 1_000_000;

const LIBRARY_NAME: &str = "clock_shim.so";
const FILE_NAME: &str = "clock";

/// The library, compiled once for all tests of this process.
static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| compile_library(include_bytes!("clock_shim.c")));

/// The settings that the processes read: `struct settings` in `clock_shim.c`.
#[repr(C)]
struct Settings {
    version: AtomicI64,
    ahead: AtomicI64,
    rate: AtomicI64,
    since: AtomicI64,
    gained: AtomicI64,
    raw_too: AtomicI64,
}

/// What the clock showed from some moment on. All in nanoseconds, except for the rate, which is in parts per million.
#[derive(Clone, Copy)]
struct Span {
    /// That moment, by the true wall clock.
    from: i64,
    /// How far it was ahead then.
    ahead: i64,
    rate: i64,
}

/// The clock of every process that is started with [`Self::environment`], and of the processes that those start. At
/// first it is right.
///
/// Processes of every user can use it. A change takes effect in all of them at the same moment, while they run.
pub struct ClockShim {
    directory: TempDir,
    /// Shared with the processes.
    settings: NonNull<Settings>,
    /// Everything that it has ever shown.
    past: Mutex<Vec<Span>>,
}

// SAFETY: the settings are atomic, and exist as long as this.
unsafe impl Send for ClockShim {}
// SAFETY: the settings are atomic, and exist as long as this.
unsafe impl Sync for ClockShim {}

impl ClockShim {
    #[track_caller]
    pub fn new() -> Self {
        let directory = scratch::directory("dlock-clock-");
        let readable = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            // A step of its own, because the umask does not apply here.
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            path
        };
        readable(LIBRARY_NAME, &LIBRARY);
        let file =
            File::options().read(true).write(true).open(readable(FILE_NAME, &[0; size_of::<Settings>()])).unwrap();
        let (access, length) = (libc::PROT_READ | libc::PROT_WRITE, size_of::<Settings>());
        // SAFETY: a new mapping at a place of the kernel's choice.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert!(map != libc::MAP_FAILED, "cannot map a clock: {}", std::io::Error::last_os_error());
        Self { directory, settings: NonNull::new(map.cast()).unwrap(), past: Mutex::default() }
    }

    /// The environment variables that make a process use this clock.
    pub fn environment(&self) -> [(OsString, OsString); 2] {
        let path = |name: &str| Path::join(self.directory.path(), name).into_os_string();
        [("LD_PRELOAD".into(), path(LIBRARY_NAME)), ("CLOCK_SHIM_FILE".into(), path(FILE_NAME))]
    }

    /// Makes `command` use this clock.
    pub fn attach(&self, command: &mut Command) {
        command.envs(self.environment());
    }

    /// Whether the process `pid` itself uses this clock, and not only its future children.
    pub fn is_in(&self, pid: i32) -> bool {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let library = self.directory.path().join(LIBRARY_NAME).into_os_string().into_encoded_bytes();
        maps.windows(library.len()).any(|window| window == library)
    }

    /// Sets the wall clock to `seconds` ahead of true time, or of what its rate has made of that; a negative number is
    /// behind it.
    pub fn set(&self, seconds: i64) {
        self.change(|settings| settings.ahead.store(seconds, Ordering::SeqCst));
    }

    /// Moves the wall clock by `seconds` from where it is.
    pub fn step(&self, seconds: i64) {
        self.set(self.ahead() + seconds);
    }

    /// How many seconds [`Self::set`] has put it ahead of true time.
    pub fn ahead(&self) -> i64 {
        self.settings().ahead.load(Ordering::SeqCst)
    }

    /// Makes all clocks but `CLOCK_MONOTONIC_RAW` gain `rate` parts per million from now on, as chronyd does; a
    /// negative number makes them slow.
    pub fn slew(&self, rate: i64) {
        self.run(rate, false);
    }

    /// Makes all clocks gain `rate` parts per million from now on, `CLOCK_MONOTONIC_RAW` too: the oscillator itself is
    /// that fast.
    pub fn drift(&self, rate: i64) {
        self.run(rate, true);
    }

    /// The true length of an interval that begins now and takes `shown` by this clock.
    pub fn true_length(&self, shown: Duration) -> Duration {
        let nanos = i128::try_from(shown.as_nanos()).unwrap() * i128::from(WHOLE);
        let nanos = nanos / i128::from(WHOLE + self.settings().rate.load(Ordering::SeqCst));
        Duration::from_nanos(nanos.try_into().unwrap())
    }

    fn run(&self, rate: i64, raw_too: bool) {
        let now = nanos(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().into());
        self.change(|settings| {
            let gained = gain(now - settings.since.load(Ordering::SeqCst), settings.rate.load(Ordering::SeqCst));
            settings.gained.fetch_add(gained, Ordering::SeqCst);
            settings.since.store(now, Ordering::SeqCst);
            settings.rate.store(rate, Ordering::SeqCst);
            settings.raw_too.store(raw_too.into(), Ordering::SeqCst);
        });
    }

    fn settings(&self) -> &Settings {
        // SAFETY: mapped until this is dropped and aligned to a page; everyone else only reads it.
        unsafe { self.settings.as_ref() }
    }

    fn change(&self, change: impl FnOnce(&Settings)) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = self.settings();
        if past.is_empty() {
            past.push(RIGHT);
        }
        settings.version.fetch_add(1, Ordering::SeqCst);
        change(settings);
        // Before anyone can see the new time.
        past.push(self.span(settings));
        settings.version.fetch_add(1, Ordering::SeqCst);
    }

    /// What the clock shows from now on.
    fn span(&self, settings: &Settings) -> Span {
        let from = nanos(clock_gettime(ClockId::CLOCK_REALTIME).unwrap().into());
        let monotonic = nanos(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().into());
        let rate = settings.rate.load(Ordering::SeqCst);
        let gained =
            settings.gained.load(Ordering::SeqCst) + gain(monotonic - settings.since.load(Ordering::SeqCst), rate);
        Span { from, ahead: self.ahead() * 1_000_000_000 + gained, rate }
    }

    /// When this clock showed `shown` (since 1970), by the true clock, where `now` is by the true clock too: of all
    /// possible moments, the latest that is not after `now`, give or take a second.
    pub fn true_time(&self, shown: Duration, now: Duration) -> Duration {
        let (shown, now) = (nanos(shown), nanos(now));
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let past = if past.is_empty() { &[RIGHT][..] } else { &past };
        let ends = past.iter().skip(1).map(|span| span.from).chain([now]);
        let meant = past.iter().zip(ends).map(|(span, end)| (span.true_time(shown), span.from, end));
        let meant: Vec<_> = meant.filter(|(meant, ..)| *meant <= now + 1_000_000_000).collect();
        // Where it showed that at that moment, which is not known exactly.
        let then = meant.iter().filter(|(meant, from, end)| (*from - NEAR..=*end + NEAR).contains(meant));
        let meant = then.max().or(meant.iter().max()).expect("a time that this clock has not shown yet").0;
        Duration::from_nanos(meant.min(now).try_into().unwrap())
    }
}

/// How exactly the moment of a change is known, in nanoseconds.
const NEAR: i64 = 5_000_000;
/// A clock that was never changed.
const RIGHT: Span = Span { from: 0, ahead: 0, rate: 0 };

impl Span {
    fn true_time(self, shown: i64) -> i64 {
        if self.rate == 0 {
            return shown - self.ahead;
        }
        let since = i128::from(shown) - i128::from(self.ahead) - i128::from(self.from);
        self.from + i64::try_from(since * i128::from(WHOLE) / i128::from(WHOLE + self.rate)).unwrap()
    }
}

/// What a clock of this rate gains in `nanos` nanoseconds.
fn gain(nanos: i64, rate: i64) -> i64 {
    i64::try_from(i128::from(nanos) * i128::from(rate) / i128::from(WHOLE)).unwrap()
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap()
}

impl Drop for ClockShim {
    fn drop(&mut self) {
        // SAFETY: mapped above with this length, and nothing points there any more.
        unsafe { libc::munmap(self.settings.as_ptr().cast(), size_of::<Settings>()) };
    }
}
