/*!
Events about a lock that is held by its handle.
*/

use std::time::Duration;

use humantime::format_duration;
use nix::errno::Errno;

use crate::key::{Key, Keys};
use crate::lease::waiting::Trouble;
use crate::report::level::Level;
use crate::report::words::{and_expires, trouble};

/// Something about a lock that is held by its handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandleEvent {
    /// It was extended.
    Renewed {
        /// The lock's name.
        key: Key,
        /// The length of the lease.
        ttl: Duration,
    },
    /// It could not be extended.
    NotRenewed {
        /// The lock's name.
        key: Key,
        /// The URL of its backend, without a password.
        place: String,
        /// The reason.
        reason: Trouble,
        /// Longest time for which it lasts; `None` if its keeper goes on renewing it.
        ttl: Option<Duration>,
    },
    /// It is no longer held.
    Lost {
        /// The lock's name.
        key: Key,
        /// The known part of the reason, or the present holder.
        why: String,
    },
    /// It is no longer held, and others have held it since.
    PassedOn(Key),
    /// It was to be released but was no longer held, and nobody is known to have held it since.
    NotHeld(Key),
    /// The handle is empty: there is nothing to release.
    Empty,
    /// The lock was to be released, but the handle is inherited from another shell, which goes on with the lock.
    OfAnotherShell {
        /// The lock's name.
        key: Key,
        /// The process id of that shell.
        shell: i32,
    },
    /// The command has ended, and the lock stays held.
    StaysHeld {
        /// The lock's name.
        key: Key,
        /// Time until it expires, unless it is renewed.
        ttl: Duration,
    },
    /// The wanted lock is held by the handle in the environment.
    OwnHandle {
        /// The lock's name.
        key: Keys,
        /// `true` if commands can be run under the handle.
        runs: bool,
    },
    /// A process on another host, or in another container, keeps it.
    KeptElsewhere {
        /// The lock's name.
        key: Key,
        /// The host's name.
        host: String,
    },
    /// The process that keeps it belongs to another user.
    KeptByAnother {
        /// The lock's name.
        key: Key,
        /// The process that keeps it.
        pid: i32,
    },
    /// The process that keeps it cannot be watched, and is not asked to release it.
    KeeperUnseen {
        /// The lock's name.
        key: Key,
        /// The process that keeps it.
        pid: i32,
        /// The system's reason; `None` where /proc does not show the process.
        errno: Option<i32>,
    },
    /// The process that is to keep it does not answer as a keeper does: it is no keeper, or cannot be reached.
    KeeperUnreachable {
        /// The lock's name.
        key: Key,
        /// The process that the handle names.
        pid: i32,
    },
    /// A command is to be run under the handle of a lock that is kept on another host, or in another container.
    RunElsewhere {
        /// The lock's name.
        key: Key,
        /// The host's name.
        host: String,
    },
    /// A command is to be run under the handle of a lock that a process of another user keeps.
    RunDenied {
        /// The lock's name.
        key: Key,
        /// The process that keeps it.
        pid: i32,
    },
    /// It was to be released, but a run under its handle goes on.
    RunGoesOn {
        /// The lock's name.
        key: Key,
        /// The run's process.
        pid: i32,
    },
    /// It is to be released as soon as a run under its handle has ended.
    WaitingForRun {
        /// The lock's name.
        key: Key,
        /// The run's process.
        pid: i32,
    },
    /// The process that keeps it was asked to release it, and has not ended in time.
    KeeperStays {
        /// The lock's name.
        key: Key,
        /// The process that keeps it.
        pid: i32,
        /// Length of the wait.
        limit: Duration,
    },
    /// The process that kept it is gone, and has left it held.
    KeeperGone {
        /// The lock's name.
        key: Key,
        /// Longest time for which it lasts.
        ttl: Duration,
    },
    /// The process that was to keep it has ended before the handle was handed over, or while it was.
    NotKept(Key),
    /// The handle would be too long: the lock's name and the URL of the backend are in it.
    TooLong(Key),
}

impl HandleEvent {
    /// Returns the verbosity at which it is reported.
    #[must_use]
    pub(in crate::report) fn level(&self) -> Level {
        match self {
            Self::NotHeld(_) | Self::Empty | Self::WaitingForRun { .. } | Self::OfAnotherShell { .. } => Level::Note,
            Self::Renewed { .. } | Self::StaysHeld { .. } => Level::Detail,
            Self::NotRenewed { .. }
            | Self::Lost { .. }
            | Self::PassedOn(_)
            | Self::OwnHandle { .. }
            | Self::KeptElsewhere { .. }
            | Self::KeptByAnother { .. }
            | Self::KeeperUnseen { .. }
            | Self::KeeperUnreachable { .. }
            | Self::RunElsewhere { .. }
            | Self::RunDenied { .. }
            | Self::RunGoesOn { .. }
            | Self::KeeperStays { .. }
            | Self::KeeperGone { .. }
            | Self::NotKept(_)
            | Self::TooLong(_) => Level::Warning,
        }
    }

    /// Returns its sentence.
    #[must_use]
    pub(in crate::report) fn line(&self) -> String {
        match self {
            Self::Renewed { key, ttl } => format!("renewed {key}, ttl {}", format_duration(*ttl)),
            Self::NotRenewed { key, place, reason, ttl } => {
                format!("could not renew {key}: {}", and_expires(trouble(place, reason), *ttl))
            }
            Self::Lost { key, why } => format!("lost {key}: {why}"),
            Self::PassedOn(key) => format!("lost {key}: its lease ended, and others have held it since"),
            Self::NotHeld(key) => {
                format!("{key} was not held any more: it was released before or taken away, or its lease had ended")
            }
            Self::Empty => "nothing to release: the handle is empty".to_owned(),
            Self::OfAnotherShell { key, shell } => format!(
                "did not release {key}: DLOCK_HANDLE is inherited from process {shell}, which acquired it: if you mean it, use dlock \
                 release \"$DLOCK_HANDLE\""
            ),
            Self::StaysHeld { key, ttl } => {
                format!("{key} stays held by its handle for {}", format_duration(*ttl))
            }
            Self::OwnHandle { key, runs: true } => {
                format!("did not get {key}: DLOCK_HANDLE holds it: use dlock run --handle")
            }
            Self::OwnHandle { key, runs: false } => {
                format!("did not get {key}: DLOCK_HANDLE holds it: run the command without dlock run")
            }
            Self::KeptElsewhere { key, host } => elsewhere(key, host, "release it where that runs, or use dlock break"),
            Self::KeptByAnother { key, pid } => {
                format!(
                    "could not release {key}: process {pid}, which keeps it, belongs to another user: release it as that user"
                )
            }
            Self::KeeperUnseen { key, pid, errno: Some(errno) } => {
                let reason = Errno::from_raw(*errno).desc();
                format!("could not release {key}: process {pid}, which keeps it, cannot be watched: {reason}")
            }
            Self::KeeperUnseen { key, pid, errno: None } => {
                format!("could not release {key}: /proc does not show whether process {pid} keeps it")
            }
            Self::KeeperUnreachable { key, pid } => unreachable(key, *pid),
            Self::RunElsewhere { key, host } => elsewhere(key, host, "run the command where that runs"),
            Self::RunDenied { key, pid } => denied(key, *pid),
            Self::RunGoesOn { key, pid } => format!("could not release {key}: {}: end that first", still_runs(*pid)),
            Self::WaitingForRun { key, pid } => format!("waiting to release {key}: {}", still_runs(*pid)),
            Self::KeeperStays { key, pid, limit } => format!(
                "could not release {key}: process {pid}, which keeps it, has not ended within {}",
                format_duration(*limit)
            ),
            Self::KeeperGone { key, ttl } => format!(
                "could not release {key}: the process that kept it is gone; the lock will expire on its own within {}",
                format_duration(*ttl)
            ),
            Self::NotKept(key) => {
                format!(
                    "the process that was to keep {key} was killed: if it held the lock, that will expire on its own"
                )
            }
            Self::TooLong(key) => {
                format!(
                    "the handle of {key} would be longer than 2048 bytes: use a shorter key or a shorter backend URL"
                )
            }
        }
    }
}

fn elsewhere(key: &Key, host: &str, remedy: &str) -> String {
    format!("{key} is kept by a process on {host} that cannot be seen from here: {remedy}")
}

fn unreachable(key: &Key, pid: i32) -> String {
    format!(
        "could not reach the keeper of {key}: process {pid} is none, or an older dlock's, or in another network namespace"
    )
}

fn denied(key: &Key, pid: i32) -> String {
    let remedy = "run the command as that user, or from the script it keeps it for";
    format!("process {pid}, which keeps {key}, belongs to another user: {remedy}")
}

fn still_runs(pid: i32) -> String {
    format!("process {pid} still runs a command under its handle")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_of_a_handle_has_its_sentence() {
        for (event, expected) in sentences() {
            assert_eq!(event.line(), expected);
        }
    }

    /// Events and their sentences.
    fn sentences() -> Vec<(HandleEvent, &'static str)> {
        let (key, ttl) = (|| Key::parse("k".as_ref()).expect("valid"), Duration::from_secs(600));
        let rows = vec![
            (HandleEvent::Renewed { key: key(), ttl }, "renewed 'k', ttl 10m"),
            (
                HandleEvent::NotRenewed {
                    key: key(),
                    place: "redis://h:6379".to_owned(),
                    reason: Trouble::Silent,
                    ttl: None,
                },
                "could not renew 'k': the backend does not answer",
            ),
            (
                HandleEvent::NotRenewed {
                    key: key(),
                    place: "redis://h:6379".to_owned(),
                    reason: Trouble::Silent,
                    ttl: Some(ttl),
                },
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
        rows.into_iter().chain(of_keepers()).collect()
    }

    /// Of those, the ones about processes that keep locks, and about runs under their handles.
    fn of_keepers() -> Vec<(HandleEvent, &'static str)> {
        let (key, ttl) = (|| Key::parse("k".as_ref()).expect("valid"), Duration::from_secs(600));
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
                HandleEvent::KeeperUnreachable { key: key(), pid: 812 },
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
}
