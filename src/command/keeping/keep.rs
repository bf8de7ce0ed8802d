/*!
Keeps a lock until a process has ended, and all runs under the lock's handle: renews it, stops them if it is lost, and
releases it at the end.
*/

use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::unbounded_channel;

use crate::backend::contract::contender::{Contender, Grant, Lease, Released, Used};
use crate::cli::OnLost;
use crate::clock::{Instant, sleep_until};
use crate::command::keeping::runs::Runs;
use crate::command::losing::{Change, Reliance, deadline};
use crate::command::traces::Traces;
use crate::exit::{Exit, Failure};
use crate::here;
use crate::lease::keeper;
use crate::lease::renewal::LeaseNews;
use crate::lease::taking::give_back;
use crate::lease::timing::Schedule;
use crate::report::Report;
use crate::report::event::{Event, Loss};
use crate::settings::{AcquireSettings, Keeping};
use crate::supervise::signals::SignalStream;
use crate::supervise::stop::{Ladder, Step};
use crate::supervise::watched::Watched;

/// Interval at which SIGKILL is sent again to a process that has not ended.
const AGAIN: Duration = Duration::from_millis(100);

/// The reason why the lock is no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// The process has ended, and no run is left.
    Ended,
    /// `dlock release` has asked for the lock.
    LetGo,
}

/// A lock that is kept.
pub(super) struct Keep<'a> {
    settings: &'a AcquireSettings,
    keeping: &'a Keeping,
    report: &'a Report,
    process: AsyncFd<Watched>,
    runs: Runs,
    reliance: Reliance<'a>,
    kill_after: Duration,
    ladder: Ladder,
}

impl<'a> Keep<'a> {
    /// Keeps a lock for `process`.
    pub(super) fn new(
        settings: &'a AcquireSettings,
        keeping: &'a Keeping,
        report: &'a Report,
        process: AsyncFd<Watched>,
        runs: Runs,
    ) -> Self {
        let reliance = Reliance::new(report, settings.lock(), here::program_of(keeping.pid), keeping.on_lost);
        let (kill_after, ladder) = (Duration::ZERO, Ladder::default());
        Self { settings, keeping, report, process, runs, reliance, kill_after, ladder }
    }

    /// Keeps the granted lock until the process and the runs under the handle have ended or the lock is let go, and
    /// then gives it back, unless the release that asked for it does so.
    pub(super) async fn until_over(
        mut self,
        contender: &mut dyn Contender,
        grant: &Grant,
        signals: &mut SignalStream,
        traces: &mut Traces,
    ) -> Result<Exit, Failure> {
        let ttl = match grant.lease {
            Lease::Until { ttl, .. } => Some(ttl),
            Lease::Unlimited { .. } => None,
        };
        self.kill_after = self.keeping.grace.within(ttl);
        if let Lease::Until { sent, ttl, .. } = grant.lease {
            let schedule = Schedule { sent, ttl, kill_after: self.kill_after };
            self.ladder = Ladder::new(deadline(&schedule, self.keeping.on_lost));
        }
        let over = self.until(contender, grant.lease, signals).await;
        if over == Over::Ended || !self.settings.connection.target.has_handles() {
            self.give_back(contender, ttl).await;
        }
        if matches!(self.reliance.told(), Some(Loss::NotMine(_))) {
            traces.tell_loss(&self.settings.lock().key, self.report, &self.settings.connection).await;
        }
        Ok(if self.reliance.told().is_some() { Exit::Lost } else { Exit::Success })
    }

    async fn until(&mut self, contender: &mut dyn Contender, lease: Lease, signals: &mut SignalStream) -> Over {
        let (sender, mut news) = unbounded_channel();
        // The receiver lives as long as this future.
        let keeping = keeper::keep(contender, lease, self.kill_after, Duration::ZERO, |news| drop(sender.send(news)));
        let mut keeping = std::pin::pin!(keeping);
        let mut is_kept = true;
        let mut is_there = true;
        loop {
            if is_there && self.process.get_ref().has_ended() {
                is_there = false;
                self.runs.process_ended();
            }
            if !is_there && !self.runs.is_any() {
                break;
            }
            let next = if is_there { self.act(Instant::now()) } else { None };
            tokio::select! {
                biased;
                _ = self.process.readable(), if is_there => {}
                // Signals that end programs may be sent to every process, as when a service is stopped: the watched
                // process may still be busy then.
                _ = signals.next() => {}
                Some(news) = news.recv() => self.hear(news),
                () = &mut keeping, if is_kept => is_kept = false,
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                lets_go = self.runs.changed() => if lets_go {
                    return Over::LetGo;
                },
            }
        }
        // The deadline can pass before the renewals have given the reason.
        while let Ok(news) = news.try_recv() {
            self.hear(news);
        }
        if self.ladder.is_stopping() {
            self.lose(Loss::Starved);
        }
        Over::Ended
    }

    /// Stops the process if that is due at `now`; returns the instant of the next step.
    fn act(&mut self, now: Instant) -> Option<Instant> {
        match self.ladder.step(now) {
            Step::Wait(next) => next,
            Step::Term { .. } if self.keeping.on_lost == OnLost::Kill => {
                self.runs.stop();
                Some(now)
            }
            Step::Term { by_deadline } => {
                self.runs.stop();
                let _ = self.process.get_ref().signal(libc::SIGTERM);
                if by_deadline {
                    self.reliance.recording.deadline();
                }
                Some(now)
            }
            Step::Kill => {
                // A process that has ended meanwhile needs no signal.
                let _ = self.process.get_ref().signal(libc::SIGKILL);
                self.reliance.recording.kill();
                Some(now + AGAIN)
            }
        }
    }

    fn hear(&mut self, news: LeaseNews) {
        match self.reliance.hear(news) {
            Some(Change::Extended(schedule)) => {
                if let Some(deadline) = deadline(&schedule, self.keeping.on_lost) {
                    self.ladder.extend(deadline);
                }
            }
            Some(Change::Lost(how)) => self.lose(how),
            None => {}
        }
    }

    /// Handles a loss, or a request to give the lock back: stops the process and the runs.
    fn lose(&mut self, how: Loss) {
        self.reliance.lose(how, || {
            self.runs.stop();
            let grace = if self.keeping.on_lost == OnLost::Kill { Duration::ZERO } else { self.kill_after };
            self.ladder.stop(Instant::now() + grace);
        });
    }

    async fn give_back(&self, contender: &mut dyn Contender, ttl: Option<Duration>) {
        let (lock, limit) = (self.settings.lock(), self.settings.connection.connect_timeout);
        match give_back(contender, Used::Yes, limit).await {
            Ok(Released::NotMine) => {}
            Ok(Released::Freed | Released::Kept) => self.report.tell(&Event::Released(lock.key)),
            Err(reason) => self.report.tell(&Event::ReleaseFailed { lock, reason, ttl, unrecorded: false }),
        }
    }
}
