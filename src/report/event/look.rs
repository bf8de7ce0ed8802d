/*!
Events about a look at locks, by `dlock status` and `dlock list`, and about `dlock check`.
*/

/// Something about a look at locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Locks could not be looked at.
    Failed {
        /// The locks, in words.
        what: String,
        /// The reason.
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
        /// Number of locks shown.
        shown: u64,
        /// Number of all locks, if known.
        total: Option<u64>,
    },
    /// Only locks of dlock are shown at this backend: without a namespace, those of other programs cannot be told from
    /// other data.
    OnlyOwnLocks(String),
    /// The service may hide locks from this user.
    Hidden(String),
    /// No backend was chosen to be checked.
    NoBackendToCheck,
    /// A check has found something.
    Checked {
        /// Number of failed probes.
        failures: usize,
        /// Number of probes that warned.
        warnings: usize,
    },
}

impl Look {
    /// Returns `true` if nothing could be seen.
    #[must_use]
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}
