/*!
Events about a look at locks, by `dlock status` and `dlock list`, and about `dlock check`.
*/

use crate::report::level::Level;

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
    /// Returns the verbosity at which it is reported: always, if nothing could be seen.
    #[must_use]
    pub(in crate::report) fn level(&self) -> Level {
        if matches!(self, Self::Failed { .. }) { Level::Warning } else { Level::Note }
    }

    /// Returns its sentence.
    #[must_use]
    pub(in crate::report) fn line(&self) -> String {
        match self {
            Self::Failed { what, reason } => format!("cannot read {what}: {reason}"),
            Self::NoBackendChosen => {
                "no backend was chosen, so this shows the locks of this user on this host only (choose with \
                 --backend or DLOCK_BACKEND)"
                    .to_owned()
            }
            Self::OnlyThisUser(place) => {
                format!("this shows the locks of this user on this host, in {place} (another directory: file:///dir)")
            }
            Self::OnlyThisNamespace => {
                "locks that other programs hold outside of this PID namespace are not shown".to_owned()
            }
            Self::NoLocks { namespace, place } if namespace.is_empty() => format!("no lock is held at {place}"),
            Self::NoLocks { namespace, place } => format!("no lock is held in the namespace {namespace} at {place}"),
            Self::MoreLocks { shown, total: Some(total) } => {
                format!("{shown} of {total} locks shown; --limit 0 shows all")
            }
            Self::MoreLocks { shown: 1, total: None } => "1 lock shown, there are more; --limit 0 shows all".to_owned(),
            Self::MoreLocks { shown, total: None } => {
                format!("{shown} locks shown, there are more; --limit 0 shows all")
            }
            Self::OnlyOwnLocks(place) => format!(
                "only locks of dlock are shown at {place}: without a --namespace, nothing tells those of other programs from \
                 other data"
            ),
            Self::Hidden(place) => format!("row-level security may hide locks of others from this user at {place}"),
            Self::NoBackendToCheck => {
                "no backend was chosen, so this checks the locks of this user on this host only (choose with --backend or \
                 DLOCK_BACKEND)"
                    .to_owned()
            }
            Self::Checked { failures, warnings } => {
                let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
                match (failures, warnings) {
                    (0, _) => count(*warnings, "warning"),
                    (_, 0) => count(*failures, "failure"),
                    _ => format!("{}, {}", count(*failures, "failure"), count(*warnings, "warning")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_look_has_its_sentence() {
        let place = || "redis://locks".to_owned();
        let none = |namespace: &str| Look::NoLocks { namespace: namespace.to_owned(), place: place() };
        let rows = vec![
            (
                Look::Failed { what: "'job'".to_owned(), reason: "it is down".to_owned() },
                "cannot read 'job': it is down",
            ),
            (
                Look::NoBackendChosen,
                "no backend was chosen, so this shows the locks of this user on this host only (choose with --backend or \
                 DLOCK_BACKEND)",
            ),
            (none("dlock"), "no lock is held in the namespace dlock at redis://locks"),
            (none(""), "no lock is held at redis://locks"),
            (Look::MoreLocks { shown: 1000, total: Some(100_000) }, "1000 of 100000 locks shown; --limit 0 shows all"),
            (Look::MoreLocks { shown: 1000, total: None }, "1000 locks shown, there are more; --limit 0 shows all"),
            (Look::MoreLocks { shown: 1, total: None }, "1 lock shown, there are more; --limit 0 shows all"),
            (
                Look::OnlyThisUser(place()),
                "this shows the locks of this user on this host, in redis://locks (another directory: file:///dir)",
            ),
            (Look::OnlyThisNamespace, "locks that other programs hold outside of this PID namespace are not shown"),
            (Look::Hidden(place()), "row-level security may hide locks of others from this user at redis://locks"),
            (
                Look::OnlyOwnLocks(place()),
                "only locks of dlock are shown at redis://locks: without a --namespace, nothing tells those of other programs \
                 from other data",
            ),
            (
                Look::NoBackendToCheck,
                "no backend was chosen, so this checks the locks of this user on this host only (choose with --backend or \
                 DLOCK_BACKEND)",
            ),
            (Look::Checked { failures: 0, warnings: 1 }, "1 warning"),
            (Look::Checked { failures: 1, warnings: 0 }, "1 failure"),
            (Look::Checked { failures: 2, warnings: 3 }, "2 failures, 3 warnings"),
        ];
        for (look, expected) in rows {
            assert_eq!(look.line(), expected);
        }
    }
}
