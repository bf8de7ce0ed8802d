/*!
A run under a lock that is held by its handle: renewed before, during and after the command, and never given back. If a
process keeps the lock, the run registers with it: the keeper gives the lock back only when nothing of the run is left.
*/

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;
use tokio::io::unix::AsyncFd;

use crate::backend::contract::contender::{Contender, Grant, Renewal};
use crate::clock::{Instant, before, sleep_until};
use crate::command::gripping::{held as held_by, is_here, lost};
use crate::command::run::acquire::Waited;
use crate::command::run::held::Held;
use crate::command::run::tenure::Tenure;
use crate::command::session::exit_of;
use crate::exit::{Exit, Failure};
use crate::handle::{Handle, Keeper};
use crate::lease::adopting;
use crate::lease::timing::acquire_timeout;
use crate::lease::waiting::{Trouble, Wait};
use crate::readable::readable;
use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::settings::{RunSettings, WaitLimit};
use crate::supervise::keeper::{Answer, Request, connected};
use crate::supervise::process::{is_ending, start_of};

/// Number of tries for the last renewal if there is no answer.
const TRIES: usize = 2;
/// Time limit for the answer of a lock's keeper.
const ANSWER: Duration = Duration::from_secs(2);
/// The pause before a keeper for which too many runs wait is tried again.
const AGAIN: Duration = Duration::from_millis(10);

/// Takes the lock over and renews it; fails if the handle no longer holds it.
pub(super) async fn adopt(
    settings: &RunSettings,
    handle: &Handle,
    contender: &mut dyn Contender,
) -> Result<Waited, Failure> {
    let wait = match settings.wait_limit {
        WaitLimit::For(wait_limit) => Wait::Until(Instant::now() + wait_limit),
        WaitLimit::None | WaitLimit::Endless => Wait::No,
    };
    let connect = settings.connection.connect_timeout;
    let keeper = match &handle.keeper {
        Some(keeper) => Some(register(handle, keeper).await?),
        None => None,
    };
    match adopting::renew(contender, &held_by(handle), connect, wait).await {
        Ok(Renewal::Extended(lease) | Renewal::Asked(lease, _)) => {
            let own = Some(Grant { token: handle.token, slot: None, lease });
            Ok(Waited::Held(Tenure { own, covers: Vec::new(), keeper }))
        }
        Ok(Renewal::NotMine(why)) => Err(lost(handle, format!("{why}; no command was started"))),
        Err(failed) => {
            let (key, place) = (handle.key.clone(), settings.connection.target.to_string());
            let event = HandleEvent::NotRenewed { key, place, reason: failed.trouble, ttl: handle.lasts() };
            Err(Failure::new(exit_of(failed.kind), Event::Handle(event)))
        }
    }
}

/// Registers with the keeper of the lock, which keeps it until the connection is closed. Fails if the keeper cannot be
/// reached, or no longer keeps the lock.
async fn register(handle: &Handle, keeper: &Keeper) -> Result<AsyncFd<OwnedFd>, Failure> {
    let (key, pid, limit) = (handle.key.clone(), keeper.pid, Instant::now() + ANSWER);
    let failure = |exit, event| Err(Failure::new(exit, Event::Handle(event)));
    if !is_here(keeper) {
        return failure(Exit::Usage, HandleEvent::RunElsewhere { key, host: keeper.host.clone() });
    }
    let is_gone = || is_ending(pid) || start_of(pid).is_some_and(|start| start != keeper.start);
    let gone = || Err(lost(handle, "the process that kept it has ended; no command was started".to_owned()));
    let line = loop {
        match connected(handle.owner.as_str(), pid, keeper.start) {
            Ok(line) => break line,
            Err(Errno::EAGAIN) if Instant::now() < limit => sleep_until(Instant::now() + AGAIN).await,
            Err(_) if is_gone() => return gone(),
            Err(_) => return failure(Exit::Unavailable, HandleEvent::KeeperUnreachable { key, pid }),
        }
    };
    Request::Register.send(&line);
    let Ok(line) = readable(line) else {
        return failure(Exit::Unavailable, HandleEvent::KeeperUnreachable { key, pid });
    };
    if !matches!(before(limit, line.readable()).await, Ok(Ok(_))) {
        return failure(Exit::Unavailable, HandleEvent::KeeperUnreachable { key, pid });
    }
    match Answer::receive(line.get_ref()) {
        // Registered anew with the event loop: it was readable, and is no longer.
        Some(Answer::Yes) => match readable(line.into_inner()) {
            Ok(line) => Ok(line),
            Err(_) => failure(Exit::Unavailable, HandleEvent::KeeperUnreachable { key, pid }),
        },
        Some(Answer::Denied) => failure(Exit::Denied, HandleEvent::RunDenied { key, pid }),
        Some(Answer::Stopping) => {
            Err(lost(handle, "its keeper is stopping all that counts on it; no command was started".to_owned()))
        }
        Some(Answer::Busy(_)) | None => gone(),
    }
}

/// Returns the event for a lock that was renewed for the command.
pub(super) fn renewed(handle: &Handle, ttl: Option<Duration>) -> Event {
    Event::Handle(HandleEvent::Renewed { key: handle.key.clone(), ttl: ttl.unwrap_or(handle.ttl) })
}

/// Renews the lock when the command is over; returns whether it is still held. `None` if it is known to be lost.
pub(super) async fn renew_once_more(
    held: &Held,
    contender: &mut dyn Contender,
    timeout: Duration,
) -> Option<Result<bool, Trouble>> {
    if held.told_of_loss {
        return None;
    }
    let mut result = Err(Trouble::Silent);
    for _ in 0..TRIES {
        let limit = Instant::now() + acquire_timeout(contender.claim().ttl).min(timeout);
        let renewed = before(limit, async {
            contender.connect().await?;
            contender.renew().await
        });
        match renewed.await {
            Ok(Ok(renewal)) => return Some(Ok(!matches!(renewal, Renewal::NotMine(_)))),
            Ok(Err(error)) => result = Err(Trouble::Said(error.to_string())),
            Err(_) => {}
        }
    }
    Some(result)
}
