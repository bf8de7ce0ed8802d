/*!
The changes of a document that are worth a line while it is watched.
*/

/// The fields that only count time: a change in these alone is no news.
const COUNTING: &[&str] = &["time", "held_ms", "ttl_left_ms", "waiting_ms", "renewed"];

/// Returns the news in a document: all but the fields that only count time.
#[must_use]
pub(crate) fn news(document: &str) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.retain(|name, _| !COUNTING.contains(&name.as_str()));
                fields.values_mut().for_each(strip);
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(document).unwrap_or_default();
    strip(&mut value);
    value
}
