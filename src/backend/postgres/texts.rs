/*!
Texts in statements, whatever these are for.
*/

/// The server's time when the request arrived, in UTC; a column of the table compares with it whatever the session's time
/// zone is.
pub(super) const NOW: &str = "(statement_timestamp() AT TIME ZONE 'UTC')";
/// The server's time when the request arrived, in microseconds since 1970.
pub(super) const MICROS: &str = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint";

/// The channel on which the owner with this id is notified.
pub(super) fn channel(id: &str) -> String {
    format!("dlock_{id}")
}
