/*!
What of a document is worth a line while it is watched.
*/

/// The fields that only count time: whoever watches is not told when nothing else has changed.
const COUNTING: &[&str] = &["time", "held_ms", "ttl_left_ms", "waiting_ms", "renewed"];

/// What of a document is news: all but what only counts time.
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
