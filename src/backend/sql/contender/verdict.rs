/*!
Interprets a look at a lock's row: an attempt that is decided without a queue, or why the lock is no longer ours.
*/

use crate::backend::contract::contender::{Attempt, OtherSlots};
use crate::backend::sql::answers::Look;
use crate::backend::sql::contender::{SqlContender, Tried};
use crate::backend::sql::dialect::Dialect;
use crate::backend::sql::owner;
use crate::holder::Holder;
use crate::lock::admission::Mode;

impl<D: Dialect> SqlContender<D> {
    /// Returns the outcome of an attempt that needs no queue: an outer run holds the lock, a command has succeeded in
    /// the period, or others use the lock with another number of slots.
    pub(super) fn decided(&self, tried: &Tried) -> Option<Attempt> {
        let Look { free, columns, other_slots, done, now, .. } = &tried.look;
        let holder = if *free { Holder::Unknown } else { columns.holder() };
        match (holder, *other_slots) {
            (Holder::Dlock(outer), _) if !outer.done && self.claim.outer.contains(&outer.id) => {
                Some(Attempt::Outer(outer))
            }
            _ if done.is_some() => done.clone().map(Attempt::Done),
            (holder, Some(slots)) => {
                let is_theirs =
                    matches!(&holder, Holder::Dlock(one) if one.mode().and_then(Mode::slots) == Some(slots));
                let holder = if is_theirs { holder } else { Holder::Unknown };
                Some(Attempt::OtherSlots(OtherSlots { slots, holder, now: *now }))
            }
            (_, None) => None,
        }
    }

    /// Describes why the lock is not ours, by the state of its row.
    pub(super) fn not_mine(&self, look: Option<&Look>) -> String {
        let Some(look) = look else { return "its row is gone from the database".to_owned() };
        match () {
            () if look.columns.locked_by == owner::held(&self.claim.owner) => {
                "its row says that its lease has ended: it was freed there, or the server's clock was set forward"
                    .to_owned()
            }
            () if owner::read_group(&look.columns.locked_by) == Some(self.claim.mode) => {
                "its place among the holders is gone: it was freed there, or the server lost it".to_owned()
            }
            () if look.free => "its row was freed, and others have had it since".to_owned(),
            // Without its age, because this host's clock is not the one that granted it.
            () => format!("its row is {}", look.columns.holder().describe(0)),
        }
    }
}
