/*!
Texts in statements of any kind.
*/

/// The server's time when the request arrived, in UTC; it can be compared with a column of the table in any session
/// time zone.
pub(super) const NOW: &str = "(statement_timestamp() AT TIME ZONE 'UTC')";
/// The server's time when the request arrived, in microseconds since 1970.
pub(super) const MICROS: &str = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint";

/// Returns the channel on which the owner with this id is notified.
pub(super) fn channel(id: &str) -> String {
    format!("dlock_{id}")
}
