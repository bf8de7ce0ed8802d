/*!
Texts in statements: literals, and the user locks by which a waiter waits for whom it may not pass.
*/

use std::fmt::Write;

/// A text as a literal.
pub(super) fn literal(text: &str) -> String {
    text.bytes().fold("_utf8mb4 X'".to_owned(), |mut literal, byte| {
        // Writing to a String cannot fail.
        let _ = write!(literal, "{byte:02x}");
        literal
    }) + "'"
}

/// The user lock of the owner with this id, which it has while it waits or holds.
pub(super) fn contends(id: &str) -> String {
    format!("'dlock:{id}'")
}

/// The user lock of the owner with this id, which it has while it waits for a slot.
pub(super) fn waits(id: &str) -> String {
    format!("'dlock:{id}:w'")
}

/// Takes a user lock of our own, where this connection does not have it.
pub(super) fn keep(lock: &str) -> String {
    format!("DO IF(IS_USED_LOCK({lock}) <=> CONNECTION_ID(), 1, GET_LOCK({lock}, 0));\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_is_digits_whatever_the_text() {
        assert_eq!(literal("a'\u{1f512}"), "_utf8mb4 X'6127f09f9492'");
        assert_eq!(literal(""), "_utf8mb4 X''");
    }
}
