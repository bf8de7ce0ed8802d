/*!
The last periods in which commands have succeeded (`--once-per`), one for each length, as a holder records them.
*/

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Used;
use crate::clock::wall_millis;
use crate::holder::done::Done;

/// Adds to `done` that a command under this claim has succeeded in its period now, if the lock was `used` for that.
/// Returns `true` if it was.
pub(super) fn note_success(done: &mut Vec<Done>, claim: &Claim, used: Used) -> bool {
    let Some(once) = claim.once_per.filter(|_| used == Used::Success) else { return false };
    let now = wall_millis();
    let own = claim.done(once.by(now), now);
    done.retain(|other| other.length != own.length);
    done.insert(0, own);
    true
}
