/*!
Tests of the sentences about looks at locks.
*/

use crate::report::event::{Event, Look};
use crate::report::level::Level;

/// Events and their sentences.
pub(super) fn sentences() -> Vec<(Event, &'static str)> {
    let place = || "redis://locks".to_owned();
    let none = |namespace: &str| Look::NoLocks { namespace: namespace.to_owned(), place: place() };
    let rows = vec![
        (Look::Failed { what: "'job'".to_owned(), reason: "it is down".to_owned() }, "cannot read 'job': it is down"),
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
    rows.into_iter().map(|(look, sentence)| (Event::Look(look), sentence)).collect()
}

#[test]
fn what_could_not_be_seen_is_told_also_with_q() {
    for (event, _) in sentences() {
        let Event::Look(look) = &event else { continue };
        assert_eq!(event.level() == Level::Warning, look.is_failure(), "{look:?}");
    }
}
