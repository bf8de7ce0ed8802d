/*!
How often waiters ask for what nobody tells them.
*/

use std::time::Duration;

/// How much longer a waiter goes without news for each entry in the queue.
const NEWS_PER_ENTRY: Duration = Duration::from_millis(100);

/// How often one of so many `entries` asks who holds the lock, although nothing has happened to the entry before its own:
/// as often as `usual` where they are few. What news cost grows with the number of entries, so a crowd of any size asks
/// for them ten times a second in all.
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
