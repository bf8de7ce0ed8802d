/*!
Opens the journal of a run or of `dlock acquire` (`--events`).
*/

use crate::exit::{Exit, Failure};
use crate::here;
use crate::holder::Owner;
use crate::key::Key;
use crate::report::Report;
use crate::report::event::Event;
use crate::report::journal::Sink;
use crate::schema::events::Run;
use crate::settings::Connection;

/// Opens the journal of a run for the lock `key` (the first of several), its `owner` and the `program` that is to run,
/// which is empty if there is none.
pub(super) fn open(
    report: &mut Report,
    sink: &Sink,
    connection: &Connection,
    key: &Key,
    owner: Option<&Owner>,
    program: &str,
) -> Result<(), Failure> {
    let run = Run {
        key: key.as_str().to_owned(),
        owner: owner.map(|owner| owner.as_str().to_owned()).unwrap_or_default(),
        backend: connection.target.to_string(),
        namespace: connection.namespace.as_str().to_owned(),
        pid: std::process::id(),
        host: here::host(),
        user: here::user_name(nix::unistd::geteuid().as_raw()),
        program: program.to_owned(),
    };
    let Err(reason) = report.open_journal(sink, run) else { return Ok(()) };
    let name = sink.to_string();
    if let Sink::FileOfAll(_) = sink {
        report.tell(&Event::Unlogged { sink: name, reason });
        return Ok(());
    }
    Err(Failure::new(Exit::CannotCreate, Event::NoJournal { sink: name, reason }))
}
