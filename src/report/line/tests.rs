/*!
Tests of every sentence that dlock can print.
*/

mod breaks;
mod details;
mod meetings;
mod modes;
mod several;
mod states;

use std::ffi::OsStr;

use super::*;
use crate::holder::Holder;
use crate::key::{Key, Keys};
use crate::lease::renewal::Unconfirmed;
use crate::lease::waiting::Trouble;
use crate::report::event::{Lack, Step};
use crate::supervise::protocol::Unfit;

const S: Duration = Duration::from_secs(1);

fn named(name: &str) -> Key {
    Key::parse(OsStr::new(name)).expect("valid")
}

fn key() -> Keys {
    named("k").into()
}

fn lock() -> Lock {
    Lock { key: key(), place: "redis://h:6379".to_owned(), flags: String::new() }
}

fn sh() -> String {
    "sh".to_owned()
}

fn lacking(step: Step, reason: Lack) -> Event {
    Event::Lacking { step, reason }
}

fn waiting(why: Blocker) -> Event {
    Event::Waiting { lock: lock(), why, waited: 12 * S }
}

fn refused(within: Option<Duration>, why: Blocker) -> Event {
    Event::NotAcquired { lock: lock(), within, why }
}

fn held(position: Option<u64>) -> Blocker {
    let holder = Holder::Process(7, "flock".to_owned());
    Blocker::Held { holder, beside: 0, now: 0, position, queued: false }
}

fn lost(how: Loss, goes_on: bool) -> Event {
    Event::Lost { lock: lock(), how, program: sh(), goes_on }
}

fn not_run(reason: NotRun) -> Event {
    Event::NotRun { program: sh(), reason }
}

/// The sentences before there is a lock.
fn beginnings() -> Vec<(Event, &'static str)> {
    let text = |text: &str| text.to_owned();
    vec![
        (Event::Bug(text("it broke")), "this is a bug in dlock, please report it: it broke"),
        (Event::CommandLine { mistake: text("no"), help: Some(text("dlock run")) }, "no; see dlock run --help"),
        (Event::CommandLine { mistake: text("no: did you mean yes?"), help: None }, "no: did you mean yes?"),
        (Event::Settings(text("--key: no")), "--key: no"),
        (Event::NoSuchPage(text("fly")), "there is no subcommand fly: see dlock --help"),
        (Event::OnlyPagesHaveSubcommands, "only man pages are per subcommand: leave SUBCOMMAND out"),
        (Event::OutputFailed(text("full")), "could not write to standard output: full"),
        (
            Event::NoJournal { sink: text("/var/log/x"), reason: text("Permission denied") },
            "could not open /var/log/x for --events: Permission denied",
        ),
        (
            Event::Unlogged { sink: text("/var/log/x"), reason: text("Permission denied") },
            "could not open /var/log/x for the events of all users: Permission denied",
        ),
        (
            Event::LinesLost { sink: text("/var/log/x"), reason: text("No space left on device") },
            "could not write to /var/log/x for --events: No space left on device",
        ),
        (
            Event::NoBackendChosen,
            "no backend was chosen, so this lock holds on this host and for this user only (choose with --backend or \
             DLOCK_BACKEND)",
        ),
        (
            Event::UnknownVariables { names: vec![text("DLOCK_WIAT")], meant: Some(text("DLOCK_WAIT")) },
            "DLOCK_WIAT is not a variable of dlock: did you mean DLOCK_WAIT?",
        ),
        (
            Event::UnknownVariables { names: vec![text("DLOCK_A"), text("DLOCK_B")], meant: None },
            "DLOCK_A, DLOCK_B are not variables of dlock",
        ),
        (
            Event::PasswordExposed(text("/etc/pw")),
            "the password file /etc/pw can be read or written by other users: chmod 600 it",
        ),
        (
            Event::PasswordWithheld {
                origin: text("password (/etc/c:2)"),
                belongs_to: text("redis://a:6379"),
                place: text("redis://b:6379"),
            },
            "password (/etc/c:2) is for redis://a:6379, and is not sent to redis://b:6379: if that is meant, use --password-file",
        ),
    ]
}

/// The sentences when something that a run needs is missing.
fn lacks() -> Vec<(Event, &'static str)> {
    let text = |text: &str| text.to_owned();
    vec![
        (
            lacking(Step::OwnerId, Lack::System(text("no"))),
            "could not get random numbers for an owner id: no; no command was started",
        ),
        (lacking(Step::Command, Lack::System(text("no"))), "could not prepare the command: no; no command was started"),
        (
            lacking(Step::Signals, Lack::System(text("no"))),
            "could not take over the signals: no; no command was started",
        ),
        (
            lacking(Step::Subreaper, Lack::System(text("no"))),
            "could not become a subreaper: no; no command was started",
        ),
        (
            lacking(Step::GuardName, Lack::System(text("no"))),
            "could not name the guard's socket: no; no command was started",
        ),
        (
            lacking(Step::EventLoop, Lack::System(text("no"))),
            "could not start the event loop: no; no command was started",
        ),
        (
            lacking(Step::Journal, Lack::System(text("no"))),
            "could not start the thread that writes the events: no; no command was started",
        ),
        (
            lacking(Step::WatchSignals, Lack::System(text("no"))),
            "could not watch the signals: no; no command was started",
        ),
        (lacking(Step::WatchGuard, Lack::System(text("no"))), "could not watch the guard: no; no command was started"),
        (
            lacking(Step::Guard, Lack::NoProcess(libc::EAGAIN)),
            "could not start the guard: no more processes are allowed here (ulimit -u, or the limit of the control group); \
             no command was started",
        ),
        (
            lacking(Step::Guard, Lack::NoProcess(libc::EMFILE)),
            "could not start the guard: no descriptors for a timer and for signals: raise the limit of open files (ulimit \
             -n); no command was started",
        ),
        (
            lacking(Step::Guard, Lack::NoProcess(libc::ENOMEM)),
            "could not start the guard: no process could be made: out of memory; no command was started",
        ),
    ]
}

/// The sentences when a command cannot be supervised.
fn no_supervision() -> Vec<(Event, &'static str)> {
    vec![
        (
            lacking(Step::Supervision, Lack::SlowGuard(S)),
            "could not supervise a command here: the guard did not start within 1s; no command was started",
        ),
        (
            lacking(Step::Supervision, Lack::Unfit(Unfit::Subreaper)),
            "could not supervise a command here: prctl(PR_SET_CHILD_SUBREAPER) is refused: allow it in the container's \
             seccomp profile; no command was started",
        ),
        (
            lacking(Step::Supervision, Lack::Unfit(Unfit::Proc)),
            "could not supervise a command here: /proc is missing or hides the processes: mount it without hidepid for \
             this user; no command was started",
        ),
        (
            lacking(Step::Supervision, Lack::Unfit(Unfit::OtherProc)),
            "could not supervise a command here: /proc shows the processes of another PID namespace: mount one for this \
             namespace (unshare --mount-proc); no command was started",
        ),
    ]
}

/// The sentences about waiting for a lock.
fn waits() -> Vec<(Event, &'static str)> {
    let trouble = |trouble| Blocker::Trouble(trouble);
    let said = |text: &str| trouble(Trouble::Said(text.to_owned()));
    vec![
        (Event::GotIt { key: key(), waited: 130 * S }, "'k': got it after 2m 10s"),
        (Event::Waiting { lock: lock(), why: held(None), waited: S / 2 }, "waiting for 'k': held by flock (pid 7)"),
        (waiting(held(Some(1))), "waiting for 'k': 12s so far; held by flock (pid 7); you are next"),
        (waiting(held(Some(2))), "waiting for 'k': 12s so far; held by flock (pid 7); 1 ahead of you"),
        (waiting(said("it is down")), "waiting for 'k': 12s so far; it is down"),
        (
            waiting(trouble(Trouble::Unanswered(Duration::from_micros(1_500_900)))),
            "waiting for 'k': 12s so far; redis://h:6379 did not answer within 1s 500ms",
        ),
        (refused(None, held(None)), "did not get 'k': held by flock (pid 7); see dlock status --key k"),
        (
            refused(Some(90 * S), held(None)),
            "did not get 'k' within 1m 30s: held by flock (pid 7); see dlock status --key k",
        ),
        (
            refused(None, trouble(Trouble::Unreachable(5 * S))),
            "did not get 'k': redis://h:6379 did not answer within 5s; is it stopped or out of reach, is something else \
             listening there, or does only one side speak TLS?",
        ),
        (
            refused(None, trouble(Trouble::ShortLease { granted: 40 * S, delay: 39 * S, least: 234 * S })),
            "did not get 'k': redis://h:6379 grants a lease of 40s, of which --lock-delay 39s leaves 1s, and at least 3m 54s \
             is needed: use a shorter --lock-delay",
        ),
        (
            refused(None, trouble(Trouble::TooSlow)),
            "did not get 'k': the backend answers too slowly for this --ttl: use a longer one",
        ),
    ]
}

/// The sentences about an outer run.
fn outer() -> Vec<(Event, &'static str)> {
    vec![
        (
            Event::OuterElsewhere,
            "the lock is held by the outer dlock run, which is in another PID namespace and cannot be watched \
             from here: take the lock once, outside",
        ),
        (
            Event::OuterGuardUnreachable(None),
            "the lock is held by the outer dlock run, and its guard could not be reached: it does not answer; \
             take the lock once, outside (another network namespace hides it, for one)",
        ),
        (
            Event::OuterGuardUnreachable(Some("no".to_owned())),
            "the lock is held by the outer dlock run, and its guard could not be reached: no; take the lock once, \
             outside (another network namespace hides it, for one)",
        ),
        (
            Event::OuterFull(named("k")),
            "'k' is held by the outer dlock run, whose guard may open no more files: raise the limit (ulimit -Hn) \
             where that one is started, or start fewer runs inside it at the same time",
        ),
        (
            Event::StartsItself(named("k")),
            "this command line starts itself again and again inside its lock 'k': give dlock held in that script the --key, \
             --backend and --namespace of its dlock run",
        ),
        (
            Event::OuterUnwatchable(libc::EPERM),
            "could not watch the outer dlock run: pidfd_open: Operation not permitted; allow it in the \
             container's seccomp profile",
        ),
        (Event::Covered(key()), "'k' is held by the outer dlock run; running under it"),
    ]
}

/// The sentences while a command runs.
fn runs() -> Vec<(Event, &'static str)> {
    vec![
        (Event::Warning { lock: lock(), warning: "it forgets".to_owned() }, "'k' at redis://h:6379: it forgets"),
        (
            Event::ShortGrace { lock: lock(), kill_after: S, ttl: 2 * S },
            "'k' at redis://h:6379: --kill-after is only 1s, because the server grants no more than 2s of lease",
        ),
        (not_run(NotRun::NotFound), "could not run sh: not found"),
        (not_run(NotRun::NotExecutable(libc::EACCES)), "could not run sh: permission denied"),
        (not_run(NotRun::NoProcess(libc::ENOMEM)), "could not run sh: no process could be made: out of memory"),
        (
            not_run(NotRun::TooLate(key())),
            "could not run sh: the lease of 'k' had almost ended before it could start: use a longer --ttl",
        ),
        (
            Event::Suspended { key: key(), program: sh(), stopped_in: 20 * S },
            "suspended: 'k' cannot be renewed, and sh is stopped in 20s unless it goes on",
        ),
        (
            Event::Throttled { lock: lock(), program: sh(), earlier: 3 * S / 2 },
            "'k' at redis://h:6379: this control group uses up its CPU quota: unless it is renewed, sh is stopped 1s 500ms earlier; \
             use a longer --ttl, or give it more processor",
        ),
        (Event::MaxRun { program: sh(), max_run: 60 * S }, "sh has run for 1m (--max-run): stopping it"),
        (Event::StoppingLeftovers { program: sh() }, "sh has ended; stopping what it left behind"),
        (
            Event::StoppingNested { key: key(), program: sh() },
            "'k': stopping the nested dlock run that sh left in the background",
        ),
    ]
}

/// The sentences about a lock that is lost while a command runs.
fn losses() -> Vec<(Event, &'static str)> {
    let unrenewed = |last| lost(Loss::Unrenewed { silent: 65 * S, last }, false);
    vec![
        (lost(Loss::NotMine("it is gone".to_owned()), false), "lost 'k' at redis://h:6379: it is gone; stopping sh"),
        (
            lost(Loss::NotMine("it is gone".to_owned()), true),
            "lost 'k' at redis://h:6379: it is gone; sh goes on without it (--on-lost ignore)",
        ),
        (lost(Loss::OuterEnded, false), "lost 'k' at redis://h:6379: the outer dlock run has ended; stopping sh"),
        (
            lost(Loss::KeeperEnded, false),
            "lost 'k' at redis://h:6379: its keeper has ended or is giving it back; stopping sh",
        ),
        (
            lost(Loss::Starved, false),
            "lost 'k' at redis://h:6379: no renewal was confirmed in time, because dlock itself was stopped or starved; \
             stopping sh",
        ),
        (
            unrenewed(Unconfirmed::NotTried),
            "lost 'k' at redis://h:6379: no renewal was confirmed for 1m 5s: it was not tried, because dlock itself was \
             stopped or starved; stopping sh",
        ),
        (
            unrenewed(Unconfirmed::Silence),
            "lost 'k' at redis://h:6379: no renewal was confirmed for 1m 5s: the backend does not answer; stopping sh",
        ),
        (
            unrenewed(Unconfirmed::Said("refused".to_owned())),
            "lost 'k' at redis://h:6379: no renewal was confirmed for 1m 5s: refused; stopping sh",
        ),
    ]
}

/// The sentences when the command, dlock or the guard has ended.
fn ends() -> Vec<(Event, &'static str)> {
    let failed = |reason, ttl, unrecorded| Event::ReleaseFailed { lock: lock(), reason, ttl, unrecorded };
    let no = || Trouble::Said("no".to_owned());
    vec![
        (
            Event::LostBeforeTheEnd { lock: lock(), program: sh() },
            "lost 'k' at redis://h:6379 while sh ran: it was not ours any more when it ended",
        ),
        (
            Event::OuterEnded { lock: lock(), program: sh() },
            "lost 'k' at redis://h:6379: the outer dlock run ended before sh did",
        ),
        (Event::Released(key()), "released 'k'"),
        (
            Event::Kept { key: key(), min_hold: 90 * S },
            "finished; 'k' stays taken until 1m 30s after it was acquired (--min-hold)",
        ),
        (
            Event::NotReleased { key: key(), left: Left::Refused(7), expires: true },
            "process 7 could not be stopped by this user: 'k' is not released, it will expire on its own",
        ),
        (
            Event::NotReleased { key: key(), left: Left::Unknown, expires: false },
            "processes cannot be listed, so something may still run: 'k' is not released",
        ),
        (
            failed(Trouble::Silent, Some(30 * S), false),
            "could not release 'k': the backend does not answer; the lock will expire on its own within 30s",
        ),
        (failed(no(), None, false), "could not release 'k': no"),
        (failed(no(), None, true), "could not release 'k': no, and the job may run again in this period"),
        (Event::GuardKilled(key()), "the guard process was killed, and the command was stopped (lock 'k')"),
        (
            Event::DlockKilled { lock: lock(), program: sh() },
            "dlock itself was killed: stopping sh, because its lock 'k' at redis://h:6379 is no longer renewed",
        ),
    ]
}

#[test]
fn every_event_has_its_sentence() {
    let of_one = [
        beginnings(),
        lacks(),
        no_supervision(),
        waits(),
        outer(),
        modes::holds(),
        modes::sentences(),
        meetings::sentences(),
        runs(),
        losses(),
        details::sentences(),
        breaks::sentences(),
        ends(),
    ];
    for (event, sentence) in of_one.concat().into_iter().chain(several::sentences()) {
        assert_eq!(line(&event), sentence);
    }
}

#[test]
fn what_dlock_did_to_a_job_is_told_with_q_too_and_is_an_error_in_the_journal() {
    let stopped = Event::MaxRun { program: "backup.sh".to_owned(), max_run: Duration::from_secs(60) };
    assert_eq!((stopped.level(), stopped.priority()), (Level::Warning, Priority::Error));
    let misspelt = Event::UnknownVariables { names: vec!["DLOCK_WIAT".to_owned()], meant: None };
    assert_eq!((misspelt.level(), misspelt.priority()), (Level::Warning, Priority::Warning));
}
