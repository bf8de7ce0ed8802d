/*!
The names of the locks that were found, of which only the smallest are kept.
*/

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::backend::survey::Location;

/// The locks that were found, and their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// The locks with the smallest names.
    pub found: Vec<Location>,
    /// Number of all locks; `None` if counting them would cost a request for each.
    pub total: Option<u64>,
    /// `true` if there are more locks than `found` has.
    pub is_cut: bool,
    /// `true` if only locks of dlock are among them, because those of other programs cannot be told from other data.
    pub only_own: bool,
    /// `true` if locks of other programs outside of this PID namespace may be missing.
    pub is_partial: bool,
}

/// A lock in the order of a list.
#[derive(Debug, PartialEq, Eq)]
struct ByName(Location);

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Ordering {
        let [one, other] = [self, other].map(|Self(location)| (location.name(), &location.place));
        one.cmp(&other)
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Keeps the smallest of many names.
#[derive(Debug)]
pub(crate) struct Smallest {
    kept: BTreeSet<ByName>,
    most: Option<usize>,
    is_cut: bool,
}

impl Smallest {
    /// Keeps at most this many names; all of them with `None`.
    #[must_use]
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self { kept: BTreeSet::new(), most, is_cut: false }
    }

    /// Adds a name.
    pub(crate) fn add(&mut self, location: Location) {
        self.kept.insert(ByName(location));
        if self.most.is_some_and(|most| self.kept.len() > most) {
            self.kept.pop_last();
            self.is_cut = true;
        }
    }

    /// Returns the names that were kept, in order.
    #[must_use]
    pub(crate) fn names(self, total: Option<u64>) -> Names {
        let found = self.kept.into_iter().map(|location| location.0).collect();
        Names { found, total, is_cut: self.is_cut, ..Names::default() }
    }
}
