/*!
The interval at which waiters ask for news that the service does not report.
*/

use std::time::Duration;

/// The interval that each entry in the queue costs a waiter.
const NEWS_PER_ENTRY: Duration = Duration::from_millis(100);

/// Returns the interval at which a waiter asks for the holder if the entry before its own does not change: `usual` for
/// few `entries`. More entries make an answer cost more, so all waiters together ask ten times a second at most.
#[must_use]
pub(crate) fn news_every(usual: Duration, entries: u64) -> Duration {
    usual.max(NEWS_PER_ENTRY.saturating_mul(entries.try_into().unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_asked_for_the_less_often_the_more_wait() {
        let usual = Duration::from_secs(10);
        for (entries, expected) in [(0, 10), (2, 10), (100, 10), (500, 50), (2500, 250)] {
            assert_eq!(news_every(usual, entries), Duration::from_secs(expected), "{entries}");
        }
        assert!(news_every(usual, u64::MAX) > Duration::from_secs(1 << 28));
    }
}
