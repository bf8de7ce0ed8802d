/*!
The end of a run: a pure decision from what happened to the command and to its lock.
*/

use std::time::Duration;

use crate::backend::contract::contender::Released;
use crate::command::run::held::{Cause, Held};
use crate::exit::{Exit, Failure};
use crate::lease::waiting::Trouble;
use crate::report::event::handle::HandleEvent;
use crate::report::event::{Event, Left, Lock, NotRun};
use crate::supervise::command::Ended;

/// The fate of the lock after the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was kept on purpose, because something of the command may still run.
    Kept(Left),
    /// It was given back.
    GivenBack {
        /// The result of the release.
        released: Result<Released, Trouble>,
        /// `true` if the lease had expired by then.
        ran_out: bool,
        /// The locks that an outer run held beside it, if that run ended before the command, unnoticed until now.
        outer_ended: Option<Lock>,
    },
    /// Its handle holds it, and it stays held.
    StaysHeld {
        /// `true` if the last renewal found it held, or why it got no answer; `None` if its loss was reported before.
        renewed: Option<Result<bool, Trouble>>,
        /// `true` if the lease had expired by then.
        ran_out: bool,
    },
    /// It belongs to an outer run.
    Outer {
        /// `true` if the outer run ended before the command, unnoticed until now.
        ended: bool,
    },
}

impl Fate {
    /// Returns `true` if the lock may be somebody else's by now, as far as the service has said so.
    pub(super) fn is_not_ours(&self) -> bool {
        matches!(
            self,
            Self::GivenBack { released: Ok(Released::NotMine), .. }
                | Self::StaysHeld { renewed: Some(Ok(false)) | None, ran_out: false }
        )
    }
}

/// The other facts that an ending depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Circumstances {
    /// The lock, as messages name it.
    pub(super) lock: Lock,
    /// The command's name.
    pub(super) program: String,
    /// The command as it was given.
    pub(super) command: String,
    /// The granted lease, including the part that is only for `--lock-delay`; `None` for a lock without one.
    pub(super) ttl: Option<Duration>,
    /// The least time for which the lock stays taken (`--min-hold`).
    pub(super) min_hold: Duration,
    /// `true` if the command's success is recorded with the release (`--once-per`).
    pub(super) is_to_be_recorded: bool,
    /// `true` if a loss is ignored (`--on-lost ignore`).
    pub(super) ignore: bool,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// The exit of dlock.
    pub(super) exit: Exit,
    /// A message about the lock, reported if the verbosity includes it.
    pub(super) remark: Option<Event>,
    /// The reason for this exit; `None` if the command's own end or an earlier message gives it.
    pub(super) event: Option<Event>,
}

impl Ending {
    /// Returns the ending for main, without the remark.
    pub(super) fn outcome(self) -> Result<Exit, Failure> {
        match self.event {
            Some(event) => Err(Failure::new(self.exit, event)),
            None => Ok(self.exit),
        }
    }
}

/// Returns the ending of the run after `held`, with this `fate` of its lock.
pub(super) fn ending(held: &Held, fate: Fate, about: Circumstances) -> Ending {
    let program = || about.program.clone();
    let unnoticed = match &fate {
        _ if !held.ended_well() => None,
        Fate::GivenBack { released: Ok(Released::NotMine), ran_out: false, .. }
        | Fate::StaysHeld { renewed: Some(Ok(false)), ran_out: false } => {
            Some(Event::LostBeforeTheEnd { lock: about.lock.clone(), program: program() })
        }
        Fate::GivenBack { outer_ended: Some(lock), .. } => {
            Some(Event::OuterEnded { lock: lock.clone(), program: program() })
        }
        Fate::Outer { ended: true } => Some(Event::OuterEnded { lock: about.lock.clone(), program: program() }),
        _ => None,
    };
    if unnoticed.is_some() && !about.ignore {
        return Ending { exit: Exit::Lost, remark: remark(held, fate, &about), event: unnoticed };
    }
    let remark = unnoticed.or_else(|| remark(held, fate, &about));
    let (exit, event) = verdict(held, about);
    Ending { exit, remark, event }
}

/// Returns the message about the lock when its fate does not decide the ending.
fn remark(held: &Held, fate: Fate, about: &Circumstances) -> Option<Event> {
    match fate {
        Fate::Kept(left) => {
            Some(Event::NotReleased { key: about.lock.key.clone(), left, expires: about.ttl.is_some() })
        }
        Fate::GivenBack { released: Ok(Released::Freed), .. } => Some(Event::Released(about.lock.key.clone())),
        Fate::GivenBack { released: Ok(Released::Kept), .. } => {
            Some(Event::Kept { key: about.lock.key.clone(), min_hold: about.min_hold })
        }
        // With --on-lost ignore the command has gone on after the one warning.
        Fate::GivenBack { released: Err(reason), .. } if !held.told_of_loss => {
            let ttl = about.ttl.map(|ttl| ttl.max(about.min_hold));
            Some(Event::ReleaseFailed { lock: about.lock.clone(), reason, ttl, unrecorded: about.is_to_be_recorded })
        }
        Fate::StaysHeld { renewed: Some(Ok(true)), .. } => {
            let (key, ttl) = (about.lock.key.first().clone(), about.ttl.unwrap_or_default());
            Some(Event::Handle(HandleEvent::StaysHeld { key, ttl }))
        }
        Fate::StaysHeld { renewed: Some(Err(reason)), .. } => {
            let Lock { key, place, .. } = about.lock.clone();
            let (key, ttl) = (key.first().clone(), about.ttl);
            Some(Event::Handle(HandleEvent::NotRenewed { key, place, reason, ttl }))
        }
        Fate::GivenBack { .. } | Fate::StaysHeld { .. } | Fate::Outer { .. } => None,
    }
}

/// Returns the exit, and its reason unless the exit is the command's own or the reason was reported already.
fn verdict(held: &Held, about: Circumstances) -> (Exit, Option<Event>) {
    let Circumstances { lock, command: program, .. } = about;
    let not_run = |exit, reason| (exit, Some(Event::NotRun { program, reason }));
    match (held.cause, held.exited) {
        (Some(Cause::Lost), _) => (Exit::Lost, None),
        (Some(Cause::MaxRun), _) => (Exit::MaxRun, None),
        (Some(Cause::NotSpawned(errno)), _) => not_run(Exit::Unavailable, NotRun::NoProcess(errno)),
        (Some(Cause::TooLate), _) | (None, Some((_, libc::ETIME))) => {
            not_run(Exit::Unavailable, NotRun::TooLate(lock.key))
        }
        (None, Some((_, libc::ENOENT))) => not_run(Exit::NotFound, NotRun::NotFound),
        (None, Some((Ended::Code(code), 0))) => (Exit::Command(code), None),
        (None, Some((Ended::Signal(signal), 0))) => (Exit::Signal(signal), None),
        (None, Some((_, errno))) => not_run(Exit::NotExecutable, NotRun::NotExecutable(errno)),
        (Some(Cause::GuardKilled), _) | (None, None) => (Exit::Internal, Some(Event::GuardKilled(lock.key))),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::backend::contract::contender::Used;
    use crate::key::{Key, Keys};

    const FREED: Fate = given_back(Ok(Released::Freed), false);
    const NOT_MINE: Fate = given_back(Ok(Released::NotMine), false);
    const RAN_OUT: Fate = given_back(Ok(Released::NotMine), true);
    const FAILED: Fate = given_back(Err(Trouble::Silent), false);
    const OUTER: Fate = Fate::Outer { ended: false };
    const OUTER_ENDED: Fate = Fate::Outer { ended: true };

    const fn given_back(released: Result<Released, Trouble>, ran_out: bool) -> Fate {
        Fate::GivenBack { released, ran_out, outer_ended: None }
    }

    fn key() -> Keys {
        Key::parse(OsStr::new("k")).expect("valid").into()
    }

    fn about() -> Circumstances {
        let lock = Lock { key: key(), place: "redis://h:6379".to_owned(), flags: String::new() };
        let (program, command) = ("sh".to_owned(), "./sh".to_owned());
        let ttl = Some(Duration::from_secs(30));
        Circumstances { lock, program, command, ttl, min_hold: Duration::ZERO, is_to_be_recorded: false, ignore: false }
    }

    fn held(cause: Option<Cause>, exited: Option<(Ended, i32)>) -> Held {
        Held { cause, exited, ..Held::default() }
    }

    fn done() -> Held {
        held(None, Some((Ended::Code(3), 0)))
    }

    #[test]
    fn a_lock_was_good_for_a_success_only_if_the_command_ended_with_0_by_itself() {
        let code = |code, errno| Some((Ended::Code(code), errno));
        let told = Held { told_of_loss: true, ..held(None, code(0, 0)) };
        let never_asked = Held { never_asked: true, ..held(Some(Cause::GuardKilled), None) };
        for (held, used) in [
            (held(None, code(0, 0)), Used::Success),
            (held(None, code(1, 0)), Used::Yes),
            (held(None, Some((Ended::Signal(15), 0))), Used::Yes),
            (held(Some(Cause::MaxRun), code(0, 0)), Used::Yes),
            (held(Some(Cause::Lost), code(0, 0)), Used::Yes),
            (held(Some(Cause::GuardKilled), None), Used::Yes),
            // Lost, and ignored.
            (told, Used::Yes),
            (held(None, code(127, libc::ENOENT)), Used::No),
            (held(None, code(0, libc::ETIME)), Used::No),
            (held(Some(Cause::TooLate), None), Used::No),
            (held(Some(Cause::NotSpawned(11)), None), Used::No),
            (never_asked, Used::No),
        ] {
            assert_eq!(held.used(), used, "{held:?}");
        }
    }

    #[test]
    fn the_exit_is_the_commands_own_unless_something_else_ended_it_or_it_never_ran() {
        let not_run = |reason| Some(Event::NotRun { program: "./sh".to_owned(), reason });
        let code = |code, errno| Some((Ended::Code(code), errno));
        for (cause, exited, exit, event) in [
            (None, code(0, 0), Exit::Command(0), None),
            (None, code(255, 0), Exit::Command(255), None),
            (None, Some((Ended::Signal(9), 0)), Exit::Signal(9), None),
            (None, code(127, libc::ENOENT), Exit::NotFound, not_run(NotRun::NotFound)),
            (None, code(126, libc::EACCES), Exit::NotExecutable, not_run(NotRun::NotExecutable(libc::EACCES))),
            (None, code(0, libc::ETIME), Exit::Unavailable, not_run(NotRun::TooLate(key()))),
            (Some(Cause::TooLate), None, Exit::Unavailable, not_run(NotRun::TooLate(key()))),
            (Some(Cause::NotSpawned(11)), None, Exit::Unavailable, not_run(NotRun::NoProcess(11))),
            (Some(Cause::Lost), code(0, 0), Exit::Lost, None),
            (Some(Cause::Lost), None, Exit::Lost, None),
            (Some(Cause::MaxRun), code(0, 0), Exit::MaxRun, None),
            (Some(Cause::GuardKilled), code(0, 0), Exit::Internal, Some(Event::GuardKilled(key()))),
            (None, None, Exit::Internal, Some(Event::GuardKilled(key()))),
        ] {
            let expected = Ending { exit, remark: Some(Event::Released(key())), event };
            assert_eq!(ending(&held(cause, exited), FREED, about()), expected, "{cause:?} {exited:?}");
        }
    }

    #[test]
    fn a_loss_that_nobody_noticed_decides_the_end_of_a_command_that_ended_by_itself() {
        let lost = Event::LostBeforeTheEnd { lock: about().lock, program: "sh".to_owned() };
        let outer = Event::OuterEnded { lock: about().lock, program: "sh".to_owned() };
        let told = Held { told_of_loss: true, ..done() };
        let stopped = held(Some(Cause::MaxRun), Some((Ended::Signal(15), 0)));
        let never_ran = held(None, Some((Ended::Code(127), libc::ENOENT)));
        for (held, fate, event) in [
            (done(), NOT_MINE, Some(&lost)),
            (done(), OUTER_ENDED, Some(&outer)),
            // What has run out since then was not lost while the command ran.
            (done(), RAN_OUT, None),
            (done(), OUTER, None),
            (done(), FREED, None),
            (done(), FAILED, None),
            (told, NOT_MINE, None),
            (told, OUTER_ENDED, None),
            (stopped, NOT_MINE, None),
            (stopped, OUTER_ENDED, None),
            (never_ran, NOT_MINE, None),
            (never_ran, OUTER_ENDED, None),
        ] {
            let strict = ending(&held, fate.clone(), about());
            assert_eq!(strict.exit == Exit::Lost, event.is_some(), "{held:?} {fate:?}");
            assert_eq!(event.is_some().then_some(strict.event).flatten().as_ref(), event);
            let ignored = ending(&held, fate.clone(), Circumstances { ignore: true, ..about() });
            assert_ne!(ignored.exit, Exit::Lost, "{held:?} {fate:?}");
            if event.is_some() {
                assert_eq!((ignored.exit, ignored.remark.as_ref()), (Exit::Command(3), event));
            }
        }
    }

    #[test]
    fn where_an_outer_run_has_some_of_the_locks_its_end_is_a_loss_too_and_the_others_are_given_back() {
        let lock = Lock { key: Key::parse(OsStr::new("o")).expect("valid").into(), ..about().lock };
        let outer = Event::OuterEnded { lock: lock.clone(), program: "sh".to_owned() };
        let fate = |released| Fate::GivenBack { released, ran_out: false, outer_ended: Some(lock.clone()) };
        let seen = ending(&done(), fate(Ok(Released::Freed)), about());
        let released = Some(Event::Released(key()));
        assert_eq!(seen, Ending { exit: Exit::Lost, remark: released, event: Some(outer.clone()) });
        let seen = ending(&done(), fate(Err(Trouble::Silent)), about());
        assert!(matches!(seen.remark, Some(Event::ReleaseFailed { .. })) && seen.event == Some(outer.clone()));
        // The own lock comes first.
        let seen = ending(&done(), fate(Ok(Released::NotMine)), about());
        assert!(matches!(seen.event, Some(Event::LostBeforeTheEnd { .. })), "{seen:?}");
        let ignored = Circumstances { ignore: true, ..about() };
        let seen = ending(&done(), fate(Ok(Released::Freed)), ignored);
        assert_eq!((seen.exit, seen.remark), (Exit::Command(3), Some(outer)));
        let told = Held { told_of_loss: true, ..done() };
        assert_eq!(ending(&told, fate(Ok(Released::Freed)), about()).exit, Exit::Command(3));
    }

    #[test]
    fn what_is_said_of_the_lock_is_said_once() {
        let failed =
            Event::ReleaseFailed { lock: about().lock, reason: Trouble::Silent, ttl: about().ttl, unrecorded: false };
        let kept = |left| Event::NotReleased { key: key(), left, expires: true };
        let told = Held { told_of_loss: true, ..done() };
        for (held, fate, remark) in [
            (done(), FREED, Some(Event::Released(key()))),
            (told, FREED, Some(Event::Released(key()))),
            (done(), FAILED, Some(failed)),
            (told, FAILED, None),
            (told, NOT_MINE, None),
            (done(), RAN_OUT, None),
            (done(), OUTER, None),
            (done(), Fate::Kept(Left::Living(7)), Some(kept(Left::Living(7)))),
            (told, Fate::Kept(Left::Unknown), Some(kept(Left::Unknown))),
        ] {
            assert_eq!(ending(&held, fate.clone(), about()).remark, remark, "{held:?} {fate:?}");
        }
        let unlimited = Circumstances { ttl: None, ..about() };
        let expected = Event::NotReleased { key: key(), left: Left::Unknown, expires: false };
        assert_eq!(ending(&done(), Fate::Kept(Left::Unknown), unlimited).remark, Some(expected));
    }

    #[test]
    fn a_lock_with_a_handle_stays_held_unless_it_is_gone_at_the_end() {
        let fate = |renewed, ran_out| Fate::StaysHeld { renewed, ran_out };
        let key = key().first().clone();
        let ttl = Duration::from_secs(30);
        let stays = Event::Handle(HandleEvent::StaysHeld { key: key.clone(), ttl });
        let place = about().lock.place;
        let silent = Event::Handle(HandleEvent::NotRenewed { key, place, reason: Trouble::Silent, ttl: Some(ttl) });
        let told = Held { told_of_loss: true, ..held(Some(Cause::Lost), Some((Ended::Signal(15), 0))) };
        for (held, fate, exit, remark) in [
            (done(), fate(Some(Ok(true)), false), Exit::Command(3), Some(stays)),
            (done(), fate(Some(Err(Trouble::Silent)), false), Exit::Command(3), Some(silent)),
            (done(), fate(Some(Ok(false)), false), Exit::Lost, None),
            // What has run out since then was not lost while the command ran.
            (done(), fate(Some(Ok(false)), true), Exit::Command(3), None),
            (told, fate(None, false), Exit::Lost, None),
        ] {
            let seen = ending(&held, fate.clone(), about());
            assert_eq!((seen.exit, seen.remark), (exit, remark), "{held:?} {fate:?}");
        }
    }
}
