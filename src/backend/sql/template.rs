/*!
Fills the placeholders, `{name}`, in texts of statements in one pass: the inserted values are never interpreted.
*/

/// Returns `text` without its comments, with each placeholder replaced by its `value`. A placeholder without a value
/// stays as it is, which no database understands.
pub(crate) fn lines(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let code: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    let code = code.join("\n");
    let mut filled = String::with_capacity(2 * code.len());
    let mut rest = code.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let (place, behind) = after.split_once('}').unwrap_or((after, ""));
        filled.push_str(&value(place).unwrap_or_else(|| format!("{{{place}}}")));
        rest = behind;
    }
    filled + rest
}

/// Splits `text` into statements, each of which ends a line with its semicolon.
pub(crate) fn statements(text: &str) -> Vec<String> {
    text.split_inclusive(";\n").map(|statement| statement.trim().to_owned()).filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_once() {
        let value = |place: &str| match place {
            "a" => Some("{b}".to_owned()),
            "b" => Some("2".to_owned()),
            _ => None,
        };
        assert_eq!(lines("-- {a}\nx {a} {b}\ny{c}", value), "x {b} 2\ny{c}");
        assert_eq!(lines("x {a", value), "x {b}");
        assert_eq!(statements("a;\nb\nc;\n"), ["a;", "b\nc;"]);
    }
}
