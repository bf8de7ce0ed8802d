/*!
How each event is told: how loud, and in which sentence. A family of events has both with its data, in its file in
`event`. Where the sentence is written is not known here.
*/

use std::time::Duration;

use humantime::format_duration;
use nix::errno::Errno;

use crate::holder::Holder;
use crate::key::Keys;
use crate::lock::admission::Mode;
use crate::printable::flag;
use crate::report::event::lack::no_process;
use crate::report::event::meeting::MeetingEvent;
use crate::report::event::{Blocker, Event, Left, Lock, Loss, NotRun};
use crate::report::level::{Level, Priority};
use crate::report::words::{and_expires, either, roughly, so_far, trouble, unconfirmed, whole_millis};

impl Event {
    /// Returns the verbosity at which it is reported.
    #[must_use]
    pub(crate) fn level(&self) -> Level {
        match self {
            Self::Handle(event) => event.level(),
            Self::Meeting(event) => event.level(),
            Self::Waiting { .. } | Self::GotIt { .. } => Level::State,
            Self::Look(event) => event.level(),
            Self::Break(event) => event.level(),
            Self::NoBackendChosen
            | Self::Unlogged { .. }
            | Self::PasswordExposed(_)
            | Self::PasswordWithheld { .. }
            | Self::Warning { .. }
            | Self::ShortGrace { .. }
            | Self::Suspended { .. } => Level::Note,
            Self::Acquired { .. }
            | Self::LinesLost { .. }
            | Self::LastBreak { .. }
            | Self::NotRenewed { .. }
            | Self::RenewedAgain(_)
            | Self::Covered(_)
            | Self::StoppingLeftovers { .. }
            | Self::Throttled { .. }
            | Self::Released(_)
            | Self::Kept { .. } => Level::Detail,
            Self::Bug(_)
            | Self::CommandLine { .. }
            | Self::Settings(_)
            | Self::NoSuchPage(_)
            | Self::OnlyPagesHaveSubcommands
            | Self::OutputFailed(_)
            | Self::Lacking { .. }
            | Self::NoJournal { .. }
            | Self::NotAcquired { .. }
            | Self::OtherSlots { .. }
            | Self::AlreadyDone { .. }
            | Self::OnceInside(_)
            | Self::Upgrade { .. }
            | Self::OuterElsewhere
            | Self::OuterGuardUnreachable(_)
            | Self::OuterFull(_)
            | Self::StartsItself(_)
            | Self::OuterUnwatchable(_)
            | Self::NotRun { .. }
            | Self::Lost { .. }
            | Self::TakenAway { .. }
            | Self::AskedAndGoesOn { .. }
            | Self::LostBeforeTheEnd { .. }
            | Self::OuterEnded { .. }
            | Self::NotReleased { .. }
            | Self::ReleaseFailed { .. }
            | Self::GuardKilled(_)
            // The user has set a limit or a variable, and must hear what came of it from cron too.
            | Self::MaxRun { .. }
            | Self::StoppingNested { .. }
            | Self::UnknownVariables { .. }
            | Self::DlockKilled { .. } => Level::Warning,
        }
    }

    /// Returns the importance of its line in a log.
    #[must_use]
    pub(crate) fn priority(&self) -> Priority {
        match self {
            Self::NotAcquired { .. } | Self::AlreadyDone { .. } | Self::Meeting(MeetingEvent::RanOut { .. }) => {
                Priority::Notice
            }
            // The lock frees itself.
            Self::NotReleased { .. }
            | Self::ReleaseFailed { .. }
            | Self::UnknownVariables { .. }
            | Self::StoppingNested { .. } => Priority::Warning,
            _ => match self.level() {
                Level::Warning => Priority::Error,
                Level::Note if matches!(self, Self::Look(_) | Self::Break(_) | Self::Handle(_)) => Priority::Notice,
                Level::Note => Priority::Warning,
                Level::State | Level::Detail => Priority::Info,
            },
        }
    }
}

/// The sentence for `event`, without a line end. It may contain text of other programs and must be escaped before it is
/// shown.
#[must_use]
#[allow(clippy::too_many_lines, reason = "an arm for each event")]
pub(super) fn line(event: &Event) -> String {
    match event {
        Event::Bug(panic) => format!("this is a bug in dlock, please report it: {panic}"),
        Event::CommandLine { mistake, help: Some(command) } => format!("{mistake}; see {command} --help"),
        Event::CommandLine { mistake, help: None } | Event::Settings(mistake) => mistake.clone(),
        Event::NoSuchPage(name) => format!("there is no subcommand {name}: see dlock --help"),
        Event::OnlyPagesHaveSubcommands => "only man pages are per subcommand: leave SUBCOMMAND out".to_owned(),
        Event::OutputFailed(reason) => format!("could not write to standard output: {reason}"),
        Event::Lacking { step, reason } => {
            format!("could not {}: {}; no command was started", step.task(), reason.words())
        }
        Event::Look(look) => look.line(),
        Event::Break(event) => event.line(),
        Event::NoJournal { sink, reason } => format!("could not open {sink} for --events: {reason}"),
        Event::Unlogged { sink, reason } => format!("could not open {sink} for the events of all users: {reason}"),
        Event::LinesLost { sink, reason } => format!("could not write to {sink} for --events: {reason}"),
        Event::NoBackendChosen => {
            "no backend was chosen, so this lock holds on this host and for this user only (choose with --backend or \
             DLOCK_BACKEND)"
                .to_owned()
        }
        Event::PasswordExposed(file) => {
            format!("the password file {file} can be read or written by other users: chmod 600 it")
        }
        Event::PasswordWithheld { origin, belongs_to, place } => {
            format!("{origin} is for {belongs_to}, and is not sent to {place}: if that is meant, use --password-file")
        }
        Event::UnknownVariables { names, meant } => unknown(names, meant.as_deref()),
        Event::GotIt { key, waited } => format!("{key}: got it after {}", roughly(*waited)),
        Event::Waiting { lock, why, waited } => {
            format!("waiting for {}: {}{}", lock.key, so_far(*waited), blocker(lock, why))
        }
        Event::NotAcquired { lock, within, why } => {
            let within = within.map(|within| format!(" within {}", format_duration(within))).unwrap_or_default();
            let next = if matches!(why, Blocker::Held { .. }) { look(lock) } else { String::new() };
            format!("did not get {}{within}: {}{next}", lock.key, blocker(lock, why))
        }
        Event::OtherSlots { lock, wanted, slots, holder, now } => {
            let who = match holder {
                Holder::Nobody | Holder::Unknown => String::new(),
                // It may also wait for the lock.
                holder => format!(" ({})", holder.describe(*now).trim_start_matches("held ")),
            };
            format!(
                "{} is in use with --slots {slots}{who}: --slots {wanted} is possible once nobody holds it or waits for it",
                at(lock)
            )
        }
        Event::AlreadyDone { lock, done } => {
            let length = format_duration(Duration::from_millis(done.length));
            format!("skipped: {} was done in this period (--once-per {length}) {}", at(lock), done.describe())
        }
        Event::OuterGuardUnreachable(reason) => {
            let reason = reason.as_deref().unwrap_or("it does not answer");
            format!(
                "the lock is held by the outer dlock run, and its guard could not be reached: {reason}; take the \
                 lock once, outside (another network namespace hides it, for one)"
            )
        }
        Event::OuterFull(key) => format!(
            "{key} is held by the outer dlock run, whose guard may open no more files: raise the limit (ulimit -Hn) \
             where that one is started, or start fewer runs inside it at the same time"
        ),
        Event::StartsItself(key) => format!(
            "this command line starts itself again and again inside its lock {key}: give dlock held in that script the --key, \
             --backend and --namespace of its dlock run"
        ),
        Event::OuterUnwatchable(errno) => format!(
            "could not watch the outer dlock run: pidfd_open: {}; allow it in the container's seccomp profile",
            Errno::from_raw(*errno).desc()
        ),
        Event::Upgrade { key, outer, wanted } => {
            let option = |mode: &Mode| match mode {
                Mode::Exclusive => "--exclusive".to_owned(),
                Mode::Shared => "--shared".to_owned(),
                Mode::Slots(slots) => format!("--slots {slots}"),
            };
            format!(
                "{key} is held with {} by the outer dlock run, so this one could never get it: use {} in \
                 the outer run, or another key here",
                option(outer),
                option(wanted)
            )
        }
        Event::OnceInside(key) => format!(
            "{key} is held by the outer dlock run, which alone knows whether its command succeeds: use --once-per \
             there"
        ),
        Event::Covered(key) => {
            let (is, it) = (either(key, "is", "are"), either(key, "it", "them"));
            format!("{key} {is} held by the outer dlock run; running under {it}")
        }
        Event::OuterElsewhere => {
            "the lock is held by the outer dlock run, which is in another PID namespace and cannot be watched \
              from here: take the lock once, outside"
                .to_owned()
        }
        Event::Meeting(event) => event.line(),
        Event::Handle(event) => event.line(),
        Event::Warning { lock, warning } => format!("{}: {warning}", at(lock)),
        Event::ShortGrace { lock, kill_after, ttl } => format!(
            "{}: --kill-after is only {}, because the server grants no more than {} of lease",
            at(lock),
            format_duration(*kill_after),
            format_duration(*ttl)
        ),
        Event::NotRun { program, reason } => format!("could not run {program}: {}", not_run(reason)),
        Event::Suspended { key, program, stopped_in } => format!(
            "suspended: {key} cannot be renewed, and {program} is stopped in {} unless it goes on",
            format_duration(*stopped_in)
        ),
        Event::Throttled { lock, program, earlier } => throttled(lock, program, *earlier),
        Event::MaxRun { program, max_run } => {
            format!("{program} has run for {} (--max-run): stopping it", format_duration(*max_run))
        }
        Event::StoppingLeftovers { program } => format!("{program} has ended; stopping what it left behind"),
        Event::StoppingNested { key, program } => {
            format!("{key}: stopping the nested dlock run that {program} left in the background")
        }
        Event::Lost { lock, how, program, goes_on: false } => {
            format!("lost {}: {}; stopping {program}", at(lock), loss(how))
        }
        Event::Lost { lock, how, program, goes_on: true } => {
            format!("lost {}: {}; {program} goes on without it (--on-lost ignore)", at(lock), loss(how))
        }
        Event::TakenAway { lock, ask, now } => format!("{} was taken away by {}", at(lock), ask.doer_at(*now)),
        Event::AskedAndGoesOn { lock, ask, program } => {
            format!("{}: {}; {program} goes on (--on-lost ignore)", at(lock), ask.words())
        }
        Event::LostBeforeTheEnd { lock, program } => {
            let was = either(&lock.key, "it was", "one of them was");
            format!("lost {} while {program} ran: {was} not ours any more when it ended", at(lock))
        }
        Event::OuterEnded { lock, program } => {
            format!("lost {}: the outer dlock run ended before {program} did", at(lock))
        }
        Event::Released(key) => format!("released {key}"),
        Event::NotReleased { key, left, expires } => not_released(key, *left, *expires),
        Event::ReleaseFailed { lock, reason, ttl, unrecorded } => {
            let again = if *unrecorded { ", and the job may run again in this period" } else { "" };
            let reason = and_expires(trouble(&lock.place, reason), *ttl);
            format!("could not release {}: {reason}{again}", lock.key)
        }
        Event::GuardKilled(key) => {
            let what = either(key, "lock", "locks");
            format!("the guard process was killed, and the command was stopped ({what} {key})")
        }
        Event::DlockKilled { lock, program } => {
            let (what, is) = (either(&lock.key, "lock", "locks"), either(&lock.key, "is", "are"));
            let lock = at(lock);
            format!("dlock itself was killed: stopping {program}, because its {what} {lock} {is} no longer renewed")
        }
        Event::Acquired { lock, tokens, mode, slot, ttl, waited } => {
            let numbers: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            let tokens = format!("token{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(" "));
            let slot = match (mode, slot) {
                (Mode::Exclusive, _) => String::new(),
                (Mode::Shared, _) => ", shared".to_owned(),
                (Mode::Slots(slots), Some(slot)) => format!(", slot {slot} of {slots}"),
                (Mode::Slots(slots), None) => format!(", one of {slots} slots"),
            };
            let ttl = ttl.map(|ttl| format!(", ttl {}", format_duration(ttl))).unwrap_or_default();
            format!("acquired {}, {tokens}{slot}{ttl}, after {}", at(lock), roughly(*waited))
        }
        Event::LastBreak { lock, ask, now } => format!("{}: {}", at(lock), ask.trace_at(*now)),
        Event::NotRenewed { lock, last } => {
            format!("{}: could not renew it, trying again: {}", at(lock), unconfirmed(last))
        }
        Event::RenewedAgain(lock) => format!("{}: renewed again", at(lock)),
        Event::Kept { key, min_hold } => {
            let stays = either(key, "stays", "stay");
            let acquired = either(key, "it was acquired", "they were acquired");
            format!("finished; {key} {stays} taken until {} after {acquired} (--min-hold)", format_duration(*min_hold))
        }
    }
}

/// The sentence about unknown variables with these names; `meant` is the one that was probably meant.
fn unknown(names: &[String], meant: Option<&str>) -> String {
    let meant = meant.map(|meant| format!(": did you mean {meant}?")).unwrap_or_default();
    let what = if names.len() == 1 { "is not a variable" } else { "are not variables" };
    format!("{} {what} of dlock{meant}", names.join(", "))
}

/// The sentence about locks that are not given back, because this is `left` of the command.
fn not_released(key: &Keys, left: Left, expires: bool) -> String {
    let why = match left {
        Left::Refused(pid) => format!("process {pid} could not be stopped by this user"),
        Left::Living(pid) => format!("process {pid} has not ended after SIGKILL"),
        Left::Unknown => "processes cannot be listed, so something may still run".to_owned(),
    };
    let rest = either(key, ", it will expire on its own", ", they will expire on their own");
    format!("{why}: {key} {} not released{}", either(key, "is", "are"), if expires { rest } else { "" })
}

fn at(lock: &Lock) -> String {
    format!("{} at {}", lock.key, lock.place)
}

/// A pointer to the command that shows more of a lock; without a name for several locks, as it shows one at a time.
fn look(lock: &Lock) -> String {
    let mut keys = lock.key.iter();
    match (keys.next(), keys.next()) {
        (Some(key), None) => format!("; see dlock status{}{}", lock.flags, flag("--key", key.as_str())),
        _ => "; see dlock status".to_owned(),
    }
}

fn not_run(reason: &NotRun) -> String {
    match reason {
        NotRun::NotFound => "not found".to_owned(),
        NotRun::NotExecutable(errno) => Errno::from_raw(*errno).desc().to_lowercase(),
        NotRun::NoProcess(errno) => no_process(*errno),
        NotRun::TooLate(key) => {
            format!("the lease of {key} had almost ended before it could start: use a longer --ttl")
        }
    }
}

fn blocker(lock: &Lock, why: &Blocker) -> String {
    match why {
        Blocker::Held { holder, beside, now, position, queued } => {
            let place = match position {
                None if *queued => "; others wait for it ahead of this run".to_owned(),
                None => String::new(),
                Some(position) => format!("; {}", ahead(*position)),
            };
            format!("{}{place}", holder.describe_with(*beside, *now))
        }
        Blocker::Trouble(what) => trouble(&lock.place, what),
    }
}

/// The state of a wait, for one line on a terminal: the name of what is waited for, and the rest, which may be cut at
/// its end and therefore begins with what changes. Other events have no state.
#[must_use]
pub(super) fn state(event: &Event) -> Option<(String, String)> {
    if let Event::Meeting(event) = event {
        return event.state();
    }
    let Event::Waiting { lock, why, waited } = event else { return None };
    let waited = format_duration(Duration::from_secs(waited.as_secs()));
    let (place, why) = match why {
        Blocker::Held { holder, beside, now, position, .. } => {
            let place = match position {
                None => String::new(),
                Some(position) => format!(", {}", ahead(*position)),
            };
            (place, held_briefly(holder, *beside, *now))
        }
        Blocker::Trouble(what) => (String::new(), trouble(&lock.place, what)),
    };
    Some((lock.key.to_string(), format!("waiting {waited}{place}; {why}")))
}

/// The holder of a lock, with the age of the hold first.
fn held_briefly(holder: &Holder, beside: u64, now: u64) -> String {
    let Holder::Dlock(published) = holder else { return holder.describe(now) };
    if published.done {
        return holder.describe_with(beside, now);
    }
    let about = &published.about;
    let age = published.since.map(|since| Duration::from_secs(now.saturating_sub(since) / 1000));
    let age = |before: &str| age.map(|age| format!("{before}{}", format_duration(age))).unwrap_or_default();
    let holders = beside.saturating_add(1);
    let held = match published.mode() {
        Some(Mode::Shared) if beside > 0 => format!("held by {holders} readers, one{}:", age(" for ")),
        Some(Mode::Shared) => format!("held shared{} by", age(" ")),
        Some(Mode::Slots(slots)) => format!("{holders} of {slots} slots taken, one{} by", age(" for ")),
        Some(Mode::Exclusive) | None => format!("held{} by", age(" ")),
    };
    let program = if about.program.is_empty() { String::new() } else { format!(" ({})", about.program) };
    let reason = about.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{held} {}@{}, {}{program}{reason}", about.user, about.host, about.process())
}

/// The number of waiters in front of this position; the first position is 1.
fn ahead(position: u64) -> String {
    match position.saturating_sub(1) {
        0 => "you are next".to_owned(),
        others => format!("{others} ahead of you"),
    }
}

fn throttled(lock: &Lock, program: &str, earlier: Duration) -> String {
    format!(
        "{}: this control group uses up its CPU quota: unless it is renewed, {program} is stopped {} earlier; use a longer --ttl, or \
         give it more processor",
        at(lock),
        format_duration(whole_millis(earlier))
    )
}

/// The reason to consider a lock lost.
pub(super) fn loss(how: &Loss) -> String {
    match how {
        Loss::NotMine(why) => why.clone(),
        Loss::Asked(ask) => ask.words(),
        Loss::OuterEnded => "the outer dlock run has ended".to_owned(),
        Loss::KeeperEnded => "its keeper has ended or is giving it back".to_owned(),
        Loss::Unrenewed { silent, last } => {
            format!("no renewal was confirmed for {}: {}", format_duration(*silent), unconfirmed(last))
        }
        Loss::Starved => "no renewal was confirmed in time, because dlock itself was stopped or starved".to_owned(),
    }
}

#[cfg(test)]
mod tests;
