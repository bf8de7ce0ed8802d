/*!
Reporting how a wait at a latch or a barrier goes on: not at once, and then rarely.
*/

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Instant, sleep_until};
use crate::meeting::news::News;
use crate::report::Report;
use crate::report::event::Event;
use crate::report::event::meeting::{MeetingEvent, Point};

/// A wait shorter than this is not reported.
const SILENCE: Duration = Duration::from_millis(400);
/// How often the line on a terminal is brought up to date.
const REFRESH: Duration = Duration::from_secs(1);
/// When lines are written elsewhere, after the first one, in seconds since the beginning of the wait; and then how often.
const LINES: [u64; 3] = [30, 60, 120];
const REPEAT: u64 = 300;
/// News are reported before the next line is due, but not sooner after the last one than this.
const SHORTEST: Duration = Duration::from_secs(30);

/// The latest news of a wait.
#[derive(Debug, Default)]
pub(super) struct Progress {
    latest: RefCell<Option<News>>,
    /// Notified when trouble begins or ends.
    turned: Notify,
    /// Notified when there are others than before.
    moved: Notify,
}

impl Progress {
    /// Replaces the news.
    pub(super) fn set(&self, news: News) {
        let before = self.latest.replace(Some(news.clone()));
        match (before, news) {
            (Some(News::Turnout(before)), News::Turnout(now)) if before != now => self.moved.notify_one(),
            (Some(News::Turnout(_)), News::Trouble(_)) | (Some(News::Trouble(_)), News::Turnout(_)) => {
                self.turned.notify_one();
            }
            _ => {}
        }
    }

    /// Reports the news, for as long as it is polled. The wait at this `point` is for so `many`.
    pub(super) async fn announce(&self, report: &Report, point: &Point, many: u64) -> Infallible {
        let begun = Instant::now();
        let mut last = begun;
        sleep_until(begun + SILENCE).await;
        loop {
            let now = Instant::now();
            let waited = now.since(begun);
            let news = self.latest.borrow().clone();
            let has_news = news.is_some();
            if let Some(news) = news {
                let event = MeetingEvent::Waiting { point: point.clone(), wanted: many, news, waited };
                report.tell(&Event::Meeting(event));
                last = now;
            }
            let again = match (has_news, report.is_terminal()) {
                (false, _) => now + SILENCE,
                (true, true) => now + REFRESH,
                (true, false) => begun + next_line(waited),
            };
            let moved = async {
                sleep_until(last + SHORTEST).await;
                self.moved.notified().await;
            };
            // An outage is reported when it begins.
            tokio::select! {
                () = sleep_until(again) => {}
                () = moved => {}
                () = self.turned.notified() => sleep_until(Instant::now() + SILENCE).await,
            }
        }
    }
}

/// When the next line is due where it is not kept up to date, as the time since the beginning of the wait.
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
    }
}
