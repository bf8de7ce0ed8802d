/*!
Combines the reasons of several servers into one line that does not repeat itself.
*/

/// Joins several reasons into one line. Reasons that differ only in the server's name become one reason with all names.
#[must_use]
pub(crate) fn together(reasons: impl IntoIterator<Item = String>) -> String {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for reason in reasons {
        // All members of a group differ from each other in the same word.
        let fits = |group: &&mut Vec<String>| {
            let place = name_in(&reason, &group[0]);
            place.is_some() && group.iter().all(|other| name_in(&reason, other) == place)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(reason),
            None => groups.push(vec![reason]),
        }
    }
    groups.iter().map(|group| one_reason(group)).collect::<Vec<_>>().join("; ")
}

/// Returns the index of the only word in `reason` that differs from `other`, if both words look like server names.
fn name_in(reason: &str, other: &str) -> Option<usize> {
    let (words, others) = (reason.split(' '), other.split(' '));
    if words.clone().count() != others.clone().count() {
        return None;
    }
    let mut different = words.zip(others).enumerate().filter(|(_, (word, other))| word != other);
    let (place, (word, other)) = different.next()?;
    // Only server names count, not numbers or words that happen to differ.
    let is_name = |word: &str| word.contains([':', '.', '/']);
    (different.next().is_none() && is_name(word) && is_name(other)).then_some(place)
}

/// Combines the reasons of a group, which differ in one word, into one.
fn one_reason(group: &[String]) -> String {
    let (Some(first), Some(second)) = (group.first(), group.get(1)) else { return group.concat() };
    let place = name_in(first, second).unwrap_or_default();
    let names: Vec<&str> = group.iter().filter_map(|reason| reason.split(' ').nth(place)).collect();
    // The punctuation after the name stays behind the last one.
    let bare = |name: &'_ str| name.trim_end_matches([':', ';', ',']).to_owned();
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    let names = format!("{} and {last}", others.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", "));
    let plural = |word| match word {
        "does" => "do",
        "is" => "are",
        "has" => "have",
        word => word,
    };
    let words = first.split(' ').enumerate().map(|(index, word)| match index {
        _ if index == place => names.as_str(),
        _ if index == place + 1 => plural(word),
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_one_reason_are_one_message() {
        for (reasons, expected) in [
            (&[][..], ""),
            (&["a:1 is down"], "a:1 is down"),
            (&["a:1 is down", "b:1 is down"], "a:1 and b:1 are down"),
            (&["a:1 is down", "b:1 is down", "c:1 is down"], "a:1, b:1 and c:1 are down"),
            (
                &["could not reach s://a: refused; is it there?", "could not reach s://b: refused; is it there?"],
                "could not reach s://a and s://b: refused; is it there?",
            ),
            (&["a:1 does not answer", "b:1 is down", "c:1 does not answer"], "a:1 and c:1 do not answer; b:1 is down"),
            (&["a:1 is down", "a:1 is down"], "a:1 is down; a:1 is down"),
            // Words that are not names, and reasons that differ in more than the name.
            (&["a:1 is down", "a:1 is full"], "a:1 is down; a:1 is full"),
            (&["a:1 is down since 1.5s", "b:1 is down since 2.5s"], "a:1 is down since 1.5s; b:1 is down since 2.5s"),
            (&["one", "two"], "one; two"),
        ] {
            assert_eq!(together(reasons.iter().map(|&reason| reason.to_owned())), expected, "{reasons:?}");
        }
    }
}
