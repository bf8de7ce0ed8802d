/*!
Periods in which a command is to succeed at most once (`--once-per`). They are numbered from 1970 on by the clock of the
asking host: cron starts jobs by that clock, so it tells for which occasion a job was started.
*/

use std::time::Duration;

/// The least time for which the last success is kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    /// The number of periods of this length between 1970 and its beginning.
    pub number: u64,
    /// Its length in milliseconds, never 0.
    pub length: u64,
}

impl Period {
    /// Returns the period of this `length` that contains `now`, in milliseconds since 1970.
    #[must_use]
    pub(crate) fn at(length: Duration, now: u64) -> Self {
        let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        Self { number: now / length, length }
    }

    /// Returns this period, or the nearest one that is at most one away from that of `now` by a service's clock: a host
    /// with a wrong clock must not use up the periods of others.
    #[must_use]
    pub(crate) fn near(self, now: u64) -> Self {
        let own = now / self.length;
        Self { number: self.number.clamp(own.saturating_sub(1), own.saturating_add(1)), ..self }
    }

    /// Returns the least time for which a success in it is remembered: two periods, as a clock may be one behind.
    #[must_use]
    pub(crate) fn remembered(self) -> Duration {
        Duration::from_millis(self.length.saturating_mul(2))
    }

    /// Returns the time for which the last success is kept for lookups, although it may no longer count.
    #[must_use]
    pub(crate) fn kept(self) -> Duration {
        self.remembered().max(KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn periods_are_multiples_of_their_length_since_1970() {
        let hour = Duration::from_millis(HOUR);
        for (now, number) in [(0, 0), (HOUR - 1, 0), (HOUR, 1), (490_885 * HOUR + 7, 490_885)] {
            assert_eq!(Period::at(hour, now), Period { number, length: HOUR }, "{now}");
        }
        assert_eq!(Period::at(Duration::ZERO, 7), Period { number: 7, length: 1 });
        assert_eq!((Period::at(hour, 5).remembered(), Period::at(hour, 5).kept()), (2 * hour, 720 * hour));
        assert_eq!(Period::at(720 * hour, 5).kept(), 1440 * hour);
    }

    #[test]
    fn a_wrong_clock_is_one_period_wrong_at_most() {
        let period = |number| Period { number, length: HOUR };
        for (number, now, expected) in [
            (100, 100 * HOUR, 100),
            (99, 100 * HOUR, 99),
            (101, 100 * HOUR, 101),
            (98, 100 * HOUR, 99),
            (0, 100 * HOUR, 99),
            (8860, 100 * HOUR, 101),
            (u64::MAX, 100 * HOUR, 101),
            (5, 0, 1),
            (0, 0, 0),
        ] {
            assert_eq!(period(number).near(now), period(expected), "{number} {now}");
        }
        assert_eq!(Period { number: 7, length: 1 }.near(u64::MAX).number, u64::MAX - 1);
    }
}
