/*!
Tests of the sentences that only `-v` asks for.
*/

use super::*;
use crate::holder::ask::Ask;

/// The sentences with `-v` while a lock is held.
pub(super) fn sentences() -> Vec<(Event, &'static str)> {
    vec![
        (
            Event::Acquired {
                lock: lock(),
                tokens: vec![42],
                mode: Mode::Exclusive,
                slot: None,
                ttl: Some(30 * S),
                waited: Duration::from_millis(130_900),
            },
            "acquired 'k' at redis://h:6379, token 42, ttl 30s, after 2m 10s",
        ),
        (
            Event::NotRenewed { lock: lock(), last: Unconfirmed::Said("refused".to_owned()) },
            "'k' at redis://h:6379: could not renew it, trying again: refused",
        ),
        (
            Event::LastBreak {
                lock: lock(),
                ask: Ask::new("ab", "alice@ops1", Some("restore"), 1000).to("ci@web1, pid 7 (backup.sh)", false),
                now: 64_999,
            },
            "'k' at redis://h:6379: 1m 3s ago (1970-01-01T00:00:01Z) alice@ops1 asked ci@web1, pid 7 (backup.sh), to stop, reason: restore",
        ),
        (
            Event::TakenAway {
                lock: lock(),
                ask: Ask::new("ab", "alice@ops1", None, 1000).to("ci@web1", true),
                now: 5000,
            },
            "'k' at redis://h:6379 was taken away by alice@ops1 4s ago (1970-01-01T00:00:01Z)",
        ),
        (Event::RenewedAgain(lock()), "'k' at redis://h:6379: renewed again"),
    ]
}
