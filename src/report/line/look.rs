//! The sentences about looks at locks.

use crate::report::event::Look;

/// The sentence for what `dlock status` or `dlock list` has to say besides what it shows.
pub(super) fn looked(look: &Look) -> String {
    match look {
        Look::Failed { what, reason } => format!("cannot read {what}: {reason}"),
        Look::NoBackendChosen => {
            "no backend was chosen, so this shows the locks of this user on this host only (choose with \
             --backend or DLOCK_BACKEND)"
                .to_owned()
        }
        Look::OnlyThisUser(place) => {
            format!("this shows the locks of this user on this host, in {place} (another directory: file:///dir)")
        }
        Look::OnlyThisNamespace => {
            "locks that other programs hold outside of this PID namespace are not shown".to_owned()
        }
        Look::NoLocks { namespace, place } if namespace.is_empty() => format!("no lock is held at {place}"),
        Look::NoLocks { namespace, place } => format!("no lock is held in the namespace {namespace} at {place}"),
        Look::MoreLocks { shown, total: Some(total) } => {
            format!("{shown} of {total} locks shown; --limit 0 shows all")
        }
        Look::MoreLocks { shown: 1, total: None } => "1 lock shown, there are more; --limit 0 shows all".to_owned(),
        Look::MoreLocks { shown, total: None } => {
            format!("{shown} locks shown, there are more; --limit 0 shows all")
        }
        Look::OnlyOwnLocks(place) => format!(
            "only locks of dlock are shown at {place}: without a --namespace, nothing tells those of other programs from \
             other data"
        ),
        Look::Hidden(place) => format!("row-level security may hide locks of others from this user at {place}"),
        Look::NoBackendToCheck => {
            "no backend was chosen, so this checks the locks of this user on this host only (choose with --backend or \
             DLOCK_BACKEND)"
                .to_owned()
        }
        Look::Checked { failures, warnings } => {
            let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
            match (failures, warnings) {
                (0, _) => count(*warnings, "warning"),
                (_, 0) => count(*failures, "failure"),
                _ => format!("{}, {}", count(*failures, "failure"), count(*warnings, "warning")),
            }
        }
    }
}
