/*!
A run under a lock that is held by its handle: it is renewed before the command and after it, and never given back.
*/

use std::time::Duration;

use crate::backend::{Contender, Grant, Renewal};
use crate::clock::{Instant, before};
use crate::command::gripping::{held as held_by, lost};
use crate::command::run::acquire::Waited;
use crate::command::run::held::Held;
use crate::command::run::tenure::Tenure;
use crate::command::session::exit_of;
use crate::exit::Failure;
use crate::handle::Handle;
use crate::lease::adopting;
use crate::lease::timing::acquire_timeout;
use crate::lease::waiting::{Trouble, Wait};
use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::settings::{Patience, RunSettings};

/// How often the last renewal is tried if there is no answer.
const TRIES: usize = 2;

/// Takes the lock over and renews it; fails where it is not held by the handle any more.
pub(super) async fn adopt(
    settings: &RunSettings,
    handle: &Handle,
    contender: &mut dyn Contender,
) -> Result<Waited, Failure> {
    let wait = match settings.patience {
        Patience::For(patience) => Wait::Until(Instant::now() + patience),
        Patience::None | Patience::Endless => Wait::No,
    };
    let connect = settings.connection.connect_timeout;
    match adopting::renew(contender, &held_by(handle), connect, wait).await {
        Ok(Renewal::Extended(lease) | Renewal::Asked(lease, _)) => {
            let own = Some(Grant { token: handle.token, slot: None, lease });
            Ok(Waited::Held(Tenure { own, covers: Vec::new() }))
        }
        Ok(Renewal::NotMine(why)) => Err(lost(handle, why)),
        Err(failed) => {
            let (key, place) = (handle.key.clone(), settings.connection.target.to_string());
            let event = HandleEvent::NotRenewed { key, place, reason: failed.trouble, ttl: handle.ttl };
            Err(Failure::new(exit_of(failed.kind), Event::Handle(event)))
        }
    }
}

/// What is reported of a lock that was renewed for the command.
pub(super) fn renewed(handle: &Handle, ttl: Option<Duration>) -> Event {
    Event::Handle(HandleEvent::Renewed { key: handle.key.clone(), ttl: ttl.unwrap_or(handle.ttl) })
}

/// Renews the lock when the command is over: says whether it is still held. `None` where it is known to be lost.
pub(super) async fn renew_once_more(
    held: &Held,
    contender: &mut dyn Contender,
    patience: Duration,
) -> Option<Result<bool, Trouble>> {
    if held.told_of_loss {
        return None;
    }
    let mut result = Err(Trouble::Silent);
    for _ in 0..TRIES {
        let limit = Instant::now() + acquire_timeout(contender.claim().ttl).min(patience);
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
