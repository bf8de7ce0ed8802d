/*!
What happens during the wait for a lock: messages, and signals that end it.
*/

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Instant, sleep_until};
use crate::lease::waiting::WaitNews;
use crate::report::Report;
use crate::report::event::{Event, Hindrance, Lock};
use crate::supervise::reaping::reap;
use crate::supervise::signals::{Meaning, SignalStream, ends_waiting, meaning, suspend_self};

/// A wait shorter than this is not reported.
const SILENCE: Duration = Duration::from_millis(400);
/// How often the line on a terminal is brought up to date.
const REFRESH: Duration = Duration::from_secs(1);
/// How often a line is written elsewhere.
const REPEAT: Duration = Duration::from_secs(30);

/// The latest news of the wait, and when it came.
#[derive(Debug, Default)]
pub(super) struct LatestNews {
    latest: RefCell<Option<(WaitNews, Instant)>>,
    /// Notified when trouble begins or ends.
    turned: Notify,
}

impl LatestNews {
    /// Replaces the news.
    pub(super) fn set(&self, news: WaitNews) {
        let trouble = matches!(news, WaitNews::Trouble(_));
        let before = self.latest.replace(Some((news, Instant::now())));
        if before.is_some_and(|(before, _)| matches!(before, WaitNews::Trouble(_)) != trouble) {
            self.turned.notify_one();
        }
    }

    /// What is known now.
    fn hindrance(&self) -> Option<Hindrance> {
        let news = self.latest.borrow();
        Some(match news.as_ref()? {
            (WaitNews::Busy(busy), came) => {
                let age = u64::try_from(Instant::now().since(*came).as_millis()).unwrap_or_default();
                let (holder, now) = (busy.holder.clone(), busy.now.saturating_add(age));
                Hindrance::Held { holder, now, position: busy.position }
            }
            (WaitNews::Trouble(trouble), _) => Hindrance::Trouble(trouble.clone()),
        })
    }
}

/// Reports who holds the lock, for as long as it is polled.
pub(super) async fn announce(report: &Report, lock: &Lock, news: &LatestNews) -> Infallible {
    sleep_until(Instant::now() + SILENCE).await;
    loop {
        let state = news.hindrance().map(|why| Event::Waiting { lock: lock.clone(), why });
        let told = state.map(|state| report.tell(&state)).is_some();
        let again = match (told, report.is_terminal()) {
            (false, _) => SILENCE,
            (true, true) => REFRESH,
            (true, false) => REPEAT,
        };
        // An outage is reported when it begins; until then a reader of the log would blame the holder.
        tokio::select! {
            () = sleep_until(Instant::now() + again) => {}
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
