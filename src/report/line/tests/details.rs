/*!
The sentences that only `-v` asks for.
*/

use super::*;

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
        (Event::RenewedAgain(lock()), "k at redis://h:6379: renewed again"),
    ]
}
