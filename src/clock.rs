/*!
Time as leases count it: `CLOCK_BOOTTIME`, which no one can set and which goes on while the machine is suspended.

The wall clock is only for people and for tokens; nothing that decides how long a lock is held may read it.
*/

use std::future::Future;
use std::ops::{Add, Sub};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};

use crate::readable::readable;

/// A point on `CLOCK_BOOTTIME`: the time since the machine started, suspend included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    /// Now. A kernel without `CLOCK_BOOTTIME` (before 2.6.39) cannot run this program at all, so a failure reads as
    /// the end of time: every deadline has passed.
    #[must_use]
    pub(crate) fn now() -> Self {
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Self(Duration::MAX), |now| Self(now.into()))
    }

    /// The instant `nanos` nanoseconds after the machine started.
    #[must_use]
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Nanoseconds since the machine started (enough for 584 years).
    #[must_use]
    pub(crate) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How long after `earlier` this is; zero when it is not after it.
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

/// Microseconds since 1970 by the wall clock: the time part of a file lock's token, never of a lease.
#[must_use]
pub(crate) fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A kernel timer on `CLOCK_BOOTTIME`, readable once its instant has come.
#[derive(Debug)]
pub(crate) struct Alarm(TimerFd);

impl Alarm {
    /// An alarm that is not set. Fails when the process may open no more descriptors.
    pub(crate) fn new() -> nix::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        TimerFd::new(TimerClock::CLOCK_BOOTTIME, flags).map(Self)
    }

    /// Sets it to go off at `at`, at once when that has passed; `None` turns it off.
    pub(crate) fn set(&self, at: Option<Instant>) {
        // The only errors are those of an invalid time, which a clamped `Duration` cannot be. A zero time would turn
        // the alarm off, hence the floor of 1 ns.
        let _ = match at {
            Some(Instant(at)) => {
                let at = at.clamp(Duration::from_nanos(1), Duration::from_secs(1 << 40));
                let at = Expiration::OneShot(TimeSpec::from_duration(at));
                self.0.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            }
            None => self.0.unset(),
        };
    }
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

/// Sleeps until `at` on `CLOCK_BOOTTIME`. Without a free descriptor for the timer it sleeps on tokio's clock, which
/// differs only while the machine is suspended: the guard's own timer was made at the start.
pub(crate) async fn sleep_until(at: Instant) {
    let alarm = Alarm::new().ok().and_then(|alarm| {
        alarm.set(Some(at));
        readable(alarm).ok()
    });
    match alarm {
        Some(alarm) => {
            let _ = alarm.readable().await;
        }
        None => tokio::time::sleep(at.since(Instant::now())).await,
    }
}

/// The answer to "did it finish in time": it did not.
#[derive(Debug)]
pub(crate) struct Elapsed;

/// Runs `work` until it is done or `at` has come; then it is dropped.
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

    #[test]
    fn arithmetic_saturates_instead_of_panicking() {
        let early = Instant::from_nanos(5);
        let late = early + Duration::MAX;
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!((early - Duration::from_secs(1)).as_nanos(), 0);
        assert_eq!(late.as_nanos(), u64::MAX);
    }
}
