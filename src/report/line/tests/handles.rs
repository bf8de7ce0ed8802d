/*!
Tests of the sentences about locks that are held by their handles.
*/

use std::time::Duration;

use super::{lock, named};
use crate::lease::waiting::Trouble;
use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;

/// Events and their sentences.
pub(super) fn sentences() -> Vec<(Event, &'static str)> {
    let (key, ttl) = (|| named("k"), Duration::from_secs(600));
    let rows = vec![
        (HandleEvent::Renewed { key: key(), ttl }, "renewed 'k', ttl 10m"),
        (
            HandleEvent::NotRenewed { key: key(), place: lock().place, reason: Trouble::Silent, ttl: None },
            "could not renew 'k': the backend does not answer",
        ),
        (
            HandleEvent::NotRenewed { key: key(), place: lock().place, reason: Trouble::Silent, ttl: Some(ttl) },
            "could not renew 'k': the backend does not answer; the lock will expire on its own within 10m",
        ),
        (
            HandleEvent::Lost { key: key(), why: "held by ci@web1, pid 7".to_owned() },
            "lost 'k': held by ci@web1, pid 7",
        ),
        (HandleEvent::PassedOn(key()), "lost 'k': its lease ended, and others have held it since"),
        (
            HandleEvent::NotHeld(key()),
            "'k' was not held any more: it was released before or taken away, or its lease had ended",
        ),
        (HandleEvent::Empty, "nothing to release: the handle is empty"),
        (
            HandleEvent::OfAnotherShell { key: key(), shell: 812 },
            "did not release 'k': DLOCK_HANDLE is inherited from process 812, which acquired it: if you mean it, use dlock release \
             \"$DLOCK_HANDLE\"",
        ),
        (HandleEvent::StaysHeld { key: key(), ttl }, "'k' stays held by its handle for 10m"),
        (
            HandleEvent::OwnHandle { key: key().into(), runs: true },
            "did not get 'k': DLOCK_HANDLE holds it: use dlock run --handle",
        ),
        (
            HandleEvent::OwnHandle { key: key().into(), runs: false },
            "did not get 'k': DLOCK_HANDLE holds it: run the command without dlock run",
        ),
        (
            HandleEvent::NotKept(key()),
            "the process that was to keep 'k' was killed: if it held the lock, that will expire on its own",
        ),
        (
            HandleEvent::TooLong(key()),
            "the handle of 'k' would be longer than 2048 bytes: use a shorter key or a shorter backend URL",
        ),
    ];
    rows.into_iter().chain(of_keepers()).map(|(event, sentence)| (Event::Handle(event), sentence)).collect()
}

/// Of those, the ones about processes that keep locks, and about runs under their handles.
fn of_keepers() -> Vec<(HandleEvent, &'static str)> {
    let (key, ttl) = (|| named("k"), Duration::from_secs(600));
    vec![
        (
            HandleEvent::KeptElsewhere { key: key(), host: "web1".to_owned() },
            "'k' is kept by a process on web1 that cannot be seen from here: release it where that runs, or use dlock break",
        ),
        (
            HandleEvent::KeptByAnother { key: key(), pid: 812 },
            "could not release 'k': process 812, which keeps it, belongs to another user: release it as that user",
        ),
        (
            HandleEvent::KeeperUnseen { key: key(), pid: 812, errno: Some(24) },
            "could not release 'k': process 812, which keeps it, cannot be watched: Too many open files",
        ),
        (
            HandleEvent::KeeperUnseen { key: key(), pid: 812, errno: None },
            "could not release 'k': /proc does not show whether process 812 keeps it",
        ),
        (
            HandleEvent::KeeperStays { key: key(), pid: 812, limit: Duration::from_secs(10) },
            "could not release 'k': process 812, which keeps it, has not ended within 10s",
        ),
        (
            HandleEvent::KeeperDeaf { key: key(), pid: 812 },
            "could not reach the keeper of 'k': process 812 is none, or an older dlock's, or in another network namespace",
        ),
        (
            HandleEvent::RunElsewhere { key: key(), host: "web1".to_owned() },
            "'k' is kept by a process on web1 that cannot be seen from here: run the command where that runs",
        ),
        (
            HandleEvent::RunDenied { key: key(), pid: 812 },
            "process 812, which keeps 'k', belongs to another user: run the command as that user, or from the script it keeps it for",
        ),
        (
            HandleEvent::RunGoesOn { key: key(), pid: 9 },
            "could not release 'k': process 9 still runs a command under its handle: end that first",
        ),
        (
            HandleEvent::WaitingForRun { key: key(), pid: 9 },
            "waiting to release 'k': process 9 still runs a command under its handle",
        ),
        (
            HandleEvent::KeeperGone { key: key(), ttl },
            "could not release 'k': the process that kept it is gone; the lock will expire on its own within 10m",
        ),
    ]
}
