/*!
`dlock break`: asks the holder of a lock to stop and to release it, or takes the lock away.
*/

mod found;
mod prompt;

use std::time::Duration;

use self::found::{Found, ends_within, found, is_over, notices_within, stop_timeout, stops_within, unaskable};
use crate::backend::contract::driver::Breaks;
use crate::backend::error::Error;
use crate::backend::survey::{Party, Snapshot};
use crate::clock::{Instant, sleep_until, wall_millis};
use crate::command::looking::{self, Session};
use crate::command::session;
use crate::exit::{CONFLICT, Exit, Failure};
use crate::here;
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::key::Key;
use crate::report::event::{BreakEvent, Event};
use crate::settings::BreakSettings;

/// Interval between looks at the lock while waiting for its release.
const BETWEEN: Duration = Duration::from_millis(100);

/// Breaks the lock.
pub(crate) fn break_lock(settings: &BreakSettings) -> Result<Exit, Failure> {
    looking::with(&settings.look, async |session| {
        let seen = look(session, settings).await?;
        let party = match found(&seen, &settings.owner) {
            Found::Owner(party) => party,
            Found::Nobody => return Ok(said(session, BreakEvent::Nothing(settings.key.clone()))),
            Found::Several => return Err(failed(Exit::Usage, BreakEvent::Several(settings.owner.clone()))),
            Found::Another(other) => return Err(another(settings, &seen, other)),
            Found::Unclear => return Err(failed(CONFLICTED, BreakEvent::Unclear(settings.key.clone()))),
        };
        if let Some(why) = unaskable(party).filter(|_| !settings.now) {
            let can_be_taken = settings.look.connection.target.breaks() == Breaks::Taking;
            return Err(failed(CONFLICTED, BreakEvent::Unaskable { key: settings.key.clone(), why, can_be_taken }));
        }
        if !settings.yes
            && prompt::is_possible()
            && !prompt::confirm(&seen, &session.exact_place(), &settings.key, party, settings.now)
        {
            return Err(failed(CONFLICTED, BreakEvent::Declined { key: settings.key.clone(), typed: settings.now }));
        }
        if settings.now { take(session, settings, &seen, party).await } else { ask(session, settings, party).await }
    })
}

/// The exit code if nothing was done, or not enough.
const CONFLICTED: Exit = Exit::NotAcquired(CONFLICT);

fn failed(exit: Exit, event: BreakEvent) -> Failure {
    Failure::new(exit, Event::Break(event))
}

/// Reports this event, and returns success.
fn said(session: &Session<'_>, event: BreakEvent) -> Exit {
    session.report.tell(&Event::Break(event));
    Exit::Success
}

/// Returns the failure for a lock that another owner holds.
fn another(settings: &BreakSettings, seen: &Snapshot, other: &Party) -> Failure {
    let (key, holder, now) = (settings.key.clone(), other.who.clone(), seen.now);
    failed(Exit::Lost, BreakEvent::Another { key, holder, owner: other.id(), now })
}

async fn look(session: &mut Session<'_>, settings: &BreakSettings) -> Result<Snapshot, Failure> {
    let looked = session.look(async |survey| survey.look(&settings.key).await).await;
    let mut seen = looked.map_err(|error| looking::failed(&settings.key.to_string(), &error))?;
    session.judge(&mut seen);
    Ok(seen)
}

/// Takes the lock away from `party`.
async fn take(
    session: &mut Session<'_>,
    settings: &BreakSettings,
    seen: &Snapshot,
    party: &Party,
) -> Result<Exit, Failure> {
    let ask = ask_of(settings, party);
    let taken = session.look(async |survey| survey.take_away(&settings.key, party, &ask).await).await;
    let key = settings.key.clone();
    if taken.map_err(|error| broke(&key, &error))? {
        tell_untraced(session, &key);
        let (holder, now, within, frozen) = (party.who.clone(), seen.now, notices_within(party), ends_within(party));
        return Ok(said(session, BreakEvent::Taken { key, holder, now, within, frozen }));
    }
    let seen = look(session, settings).await?;
    Ok(said(session, BreakEvent::Gone { key, after: None, next: next(&seen), now: seen.now }))
}

/// Asks `party` to stop, and waits until it has released the lock.
async fn ask(session: &mut Session<'_>, settings: &BreakSettings, party: &Party) -> Result<Exit, Failure> {
    let (begun, id) = (Instant::now(), party.id());
    let ask = ask_of(settings, party);
    put(session, settings, party, &ask).await.map_err(|error| broke(&settings.key, &error))?;
    tell_untraced(session, &settings.key);
    let who = party.who.name();
    let event = match party.alive {
        Some(false) => BreakEvent::Dead(who),
        _ => BreakEvent::Asked { who, notices: notices_within(party), stops: stops_within(party) },
    };
    session.report.tell(&Event::Break(event));
    let limit = begun + settings.wait.unwrap_or_else(|| stop_timeout(party));
    loop {
        let now = Instant::now();
        let seen = match look(session, settings).await {
            Ok(seen) if is_over(&seen, &id) => {
                let (key, after) = (settings.key.clone(), Some(now.since(begun)));
                return Ok(said(session, BreakEvent::Gone { key, after, next: next(&seen), now: seen.now }));
            }
            Ok(seen) => Some(seen),
            // An outage may end before the wait does.
            Err(failure) if failure.exit == Exit::Unavailable && now < limit => None,
            Err(failure) => return Err(failure),
        };
        if now >= limit {
            let (key, within) = (settings.key.clone(), limit.since(begun));
            let can_be_taken = settings.look.connection.target.breaks() == Breaks::Taking;
            return Err(failed(CONFLICTED, BreakEvent::StillHeld { key, within, can_be_taken }));
        }
        // The request may be lost, as when a replica takes over.
        let is_lost = |seen: &Snapshot| seen.holders.iter().any(|party| party.id() == id && party.asked.is_none());
        if seen.as_ref().is_some_and(is_lost) {
            let _ = put(session, settings, party, &ask).await;
        }
        sleep_until((now + BETWEEN).min(limit)).await;
    }
}

/// Returns the request to `party`, or with `--now` the record of who took the lock away.
fn ask_of(settings: &BreakSettings, party: &Party) -> Ask {
    let by = format!("{}@{}", here::user_name(nix::unistd::geteuid().as_raw()), here::host());
    let ask = Ask::new(&party.id(), &by, settings.reason.as_deref(), wall_millis());
    ask.to(&party.who.name(), settings.now)
}

/// Says why this break could not be recorded, if it was not.
fn tell_untraced(session: &mut Session<'_>, key: &Key) {
    if let Some(error) = session.untraced() {
        session.report.tell(&Event::Break(BreakEvent::Untraced { key: key.clone(), reason: error.to_string() }));
    }
}

/// Puts the request beside the lock.
async fn put(session: &mut Session<'_>, settings: &BreakSettings, party: &Party, ask: &Ask) -> Result<bool, Error> {
    session.look(async |survey| survey.ask_to_stop(&settings.key, party, ask).await).await
}

/// Returns the current holder, or one that only keeps the lock taken.
fn next(seen: &Snapshot) -> Option<Holder> {
    seen.holders.first().map(|party| party.who.clone())
}

fn broke(key: &Key, error: &Error) -> Failure {
    let event = BreakEvent::Failed { key: key.clone(), reason: error.to_string() };
    failed(session::exit_of(error.kind), event)
}
