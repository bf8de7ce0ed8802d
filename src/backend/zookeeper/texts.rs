/*!
The data of a contender's nodes: the published text of [`holder`](crate::holder), including the mode. A holder that has
waited adds the token and the start of the hold; one that has not leaves both to the status of its nodes.
*/

use crate::backend::contract::claim::Claim;
use crate::backend::contract::claim::Known;
use crate::holder::Holder;

/// Returns the data of a contender's nodes when they are created.
pub(super) fn waiting(claim: &Claim) -> String {
    claim.text(Known::default())
}

/// Returns the data of a holder's nodes; `since` is in milliseconds since 1970.
pub(super) fn holding(claim: &Claim, token: u64, since: u64, slot: Option<u32>) -> String {
    claim.text(Known { token: Some(token), since: Some(since), slot, until: None })
}

/// Returns the slot that a contender has entered, by its node's data; `None` if it has not entered one.
pub(super) fn slot(data: &[u8]) -> Option<u32> {
    match Holder::read(data) {
        Holder::Dlock(published) => published.slot,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dlock_has_entered_a_slot() {
        for data in ["", "10.1.2.3", r#"{"slot":1}"#, r#"{"v":1,"id":"x"}"#, r#"{"v":1,"id":"x","slot":-1}"#] {
            assert_eq!(slot(data.as_bytes()), None, "{data}");
        }
        assert_eq!(slot(br#"{"v":1,"id":"x","slot":3,"more":[]}"#), Some(3));
    }
}
