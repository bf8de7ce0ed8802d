/*!
A lock that is held by its handle, for the subcommands that renew it and give it back: the claim under which it was taken, and
a session with its service.
*/

use std::time::Duration;

use crate::backend::{Adopted, Claim, Contender, Service};
use crate::command::session;
use crate::exit::{Exit, Failure};
use crate::handle::{Handle, Keeper};
use crate::here;
use crate::holder::About;
use crate::lock::admission::Mode;
use crate::report::Report;
use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::settings::{Connection, HandleSettings};

/// The claim under which the lock of `handle` is held. Nothing is published under it any more.
pub(super) fn claim(handle: &Handle) -> Claim {
    Claim {
        key: handle.key.clone(),
        namespace: handle.namespace.clone(),
        owner: handle.owner.clone(),
        mode: Mode::Exclusive,
        outer: Vec::new(),
        ttl: handle.ttl,
        min_hold: Duration::ZERO,
        once_per: None,
        about: About::default(),
    }
}

/// What `handle` says of its grant.
pub(super) fn held(handle: &Handle) -> Adopted {
    Adopted { token: handle.token, attempt: handle.attempt }
}

/// Whether the keeper's number means a process here: on this host, since its last start, in this PID namespace.
pub(super) fn is_here(keeper: &Keeper) -> bool {
    !keeper.boot.is_empty()
        && here::boot().as_ref() == Some(&keeper.boot)
        && here::namespace() == Some(keeper.namespace)
}

/// A lock with its handle.
pub(super) struct Grip<'a> {
    /// The handle.
    pub handle: &'a Handle,
    /// The connection to its service.
    pub connection: &'a Connection,
    /// The service.
    pub service: Box<dyn Service>,
    /// The owner's contender, which has taken nothing over yet.
    pub contender: Box<dyn Contender>,
    /// What is reported.
    pub report: Report,
}

impl Grip<'_> {
    /// The URL of the backend, without a password.
    pub(super) fn place(&self) -> String {
        self.connection.target.to_string()
    }
}

/// Runs `work` on the lock of the handle; where that is empty, it ends as `empty` says.
pub(super) fn with<'a>(
    settings: &'a HandleSettings,
    empty: impl FnOnce(&Report) -> Result<Exit, Failure>,
    work: impl AsyncFnOnce(&mut Grip<'a>) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let report = Report::new(settings.verbosity);
    let Some((handle, connection)) = &settings.held else { return empty(&report) };
    let service = session::service(connection, settings.unknown.as_ref(), &report)?;
    let contender = service.contend(claim(handle));
    let mut grip = Grip { handle, connection, service, contender, report };
    let runtime = session::event_loop()?;
    let outcome = runtime.block_on(work(&mut grip));
    // A name server that does not answer must not delay the end.
    runtime.shutdown_background();
    outcome
}

/// The failure for a lock that is not held by its handle any more.
pub(super) fn lost(handle: &Handle, why: String) -> Failure {
    Failure::new(Exit::Lost, Event::Handle(HandleEvent::Lost { key: handle.key.clone(), why }))
}
