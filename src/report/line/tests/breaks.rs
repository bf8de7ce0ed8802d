//! The sentences about requests to stop; those of `dlock break` are tested where they are made.

use super::{lock, named};
use crate::holder::ask::Ask;
use crate::report::event::{BreakEvent, Event, Loss};

pub(super) fn sentences() -> Vec<(Event, &'static str)> {
    let ask = || Ask::new("ab", "alice@ops1", Some("restore first"), 7);
    let program = || "backup.sh".to_owned();
    vec![
        (Event::Break(BreakEvent::Nothing(named("k"))), "'k' is free: there is nothing to break"),
        (
            Event::Lost { lock: lock(), how: Loss::Asked(ask()), program: program(), goes_on: false },
            "lost 'k' at redis://h:6379: alice@ops1 asked it to stop: restore first; stopping backup.sh",
        ),
        (
            Event::AskedAndGoesOn { lock: lock(), ask: ask(), program: program() },
            "'k' at redis://h:6379: alice@ops1 asked it to stop: restore first; backup.sh goes on (--on-lost ignore)",
        ),
    ]
}
