/*!
The `--events` line for each event that dlock reports. Other lines, such as renewals, are added where they happen.
*/

use crate::holder::Holder;
use crate::report::event::handle::HandleEvent;
use crate::report::event::{Blocker, Event, Lock, Loss};
use crate::report::line::{line, loss};
use crate::report::words::{trouble, unconfirmed};
use crate::schema::events::{BreakOf, Cause, Entry, HolderOf, Why, millis};

/// Returns the entry for `event`; `None` for an event that is for people only.
#[must_use]
pub(in crate::report) fn entry(event: &Event) -> Option<Entry> {
    Some(match event {
        Event::Waiting { lock, why: Blocker::Held { holder, beside, now, position, .. }, waited } => Entry::Waiting {
            lock: name(lock),
            holder: HolderOf::of(holder, *now),
            held_by: if matches!(holder, Holder::Nobody | Holder::InTheWay(_)) { 0 } else { beside.saturating_add(1) },
            blocked_by: if let Holder::InTheWay(what) = holder { Some(what.clone()) } else { None },
            position: *position,
            waited_ms: millis(*waited),
        },
        Event::Waiting { lock, why: Blocker::Trouble(what), .. } => {
            Entry::Trouble { error: trouble(&lock.place, what) }
        }
        Event::Acquired { lock, tokens, slot, ttl, waited, .. } => {
            Entry::acquired(&lock.key, tokens, *slot, *ttl).after(*waited, false)
        }
        Event::LastBreak { lock, ask, .. } | Event::TakenAway { lock, ask, .. } => {
            Entry::LastBreak { lock: name(lock), last: BreakOf::of(ask.clone()) }
        }
        Event::NotAcquired { .. }
        | Event::OtherSlots { .. }
        | Event::AlreadyDone { .. }
        | Event::Handle(HandleEvent::OwnHandle { .. }) => return refused(event),
        Event::NotRenewed { last, .. } => Entry::Trouble { error: unconfirmed(last).to_owned() },
        Event::Lost { how: Loss::Asked(ask), .. } | Event::AskedAndGoesOn { ask, .. } => {
            Entry::Asked { by: ask.by.clone(), reason: ask.reason.clone() }
        }
        Event::Lost { how, .. } => Entry::Lost { reason: loss(how) },
        Event::LostBeforeTheEnd { .. } => {
            Entry::Lost { reason: "it was not ours any more when the command ended".to_owned() }
        }
        Event::OuterEnded { .. } => {
            Entry::Lost { reason: "the outer dlock run ended before the command did".to_owned() }
        }
        Event::StoppingNested { .. } => Entry::Stopping { signal: "TERM", cause: Cause::Nested },
        Event::Released(_) => Entry::Released { freed: true },
        Event::Kept { .. } => Entry::Released { freed: false },
        Event::ReleaseFailed { .. } | Event::NotReleased { .. } => Entry::Trouble { error: line(event) },
        Event::Handle(HandleEvent::NotRenewed { place, reason, .. }) => {
            Entry::Trouble { error: trouble(place, reason) }
        }
        Event::Handle(HandleEvent::Lost { why, .. }) => Entry::Lost { reason: why.clone() },
        Event::Handle(HandleEvent::StaysHeld { ttl, .. }) => Entry::Renewed { ttl_ms: millis(*ttl) },
        _ => return None,
    })
}

/// The entry for an event that says why a lock was not acquired.
fn refused(event: &Event) -> Option<Entry> {
    let (why, lock, holder) = match event {
        Event::NotAcquired { lock, why: Blocker::Held { holder, now, .. }, .. } => {
            (Why::Held, name(lock), HolderOf::of(holder, *now))
        }
        Event::NotAcquired { lock, why: Blocker::Trouble(_), .. } => (Why::Backend, name(lock), None),
        Event::OtherSlots { lock, holder, now, .. } => (Why::Slots, name(lock), HolderOf::of(holder, *now)),
        Event::AlreadyDone { lock, .. } => (Why::Done, name(lock), None),
        Event::Handle(HandleEvent::OwnHandle { key, .. }) => (Why::Handle, key.first().as_str().to_owned(), None),
        _ => return None,
    };
    Some(Entry::Refused { why, lock, holder, error: line(event) })
}

fn name(lock: &Lock) -> String {
    lock.key.first().as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::ask::Ask;
    use crate::key::Key;

    #[test]
    fn a_request_to_stop_is_written_whatever_becomes_of_the_command() {
        let lock = || Lock {
            key: Key::parse("k".as_ref()).expect("a key").into(),
            place: "redis://h:6379".to_owned(),
            flags: String::new(),
        };
        let (ask, program) = (|| Ask::new("ab", "alice@ops1", Some("restore first"), 7), || "backup.sh".to_owned());
        for event in [
            Event::Lost { lock: lock(), how: Loss::Asked(ask()), program: program(), goes_on: false },
            Event::AskedAndGoesOn { lock: lock(), ask: ask(), program: program() },
        ] {
            let Some(Entry::Asked { by, reason }) = entry(&event) else { panic!("{event:?} is not written") };
            assert_eq!((by.as_str(), reason.as_deref()), ("alice@ops1", Some("restore first")));
        }
    }
}
