/*!
A lock that is held by its handle, for the subcommands that renew or release it: its claim, and a session with its
service.
*/

use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Adopted, Contender};
use crate::backend::contract::service::Service;
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

/// Returns the claim under which the lock of `handle` is held. Nothing is published under it any more.
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

/// Returns what `handle` says of its grant.
pub(super) fn held(handle: &Handle) -> Adopted {
    Adopted { token: handle.token, attempt: handle.attempt }
}

/// Returns `true` if the keeper's pid means a process here: on this host, since its last start, in this PID namespace.
pub(super) fn is_here(keeper: &Keeper) -> bool {
    !keeper.boot.is_empty()
        && here::boot().as_ref() == Some(&keeper.boot)
        && here::namespace() == Some(keeper.namespace)
}

/// A lock with its handle.
pub(super) struct Grip<'a> {
    /// The handle under which the lock is held.
    pub handle: &'a Handle,
    /// The connection to its service.
    pub connection: &'a Connection,
    /// The service that keeps the lock.
    pub service: Box<dyn Service>,
    /// The owner's contender, which has taken nothing over yet.
    pub contender: Box<dyn Contender>,
    /// The report that takes the messages.
    pub report: Report,
}

impl Grip<'_> {
    /// Returns the URL of the backend, without a password.
    pub(super) fn place(&self) -> String {
        self.connection.target.to_string()
    }
}

/// Runs `work` on the lock of the handle; if the handle is empty, returns the result of `empty`.
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

/// Returns the failure for a lock that its handle no longer holds.
pub(super) fn lost(handle: &Handle, why: String) -> Failure {
    Failure::new(Exit::Lost, Event::Handle(HandleEvent::Lost { key: handle.key.clone(), why }))
}
