/*!
`dlock barrier`: waits until all parties are there at the same time.
*/

use crate::backend::error::ErrorKind;
use crate::backend::meeting::{Barrier, Meeting};
use crate::clock::Instant;
use crate::command::progress::Progress;
use crate::command::session::{Opened, exit_of, open, play, random_id, refuse, told_to_stop};
use crate::exit::{Exit, Failure};
use crate::lease::timing::acquire_timeout;
use crate::lease::waiting::{Failed, Wait};
use crate::meeting::Limits;
use crate::meeting::barrier::{Manner, Outcome, leave, meet, withdraw};
use crate::report::event::Event;
use crate::report::event::meeting::{Kind, MeetingEvent, Point};
use crate::report::{Report, Verbosity};
use crate::settings::BarrierSettings;

/// Waits at the barrier; returns dlock's exit.
pub(crate) fn barrier(settings: &BarrierSettings) -> Exit {
    let report = &Report::new(settings.verbosity);
    match prepare(settings, report) {
        Ok((barrier, opened)) => {
            let Opened { signals, .. } = opened;
            play(report, signals, |mut signals| async move {
                let (mut barrier, begun) = (barrier, Instant::now());
                let outcome = tokio::select! {
                    biased;
                    signal = told_to_stop(&mut signals) => Err(signal),
                    outcome = wait(settings, report, barrier.as_mut()) => Ok(outcome),
                };
                let ended = match outcome {
                    Ok(outcome) => outcome,
                    Err(signal) => {
                        report.keep();
                        // The others learn of it at once. If it has opened, they have gone on, and count on this one.
                        let is_open = withdraw(barrier.as_mut()).await;
                        Ok(if is_open { passed(settings, report, begun) } else { Exit::Signal(signal) })
                    }
                };
                leave(barrier.as_mut()).await;
                ended
            })
        }
        Err(failure) => refuse(report, &failure),
    }
}

/// Returns the barrier as messages name it.
fn point(settings: &BarrierSettings) -> Point {
    Point {
        kind: Kind::Barrier,
        key: settings.key.clone(),
        place: settings.connection.target.to_string(),
        flags: settings.connection.flags.clone(),
    }
}

fn prepare(settings: &BarrierSettings, report: &Report) -> Result<(Box<dyn Barrier>, Opened), Failure> {
    let opened = open(&settings.connection, settings.unknown.as_ref(), Kind::Barrier, report)?;
    let (key, namespace, id) = (settings.key.clone(), settings.connection.namespace.clone(), random_id()?);
    let meeting = Meeting { key, namespace, id, name: settings.name.clone(), lease: settings.ttl };
    let barrier = opened.service.barrier(meeting, settings.parties).map_err(|reason| {
        Failure::new(Exit::Usage, Event::Meeting(MeetingEvent::NotHere { point: point(settings), reason }))
    })?;
    Ok((barrier, opened))
}

async fn wait(settings: &BarrierSettings, report: &Report, barrier: &mut dyn Barrier) -> Result<Exit, Failure> {
    let (progress, place, begun) = (Progress::default(), point(settings), Instant::now());
    let wait = match settings.wait {
        None => Wait::Forever,
        Some(wait) if wait.is_zero() => Wait::No,
        Some(wait) => Wait::Until(begun + wait),
    };
    let manner = Manner { patient: settings.patient, lease: settings.ttl, wait };
    let limits = Limits { connect: settings.connection.connect_timeout, answer: acquire_timeout(settings.ttl) };
    let outcome = tokio::select! {
        biased;
        outcome = meet(barrier, manner, limits, |news| progress.set(news)) => outcome,
        never = progress.announce(report, &place, settings.parties.into()) => match never {},
    };
    if outcome == Outcome::Open {
        return Ok(passed(settings, report, begun));
    }
    Err(failure(settings, place, outcome))
}

/// Reports that the barrier has opened, after a wait that began at `begun`.
fn passed(settings: &BarrierSettings, report: &Report, begun: Instant) -> Exit {
    let event = Event::Meeting(MeetingEvent::Open { point: point(settings), waited: Instant::now().since(begun) });
    report.replace(&event);
    if settings.verbosity == Verbosity::Verbose {
        report.tell(&event);
    }
    Exit::Success
}

/// Returns the message and the exit code for a barrier that has not opened.
fn failure(settings: &BarrierSettings, point: Point, outcome: Outcome) -> Failure {
    let wanted = u64::from(settings.parties);
    let (exit, event) = match outcome {
        Outcome::Broken(names) => (Exit::Lost, MeetingEvent::Broken { point, names }),
        Outcome::Replaced => (Exit::Lost, MeetingEvent::Replaced { point, name: settings.name.clone() }),
        Outcome::Open | Outcome::CountedDead => {
            let lease = settings.connection.target.has_lease().then_some(settings.ttl);
            (Exit::Lost, MeetingEvent::CountedDead { point, lease })
        }
        Outcome::OtherParties { parties, names } => {
            (Exit::Usage, MeetingEvent::OtherParties { point, wanted, parties, names })
        }
        Outcome::RanOut(turnout) => {
            let exit = Exit::NotAcquired(settings.conflict);
            if settings.verbosity == Verbosity::Quiet {
                return Failure::silent(exit);
            }
            let within = settings.wait.filter(|wait| !wait.is_zero());
            (exit, MeetingEvent::RanOut { point, within, wanted, turnout })
        }
        Outcome::Unusable(Failed { kind, trouble }) => {
            let passes = kind.is_transient() && kind != ErrorKind::Mistaken;
            let within = settings.wait.filter(|wait| !wait.is_zero() && passes);
            (exit_of(kind), MeetingEvent::Unusable { point, within, trouble })
        }
    };
    Failure::new(exit, Event::Meeting(event))
}
