/*!
`dlock held`: tells by its exit code if this process runs inside a dlock run that holds the locks.
*/

use std::os::fd::OwnedFd;

use crate::backend::survey::State;
use crate::command::looking::{self, Session};
use crate::command::run::nested::{Outer, inherited_locks, is_kept};
use crate::exit::{CONFLICT, Exit, Failure};
use crate::key::Key;
use crate::settings::HeldSettings;

/// Returns 0 inside runs that hold all of the locks, 75 otherwise, and 69 if that cannot be determined.
pub(crate) fn held(settings: &HeldSettings) -> Result<Exit, Failure> {
    let outer = Outer::inherited();
    // No need to ask the backend.
    if outer.is_empty() {
        return Ok(Exit::NotAcquired(CONFLICT));
    }
    let ids: Vec<String> = outer.iter().map(Outer::id).collect();
    let mut inherited = inherited_locks(&ids);
    looking::with(&settings.look, async |session| {
        let mut exit = Exit::Success;
        for key in settings.keys.iter() {
            match is_held(session, &outer, &mut inherited, key).await? {
                Exit::Success => {}
                Exit::Unavailable => return Ok(Exit::Unavailable),
                other => exit = other,
            }
        }
        Ok(exit)
    })
}

/// Returns the exit for one of the locks.
async fn is_held(
    session: &mut Session<'_>,
    outer: &[Outer],
    inherited: &mut Vec<OwnedFd>,
    key: &Key,
) -> Result<Exit, Failure> {
    let seen = session.look_at(key).await.map_err(|error| looking::failed(&key.to_string(), &error))?;
    for published in seen.holders.iter().filter_map(|party| party.published()) {
        let kept = is_kept(outer, inherited, published, key).await;
        // For whatever reason a nested run would be refused.
        if kept.map_err(|failure| Failure { exit: Exit::Unavailable, ..failure })? {
            return Ok(Exit::Success);
        }
    }
    let is_all = seen.holders.len() as u64 == seen.held_by;
    Ok(if seen.state == State::Unknown || !is_all { Exit::Unavailable } else { Exit::NotAcquired(CONFLICT) })
}
