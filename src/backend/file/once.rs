/*!
The last periods in which commands have succeeded (`--once-per`), one for each length: lines of the lock file, which stay whoever
has the lock.
*/

use crate::backend::file::lock_file::LockFile;
use crate::backend::file::text::header;
use crate::backend::{Claim, Used};
use crate::clock::wall_millis;
use crate::holder::done::Done;

impl LockFile {
    /// Who has succeeded in the claim's period already, as far as can be seen before coming into the line.
    pub(super) fn done(&self, claim: &Claim) -> Option<Box<Done>> {
        if claim.once_per.is_none() || self.line.is_queued() || self.held.is_some() {
            return None;
        }
        header(self.files.gate()).ok()?.done_in(claim, wall_millis())
    }
}

/// Adds to what was `done` that a command under this claim has succeeded in its period now, if it was `used` for that. Says
/// whether it was.
pub(super) fn note_success(done: &mut Vec<Done>, claim: &Claim, used: Used) -> bool {
    let Some(once) = claim.once_per.filter(|_| used == Used::Success) else { return false };
    let now = wall_millis();
    let own = claim.done(once.by(now), now);
    done.retain(|other| other.length != own.length);
    done.insert(0, own);
    true
}
