/*!
`dlock latch`: reports a name, waits for names, makes the latch fail, shows it, or forgets it.
*/

use std::time::Duration;

use crate::backend::error::ErrorKind;
use crate::backend::meeting::{Arrivals, Latch, LatchFailure, Meeting};
use crate::clock::{Instant, wall_millis};
use crate::command::progress::Progress;
use crate::command::session::{Opened, exit_of, open, play, random_id, refuse, told_to_stop};
use crate::exit::{Exit, Failure};
use crate::lease::waiting::{Failed, Wait};
use crate::meeting::Limits;
use crate::meeting::latch::{Action, Outcome, leave, perform, wait};
use crate::output;
use crate::report::event::Event;
use crate::report::event::meeting::{Kind, MeetingEvent, Point};
use crate::report::{self, Report, Verbosity, picture};
use crate::schema::{self, LookedAt};
use crate::settings::{LatchAct, LatchSettings};

/// Lifetime of a session at a service without a sign of life.
const LEASE: Duration = Duration::from_secs(10);
/// Time limit for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Does what the settings ask for; returns dlock's exit.
pub(crate) fn latch(settings: &LatchSettings) -> Exit {
    let report = &Report::new(settings.verbosity);
    match prepare(settings, report) {
        Ok((latch, opened)) => {
            let Opened { signals, .. } = opened;
            play(report, signals, |mut signals| async move {
                let mut latch = latch;
                let mut visit = LatchSession { settings, report, latch: latch.as_mut() };
                let outcome = tokio::select! {
                    biased;
                    signal = told_to_stop(&mut signals) => {
                        visit.report.keep();
                        Ok(Exit::Signal(signal))
                    }
                    outcome = visit.act() => outcome,
                };
                leave(visit.latch).await;
                outcome.inspect_err(|failure| document(settings, failure))
            })
        }
        Err(failure) => {
            document(settings, &failure);
            refuse(report, &failure)
        }
    }
}

/// Prints a failure as a document too, if one is wanted.
fn document(settings: &LatchSettings, failure: &Failure) {
    if let (LatchAct::Show { json: true }, Some(event)) = (&settings.act, failure.event.as_deref()) {
        // If this cannot be printed either, that is no news.
        let _ = output::print(schema::trouble(&report::sentence(event), failure.exit.code()).as_bytes());
    }
}

/// Returns the latch as messages name it.
fn point(settings: &LatchSettings) -> Point {
    Point {
        kind: Kind::Latch,
        key: settings.key.clone(),
        place: settings.connection.target.to_string(),
        flags: settings.connection.flags.clone(),
    }
}

fn prepare(settings: &LatchSettings, report: &Report) -> Result<(Box<dyn Latch>, Opened), Failure> {
    let opened = open(&settings.connection, settings.unknown.as_ref(), Kind::Latch, report)?;
    let name = match &settings.act {
        LatchAct::Done { name, .. } | LatchAct::Fail { name, .. } => name.clone(),
        LatchAct::Wait { .. } | LatchAct::Forget | LatchAct::Show { .. } => String::new(),
    };
    let (key, namespace, id) = (settings.key.clone(), settings.connection.namespace.clone(), random_id()?);
    let meeting = Meeting { key, namespace, id, name, lease: LEASE };
    let latch = opened.service.latch(meeting).map_err(|reason| {
        Failure::new(Exit::Usage, Event::Meeting(MeetingEvent::NotHere { point: point(settings), reason }))
    })?;
    Ok((latch, opened))
}

/// One visit to the latch.
struct LatchSession<'a> {
    settings: &'a LatchSettings,
    report: &'a Report,
    latch: &'a mut dyn Latch,
}

impl LatchSession<'_> {
    async fn act(&mut self) -> Result<Exit, Failure> {
        let point = point(self.settings);
        match &self.settings.act {
            LatchAct::Done { name, keep } => {
                let done = MeetingEvent::Done { point, name: name.clone(), keep: *keep };
                self.change(&Action::Arrive(*keep), done).await
            }
            LatchAct::Fail { name, reason, keep } => {
                let failure = LatchFailure { by: name.clone(), reason: reason.clone() };
                self.change(&Action::Fail(failure, *keep), MeetingEvent::Failing { point, keep: *keep }).await
            }
            LatchAct::Forget => self.change(&Action::Forget, MeetingEvent::Forgotten(point)).await,
            LatchAct::Show { json } => self.show(*json).await,
            LatchAct::Wait { count } => self.wait(u64::from(*count)).await,
        }
    }

    fn limits(&self) -> Limits {
        Limits { connect: self.settings.connection.connect_timeout, answer: ANSWER }
    }

    /// Performs `action`, and reports it as `done`.
    async fn change(&mut self, action: &Action, done: MeetingEvent) -> Result<Exit, Failure> {
        self.perform(action).await?;
        self.report.tell(&Event::Meeting(done));
        Ok(Exit::Success)
    }

    /// Prints the state of the latch.
    async fn show(&mut self, json: bool) -> Result<Exit, Failure> {
        let mut arrivals = self.perform(&Action::Show).await?;
        arrivals.names.sort_unstable();
        let (key, connection) = (self.settings.key.as_str(), &self.settings.connection);
        let backend = connection.target.to_string();
        let text = if json {
            let place = LookedAt { backend, namespace: connection.namespace.as_str().to_owned(), table: None };
            schema::latch(&arrivals, key, &place, wall_millis())
        } else {
            picture::latch(&arrivals, key, &backend)
        };
        output::print(text.as_bytes())?;
        Ok(Exit::Success)
    }

    /// Performs `action`; returns the arrivals that a look has shown.
    async fn perform(&mut self, action: &Action) -> Result<Arrivals, Failure> {
        let (settings, limits) = (self.settings, self.limits());
        let (progress, point) = (Progress::default(), point(settings));
        // Without a wait, a failing backend is reported at once.
        let wait = settings.wait.map_or(Wait::No, |wait| Wait::Until(Instant::now() + wait));
        let performed = tokio::select! {
            biased;
            performed = perform(self.latch, action, wait, limits, |news| progress.set(news)) => performed,
            never = progress.announce(self.report, &point, 0) => match never {},
        };
        let arrivals = performed.map_err(|failed| unusable(settings, failed))?;
        self.report.clear();
        Ok(arrivals)
    }

    async fn wait(&mut self, count: u64) -> Result<Exit, Failure> {
        let (settings, limits) = (self.settings, self.limits());
        let (progress, point) = (Progress::default(), point(settings));
        let begun = Instant::now();
        let length = match settings.wait {
            None => Wait::Forever,
            Some(length) if length.is_zero() => Wait::No,
            Some(wait) => Wait::Until(begun + wait),
        };
        let outcome = tokio::select! {
            biased;
            outcome = wait(self.latch, count, length, limits, |news| progress.set(news)) => outcome,
            never = progress.announce(self.report, &point, count) => match never {},
        };
        let waited = Instant::now().since(begun);
        match outcome {
            Outcome::Open(_) => {
                self.report.replace(&Event::Meeting(MeetingEvent::Open { point: point.clone(), waited }));
                if settings.verbosity == Verbosity::Verbose {
                    self.report.tell(&Event::Meeting(MeetingEvent::Open { point, waited }));
                }
                Ok(Exit::Success)
            }
            Outcome::Failed(LatchFailure { by, reason }) => {
                Err(Failure::new(Exit::Lost, Event::Meeting(MeetingEvent::Failed { point, by, reason })))
            }
            Outcome::RanOut(turnout) => {
                let exit = Exit::NotAcquired(settings.conflict);
                if settings.verbosity == Verbosity::Quiet {
                    return Err(Failure::silent(exit));
                }
                let within = settings.wait.filter(|wait| !wait.is_zero());
                let event = MeetingEvent::RanOut { point, within, wanted: count, turnout };
                Err(Failure::new(exit, Event::Meeting(event)))
            }
            Outcome::Unusable(failed) => Err(unusable(settings, failed)),
        }
    }
}

/// Returns the message and the exit code for a backend that fails.
fn unusable(settings: &LatchSettings, failed: Failed) -> Failure {
    let Failed { kind, trouble } = failed;
    let within = settings.wait.filter(|wait| !wait.is_zero() && kind.is_transient() && kind != ErrorKind::Mistaken);
    let event = MeetingEvent::Unusable { point: point(settings), within, trouble };
    Failure::new(exit_of(kind), Event::Meeting(event))
}
