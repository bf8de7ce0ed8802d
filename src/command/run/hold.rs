/*!
The time in which the command runs, up to the first of its exit, a loss and a time-out, and the stop that follows.

The guard stops the command and knows the deadline. This loop passes on what the keeper of the lock reports, and does
the guard's work when the guard is frozen or killed.
*/

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::cli::Leftovers;
use crate::clock::{Instant, before, sleep_until};
use crate::command::losing::{Change, Reliance};
use crate::command::run::backstop::Backstop;
use crate::command::run::held::{Cause, Held};
use crate::command::run::rescue::{Below, Rescue};
use crate::lease::renewal::LeaseNews;
use crate::lease::timing::Schedule;
use crate::report::Report;
use crate::report::event::{Event, Loss};
use crate::schema::events;
use crate::settings::RunSettings;
use crate::supervise::command::Ended;
use crate::supervise::forwards::Sent;
use crate::supervise::guard::{Guard, Heard};
use crate::supervise::process::is_stopped;
use crate::supervise::protocol::{Notice, Order};
use crate::supervise::reaping::reap;
use crate::supervise::signals::{Meaning, SignalStream, asks_to_end, can_be_continued, meaning};

/// Time for the keeper to report why the lease was lost, if the guard saw its end first.
const LAST_WORD: Duration = Duration::from_millis(200);

/// The progress of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardState {
    /// It watches the command.
    Works,
    /// It reported that nothing of the command is left.
    Done,
    /// It is gone.
    Gone,
}

/// The hold in progress.
pub(super) struct Hold<'a> {
    settings: &'a RunSettings,
    report: &'a Report,
    guard: &'a mut Guard,
    signals: &'a mut SignalStream,
    backstop: Backstop,
    reliance: Reliance<'a>,
    rescue: Rescue<'a>,
    held: Held,
    max_run_at: Option<Instant>,
    guard_state: GuardState,
    /// `true` if it was reported that a CPU quota makes a stop begin earlier.
    told_of_quota: bool,
    over: bool,
}

impl<'a> Hold<'a> {
    /// Makes a hold that begins now; `schedule` is that of the lease, if there is one.
    pub(super) fn new(
        settings: &'a RunSettings,
        report: &'a Report,
        guard: &'a mut Guard,
        signals: &'a mut SignalStream,
        kill_after: Duration,
        schedule: Option<Schedule>,
        below: &'a mut Below,
    ) -> Self {
        let rescue = Rescue::new(guard.pid(), below);
        Self {
            settings,
            report,
            guard,
            signals,
            backstop: Backstop::new(settings.on_lost, kill_after, schedule),
            reliance: Reliance::new(report, settings.lock(), settings.program(), settings.on_lost),
            rescue,
            held: Held::default(),
            max_run_at: settings.max_run.map(|max_run| Instant::now() + max_run),
            guard_state: GuardState::Works,
            told_of_quota: false,
            over: false,
        }
    }

    /// Ends a hold whose guard was gone before it could start the command.
    pub(super) async fn without_guard(
        mut self,
        keeping: impl Future<Output = ()>,
        news: UnboundedReceiver<LeaseNews>,
    ) -> Held {
        self.held.never_asked = true;
        self.guard_died();
        self.until_over(keeping, news).await
    }

    /// Runs until the command is over and, after a stop, everything it started is gone. `keeping` keeps the lock
    /// meanwhile and sends its `news`.
    pub(super) async fn until_over(
        mut self,
        keeping: impl Future<Output = ()>,
        mut news: UnboundedReceiver<LeaseNews>,
    ) -> Held {
        let mut keeping = std::pin::pin!(keeping);
        let mut kept = true;
        while !self.over {
            self.catch_up();
            if self.over {
                break;
            }
            let next = self.act(Instant::now());
            if self.over {
                break;
            }
            tokio::select! {
                biased;
                info = self.signals.next() => self.hear_signal(&info),
                notice = self.guard.next(), if self.guard_state != GuardState::Gone => self.hear_guard(notice),
                Some(news) = news.recv() => self.hear_keeper(news),
                () = &mut keeping, if kept => kept = false,
                () = sleep_until(next.unwrap_or(FAR)), if next.is_some() => {}
            }
        }
        if self.held.cause == Some(Cause::Lost) {
            // The guard can be done before the keeper has reported the reason.
            if kept && self.reliance.told().is_none() {
                let _ = before(Instant::now() + LAST_WORD, &mut keeping).await;
            }
            while let Ok(news) = news.try_recv() {
                self.hear_keeper(news);
            }
            self.lose(Loss::Starved);
        }
        self.held.schedule = self.backstop.schedule();
        self.held.told_of_loss = self.reliance.told().is_some();
        self.held.guard_done = self.guard_state == GuardState::Done;
        self.held
    }

    /// Handles the guard's reports so far. dlock may have been frozen since: what was true then counts before what is
    /// due by now.
    fn catch_up(&mut self) {
        while self.guard_state != GuardState::Gone && !self.over {
            match self.guard.has_said() {
                Heard::Notice(notice) => self.hear_guard(Some(notice)),
                Heard::Nothing => return,
                Heard::End => self.hear_guard(None),
            }
        }
    }

    fn hear_signal(&mut self, info: &nix::sys::signalfd::siginfo) {
        match meaning(info) {
            Meaning::Child => {
                // A frozen guard could neither stop the command in time nor report its end.
                reap(self.guard.pid());
            }
            Meaning::Forward(Sent { signal, .. }) if self.waits_for_leftovers() && asks_to_end(signal) => {
                self.stop_leftovers();
            }
            Meaning::Forward(Sent { signal, sender }) => {
                self.guard.order(Order::Forward { signal, sender, read_at: Instant::now() });
            }
            Meaning::Suspend | Meaning::Nothing => {}
        }
    }

    fn hear_guard(&mut self, notice: Option<Notice>) {
        match notice {
            Some(Notice::Exited { status, exec_errno, stopping }) => {
                let ended = Ended::from_status(status);
                self.held.exited = Some((ended, exec_errno));
                self.reliance.recording.exited(ended, exec_errno);
                // Killed by dlock, as the guard had slept through the lease's end: no other stop leaves the cause open.
                if ended == Ended::Signal(libc::SIGKILL) && self.rescue.has_killed() {
                    self.held.cause = self.held.cause.or(Some(Cause::Lost));
                }
                if (stopping || self.settings.leftovers == Leftovers::Kill) && !self.backstop.is_stopping() {
                    self.stop_leftovers();
                }
                // The guard has nothing left to do then; its end is waited for later.
                if self.settings.leftovers == Leftovers::Leave && !self.backstop.is_stopping() {
                    self.guard_state = GuardState::Done;
                    self.over = true;
                }
            }
            Some(Notice::Suspended) => self.suspend(),
            // The keeper, which knows the reason, reports the loss at the same time.
            Some(Notice::Deadline) => {
                self.held.cause = self.held.cause.or(Some(Cause::Lost));
                self.backstop.begun(Instant::now());
                self.reliance.recording.deadline();
            }
            Some(Notice::Unkillable(pid)) => self.rescue.unkillable = Some(pid),
            Some(Notice::Covering) => {
                let (key, program) = (self.settings.keys.clone(), self.settings.program());
                self.report.tell(&Event::StoppingNested { key, program });
            }
            Some(Notice::Gone) => self.guard_state = GuardState::Done,
            Some(Notice::NotSpawned(errno)) => self.never_started(Cause::NotSpawned(errno)),
            Some(Notice::TooLate) => self.never_started(Cause::TooLate),
            Some(Notice::Spawned(pid)) => {
                self.rescue.command = Some(pid);
                self.reliance.recording.started(pid);
            }
            Some(Notice::Killing) => self.reliance.recording.kill(),
            Some(Notice::Throttled(earlier)) => self.hear_of_quota(earlier),
            Some(Notice::Ready | Notice::Unfit(_)) => {}
            None => self.lose_guard(),
        }
    }

    /// Notes that a stop begins earlier; reports it if that takes over a quarter of the lease, plus some slack.
    fn hear_of_quota(&mut self, earlier: Duration) {
        self.backstop.hasten(earlier);
        let eaten = self.backstop.schedule().is_some_and(|schedule| earlier > schedule.ttl / 4 + LAST_WORD);
        if eaten && !std::mem::replace(&mut self.told_of_quota, true) {
            self.report.tell(&Event::Throttled {
                lock: self.settings.lock(),
                program: self.settings.program(),
                earlier,
            });
        }
    }

    /// Handles the end of the guard: it has reported that its work is done, or it was killed.
    fn lose_guard(&mut self) {
        let told_all = match self.settings.leftovers {
            // It ends with the command, unless it was ordered to stop everything.
            Leftovers::Leave => {
                self.held.exited.is_some() && (!self.backstop.is_stopping() || reap(self.guard.pid()).guard_done)
            }
            Leftovers::Wait | Leftovers::Kill => false,
        };
        if told_all || self.guard_state == GuardState::Done {
            self.guard_state = GuardState::Gone;
            self.over = true;
        } else {
            self.guard_died();
        }
    }

    fn hear_keeper(&mut self, news: LeaseNews) {
        match self.reliance.hear(news) {
            Some(Change::Extended(schedule)) => {
                if let Some(order) = self.backstop.extend(schedule) {
                    self.guard.order(order);
                }
            }
            Some(Change::Lost(how)) => self.lose(how),
            None => {}
        }
    }

    fn never_started(&mut self, cause: Cause) {
        self.held.cause = Some(cause);
        self.over = true;
    }

    /// Handles the loss of the lock, or a request to give it back: reports it once, and stops the command if it still
    /// runs.
    fn lose(&mut self, how: Loss) {
        self.reliance.lose(how, || {
            self.held.cause = self.held.cause.or(Some(Cause::Lost));
            if let Some(order) = self.backstop.lose(Instant::now()) {
                self.guard.order(order);
            }
        });
    }

    fn stop(&mut self, cause: events::Cause) {
        let order = self.backstop.stop(Instant::now());
        self.guard.order(order);
        self.reliance.recording.stop(cause);
    }

    fn stop_leftovers(&mut self) {
        self.report.tell(&Event::StoppingLeftovers { program: self.settings.program() });
        self.stop(events::Cause::Leftovers);
    }

    /// Returns `true` while the command has ended, and what it left behind may take its time.
    fn waits_for_leftovers(&self) -> bool {
        self.held.exited.is_some() && self.settings.leftovers == Leftovers::Wait && !self.backstop.is_stopping()
    }

    fn suspend(&mut self) {
        // dlock itself may have been suspended until now.
        let is_stopped = self.rescue.command.is_none_or(is_stopped);
        if !is_stopped || !can_be_continued() {
            return;
        }
        if let Some(deadline) = self.backstop.deadline() {
            let stopped_in = Duration::from_secs(deadline.stop_at.since(Instant::now()).as_secs());
            let (key, program) = (self.settings.keys.clone(), self.settings.program());
            self.report.tell(&Event::Suspended { key, program, stopped_in });
        }
        self.guard.order(Order::Suspend);
    }

    /// Handles the death of the guard, whose orphans are children of dlock now.
    fn guard_died(&mut self) {
        self.guard_state = GuardState::Gone;
        self.held.cause = Some(self.held.cause.unwrap_or(Cause::GuardKilled));
        self.rescue.take_over(self.backstop.take_over(Instant::now()));
        self.reliance.recording.stop(events::Cause::Guard);
    }

    /// Does what is due at `now`; returns the instant of the next step.
    fn act(&mut self, now: Instant) -> Option<Instant> {
        if let Some(at) = self.max_run_at
            && now >= at
        {
            self.max_run_at = None;
            let goes_on = self.held.exited.is_none() || self.waits_for_leftovers();
            if self.held.cause.is_none() && goes_on && !self.rescue.has_taken_over() {
                self.held.cause = Some(Cause::MaxRun);
                let (program, max_run) = (self.settings.program(), self.settings.max_run.unwrap_or_default());
                self.report.tell(&Event::MaxRun { program, max_run });
                self.stop(events::Cause::MaxRun);
            }
        }
        let stop_at = if self.rescue.has_taken_over() {
            self.rescue.stop_orphans(now)
        } else {
            let (exited, holds) = (self.held.exited.is_some(), self.settings.close);
            let due = self.backstop.kill_due();
            due.and_then(|kill_at| self.rescue.back_up_the_guard(now, kill_at, exited, holds))
        };
        if self.rescue.has_killed() {
            self.reliance.recording.kill();
        }
        self.held.left = self.rescue.left();
        self.over |= self.rescue.is_over();
        [self.max_run_at, stop_at].into_iter().flatten().min()
    }
}

/// An instant that never comes.
const FAR: Instant = Instant::from_nanos(u64::MAX);
