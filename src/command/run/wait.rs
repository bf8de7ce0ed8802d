/*!
What happens during the wait for a lock: messages, and signals that end it.
*/

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Instant, sleep_until};
use crate::holder::Holder;
use crate::key::Key;
use crate::lease::waiting::WaitNews;
use crate::report::Report;
use crate::report::event::{Event, Hindrance};
use crate::settings::RunSettings;
use crate::supervise::reaping::reap;
use crate::supervise::signals::{Meaning, SignalStream, ends_waiting, meaning, suspend_self};

/// A wait shorter than this is not reported.
const SILENCE: Duration = Duration::from_millis(400);
/// How often the line on a terminal is brought up to date.
const REFRESH: Duration = Duration::from_secs(1);
/// When lines are written elsewhere, after the first one, in seconds since the beginning of the wait; and then how often.
const LINES: [u64; 3] = [30, 60, 120];
const REPEAT: u64 = 300;
/// A new holder is reported before the next line is due, but not sooner after the last one than this.
const SHORTEST: Duration = Duration::from_secs(30);

/// The latest news of the wait: of which lock, and when it came.
#[derive(Debug, Default)]
pub(super) struct LatestNews {
    latest: RefCell<Option<(Key, WaitNews, Instant)>>,
    /// Notified when trouble begins or ends.
    turned: Notify,
    /// Notified when the holder changes.
    passed_on: Notify,
}

impl LatestNews {
    /// Replaces the news by that of the lock `key`.
    pub(super) fn set(&self, key: &Key, news: WaitNews) {
        let before = self.latest.borrow().as_ref().map(|(of, before, _)| match change(before, &news) {
            // Another lock has another holder.
            Change::None if of != key => Change::Holder,
            change => change,
        });
        self.latest.replace(Some((key.clone(), news, Instant::now())));
        match before {
            Some(Change::Trouble) => self.turned.notify_one(),
            Some(Change::Holder) => self.passed_on.notify_one(),
            Some(Change::None) | None => {}
        }
    }

    /// Which lock is missing and why, as far as it is known now.
    fn hindrance(&self) -> Option<(Key, Hindrance)> {
        let news = self.latest.borrow();
        let (key, news, came) = news.as_ref()?;
        let why = match news {
            WaitNews::Busy(busy) => {
                let age = u64::try_from(Instant::now().since(*came).as_millis()).unwrap_or_default();
                let (holder, now) = (busy.holder.clone(), busy.now.saturating_add(age));
                Hindrance::Held { holder, beside: busy.beside, now, position: busy.position, queued: false }
            }
            WaitNews::Trouble(trouble) => Hindrance::Trouble(trouble.clone()),
        };
        Some((key.clone(), why))
    }
}

/// What has changed from one piece of news to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Nothing that is reported at once.
    None,
    /// Trouble has begun or ended.
    Trouble,
    /// There is another holder.
    Holder,
}

fn change(before: &WaitNews, now: &WaitNews) -> Change {
    match (before, now) {
        (WaitNews::Busy(before), WaitNews::Busy(now)) => {
            let same = match (&before.holder, &now.holder) {
                (Holder::Dlock(before), Holder::Dlock(now)) => (&before.id, before.done) == (&now.id, now.done),
                (before, now) => before == now,
            };
            if same { Change::None } else { Change::Holder }
        }
        (WaitNews::Trouble(_), WaitNews::Trouble(_)) => Change::None,
        _ => Change::Trouble,
    }
}

/// When the next line is due where it is not kept up to date, as the time since the beginning of the wait.
fn next_line(waited: Duration) -> Duration {
    let first = LINES.into_iter().map(Duration::from_secs).find(|due| *due > waited);
    let repeated = || Duration::from_secs(LINES[2] + (waited.as_secs().saturating_sub(LINES[2]) / REPEAT + 1) * REPEAT);
    first.unwrap_or_else(repeated)
}

/// Reports who holds the lock that is waited for, for as long as it is polled.
pub(super) async fn announce(report: &Report, settings: &RunSettings, news: &LatestNews) -> Infallible {
    let begun = Instant::now();
    let mut last = begun;
    sleep_until(begun + SILENCE).await;
    loop {
        let now = Instant::now();
        let waited = now.since(begun);
        let state = news.hindrance().map(|(key, why)| Event::Waiting { lock: settings.lock_of(key), why, waited });
        let told = state.map(|state| report.tell(&state)).is_some();
        if told {
            last = now;
        }
        let again = match (told, report.is_terminal()) {
            (false, _) => now + SILENCE,
            (true, true) => now + REFRESH,
            (true, false) => begun + next_line(waited),
        };
        let passed_on = async {
            sleep_until(last + SHORTEST).await;
            news.passed_on.notified().await;
        };
        // An outage is reported when it begins; until then a reader of the log would blame the holder.
        tokio::select! {
            () = sleep_until(again) => {}
            () = passed_on => {}
            () = news.turned.notified() => sleep_until(Instant::now() + SILENCE).await,
        }
    }
}

/// Waits for a signal that ends the wait, and returns its number. Continues a `guard` that was stopped.
pub(super) async fn told_to_stop(signals: &mut SignalStream, guard: libc::pid_t) -> i32 {
    loop {
        let info = signals.next().await;
        if let Some(signal) = ends_waiting(&info) {
            return signal as i32;
        }
        match meaning(&info) {
            Meaning::Suspend => suspend_self(),
            Meaning::Child => drop(reap(guard)),
            Meaning::Forward(_) | Meaning::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Busy;
    use crate::holder::Holder;
    use crate::lease::waiting::Trouble;

    #[test]
    fn lines_of_a_long_wait_are_rare() {
        for (waited, next) in [(0, 30), (29, 30), (30, 60), (60, 120), (119, 120), (120, 420), (420, 720), (7200, 7320)]
        {
            assert_eq!(next_line(Duration::from_secs(waited)), Duration::from_secs(next), "{waited}");
        }
        assert_eq!(next_line(Duration::from_millis(400)), Duration::from_secs(30));
    }

    #[test]
    fn what_has_changed() {
        let held = |holder| WaitNews::Busy(Busy { holder, beside: 0, position: None, now: 0 });
        let dlock = |id: &str, pid: u32| held(Holder::read(format!(r#"{{"v":1,"id":"{id}","pid":{pid}}}"#).as_bytes()));
        let flock = |pid| held(Holder::Process(pid, "flock".to_owned()));
        let trouble = |text: &str| WaitNews::Trouble(Trouble::Said(text.to_owned()));
        for (before, now, expected) in [
            (dlock("a", 1), dlock("a", 2), Change::None),
            (dlock("a", 1), dlock("b", 1), Change::Holder),
            (dlock("a", 1), flock(7), Change::Holder),
            (flock(7), flock(7), Change::None),
            (flock(7), flock(8), Change::Holder),
            (flock(7), trouble("x"), Change::Trouble),
            (trouble("x"), trouble("y"), Change::None),
            (trouble("x"), flock(7), Change::Trouble),
        ] {
            assert_eq!(change(&before, &now), expected, "{before:?} {now:?}");
        }
    }
}
