/*!
What there is to report about a look at locks, by `dlock status` and `dlock list`.
*/

/// Something about a look at locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Locks could not be looked at.
    Failed {
        /// Which ones.
        what: String,
        /// Why not.
        reason: String,
    },
    /// No backend was chosen.
    NoBackendChosen,
    /// The lock files of one user are looked at, which are in this directory.
    OnlyThisUser(String),
    /// Locks of other programs in other PID namespaces cannot be seen.
    OnlyThisNamespace,
    /// No lock is held.
    NoLocks {
        /// The namespace.
        namespace: String,
        /// The URL of the backend, without a password.
        place: String,
    },
    /// Not all locks are shown.
    MoreLocks {
        /// How many are shown.
        shown: u64,
        /// How many there are, if that is known.
        total: Option<u64>,
    },
    /// Only locks of dlock are shown at this backend, because without a namespace nothing tells those of other programs from
    /// other data.
    OnlyOwnLocks(String),
    /// The service may hide locks from this user.
    Hidden(String),
    /// No backend was chosen to be checked.
    NoBackendToCheck,
    /// A check has found something.
    Checked {
        /// How many probes failed.
        failures: usize,
        /// How many warned.
        warnings: usize,
    },
}

impl Look {
    /// Whether nothing could be seen.
    #[must_use]
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}
