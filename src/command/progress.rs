/*!
Reports about a wait at a latch or a barrier.
*/

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use crate::backend::meeting::Turnout;
use crate::command::pace::{self, Change, Changes};
use crate::lease::waiting::Trouble;
use crate::report::Report;
use crate::report::event::Event;
use crate::report::event::meeting::{MeetingEvent, Point};

/// The least time between the last line and the report of arrivals or departures: there may be hundreds of them.
const SHORTEST: Duration = Duration::from_secs(30);

/// The latest news of a wait.
#[derive(Debug)]
pub(super) struct Progress {
    latest: RefCell<Option<Result<Turnout, Trouble>>>,
    changes: Changes,
}

impl Default for Progress {
    fn default() -> Self {
        Self { latest: RefCell::default(), changes: Changes::new(SHORTEST) }
    }
}

impl Progress {
    /// Replaces the news.
    pub(super) fn set(&self, news: Result<Turnout, Trouble>) {
        let before = self.latest.replace(Some(news.clone()));
        self.changes.note(match (before, news) {
            (Some(Ok(before)), Ok(now)) if before != now => Change::Others,
            (Some(Ok(_)), Err(_)) | (Some(Err(_)), Ok(_)) => Change::Trouble,
            _ => Change::None,
        });
    }

    /// Reports the news, for as long as the future is polled. The wait at this `point` is for `many` arrivals.
    pub(super) async fn announce(&self, report: &Report, point: &Point, many: u64) -> Infallible {
        let event = |waited| {
            let news = self.latest.borrow().clone()?;
            Some(Event::Meeting(MeetingEvent::Waiting { point: point.clone(), wanted: many, news, waited }))
        };
        pace::announce(report, &self.changes, event).await
    }
}
