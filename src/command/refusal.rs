/*!
The message and the exit code of a subcommand that does not get its lock.
*/

use crate::backend::contract::contender::{Busy, OtherSlots};
use crate::backend::error::ErrorKind;
use crate::command::session::exit_of;
use crate::exit::{Exit, Failure};
use crate::holder::Holder;
use crate::lease::waiting::{Failed, Refused};
use crate::lock::admission::Mode;
use crate::report::Verbosity;
use crate::report::event::handle::HandleEvent;
use crate::report::event::{Blocker, Event, Lock};
use crate::settings::WaitLimit;

/// A request for a lock.
pub(super) struct LockRequest {
    /// The requested lock.
    pub lock: Lock,
    /// The requested mode.
    pub mode: Mode,
    /// The limit of the wait.
    pub wait_limit: WaitLimit,
    /// The exit code if the lock was not acquired.
    pub conflict: u8,
    /// The verbosity of the messages.
    pub verbosity: Verbosity,
}

/// Returns `true` if a run of this mode could hold the lock together with `holder` and `beside` others.
fn has_room(mode: Mode, holder: &Holder, beside: u64) -> bool {
    let is_alike = matches!(holder, Holder::Dlock(published) if published.mode() == Some(mode));
    is_alike && usize::try_from(beside.saturating_add(1)).is_ok_and(|holders| holders < mode.room())
}

/// Returns the message and the exit code for a lock that was not acquired.
pub(super) fn refused(request: LockRequest, refused: Refused) -> Failure {
    let LockRequest { lock, mode, wait_limit, conflict, verbosity } = request;
    let within = match wait_limit {
        WaitLimit::For(wait_limit) => Some(wait_limit),
        WaitLimit::None | WaitLimit::Endless => None,
    };
    let why = match refused {
        Refused::Busy(Busy { holder, beside, now, .. }) => {
            let queued = has_room(mode, &holder, beside);
            Blocker::Held { holder, beside, now, position: None, queued }
        }
        // The contender was told to ignore the outer runs, or there are none.
        Refused::Outer(outer) => {
            Blocker::Held { holder: Holder::Dlock(outer), beside: 0, now: 0, position: None, queued: false }
        }
        Refused::OtherSlots(OtherSlots { slots, holder, now }) => {
            let wanted = mode.slots().unwrap_or_default();
            return Failure::new(Exit::Usage, Event::OtherSlots { lock, wanted, slots, holder, now });
        }
        Refused::Done(done) => return not_acquired(conflict, verbosity, Event::AlreadyDone { lock, done }),
        Refused::Failed(Failed { kind, trouble }) => {
            let within = within.filter(|_| kind.is_transient() && kind != ErrorKind::Mistaken);
            return Failure::new(exit_of(kind), Event::NotAcquired { lock, within, why: Blocker::Trouble(trouble) });
        }
    };
    not_acquired(conflict, verbosity, Event::NotAcquired { lock, within, why })
}

/// Returns the failure of a subcommand that wants the `lock` that the handle in its environment holds: it would
/// wait for itself, which is an error in the script and not a busy lock. `runs` says whether the backend lets commands
/// run under a handle.
pub(super) fn held_by_own_handle(lock: Lock, runs: bool) -> Failure {
    Failure::new(Exit::Usage, Event::Handle(HandleEvent::OwnHandle { key: lock.key, runs }))
}

/// Returns the failure of a subcommand that does not get the lock, with its reason unless it is to be quiet.
fn not_acquired(conflict: u8, verbosity: Verbosity, reason: Event) -> Failure {
    let exit = Exit::NotAcquired(conflict);
    match verbosity {
        Verbosity::Quiet => Failure::quiet(exit, reason),
        Verbosity::Normal | Verbosity::Verbose => Failure::new(exit, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_run_out_where_there_is_room_are_others_ahead_of_it() {
        let mode = |name: &str| Mode::read(name).expect("a mode");
        let dlock = |mode: &str| Holder::read(format!(r#"{{"v":1,"id":"x","mode":"{mode}"}}"#).as_bytes());
        for (wanted, holder, beside, expected) in [
            ("shared", dlock("shared"), 2, true),
            ("slots3", dlock("slots3"), 1, true),
            ("slots3", dlock("slots3"), 2, false),
            ("slots3", dlock("slots2"), 0, false),
            ("exclusive", dlock("exclusive"), 0, false),
            ("shared", dlock("exclusive"), 0, false),
            ("exclusive", dlock("shared"), 0, false),
            ("shared", Holder::Process(7, "flock".to_owned()), 0, false),
        ] {
            assert_eq!(has_room(mode(wanted), &holder, beside), expected, "{wanted} {holder:?} {beside}");
        }
    }
}
