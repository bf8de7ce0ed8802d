/*!
The names of the locks that are found, of which only the smallest are kept.
*/

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::backend::survey::Spot;

/// The locks that were found, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Those with the smallest names.
    pub found: Vec<Spot>,
    /// How many there are in all; none where counting them would cost a request for each.
    pub total: Option<u64>,
    /// Whether there are more than were found.
    pub is_cut: bool,
    /// Whether only locks of dlock are among them, because nothing tells those of other programs from other data.
    pub only_own: bool,
    /// Whether locks of other programs outside of this PID namespace are missing.
    pub is_partial: bool,
}

/// A lock in the order of a list.
#[derive(Debug, PartialEq, Eq)]
struct ByName(Spot);

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Ordering {
        let [one, other] = [self, other].map(|Self(spot)| (spot.name(), &spot.place));
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
    /// Keeps so many; none for all.
    #[must_use]
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self { kept: BTreeSet::new(), most, is_cut: false }
    }

    /// One more name.
    pub(crate) fn add(&mut self, spot: Spot) {
        self.kept.insert(ByName(spot));
        if self.most.is_some_and(|most| self.kept.len() > most) {
            self.kept.pop_last();
            self.is_cut = true;
        }
    }

    /// Those that were kept, in order.
    #[must_use]
    pub(crate) fn names(self, total: Option<u64>) -> Names {
        let found = self.kept.into_iter().map(|spot| spot.0).collect();
        Names { found, total, is_cut: self.is_cut, ..Names::default() }
    }
}
