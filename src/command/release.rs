/*!
`dlock release`: gives a lock back by its handle, or says what it finds if the handle no longer holds it.
*/

use crate::backend::contract::contender::Released;
use crate::backend::survey::{Snapshot, State};
use crate::clock::{Instant, before};
use crate::command::gripping::{self, Grip, held};
use crate::command::keeping::releasing::{self, Asked, Waiting, is_around};
use crate::command::session::exit_of;
use crate::exit::{Exit, Failure};
use crate::handle::Handle;
use crate::holder::Holder;
use crate::lease::adopting;
use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::settings::HandleSettings;
use crate::supervise::guard::under::{Under, guards};

/// Time limit for a guard's answer, in milliseconds.
const ANSWER: u16 = 1000;

/// Gives the lock back; returns dlock's exit.
pub(crate) fn release(settings: &HandleSettings) -> Result<Exit, Failure> {
    let empty = |report: &crate::report::Report| {
        let nothing = match settings.elsewhere.clone() {
            Some((key, shell)) => HandleEvent::OfAnotherShell { key, shell },
            None => HandleEvent::Empty,
        };
        report.tell(&Event::Handle(nothing));
        Ok(Exit::Success)
    };
    gripping::with(settings, empty, async |grip| {
        let connect = grip.connection.connect_timeout;
        let keeper = grip.handle.keeper.as_ref();
        let asked = keeper.map(|keeper| releasing::ask(grip.handle, keeper, connect, &grip.report)).transpose()?;
        if let Some(asked) = asked
            && !grip.connection.target.has_handles()
        {
            return released_by_its_keeper(grip, asked).await;
        }
        wait_for_guards(grip)?;
        match adopting::release(grip.contender.as_mut(), &held(grip.handle), connect).await {
            Ok(Released::Freed | Released::Kept) => {
                grip.report.tell(&Event::Released(grip.handle.key.clone().into()));
                Ok(Exit::Success)
            }
            Ok(Released::NotMine) => {
                let seen = look(grip).await;
                // An unknown answer counts as no: the handle does not hold the lock, which is what was asked for.
                let passed_on = adopting::passed_on(grip.contender.as_mut(), &held(grip.handle)).await;
                let (exit, event) = verdict(grip.handle, seen.as_ref(), passed_on.unwrap_or(false));
                if exit == Exit::Success {
                    grip.report.tell(&event);
                    return Ok(exit);
                }
                Err(Failure::new(exit, event))
            }
            Err(failed) => {
                let lock = grip.connection.lock(grip.handle.key.clone());
                let (reason, ttl) = (failed.trouble, Some(grip.handle.ttl));
                let event = Event::ReleaseFailed { lock, reason, ttl, unrecorded: false };
                Err(Failure::new(exit_of(failed.kind), event))
            }
        }
    })
}

/// Waits for the guards of commands under the handle on this host: for one that goes on, no longer than for a
/// connection. Without a keeper, a guard above this process is skipped: it stops its command when the lock is gone.
fn wait_for_guards(grip: &Grip<'_>) -> Result<(), Failure> {
    let (handle, limit) = (grip.handle, grip.connection.connect_timeout);
    let mut waiting = Waiting::new(handle, limit, &grip.report);
    let is_kept = handle.keeper.is_some();
    let is_waited_for = |guard: &Under| is_kept || !is_around(guard.pid);
    while let Some(guard) = guards(handle.owner.as_str(), ANSWER.into()).into_iter().find(is_waited_for) {
        waiting.once_more(guard.pid, guard.is_stopping)?;
    }
    Ok(())
}

/// Returns the exit of a release whose lock only its keeper could give back.
async fn released_by_its_keeper(grip: &mut Grip<'_>, asked: Asked) -> Result<Exit, Failure> {
    let (handle, key) = (grip.handle, grip.handle.key.clone());
    let seen = look(grip).await;
    let is_held = seen.as_ref().and_then(|seen| seen.holders.first());
    let (exit, event) = match asked {
        _ if is_held.is_some_and(|holder| holder.who.id() == Some(handle.owner.as_str())) => {
            (Exit::Unavailable, Event::Handle(HandleEvent::KeeperGone { key, ttl: handle.ttl }))
        }
        Asked::Ended => (Exit::Success, Event::Released(key.into())),
        Asked::Gone => verdict(handle, seen.as_ref(), false),
    };
    if exit == Exit::Success {
        grip.report.tell(&event);
        return Ok(exit);
    }
    Err(Failure::new(exit, event))
}

/// Returns the current state of the lock; `None` if it cannot be determined.
async fn look(grip: &mut Grip<'_>) -> Option<Snapshot> {
    let mut survey = grip.service.survey(grip.connection.namespace.clone());
    let limit = Instant::now() + grip.connection.connect_timeout;
    let looking = async {
        survey.connect().await?;
        survey.look(&grip.handle.key).await
    };
    let seen = before(limit, looking).await;
    survey.close().await;
    seen.ok()?.ok()
}

/// Returns the exit and the event of a release that found the lock not held by its handle: `seen` is the state found
/// then, and `passed_on` says that others are known to have held the lock since.
fn verdict(handle: &Handle, seen: Option<&Snapshot>, passed_on: bool) -> (Exit, Event) {
    let key = handle.key.clone();
    let by_others = seen.and_then(|seen| match &seen.state {
        State::Held => {
            let who =
                seen.holders.first().map(|holder| &holder.who).filter(|who| who.id() != Some(handle.owner.as_str()))?;
            Some(who.describe_with(seen.held_by.saturating_sub(1), seen.now))
        }
        State::Blocked(what) => Some(Holder::InTheWay(what.clone()).describe(seen.now)),
        State::Free | State::Contested | State::Unknown => None,
    });
    match by_others {
        Some(why) => (Exit::Lost, Event::Handle(HandleEvent::Lost { key, why })),
        None if passed_on => (Exit::Lost, Event::Handle(HandleEvent::PassedOn(key))),
        None => (Exit::Success, Event::Handle(HandleEvent::NotHeld(key))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::survey::{Location, Party};
    use crate::holder::Owner;
    use crate::key::{Key, Namespace};

    const OWN: &str = "e457f1b7a38ab51a0c8ce773f17aabeb";

    fn handle() -> Handle {
        Handle {
            backend: "redis://locks:6379".to_owned(),
            namespace: Namespace::parse("dlock").expect("valid"),
            key: Key::parse("backup".as_ref()).expect("valid"),
            owner: Owner::read(OWN).expect("an id"),
            token: 7,
            ttl: Duration::from_secs(600),
            attempt: None,
            keeper: None,
        }
    }

    fn seen(id: &str) -> Snapshot {
        let text = format!(r#"{{"v":1,"id":"{id}","host":"web1","user":"ci","pid":7}}"#);
        Snapshot::free(Location::default(), 9).held_by(vec![Party::new(Holder::read(text.as_bytes()), "")], 1)
    }

    #[test]
    fn every_row_of_the_table() {
        let key = handle().key;
        let free = || Snapshot::free(Location::default(), 9);
        let with = |state| Snapshot { state, ..free() };
        let not_held = || HandleEvent::NotHeld(key.clone());
        let passed_on = || HandleEvent::PassedOn(key.clone());
        let lost = |why: &str| HandleEvent::Lost { key: key.clone(), why: why.to_owned() };
        let by_another = || lost("held by ci@web1, pid 7");
        for (found, since, code, event) in [
            (Some(free()), false, 0, not_held()),
            (Some(free()), true, 79, passed_on()),
            (Some(seen("other")), false, 79, by_another()),
            (Some(seen("other")), true, 79, by_another()),
            (Some(with(State::Blocked("a list".to_owned()))), false, 79, lost("blocked by a list")),
            (Some(with(State::Contested)), false, 0, not_held()),
            (Some(with(State::Unknown)), false, 0, not_held()),
            (Some(with(State::Unknown)), true, 79, passed_on()),
            // A vote of the owner that is left at a server is not another holder.
            (Some(seen(OWN)), false, 0, not_held()),
            (None, false, 0, not_held()),
            (None, true, 79, passed_on()),
        ] {
            let (exit, found_event) = verdict(&handle(), found.as_ref(), since);
            assert_eq!((exit.code(), found_event), (code, Event::Handle(event)), "{found:?} {since}");
        }
    }
}
