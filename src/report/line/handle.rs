//! The sentences about locks that are held by their handles.

use humantime::format_duration;
use nix::errno::Errno;

use crate::key::Key;
use crate::lease::waiting::Trouble;
use crate::report::event::handle::HandleEvent;

/// The sentence for `event`; `trouble` words a problem with the backend at a place.
pub(super) fn line(event: &HandleEvent, trouble: fn(&str, &Trouble) -> String) -> String {
    match event {
        HandleEvent::Renewed { key, ttl } => format!("renewed {key}, ttl {}", format_duration(*ttl)),
        HandleEvent::NotRenewed { key, place, reason, ttl } => {
            let expires = |ttl| format!("; the lock will expire on its own within {}", format_duration(ttl));
            format!("could not renew {key}: {}{}", trouble(place, reason), ttl.map(expires).unwrap_or_default())
        }
        HandleEvent::Lost { key, why } => format!("lost {key}: {why}"),
        HandleEvent::PassedOn(key) => format!("lost {key}: its lease ended, and others have held it since"),
        HandleEvent::NotHeld(key) => {
            format!("{key} was not held any more: it was released before or taken away, or its lease had ended")
        }
        HandleEvent::Empty => "nothing to release: the handle is empty".to_owned(),
        HandleEvent::OfAnotherShell { key, shell } => format!(
            "did not release {key}: DLOCK_HANDLE is inherited from process {shell}, which acquired it: if you mean it, use dlock \
             release \"$DLOCK_HANDLE\""
        ),
        HandleEvent::StaysHeld { key, ttl } => {
            format!("{key} stays held by its handle for {}", format_duration(*ttl))
        }
        HandleEvent::OwnHandle { key, runs: true } => {
            format!("did not get {key}: DLOCK_HANDLE holds it: use dlock run --handle")
        }
        HandleEvent::OwnHandle { key, runs: false } => {
            format!("did not get {key}: DLOCK_HANDLE holds it: run the command without dlock run")
        }
        HandleEvent::KeptElsewhere { key, host } => {
            elsewhere(key, host, "release it where that runs, or use dlock break")
        }
        HandleEvent::KeptByAnother { key, pid } => {
            format!(
                "could not release {key}: process {pid}, which keeps it, belongs to another user: release it as that user"
            )
        }
        HandleEvent::KeeperUnseen { key, pid, errno: Some(errno) } => {
            let reason = Errno::from_raw(*errno).desc();
            format!("could not release {key}: process {pid}, which keeps it, cannot be watched: {reason}")
        }
        HandleEvent::KeeperUnseen { key, pid, errno: None } => {
            format!("could not release {key}: /proc does not show whether process {pid} keeps it")
        }
        HandleEvent::KeeperDeaf { key, pid } => deaf(key, *pid),
        HandleEvent::RunElsewhere { key, host } => elsewhere(key, host, "run the command where that runs"),
        HandleEvent::RunDenied { key, pid } => denied(key, *pid),
        HandleEvent::RunGoesOn { key, pid } => format!("could not release {key}: {}: end that first", still_runs(*pid)),
        HandleEvent::WaitingForRun { key, pid } => format!("waiting to release {key}: {}", still_runs(*pid)),
        HandleEvent::KeeperStays { key, pid, limit } => format!(
            "could not release {key}: process {pid}, which keeps it, has not ended within {}",
            format_duration(*limit)
        ),
        HandleEvent::KeeperGone { key, ttl } => format!(
            "could not release {key}: the process that kept it is gone; the lock will expire on its own within {}",
            format_duration(*ttl)
        ),
        HandleEvent::NotKept(key) => {
            format!("the process that was to keep {key} was killed: if it held the lock, that will expire on its own")
        }
        HandleEvent::TooLong(key) => {
            format!("the handle of {key} would be longer than 2048 bytes: use a shorter key or a shorter backend URL")
        }
    }
}

fn elsewhere(key: &Key, host: &str, remedy: &str) -> String {
    format!("{key} is kept by a process on {host} that cannot be seen from here: {remedy}")
}

fn deaf(key: &Key, pid: i32) -> String {
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
