/*!
Reports about the wait for a lock: its holder and how long that has held it, or the trouble with the backend.
*/

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use crate::clock::Instant;
use crate::command::pace::{self, Change, Changes};
use crate::holder::Holder;
use crate::key::Key;
use crate::lease::waiting::WaitNews;
use crate::report::Report;
use crate::report::event::{Blocker, Event, Lock};

/// The shortest time between a line and the report of a new holder: a queue of short jobs must not fill a log.
const SHORTEST: Duration = Duration::from_secs(5);

/// The latest news of the wait: its lock, and the time when it came.
pub(super) struct LatestNews<'a> {
    report: &'a Report,
    /// The URL of the backend, without a password.
    place: String,
    begun: Instant,
    latest: RefCell<Option<(Key, WaitNews, Instant)>>,
    changes: Changes,
}

impl<'a> LatestNews<'a> {
    /// Starts the news of a wait that begins now, at this backend.
    pub(super) fn new(report: &'a Report, place: String) -> Self {
        Self { report, place, begun: Instant::now(), latest: RefCell::default(), changes: Changes::new(SHORTEST) }
    }

    /// Replaces the news with that of the lock `key`. The journal gets the first news and every change.
    pub(super) fn set(&self, key: &Key, news: WaitNews) {
        let change = self.latest.borrow().as_ref().map(|(of, before, _)| match change(before, &news) {
            // Another lock has another holder.
            Change::None if of != key => Change::Others,
            change => change,
        });
        self.latest.replace(Some((key.clone(), news, Instant::now())));
        self.changes.note(change.unwrap_or(Change::None));
        if change != Some(Change::None)
            && let Some(event) = self.event(Instant::now().since(self.begun))
        {
            self.report.note(&event);
        }
    }

    /// Returns the state of the wait after `waited`, if it is known.
    fn event(&self, waited: Duration) -> Option<Event> {
        let (key, why) = self.blocker()?;
        Some(Event::Waiting {
            lock: Lock { key: key.into(), place: self.place.clone(), flags: String::new() },
            why,
            waited,
        })
    }

    /// Returns the missing lock and the reason, if they are known.
    fn blocker(&self) -> Option<(Key, Blocker)> {
        let news = self.latest.borrow();
        let (key, news, came) = news.as_ref()?;
        let why = match news {
            WaitNews::Busy(busy) => {
                let age = u64::try_from(Instant::now().since(*came).as_millis()).unwrap_or_default();
                let (holder, now) = (busy.holder.clone(), busy.now.saturating_add(age));
                Blocker::Held { holder, beside: busy.beside, now, position: busy.position, queued: false }
            }
            WaitNews::Trouble(trouble) => Blocker::Trouble(trouble.clone()),
        };
        Some((key.clone(), why))
    }
}

fn change(before: &WaitNews, now: &WaitNews) -> Change {
    match (before, now) {
        (WaitNews::Busy(before), WaitNews::Busy(now)) => {
            let same = match (&before.holder, &now.holder) {
                (Holder::Dlock(before), Holder::Dlock(now)) => (&before.id, before.done) == (&now.id, now.done),
                (before, now) => before == now,
            };
            if same { Change::None } else { Change::Others }
        }
        (WaitNews::Trouble(_), WaitNews::Trouble(_)) => Change::None,
        _ => Change::Trouble,
    }
}

/// Reports the holder of the awaited lock, for as long as the future is polled.
pub(super) async fn announce(news: &LatestNews<'_>) -> Infallible {
    pace::announce(news.report, &news.changes, |waited| news.event(waited)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::contract::contender::Busy;
    use crate::holder::Holder;
    use crate::lease::waiting::Trouble;

    #[test]
    fn what_has_changed() {
        let held = |holder| WaitNews::Busy(Busy { holder, beside: 0, position: None, now: 0 });
        let dlock = |id: &str, pid: u32| held(Holder::read(format!(r#"{{"v":1,"id":"{id}","pid":{pid}}}"#).as_bytes()));
        let flock = |pid| held(Holder::Process(pid, "flock".to_owned()));
        let trouble = |text: &str| WaitNews::Trouble(Trouble::Said(text.to_owned()));
        for (before, now, expected) in [
            (dlock("a", 1), dlock("a", 2), Change::None),
            (dlock("a", 1), dlock("b", 1), Change::Others),
            (dlock("a", 1), flock(7), Change::Others),
            (flock(7), flock(7), Change::None),
            (flock(7), flock(8), Change::Others),
            (flock(7), trouble("x"), Change::Trouble),
            (trouble("x"), trouble("y"), Change::None),
            (trouble("x"), flock(7), Change::Trouble),
        ] {
            assert_eq!(change(&before, &now), expected, "{before:?} {now:?}");
        }
    }
}
