/*!
The rule of a barrier, as a pure function of the marks that are there: whether to make our mark, to open the barrier for
all, or what to report. For backends that cannot decide at the server.

A decision may be carried out only if the marks it names have not changed since. A barrier opens for the parties that
came first, and never for more than it waits for: so a party whose mark was seen waiting and is gone has left or died.
*/

use serde::{Deserialize, Serialize};

use crate::backend::meeting::Gathering;

/// The mark of one arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Mark {
    /// The party's name, which no other mark has.
    pub name: String,
    /// The id of the arrival.
    pub id: String,
    /// The number of parties that it waits for.
    pub parties: u32,
    /// `true` if the barrier has opened for it.
    pub open: bool,
    /// Smaller for earlier arrivals.
    #[serde(skip)]
    pub order: i64,
}

impl Mark {
    /// Returns the stored text.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        // A struct of texts and numbers always serializes.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    /// Reads the stored text of the party called `name`; `None` if it is not a mark.
    #[must_use]
    pub(crate) fn read(name: &str, text: &[u8]) -> Option<Self> {
        let mark: Self = serde_json::from_slice(text).ok()?;
        (!mark.id.is_empty()).then(|| Self { name: name.to_owned(), ..mark })
    }

    /// Returns this mark with the barrier opened for its party.
    #[must_use]
    pub(crate) fn opened(&self) -> Self {
        Self { open: true, ..self.clone() }
    }

    /// Returns `true` if it waits, and for as many parties as `own`.
    #[must_use]
    pub(crate) fn waits_with(&self, own: &Self) -> bool {
        !self.open && self.parties == own.parties
    }
}

/// The next step of a party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make our mark, in place of an older one under our name.
    Join,
    /// Remove our mark, unless it is open by now, and report this.
    Leave(Gathering),
    /// Mark the parties of [`to_open`] as open.
    Open,
    /// Do nothing more, and report this.
    Tell(Gathering),
}

/// Decides for the party of the mark `own`; `marks` are all that are alive. `arrives` says whether it may make its
/// mark. If parties that wait for different numbers arrive at the same moment, the first one stays.
#[must_use]
pub(crate) fn step(marks: &[Mark], own: &Mark, arrives: bool) -> Step {
    let there = marks.iter().find(|mark| mark.name == own.name);
    let is_there = there.is_some_and(|mark| mark.id == own.id);
    match there {
        Some(mark) if is_there && mark.open => return Step::Tell(Gathering::Open),
        Some(_) if !is_there && !arrives => return Step::Tell(Gathering::Replaced),
        None if !arrives => return Step::Tell(Gathering::Gone),
        _ => {}
    }
    let order = there.filter(|_| is_there).map_or(i64::MAX, |mark| mark.order);
    let differs =
        |mark: &Mark| !mark.open && mark.name != own.name && mark.parties != own.parties && mark.order < order;
    let others = || marks.iter().filter(|mark| differs(mark));
    match others().next().filter(|_| arrives) {
        Some(other) => {
            let names = names(others().filter(|mark| mark.parties == other.parties));
            let told = Gathering::OtherParties { parties: other.parties, names };
            return if is_there { Step::Leave(told) } else { Step::Tell(told) };
        }
        None if !is_there => return Step::Join,
        None => {}
    }
    let waiting = || marks.iter().filter(|mark| mark.waits_with(own));
    if u64::try_from(waiting().count()).unwrap_or(u64::MAX) >= u64::from(own.parties) {
        Step::Open
    } else {
        Step::Tell(Gathering::Waiting(names(waiting())))
    }
}

/// Returns the marks to open: the first that wait for as many parties as `own`, and no more than that.
pub(crate) fn to_open<'a>(marks: &'a [Mark], own: &Mark) -> impl Iterator<Item = &'a Mark> {
    let mut waiting: Vec<&Mark> = marks.iter().filter(|mark| mark.waits_with(own)).collect();
    waiting.sort_by_key(|mark| mark.order);
    waiting.into_iter().take(usize::try_from(own.parties).unwrap_or(usize::MAX))
}

fn names<'a>(marks: impl Iterator<Item = &'a Mark>) -> Vec<String> {
    let mut names: Vec<String> = marks.map(|mark| mark.name.clone()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a1/3` is the first arrival of `a`, which waits for three; `a1/3!` is open, and `a1/3@7` has the order 7.
    fn marks(text: &str) -> Vec<Mark> {
        let mark = |word: &str| {
            let (id, parties) = word.split_once('/').expect("a slash");
            let (parties, order) = parties.split_once('@').unwrap_or((parties, "0"));
            let (open, order) = (parties.ends_with('!'), order.parse().expect("a number"));
            let parties = parties.trim_end_matches('!').parse().expect("a number");
            Mark { name: id[..1].to_owned(), id: id.to_owned(), parties, open, order }
        };
        text.split_whitespace().map(mark).collect()
    }

    fn waiting(names: &str) -> Step {
        Step::Tell(Gathering::Waiting(names.split_whitespace().map(str::to_owned).collect()))
    }

    fn others(parties: u32, names: &str) -> Step {
        let names = names.split_whitespace().map(str::to_owned).collect();
        Step::Tell(Gathering::OtherParties { parties, names })
    }

    #[test]
    fn what_to_do_with_the_marks_that_are_there() {
        let own = &marks("a1/3")[0];
        for (there, arrives, expected) in [
            ("", true, Step::Join),
            ("", false, Step::Tell(Gathering::Gone)),
            ("b1/3 c1/3", true, Step::Join),
            ("b1/3 c1/3", false, Step::Tell(Gathering::Gone)),
            ("a1/3", true, waiting("a")),
            ("a1/3", false, waiting("a")),
            ("c1/3 a1/3", false, waiting("a c")),
            ("c1/3 a1/3 b1/3", true, Step::Open),
            ("c1/3 a1/3 b1/3", false, Step::Open),
            ("c1/3! a1/3! b1/3!", true, Step::Tell(Gathering::Open)),
            ("a1/3!", false, Step::Tell(Gathering::Open)),
            // Parties of the last round that have not gone yet do not count.
            ("c1/3! a1/3 b1/3", false, waiting("a b")),
            // Under our name: an older process, or a newer one.
            ("a0/3 b1/3", true, Step::Join),
            ("a0/3! b1/3", true, Step::Join),
            ("a2/3 b1/3", false, Step::Tell(Gathering::Replaced)),
            ("a2/3! b1/3", false, Step::Tell(Gathering::Replaced)),
            // Another number of parties.
            ("b1/2", true, others(2, "b")),
            ("b1/2!", true, Step::Join),
            ("b1/3 d1/2 c1/2", true, others(2, "c d")),
            ("a0/2", true, Step::Join),
            ("a1/3 b1/2 c1/2", false, waiting("a")),
            // At the same moment.
            ("a1/3@2 b1/2@3", true, waiting("a")),
            (
                "a1/3@2 b1/2@1 c1/2@4",
                true,
                Step::Leave(Gathering::OtherParties { parties: 2, names: vec!["b".to_owned()] }),
            ),
            ("a1/3!@2 b1/2@1", true, Step::Tell(Gathering::Open)),
            ("a1/3@2 b1/2!@1", true, waiting("a")),
            ("a1/3@2 b1/2@1", false, waiting("a")),
        ] {
            assert_eq!(step(&marks(there), own, arrives), expected, "{there:?}, arrives: {arrives}");
        }
        let opened = |there: &str| to_open(&marks(there), own).map(|mark| mark.name.clone()).collect::<String>();
        assert_eq!(opened("a1/3@4 b1/3@2 c1/3@1 d1/3@3 e1/2@0 f1/3!@0"), "cbd");
        assert_eq!(opened("a1/3@4 b1/3@2 c1/3@5"), "bac");
        let alone = &marks("a1/1")[0];
        assert_eq!(step(&[], alone, true), Step::Join);
        assert_eq!(step(&marks("a1/1"), alone, true), Step::Open);
    }

    #[test]
    fn a_mark_is_read_back_under_the_name_of_its_place() {
        let mark = Mark { name: "ü\"".to_owned(), id: "1f".to_owned(), parties: 3, open: true, order: 0 };
        assert_eq!(Mark::read("ü\"", mark.text().as_bytes()), Some(mark.clone()));
        assert_eq!(Mark::read("b", mark.text().as_bytes()).map(|mark| mark.name), Some("b".to_owned()));
        for text in ["", "x", "{}", "[]", r#"{"parties":3}"#] {
            assert_eq!(Mark::read("a", text.as_bytes()), None, "{text}");
        }
    }
}
