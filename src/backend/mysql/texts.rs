/*!
Texts in statements: literals, and the user locks by which a waiter waits for another contender.
*/

use std::fmt::Write;

/// A text as an SQL literal.
pub(super) fn literal(text: &str) -> String {
    text.bytes().fold("_utf8mb4 X'".to_owned(), |mut literal, byte| {
        // Writing to a String cannot fail.
        let _ = write!(literal, "{byte:02x}");
        literal
    }) + "'"
}

/// Whether the transaction still goes on. One that another node of a MariaDB Galera cluster has broken off can end without an
/// error between two statements of a request, and the others would count at once, each on its own.
pub(super) const SURE: &str = "TRUE /*M!50500 AND @@in_transaction */";

/// The user lock that the owner with this id holds while it waits for the lock or holds it.
pub(super) fn contends(id: &str) -> String {
    format!("'dlock:{id}'")
}

/// The user lock that the owner with this id holds while it waits for a slot.
pub(super) fn waits(id: &str) -> String {
    format!("'dlock:{id}:w'")
}

/// The statement that takes one of our user locks, unless this connection holds it already.
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
