/*!
The first and last steps of subcommands that run no command: the service is opened, the signals are watched, and there
is an event loop until the outcome is known.
*/

use tokio::runtime::{Builder, Runtime};

use crate::backend::contract::service::Service;
use crate::backend::error::ErrorKind;
use crate::exit::{Exit, Failure};
use crate::holder::Owner;
use crate::printable::show_local_times;
use crate::report::Report;
use crate::report::event::meeting::{Kind, MeetingEvent};
use crate::report::event::{Event, Lack, Step};
use crate::settings::Connection;
use crate::supervise::signals::{Meaning, SignalStream, Signals, ends_waiting, meaning, suspend_self};
use crate::supervise::surroundings;

/// The results of the preparations, before there is an event loop.
pub(super) struct Opened {
    /// The lock service; not connected yet.
    pub service: Box<dyn Service>,
    /// The signals, which are blocked from now on.
    pub signals: Signals,
}

fn lacking(step: Step, reason: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Unavailable, Event::Lacking { step, reason: Lack::System(reason.to_string()) })
}

/// Makes a new random id.
pub(super) fn random_id() -> Result<Owner, Failure> {
    Owner::random().map_err(|error| lacking(Step::OwnerId, &error))
}

/// Returns the exit for a backend that fails with this kind of error.
pub(super) fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Unreachable
        | ErrorKind::Mistaken
        | ErrorKind::Full
        | ErrorKind::Contended
        | ErrorKind::Unavailable
        | ErrorKind::Unusable => Exit::Unavailable,
        ErrorKind::Denied => Exit::Denied,
        ErrorKind::CannotCreate => Exit::CannotCreate,
        ErrorKind::Misused => Exit::Usage,
    }
}

/// Opens the service of this connection, and reports warnings about the settings.
pub(super) fn service(
    connection: &Connection,
    unknown: Option<&Event>,
    report: &Report,
) -> Result<Box<dyn Service>, Failure> {
    if connection.has_password {
        surroundings::close_to_inspection();
    }
    let service = connection
        .target
        .open(&connection.options)
        .map_err(|mistake| Failure::new(Exit::Usage, Event::Settings(mistake)))?;
    begin_reports(connection, report);
    if let Some(unknown) = unknown {
        report.tell(unknown);
    }
    Ok(service)
}

/// Reports warnings about the password; from now on, people are shown times in the zone that this connection names.
pub(super) fn begin_reports(connection: &Connection, report: &Report) {
    show_local_times(connection.has_local_times);
    if let Some(file) = &connection.exposed {
        report.tell(&Event::PasswordExposed(file.display().to_string()));
    }
    if let Some(withheld) = &connection.withheld {
        report.tell(withheld);
    }
}

/// Opens the service of a latch or a barrier, and takes over the signals.
pub(super) fn open(
    connection: &Connection,
    unknown: Option<&Event>,
    kind: Kind,
    report: &Report,
) -> Result<Opened, Failure> {
    let signals = Signals::block().map_err(|error| lacking(Step::Signals, &error))?;
    let service = service(connection, unknown, report)?;
    if !connection.chosen {
        report.tell(&Event::Meeting(MeetingEvent::NoBackendChosen(kind)));
    }
    Ok(Opened { service, signals })
}

/// Makes an event loop.
pub(super) fn event_loop() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(|error| lacking(Step::EventLoop, &error))
}

/// Runs `story` on an event loop; returns dlock's exit.
pub(super) fn play<F: Future<Output = Result<Exit, Failure>>>(
    report: &Report,
    signals: Signals,
    story: impl FnOnce(SignalStream) -> F,
) -> Exit {
    let runtime = match event_loop() {
        Ok(runtime) => runtime,
        Err(failure) => return refuse(report, &failure),
    };
    let outcome = runtime.block_on(async {
        let signals = SignalStream::new(signals).map_err(|error| lacking(Step::WatchSignals, &error))?;
        story(signals).await
    });
    // A name server that does not answer must not delay the end.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|failure| refuse(report, &failure))
}

/// Reports the failure; returns its exit.
pub(super) fn refuse(report: &Report, failure: &Failure) -> Exit {
    match &failure.event {
        Some(event) if failure.is_quiet => report.end_quietly(event),
        Some(event) => report.end(event),
        None => report.clear(),
    }
    failure.exit
}

/// Waits for a signal that ends the wait, and returns its number.
pub(super) async fn told_to_stop(signals: &mut SignalStream) -> i32 {
    loop {
        let info = signals.next().await;
        if let Some(signal) = ends_waiting(&info) {
            return signal as i32;
        }
        if meaning(&info) == Meaning::Suspend {
            suspend_self();
        }
    }
}
