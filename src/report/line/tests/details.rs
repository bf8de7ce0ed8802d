/*!
The sentences that only `-v` asks for.
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
            "acquired k at redis://h:6379, token 42, ttl 30s, after 2m 10s",
        ),
        (
            Event::NotRenewed { lock: lock(), last: Unconfirmed::Said("refused".to_owned()) },
            "k at redis://h:6379: could not renew it: refused; trying again",
        ),
        (
            Event::Broken {
                lock: lock(),
                trace: Ask::new("ab", "alice@ops1", Some("restore"), 1000).to("ci@web1, pid 7 (backup.sh)", false),
                now: 64_999,
            },
            "k at redis://h:6379: broken 1m 3s ago: alice@ops1 asked ci@web1, pid 7 (backup.sh), to stop: restore",
        ),
        (Event::RenewedAgain(lock()), "k at redis://h:6379: renewed again"),
    ]
}
