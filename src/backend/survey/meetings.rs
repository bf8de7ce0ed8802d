/*!
The latches and barriers that a list names.
*/

use std::collections::BTreeSet;

use crate::backend::survey::Location;

/// A kind of meeting point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A latch.
    Latch,
    /// A barrier.
    Barrier,
}

/// The latches and barriers whose names begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meetings {
    prefix: String,
    /// The latches with a name that has arrived, or with a failure.
    pub latches: BTreeSet<Location>,
    /// The barriers where parties wait; `None` if the service has no barriers.
    pub barriers: Option<BTreeSet<Location>>,
}

impl Meetings {
    /// Returns none yet, of a service that has both kinds.
    #[must_use]
    pub(crate) fn of(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), latches: BTreeSet::new(), barriers: Some(BTreeSet::new()) }
    }

    /// Returns none yet, of a service that has no barriers.
    #[must_use]
    pub(crate) fn of_latches(prefix: &str) -> Self {
        Self { barriers: None, ..Self::of(prefix) }
    }

    /// Returns `true` if its name begins with the prefix. An unknown name begins with no prefix but the empty one.
    #[must_use]
    pub(crate) fn wants(&self, location: &Location) -> bool {
        location.key.as_deref().unwrap_or_default().starts_with(&self.prefix)
    }

    /// Adds one, whatever its name.
    pub(crate) fn add(&mut self, kind: Kind, location: Location) {
        match kind {
            Kind::Latch => self.latches.insert(location),
            Kind::Barrier => self.barriers.as_mut().is_some_and(|barriers| barriers.insert(location)),
        };
    }
}
