/*!
The pace of reports about a wait: none at once, then few, and sooner after a change; a terminal's line is updated.
*/

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Instant, sleep_until};
use crate::report::Report;
use crate::report::event::Event;

/// A wait shorter than this is not reported.
const SILENCE: Duration = Duration::from_millis(400);
/// Interval at which the line on a terminal is updated.
const REFRESH: Duration = Duration::from_secs(1);
/// Times of the lines after the first one elsewhere, in seconds since the beginning of the wait; then the interval.
const LINES: [u64; 3] = [30, 60, 120];
const REPEAT: u64 = 300;

/// The change from one piece of news to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No change that is reported before the next line is due.
    None,
    /// Trouble with the backend has begun or ended.
    Trouble,
    /// The holders, or the parties that are there, have changed.
    Others,
}

/// The changes that have not been reported yet.
#[derive(Debug)]
pub(super) struct Changes {
    /// The least time between the last line and the report of other holders or parties.
    shortest: Duration,
    /// Notified when trouble begins or ends.
    turned: Notify,
    /// Notified when the holders or parties have changed.
    moved: Notify,
}

impl Changes {
    /// Starts without changes. Others are reported at least `shortest` after the last line, so as not to fill a log.
    pub(super) fn new(shortest: Duration) -> Self {
        Self { shortest, turned: Notify::new(), moved: Notify::new() }
    }

    /// Takes note of this change.
    pub(super) fn note(&self, change: Change) {
        match change {
            Change::None => {}
            Change::Trouble => self.turned.notify_one(),
            Change::Others => self.moved.notify_one(),
        }
    }
}

/// Reports a wait for as long as the future is polled. `event` gets the time waited so far, and returns the event that
/// describes the wait; `None` while nothing is known.
pub(super) async fn announce(
    report: &Report,
    changes: &Changes,
    event: impl Fn(Duration) -> Option<Event>,
) -> Infallible {
    let begun = Instant::now();
    let mut last = begun;
    sleep_until(begun + SILENCE).await;
    loop {
        let now = Instant::now();
        let waited = now.since(begun);
        let told = event(waited).map(|event| report.tell(&event)).is_some();
        if told {
            last = now;
        }
        let again = match (told, report.is_terminal()) {
            (false, _) => now + SILENCE,
            (true, true) => now + REFRESH,
            (true, false) => begun + next_line(waited),
        };
        let moved = async {
            sleep_until(last + changes.shortest).await;
            changes.moved.notified().await;
        };
        // An outage is reported when it begins; until then a reader of the log would blame the others.
        tokio::select! {
            () = sleep_until(again) => {}
            () = moved => {}
            () = changes.turned.notified() => sleep_until(Instant::now() + SILENCE).await,
        }
    }
}

/// Returns the time from the beginning of the wait to the next line, for output that is not updated in place.
fn next_line(waited: Duration) -> Duration {
    let first = LINES.into_iter().map(Duration::from_secs).find(|due| *due > waited);
    let repeated = || Duration::from_secs(LINES[2] + (waited.as_secs().saturating_sub(LINES[2]) / REPEAT + 1) * REPEAT);
    first.unwrap_or_else(repeated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_long_wait_are_rare() {
        for (waited, next) in [(0, 30), (29, 30), (30, 60), (60, 120), (119, 120), (120, 420), (420, 720), (7200, 7320)]
        {
            assert_eq!(next_line(Duration::from_secs(waited)), Duration::from_secs(next), "{waited}");
        }
        assert_eq!(next_line(Duration::from_millis(400)), Duration::from_secs(30));
    }
}
