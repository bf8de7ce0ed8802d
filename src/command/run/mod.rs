/*!
`dlock run`: acquires, starts the command, waits for the first of its exit, a loss and a time-out, stops, releases.
*/

mod acquire;
mod adopt;
mod backstop;
mod ending;
mod environment;
mod held;
mod hold;
pub(crate) mod nested;
mod rescue;
mod setup;
#[cfg(test)]
mod simulation;
mod tenure;
mod wait;

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::mpsc;

use self::acquire::Waited;
use self::ending::{Circumstances, Fate, ending};
use self::held::{Cause, Held};
use self::hold::Hold;
use self::rescue::Below;
use self::setup::{Prepared, expect_ready, prepare, refused, slow_guard, start_within};
use self::tenure::Tenure;
use crate::backend::contract::contender::{Contender, Used};
use crate::cli::OnLost;
use crate::clock::{Instant, before};
use crate::command::session::refuse;
use crate::command::traces::{self, Broken, Traces};
use crate::exit::{Exit, Failure};
use crate::lease::taking::{TAKE_BACK, give_back, give_back_until};
use crate::report::Report;
use crate::report::event::{Event, Step};
use crate::schema::events::Entry;
use crate::settings::RunSettings;
use crate::supervise::guard::Guard;
use crate::supervise::signals::SignalStream;

/// Runs a command under a lock; returns dlock's exit.
pub(crate) fn run(settings: &RunSettings) -> Exit {
    let mut report = Report::new(settings.verbosity);
    let exit = match prepare(settings, &mut report) {
        Ok(prepared) => start(settings, &report, prepared),
        Err(failure) => refuse(&report, &failure),
    };
    report.close_journal(exit.code());
    exit
}

fn start(settings: &RunSettings, report: &Report, prepared: Prepared) -> Exit {
    let Prepared { signals, guard, contender, below, inherited, traces } = prepared;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(report, &refused(Step::EventLoop)(&error)),
    };
    let outcome = runtime.block_on(async {
        let signals = SignalStream::new(signals).map_err(|error| refused(Step::WatchSignals)(&error))?;
        let guard = guard.connect().map_err(|error| refused(Step::WatchGuard)(&error))?;
        let mut run = Run {
            settings,
            report,
            signals,
            guard,
            contender,
            below,
            inherited,
            traces,
            left: false,
            guard_done: false,
            waited: Duration::ZERO,
            broken: Vec::new(),
        };
        let outcome = run.story().await;
        // The guard goes on watching processes that could not be stopped.
        if !run.left {
            run.guard.end(run.guard_done);
        }
        outcome
    });
    // A name server that does not answer must not delay the end.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|failure| refuse(report, &failure))
}

/// One run, with its resources.
struct Run<'a> {
    settings: &'a RunSettings,
    report: &'a Report,
    signals: SignalStream,
    guard: Guard,
    contender: Box<dyn Contender>,
    below: Below,
    /// The locked files of outer runs.
    inherited: Vec<OwnedFd>,
    /// The reader of the locks' last breaks.
    traces: Traces,
    /// `true` if a process of the command is left that could not be stopped.
    left: bool,
    /// `true` if the guard has done its work.
    guard_done: bool,
    /// The time that it took to acquire the lock.
    waited: Duration,
    /// The last breaks of the own locks.
    broken: Vec<Broken>,
}

impl Run<'_> {
    async fn story(&mut self) -> Result<Exit, Failure> {
        match self.wait().await? {
            Waited::Held(tenure) => self.hold(tenure).await,
            Waited::Stopped(signal) => {
                // The queue is left at once; what could not be taken back will expire.
                if self.settings.handle.is_none() {
                    let _ = give_back(self.contender.as_mut(), Used::No, TAKE_BACK).await;
                }
                Ok(Exit::Signal(signal))
            }
        }
    }

    async fn wait(&mut self) -> Result<Waited, Failure> {
        let begun = Instant::now();
        let guard = self.guard.pid();
        let acquiring = async {
            let ready = expect_ready(&mut self.guard, &self.settings.keys);
            match start_within(self.settings) {
                Some(limit) => before(Instant::now() + limit, ready).await.map_err(|_| slow_guard(limit))??,
                None => ready.await?,
            }
            let contender = self.contender.as_mut();
            let waited = match &self.settings.handle {
                Some(handle) => adopt::adopt(self.settings, handle, contender).await?,
                None => acquire::acquire(self.settings, self.report, contender, &mut self.inherited).await?,
            };
            let after = Instant::now().since(begun);
            if let Waited::Held(tenure) = &waited
                && self.settings.handle.is_none()
                && let Some((grant, (keys, _))) = tenure.own.as_ref().zip(tenure.own(&self.settings.keys, contender))
            {
                self.broken = self.traces.of(&keys, grant.lease).await;
            }
            Ok((waited, after))
        };
        let waited = tokio::select! {
            biased;
            signal = wait::told_to_stop(&mut self.signals, guard) => Ok((Waited::Stopped(signal), Instant::now().since(begun))),
            waited = acquiring => waited,
        };
        let waited = waited.map(|(waited, after)| {
            self.waited = after;
            waited
        });
        match &waited {
            Ok(Waited::Held(Tenure { own: Some(_), .. })) => {
                let (key, waited) = (self.settings.keys.clone(), self.waited);
                self.report.replace(&Event::GotIt { key, waited });
            }
            Ok(Waited::Stopped(_)) => self.report.keep(),
            Ok(Waited::Held(_)) | Err(_) => self.report.clear(),
        }
        // If the service treats several names as one, that may be the reason.
        if matches!(&waited, Err(Failure { exit: Exit::NotAcquired(_) | Exit::Usage, .. }))
            && self.contender.kept_as().is_some()
        {
            self.tell_warnings();
        }
        waited
    }

    /// Runs the command under the locks, and releases those that do not belong to outer runs.
    async fn hold(&mut self, tenure: Tenure) -> Result<Exit, Failure> {
        let settings = self.settings;
        let kill_after = settings.grace.within(tenure.ttl());
        let schedule = tenure.schedule(kill_after);
        // The guard checks too, but with --on-lost ignore it knows no deadline.
        if schedule.is_some_and(|schedule| Instant::now() >= schedule.stop_at()) {
            let held = Held { cause: Some(Cause::TooLate), ..Held::default() };
            return self.finish(&held, &tenure).await;
        }
        self.announce(&tenure, kill_after);
        let contender = self.contender.as_ref();
        let spawn = tenure.spawn(settings, kill_after, contender);
        let spawned = self.guard.spawn(spawn, &tenure.descriptors(contender));
        let (sender, news) = mpsc::unbounded_channel();
        let held = {
            let delay = settings.lock_delay.length;
            let keeping = tenure.keep(self.contender.as_mut(), kill_after, delay, |news| {
                // The receiver lives as long as this block.
                let _ = sender.send(news);
            });
            let (guard, signals, below) = (&mut self.guard, &mut self.signals, &mut self.below);
            let hold = Hold::new(settings, self.report, guard, signals, kill_after, schedule, below);
            match spawned {
                Ok(()) => hold.until_over(keeping, news).await,
                Err(_) => hold.without_guard(keeping, news).await,
            }
        };
        self.finish(&held, &tenure).await
    }

    /// Reports the locks under which the command is about to run.
    fn announce(&mut self, tenure: &Tenure, kill_after: Duration) {
        let (settings, report) = (self.settings, self.report);
        if let Some(covered) = tenure.covered() {
            report.tell(&Event::Covered(covered));
        }
        let own = tenure.own(&settings.keys, self.contender.as_ref());
        let (Some(grant), Some((keys, tokens))) = (&tenure.own, own) else {
            let tokens = tenure.tokens(self.contender.as_ref());
            let held = Entry::acquired(&settings.keys, &tokens, None, None).after(self.waited, true);
            return report.record(|| Some(held));
        };
        self.tell_warnings();
        let is_cut = |ttl| settings.grace.asked.is_some_and(|asked| kill_after < asked && kill_after < ttl);
        if let Some(ttl) = tenure.ttl().filter(|&ttl| is_cut(ttl)) {
            report.tell(&Event::ShortGrace { lock: settings.lock(), kill_after, ttl });
        }
        let lock = settings.lock_of(keys).in_table(self.contender.table().as_deref());
        let (mode, slot) = (settings.mode, grant.slot);
        let (ttl, waited) = (tenure.ttl(), self.waited);
        let acquired = Event::Acquired { lock, tokens, mode, slot, ttl, waited };
        match &settings.handle {
            Some(handle) => {
                report.note(&acquired);
                report.tell(&adopt::renewed(handle, ttl));
            }
            None => report.tell(&acquired),
        }
        traces::tell(std::mem::take(&mut self.broken), report, &settings.connection);
    }

    /// Reports the service's warnings: what could make its locks unsafe, or what it could not record.
    fn tell_warnings(&mut self) {
        for warning in self.contender.warnings() {
            self.report.tell(&Event::Warning { lock: self.settings.lock(), warning });
        }
    }

    /// Releases the own locks, unless a process of the command is left, and reports how the run ended.
    async fn finish(&mut self, held: &Held, tenure: &Tenure) -> Result<Exit, Failure> {
        (self.left, self.guard_done) = (held.left.is_some(), held.guard_done);
        let settings = self.settings;
        let ignore = settings.on_lost == OnLost::Ignore;
        let outer_ended = held.ended_well() && tenure.outer_has_ended();
        let is_to_be_recorded = settings.once_per.is_some() && held.used() == Used::Success;
        // Outer runs give their own locks back.
        let own = tenure.own(&settings.keys, self.contender.as_ref()).map(|(keys, _)| settings.lock_of(keys));
        // The guard lets no command outlive the lease: a command that ended on its own ended within it. A lease that
        // has expired since (dlock was frozen, the server silent) was not lost while the command ran.
        let ran_out = held.schedule.is_some_and(|schedule| Instant::now() >= schedule.dead_at()) && !ignore;
        let timeout = settings.connection.connect_timeout;
        let fate = match (&own, held.left) {
            (Some(_), Some(left)) => Fate::Kept(left),
            (Some(_), None) if settings.handle.is_some() => {
                let renewed = adopt::renew_once_more(held, self.contender.as_mut(), timeout).await;
                Fate::StaysHeld { renewed, ran_out }
            }
            (Some(_), None) => {
                let until = held
                    .schedule
                    .filter(|_| is_to_be_recorded)
                    .map_or_else(Instant::now, |schedule| schedule.dead_at());
                let contender = self.contender.as_mut();
                let released =
                    give_back_until(until, contender, held.used(), timeout).await.map_err(|failed| failed.trouble);
                if settings.once_per.is_some() {
                    self.tell_warnings();
                }
                let outer_ended = tenure.covered().filter(|_| outer_ended).map(|keys| settings.lock_of(keys));
                Fate::GivenBack { released, ran_out, outer_ended }
            }
            // The outer run's guard stops this run too when the outer run ends.
            (None, _) => Fate::Outer { ended: outer_ended },
        };
        if fate.is_not_ours() {
            self.traces.tell_loss(&settings.keys, self.report, &settings.connection).await;
        }
        let lock = own.unwrap_or_else(|| settings.lock());
        let (program, command) = (settings.program(), settings.command());
        let (ttl, min_hold) = (tenure.ttl().map(|ttl| ttl + settings.lock_delay.length), settings.min_hold);
        let ending =
            ending(held, fate, Circumstances { lock, program, command, ttl, min_hold, is_to_be_recorded, ignore });
        if let Some(remark) = &ending.remark {
            self.report.tell(remark);
        }
        ending.outcome()
    }
}
