/*!
The state of a wait at a latch or a barrier, as far as it is known.
*/

use crate::lease::waiting::Trouble;

/// The turnout at a latch or a barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turnout {
    /// Number of names that are there.
    pub count: u64,
    /// The names of some of them.
    pub names: Vec<String>,
}

impl Turnout {
    /// Returns the turnout of all these names.
    #[must_use]
    pub(crate) fn of(names: Vec<String>) -> Self {
        Self { count: names.len().try_into().unwrap_or(u64::MAX), names }
    }
}

/// News of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Not all are there yet.
    Turnout(Turnout),
    /// The backend fails; requests are retried.
    Trouble(Trouble),
}
