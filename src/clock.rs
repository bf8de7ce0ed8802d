/*!
Time for leases: nobody can set or slew it, and it includes the time for which the machine was suspended.

It is `CLOCK_MONOTONIC_RAW`, which nobody slews, plus the time of suspends; or `CLOCK_BOOTTIME`, if that has advanced
further: a lease that is believed to be older than it is ends early, which is safe. Both are counted from the moment
when this program first read them, because their earlier difference says nothing about how fast they run now. A process
that is forked afterwards counts from the same moment, and so has the same clock.

The wall clock is only for people, tokens and records; nothing that decides how long a lease lasts may read it.
*/

use std::future::Future;
use std::ops::{Add, Sub};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};

use crate::readable::readable;

/// Timers are set to fire early by the remaining time divided by this, so that a clock slow by that much is not late.
const EARLY: u32 = 10;
/// Remaining times up to this long are not shortened: the lateness of a slow timer does not matter there.
const SHORT: Duration = Duration::from_millis(10);

/// The clocks as they were when this program first read them.
static ORIGIN: OnceLock<Reading> = OnceLock::new();

/// A reading of the kernel's clocks.
#[derive(Clone, Copy, Debug)]
struct Reading {
    raw: Duration,
    monotonic: Duration,
    boot: Duration,
}

impl Reading {
    /// Reads the clocks; `None` without `CLOCK_BOOTTIME`.
    fn take() -> Option<Self> {
        let read = |clock| clock_gettime(clock).map(Duration::from);
        // In this order, a pause between two reads only makes the result a later moment within this call, never one
        // outside it.
        let raw = read(ClockId::CLOCK_MONOTONIC_RAW);
        let monotonic = read(ClockId::CLOCK_MONOTONIC).ok()?;
        let boot = read(ClockId::CLOCK_BOOTTIME).ok()?;
        Some(Self { raw: raw.unwrap_or(monotonic), monotonic, boot })
    }

    /// Returns the time that no one slews, suspends included.
    fn steady(&self) -> Duration {
        (self.raw + self.boot).saturating_sub(self.monotonic)
    }

    /// Returns this program's time, counted from `origin`.
    fn instant(&self, origin: &Self) -> Instant {
        let steady = self.steady().saturating_sub(origin.steady());
        let boot = self.boot.saturating_sub(origin.boot);
        Instant(origin.boot + steady.max(boot))
    }
}

/// A point in time since the machine started, suspends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    /// Returns the current instant. A kernel without `CLOCK_BOOTTIME` (before 2.6.39) cannot run this program at all,
    /// so a failure reads as the end of time: every deadline has passed.
    #[must_use]
    pub(crate) fn now() -> Self {
        Reading::take().map_or(Self(Duration::MAX), |now| now.instant(ORIGIN.get_or_init(|| now)))
    }

    /// Returns the instant `nanos` nanoseconds after the machine started.
    #[must_use]
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Returns the nanoseconds since the machine started (enough for 584 years).
    #[must_use]
    pub(crate) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}

/// Returns microseconds since 1970 by the wall clock: the time part of a file lock's token, never of a lease.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub(crate) fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns milliseconds since 1970 by the wall clock: for display, never for a lease.
#[must_use]
pub(crate) fn wall_millis() -> u64 {
    wall_micros() / 1000
}

/// Returns the `duration` in whole milliseconds.
#[must_use]
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time since this machine started, suspends included, by the kernel's own clock: the same for all
/// processes, unlike [`Instant`].
#[must_use]
pub(crate) fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// Returns the processor time of this thread. Unlike elapsed time, it does not grow while other threads run.
#[must_use]
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// A kernel timer that can be awaited. It becomes readable at its instant or shortly before it, because the kernel
/// counts by `CLOCK_BOOTTIME`, which may be slow. The waiter then checks [`Instant::now`] and sets it again.
#[derive(Debug)]
pub(crate) struct Alarm(TimerFd);

impl Alarm {
    /// Makes an alarm that is not set. Fails if the process may open no more descriptors.
    pub(crate) fn new() -> nix::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        TimerFd::new(TimerClock::CLOCK_BOOTTIME, flags).map(Self)
    }

    /// Sets it for `at`, to go off at once if that has passed; `None` turns it off.
    pub(crate) fn set(&self, at: Option<Instant>) {
        // The only errors are those of an invalid time, which a clamped `Duration` cannot be. A zero time would turn
        // the alarm off, hence the floor of 1 ns.
        let _ = match at {
            Some(at) => {
                let due = Reading::take().map_or(Duration::ZERO, |now| {
                    let left = at.since(now.instant(ORIGIN.get_or_init(|| now)));
                    now.boot.saturating_add(timed(left))
                });
                let due = due.clamp(Duration::from_nanos(1), Duration::from_secs(1 << 40));
                let due = Expiration::OneShot(TimeSpec::from_duration(due));
                self.0.set(due, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            }
            None => self.0.unset(),
        };
    }
}

/// Returns the time to set a timer to when `left` remains: a little less, see [`EARLY`].
fn timed(left: Duration) -> Duration {
    if left > SHORT { left.saturating_sub(left / EARLY) } else { left }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Sleeps until `at`. Without a free descriptor for the timer it sleeps on tokio's clock, which differs only while the
/// machine is suspended: the guard's own timer was made at the start.
pub(crate) async fn sleep_until(at: Instant) {
    let alarm = Alarm::new().ok().and_then(|alarm| readable(alarm).ok());
    loop {
        match &alarm {
            Some(alarm) => {
                alarm.get_ref().set(Some(at));
                if let Ok(mut ready) = alarm.readable().await {
                    ready.clear_ready();
                }
            }
            None => pause(timed(at.since(Instant::now()))).await,
        }
        if Instant::now() >= at {
            return;
        }
    }
}

/// Waits for `length` by tokio's clock, which stands still while the machine is suspended and needs no descriptor: for
/// pauses between attempts, on which no lease depends.
#[expect(clippy::disallowed_methods, reason = "no lease depends on such a pause")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Runs `work` for at most `length`, by tokio's clock like [`pause`], then drops it. Only where no lease depends on it.
#[expect(clippy::disallowed_methods, reason = "no lease depends on such a time-out")]
pub(crate) async fn within<T>(length: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout(length, work).await.map_err(|_| Elapsed)
}

/// The error of a time-out.
#[derive(Debug)]
pub(crate) struct Elapsed;

/// Runs `work` until it is done or `at` has come, then drops it.
pub(crate) async fn before<T>(at: Instant, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = sleep_until(at) => Err(Elapsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn reading(raw: u32, monotonic: u32, boot: u32) -> Reading {
        Reading { raw: S * raw, monotonic: S * monotonic, boot: S * boot }
    }

    #[test]
    fn time_is_counted_by_whichever_clock_is_faster_and_includes_suspends() {
        // The machine slept for 50 s before the program began, and its clock had been slewed by 1000 s.
        let origin = reading(5000, 4000, 4050);
        for (passed, now) in [
            (0, origin),
            (100, reading(5100, 4100, 4150)),
            // Slewed: slow, then fast.
            (100, reading(5100, 4091, 4141)),
            (108, reading(5100, 4108, 4158)),
            // Suspended for 30 s meanwhile.
            (130, reading(5100, 4100, 4180)),
            (130, reading(5100, 4091, 4171)),
            // It never goes back to before the origin.
            (0, reading(4990, 3990, 4040)),
        ] {
            assert_eq!(now.instant(&origin), Instant(S * 4050 + S * passed), "{now:?}");
        }
    }

    #[test]
    fn a_thread_that_waits_takes_no_processor_time() {
        let (begun, used) = (Instant::now(), processor_time());
        let pause = Duration::from_millis(50);
        std::thread::sleep(pause);
        assert!(Instant::now().since(begun) >= pause && processor_time().saturating_sub(used) < pause);
    }

    #[test]
    fn a_clock_in_a_time_namespace_may_be_ahead_of_the_time_since_the_start() {
        let origin = reading(9000, 9000, 100);
        assert_eq!(reading(9007, 9007, 107).instant(&origin), Instant(S * 107));
    }

    #[test]
    fn a_timer_that_is_slow_by_a_tenth_is_not_late() {
        for left in [Duration::ZERO, SHORT, SHORT + Duration::from_nanos(1), S, 30 * S, Duration::MAX] {
            let real = timed(left).as_secs_f64() / 0.9;
            assert!(real <= left.max(SHORT).as_secs_f64() * 10.0 / 9.0 && timed(left) <= left, "{left:?}");
            assert!(left <= SHORT || real <= left.as_secs_f64() * 1.000_001, "{left:?}");
        }
    }

    #[test]
    fn sleep_ends_when_its_time_has_come_and_not_before() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        for millis in [0, 3, 120] {
            let at = Instant::now() + Duration::from_millis(millis);
            runtime.block_on(sleep_until(at));
            assert!(Instant::now() >= at);
        }
    }

    #[test]
    fn arithmetic_saturates_instead_of_panicking() {
        let early = Instant::from_nanos(5);
        let late = early + Duration::MAX;
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!((early - Duration::from_secs(1)).as_nanos(), 0);
        assert_eq!(late.as_nanos(), u64::MAX);
    }
}
