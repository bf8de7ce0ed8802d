/*!
The requests that break a lock: they put a request to stop beside it, or take it away. Each is one script that compares
the whole id of the owner.
*/

use ::redis::Cmd;

use crate::backend::redis::keys::Keys;
use crate::backend::redis::{script, script_of};
use crate::backend::survey::Party;
use crate::holder::Holder;
use crate::holder::ask::Ask;

/// The assumed length of a lease that its holder does not publish, in milliseconds.
const LONG: u64 = 3_600_000;

const ASK: &str = script_of!("value.lua" "group.lua" "heed.lua" "ask.lua");
const TAKE: &str = script_of!("value.lua" "group.lua" "heed.lua" "take.lua"; "return 1\n");
const TAKE_AND_WAKE: &str =
    script_of!("value.lua" "group.lua" "queue.lua" "heed.lua" "take.lua" "taken.lua"; "return 1\n");

/// Returns the request to put `ask` beside the lock, if `party` holds it.
pub(super) fn ask(keys: &Keys, party: &Party, ask: &Ask) -> Cmd {
    let id = party.id();
    let lease = party.published().and_then(|said| said.about.ttl).unwrap_or(LONG);
    // Kept for the length of its lease: it reads the request with its next renewal, or has lost the lock.
    let left = lease.to_string();
    let names = [keys.lock.clone(), keys.holders(), keys.details(), keys.broken(), keys.stop(), keys.listener(&id)];
    script(ASK, &names, &[&id, &ask.text(), &left])
}

/// Returns the request to take the lock from `party` and to record `ask`. A `single` server wakes the next waiter.
pub(super) fn take(keys: &Keys, party: &Party, ask: &Ask, single: bool) -> Cmd {
    let (id, text) = match &party.who {
        Holder::Dlock(said) => (said.id.as_str(), &[][..]),
        Holder::Foreign(text) => ("", text.as_slice()),
        _ => ("", &[][..]),
    };
    let mut names = if single { keys.single() } else { keys.voting() };
    names.pop();
    names.extend([keys.broken(), keys.stop(), keys.listener(id)]);
    let mut command = ::redis::cmd("EVAL");
    command.arg(if single { TAKE_AND_WAKE } else { TAKE }).arg(names.len()).arg(&names);
    command.arg(id).arg(text).arg(keys.wakes()).arg(ask.text());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::redis::rights::{MAJORITY, SINGLE, STEER, lacking};

    #[test]
    fn intervening_needs_no_rights_but_those_of_holders_and_of_lists() {
        for (script, commands) in [(ASK, SINGLE), (TAKE_AND_WAKE, SINGLE), (ASK, MAJORITY), (TAKE, MAJORITY)] {
            assert_eq!((lacking(commands, script), lacking(STEER, script)), (Vec::new(), Vec::new()));
        }
    }
}
