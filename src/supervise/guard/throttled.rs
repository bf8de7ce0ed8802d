/*!
The CPU quota as the guard last saw it, and the time by which a stop has to begin earlier because of it.
*/

use std::time::Duration;

use crate::clock::Instant;
use crate::supervise::quota::{Load, Quota};

/// The shortest time between two looks at the quota, and the least lateness that is significant.
pub(super) const OFTEN: Duration = Duration::from_millis(100);

/// The guard's knowledge of a quota.
#[derive(Debug)]
pub(super) struct Throttled {
    pub(super) quota: Option<Quota>,
    pub(super) load: Load,
    /// The time of the next look; `None` without a quota.
    pub(super) look_at: Option<Instant>,
    /// The time when the processes were counted.
    pub(super) counted: Option<Instant>,
    /// The time when the lease was granted or renewed.
    pub(super) renewed: Instant,
    /// The time by which a stop begins earlier, as dlock was told.
    pub(super) told: Duration,
}

impl Throttled {
    pub(super) fn new() -> Self {
        Self {
            quota: None,
            load: Load::default(),
            look_at: None,
            counted: None,
            renewed: Instant::now(),
            told: Duration::ZERO,
        }
    }

    /// Returns the time by which a stop begins earlier under a lease of this length. If busy processes are only
    /// assumed, it is at most a quarter of the lease and one period.
    pub(super) fn earlier(&self, quota: &Quota, lease: Duration) -> Duration {
        let earlier = quota.earlier(&self.load);
        let is_assumed = self.load.busy == 0 && self.load.late < OFTEN;
        if is_assumed { earlier.min(lease / 4 + quota.period) } else { earlier }
    }
}

/// Returns the time to set for the next look, about `every`. The alarm then goes off a whole number of periods from
/// now: a moment at which the guard got a processor in this period is one at which the group has some in another
/// period.
pub(super) fn in_step(every: Duration, period: Duration) -> Duration {
    let periods = (every.as_micros() / period.as_micros().max(1)).max(1);
    period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX)) * 10 / 9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn looks_are_whole_periods_apart_when_the_alarm_is_a_tenth_early() {
        for (every, period, alarm) in [(250, 100, 200), (250, 500, 500), (1_000, 100, 1_000), (100, 0, 0)] {
            let early = in_step(MS * every, MS * period) * 9 / 10;
            assert_eq!(early.as_micros().div_ceil(1_000), alarm, "{every} {period}");
        }
    }

    #[test]
    fn what_is_only_assumed_takes_a_quarter_of_the_lease() {
        let quota = Quota { granted: MS * 10, period: MS * 100, exhausted: 0 };
        let mut throttled = Throttled::new();
        assert_eq!(throttled.earlier(&quota, MS * 4_000), MS * 1_100);
        throttled.load.late = MS * 300;
        assert_eq!(throttled.earlier(&quota, MS * 4_000), MS * 1_480);
    }
}
