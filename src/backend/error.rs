/*!
What can go wrong at a lock service, as dlock tells it: what kind of failure it is, and what to do in words. Knows no
library and no service; each backend's `errors` makes these out of what was said there.
*/

use std::fmt;

/// What kind of failure an [`Error`] is; decides the exit code and whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// There is no connection, and nothing was sent. Trying again may help.
    Unreachable,
    /// The settings are probably wrong: there is no host of this name, its certificate is not the expected one, or this
    /// process may not open another connection. Nothing was sent. At the first contact this is final; once the service has
    /// answered, trying again may help.
    Mistaken,
    /// No answer, or one that says "later": what was asked for may have been done. Trying again may help.
    Unavailable,
    /// The credentials are refused.
    Denied,
    /// It cannot be used as it is, and would not keep locks. Trying again does not help.
    Unusable,
    /// The lock file cannot be made.
    CannotCreate,
}

impl ErrorKind {
    /// Whether trying again may help.
    #[must_use]
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, Self::Unreachable | Self::Mistaken | Self::Unavailable)
    }

    /// Whether nothing was sent.
    #[must_use]
    pub(crate) fn is_unsent(self) -> bool {
        matches!(self, Self::Unreachable | Self::Mistaken)
    }

    /// The kind of the failure when several servers failed, each in one of these ways: the credentials are wrong when at
    /// least `refusals` of them say so, and nothing was sent when none could be reached.
    #[must_use]
    pub(crate) fn of_several(kinds: impl IntoIterator<Item = Self>, refusals: usize) -> Self {
        let kinds: Vec<Self> = kinds.into_iter().collect();
        let denied = kinds.iter().filter(|kind| **kind == Self::Denied).count();
        match () {
            () if denied >= refusals => Self::Denied,
            () if !kinds.is_empty() && kinds.iter().all(|kind| *kind == Self::Mistaken) => Self::Mistaken,
            () if kinds.iter().all(|kind| kind.is_unsent()) => Self::Unreachable,
            () => Self::Unavailable,
        }
    }
}

/// A request that failed. For an acquire or a renewal this means "unknown", never "no".
#[derive(Debug)]
pub(crate) struct Error {
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// What happened and what to do, without secrets.
    pub cause: anyhow::Error,
}

impl Error {
    /// An error of this kind, in words.
    pub(crate) fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, cause: anyhow::anyhow!("{message}") }
    }

    /// Whether trying again may help, as its kind says.
    pub(crate) fn may_pass(&self) -> bool {
        self.kind.may_pass()
    }

    /// A request that may or may not have been done.
    pub(crate) fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.cause)
    }
}

/// What each of several servers said, in one line.
#[must_use]
pub(crate) fn reasons(errors: &[Error]) -> String {
    together(errors.iter().map(ToString::to_string))
}

/// Several reasons in one line. Those that differ in nothing but the name of the server become one reason with all names.
#[must_use]
pub(crate) fn together(reasons: impl IntoIterator<Item = String>) -> String {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for reason in reasons {
        // All of a group differ from each other in the same word.
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

/// Which word of `reason` is the only one that differs from `other`.
fn name_in(reason: &str, other: &str) -> Option<usize> {
    let (words, others) = (reason.split(' '), other.split(' '));
    if words.clone().count() != others.clone().count() {
        return None;
    }
    let mut different = words.zip(others).enumerate().filter(|(_, (word, other))| word != other);
    let (place, (word, other)) = different.next()?;
    // The names of servers, and not numbers or words of which there happens to be one more.
    let is_name = |word: &str| word.contains([':', '.', '/']);
    (different.next().is_none() && is_name(word) && is_name(other)).then_some(place)
}

/// The reasons of a group, which differ in one word, as one.
fn one_reason(group: &[String]) -> String {
    let (Some(first), Some(second)) = (group.first(), group.get(1)) else { return group.concat() };
    let place = name_in(first, second).unwrap_or_default();
    let names: Vec<&str> = group.iter().filter_map(|reason| reason.split(' ').nth(place)).collect();
    // What follows the name in the sentence stays behind the last one.
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
    fn of_several_failures_refusals_count_first_and_silence_only_when_all_are_silent() {
        use ErrorKind::{CannotCreate, Denied, Mistaken, Unavailable, Unreachable, Unusable};
        for (kinds, refusals, expected) in [
            (&[Unreachable][..], 1, Unreachable),
            (&[Unreachable, Unreachable], 1, Unreachable),
            (&[Unreachable, Unavailable], 1, Unavailable),
            // One name that is wrong is a mistake only where no other server can be reached later.
            (&[Mistaken, Mistaken], 1, Mistaken),
            (&[Mistaken, Unreachable], 1, Unreachable),
            (&[Mistaken, Unavailable], 1, Unavailable),
            (&[Unavailable, Unusable, CannotCreate], 1, Unavailable),
            (&[Unreachable, Denied], 1, Denied),
            (&[Denied], 1, Denied),
            // Of five servers of which a majority decides, three must refuse.
            (&[Denied, Denied, Unreachable], 3, Unavailable),
            (&[Denied, Denied, Denied], 3, Denied),
            (&[Denied, Denied, Denied, Unavailable], 3, Denied),
            (&[], 1, Unreachable),
        ] {
            assert_eq!(ErrorKind::of_several(kinds.iter().copied(), refusals), expected, "{kinds:?} {refusals}");
        }
    }

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
            // Words that are no names, and reasons that differ in more than the name.
            (&["a:1 is down", "a:1 is full"], "a:1 is down; a:1 is full"),
            (&["a:1 is down since 1.5s", "b:1 is down since 2.5s"], "a:1 is down since 1.5s; b:1 is down since 2.5s"),
            (&["one", "two"], "one; two"),
        ] {
            assert_eq!(together(reasons.iter().map(|&reason| reason.to_owned())), expected, "{reasons:?}");
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        use ErrorKind::{CannotCreate, Denied, Mistaken, Unavailable, Unreachable, Unusable};
        let passes = |kind: ErrorKind| kind.may_pass() && Error::new(kind, "").may_pass();
        assert!([Unreachable, Mistaken, Unavailable].into_iter().all(passes));
        let passes = |kind: ErrorKind| kind.may_pass() || Error::new(kind, "").may_pass();
        assert!(![Denied, Unusable, CannotCreate].into_iter().any(passes));
    }
}
