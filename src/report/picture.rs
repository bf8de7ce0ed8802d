/*!
Locks as text for people: `dlock status` draws one lock, `dlock list` a table. All of its words are in this file; it
knows neither a terminal nor a service.
*/

mod checked;
mod columns;
mod latch;

use std::fmt::Write;
use std::time::Duration;

use humantime::format_duration;
use unicode_width::UnicodeWidthStr;

use crate::backend::survey::{Left, Party, Snapshot, State};
use crate::holder::Holder;
use crate::lock::admission::Mode;
use crate::printable::{flag, moment, shortened, shown};
pub(crate) use crate::report::picture::checked::{bars, checking, finding, latency};
pub(crate) use crate::report::picture::columns::{Table, settings};
pub(crate) use crate::report::picture::latch::latch;

/// Highest number of holders, and of waiters, that are drawn for one lock.
const DRAWN: usize = 20;
/// Longest time that it takes to release a lock and to look at it, in milliseconds.
const MOMENT: u64 = 5000;
/// The beginnings of the lines that a user may want to type.
pub(crate) const NEXT: [&str; 2] = ["  next ", "  stop "];
/// Width of the field names.
const NAMES: usize = 9;

/// Foreign text, safe to show.
fn safe(text: &str) -> String {
    shown(text.as_bytes()).to_string()
}

/// A length of time in whole seconds.
fn seconds(millis: u64) -> String {
    format_duration(Duration::from_secs(millis / 1000)).to_string()
}

/// One lock at `place`: the first line says whether it is free; the others say who has it, who waits for it, and what
/// can be done, with a command that has these `flags` of the connection.
#[must_use]
pub(crate) fn status(seen: &Snapshot, place: &str, flags: Option<&str>) -> String {
    let head = format!("{} at {}: {}\n", safe(seen.location.name()), safe(place), summary(seen));
    head + &details(seen, place, flags)
}

/// The text of [`status`] for a screen of `columns` columns: the state comes first, and a long name is cut for it.
#[must_use]
pub(crate) fn watched(seen: &Snapshot, place: &str, flags: Option<&str>, columns: usize) -> String {
    let (name, summary) = (safe(seen.location.name()), summary(seen));
    let room = columns.saturating_sub(summary.width() + 2).max(columns / 4);
    let mut text = format!("{}: {summary}\n", shortened(&name, room));
    field(&mut text, "at", &safe(place));
    text + &details(seen, place, flags)
}

/// The lines after the first one.
fn details(seen: &Snapshot, place: &str, flags: Option<&str>) -> String {
    let mut text = String::new();
    if let (State::Held, [holder]) = (&seen.state, seen.holders.as_slice()) {
        for (name, value) in facts(holder, seen) {
            field(&mut text, name, &value);
        }
    } else if !seen.holders.is_empty() {
        field(&mut text, "holders", &seen.held_by.to_string());
        let line = |(at, holder): (usize, &Party)| {
            let name = holder.slot.map_or_else(|| (at + 1).to_string(), |slot| format!("slot {slot}"));
            (name, brief(holder, seen.now))
        };
        listed(&mut text, seen.holders.iter().enumerate().map(line), seen.held_by);
    }
    for vote in seen.votes.iter().flatten().filter(|_| matches!(seen.state, State::Contested | State::Unknown)) {
        let id = vote.id.as_ref().map(|id| format!(" by {}", safe(id))).unwrap_or_default();
        field(&mut text, "server", &format!("{}: {}{id}", safe(&vote.server), vote.state));
    }
    if seen.waiting > 0 {
        field(&mut text, "queue", &seen.waiting.to_string());
        let line = |(at, waiter): (usize, &Party)| ((at + 1).to_string(), waiting(waiter, seen.now));
        listed(&mut text, seen.queue.iter().enumerate().map(line), seen.waiting);
    }
    if let Some(ask) = &seen.last_break {
        field(&mut text, "earlier", &safe(&ask.trace_at(seen.now)));
    }
    if let Some(done) = &seen.last_success {
        field(&mut text, "success", &done.described_at(seen.now));
    }
    if let Some(next) = next(seen, place, flags) {
        field(&mut text, "next", &next);
    } else if let Some((name, line)) = line_that_asks(seen, flags) {
        field(&mut text, name, &line);
    }
    text
}

/// The last success of a run, and whether it was within `length`, in one line.
#[must_use]
pub(crate) fn success(seen: &Snapshot, place: &str, length: Duration, is_done: bool) -> String {
    let (name, length) = (safe(seen.location.name()), format_duration(length));
    let last = match &seen.last_success {
        Some(done) if is_done => format!("done {}", done.described_at(seen.now)),
        Some(done) => format!("not done within {length}: last done {}", done.described_at(seen.now)),
        None => format!("not done within {length}: no successful run with --once-per is on record"),
    };
    format!("{name} at {}: {last}\n", safe(place))
}

/// The next thing that happens, or that can be done about the lock.
fn next(seen: &Snapshot, place: &str, flags: Option<&str>) -> Option<String> {
    let [holder] = seen.holders.as_slice() else { return None };
    if holder.is_done() && place.starts_with("file:") {
        return None;
    }
    if holder.is_done() {
        return Some(format!("to free it sooner: {} --now", line_to_break(seen, &holder.id(), flags?)?));
    }
    let at_most = left_at_most(holder, seen.now).filter(|_| holder.alive == Some(false) && holder.left.is_none());
    if let Some(left) = at_most {
        return Some(format!("nobody renews it any more: it is free within {}", seconds(left)));
    }
    let to_stop = left_to_stop(holder, seen.now).filter(|_| !place.starts_with("file:"));
    match (holder.alive, holder.left) {
        (Some(false), Some(Left::Millis(left))) => {
            Some(format!("nobody renews it any more: it is free in {}", seconds(left)))
        }
        (Some(false), None) if place.starts_with("file:") => {
            Some("its command still has the lock file open: it is free when that has ended".to_owned())
        }
        _ if to_stop.is_some() => {
            let when = match to_stop {
                Some(left) if left > 0 => format!("has not stopped in {}", seconds(left + 999)),
                _ => "does not stop".to_owned(),
            };
            Some(format!("if it {when}, take the lock away: {} --now", line_to_break(seen, &holder.id(), flags?)?))
        }
        _ => unrenewed(holder),
    }
}

/// The command that asks the only holder to stop, or any of several, unless all are gone or were asked already.
fn line_that_asks(seen: &Snapshot, flags: Option<&str>) -> Option<(&'static str, String)> {
    let can_be_asked = |holder: &&Party| {
        !holder.is_done() && holder.can_be_asked() && holder.asked.is_none() && holder.alive != Some(false)
    };
    let holder = seen.holders.iter().find(can_be_asked)?;
    let only = seen.held_by <= 1 && seen.holders.len() == 1;
    let (name, owner) = if only { ("stop it", holder.id()) } else { ("stop one", "OWNER".to_owned()) };
    Some((name, line_to_break(seen, &owner, flags?)?))
}

/// The command that asks this holder to stop, as a shell takes it.
fn line_to_break(seen: &Snapshot, owner: &str, flags: &str) -> Option<String> {
    let key = seen.location.key.as_deref()?;
    Some(format!("dlock break{flags}{} --owner {}", flag("--key", key), safe(owner)))
}

/// Longest time until a holder that was asked to stop has done so, in milliseconds; `None` if it was not asked.
fn left_to_stop(holder: &Party, now: u64) -> Option<u64> {
    let (ask, said) = (holder.asked.as_ref()?, holder.published()?);
    let notices = said.about.ttl.unwrap_or_default() / 3;
    let stops = said.about.kill_after.unwrap_or_default();
    Some(ask.at.saturating_add(notices).saturating_add(stops).saturating_add(MOMENT).saturating_sub(now))
}

/// Longest rest of the lease of a holder whose process is gone, in milliseconds, if only the last renewal is known: the
/// process may have ended just before the next renewal, of which there are six in a lease.
fn left_at_most(holder: &Party, now: u64) -> Option<u64> {
    let (renewed, ttl) = (holder.renewed?, holder.published()?.about.ttl?);
    Some(renewed.saturating_add(ttl).saturating_add(ttl / 6).saturating_add(MOMENT).saturating_sub(now))
}

/// The sentence for a holder that has missed a renewal, judged by the rest of its lease.
fn unrenewed(holder: &Party) -> Option<String> {
    let (said, Some(Left::Millis(left))) = (holder.published()?, holder.left) else { return None };
    // Between the steps of a handle nothing renews it.
    let ttl = said.about.ttl.filter(|_| !said.about.handle)?;
    let since = overdue(ttl, left)?;
    let due = seconds(u64::try_from(said.lease()?.as_millis() / 3).ok()?);
    let why = if holder.alive == Some(true) { "it may be suspended" } else { "its host may be dead or cut off" };
    Some(format!("not renewed for {} (due every {due}): {why}", seconds(since)))
}

/// Time since the last renewal of a lease of `ttl` with `left` left, in milliseconds, if it has certainly missed one:
/// renewals come within less than half of the lease.
fn overdue(ttl: u64, left: u64) -> Option<u64> {
    (left < ttl / 2).then(|| ttl - left)
}

fn field(text: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {name:NAMES$}{value}");
}

/// The first lines of `count`, and the number of those left out.
fn listed(text: &mut String, lines: impl Iterator<Item = (String, String)>, count: u64) {
    let mut drawn: u64 = 0;
    for (name, value) in lines.take(DRAWN) {
        let _ = writeln!(text, "    {name:width$}{value}", width = NAMES - 2);
        drawn += 1;
    }
    if drawn > 0 && count > drawn {
        let _ = writeln!(text, "    … and {} more", count - drawn);
    }
}

/// The state of the lock, in one line.
fn summary(seen: &Snapshot) -> String {
    match &seen.state {
        State::Free if seen.waiting > 0 => "free, and the next in line is about to take it".to_owned(),
        State::Free => "free".to_owned(),
        State::Blocked(what) => format!("blocked by {}", safe(what)),
        State::Contested => "held by nobody with a majority".to_owned(),
        State::Unknown if seen.votes.is_some() => "cannot be told from the servers that answer".to_owned(),
        State::Unknown => "cannot be told from this PID namespace".to_owned(),
        State::Held => held(seen),
    }
}

fn held(seen: &Snapshot) -> String {
    let (Some(holder), count) = (seen.holders.first(), seen.held_by) else { return "held".to_owned() };
    if seen.is_only_kept() {
        let until = seen.holders.iter().filter_map(kept_until).max();
        let left = until.map(|until| format!(" for another {}", seconds(until.saturating_sub(seen.now))));
        return format!("finished, and kept{} (--min-hold)", left.unwrap_or_default());
    }
    match seen.mode() {
        Some(Mode::Shared) if count == 1 => "held by 1 reader".to_owned(),
        Some(Mode::Shared) => format!("held by {count} readers"),
        Some(Mode::Slots(slots)) if count >= u64::from(slots.get()) => format!("all of {slots} slots are taken"),
        Some(Mode::Slots(slots)) => {
            format!("{count} of {slots} {} taken", if count == 1 { "slots is" } else { "slots are" })
        }
        _ if holder.published().is_none() => "held by another program".to_owned(),
        _ => match holder.age(seen.now) {
            Some(age) => format!("held for {}", seconds(age)),
            None => "held".to_owned(),
        },
    }
}

/// The time until which the lock stays taken at least, if that is a valid time.
fn kept_until(holder: &Party) -> Option<u64> {
    holder.published()?.kept_until().filter(|until| moment(*until).is_some())
}

/// The party, in words.
fn who(party: &Party) -> String {
    match &party.who {
        Holder::Dlock(said) => {
            let about = &said.about;
            if about.host.is_empty() && about.user.is_empty() {
                return format!("a dlock with the id {}", safe(&said.id));
            }
            let program = if about.program.is_empty() { String::new() } else { format!(" ({})", safe(&about.program)) };
            format!("{}@{}, {}{program}", safe(&about.user), safe(&about.host), about.process())
        }
        Holder::Process(pid, name) => {
            let user = party.user.as_ref().map(|user| format!("{}, ", safe(user))).unwrap_or_default();
            format!("{user}pid {pid} ({})", safe(name))
        }
        Holder::Foreign(text) if text.is_empty() => "another program".to_owned(),
        Holder::Foreign(text) => format!("another program: {}", shown(text)),
        other => safe(&other.describe(0)),
    }
}

/// The remark that its process is this user's, or is gone; empty if neither is certain.
fn whether_alive(party: &Party) -> &'static str {
    match (party.alive, party.is_own) {
        _ if party.is_done() => "",
        (Some(false), _) => ", gone: no such process here",
        (_, true) => ", this user on this host",
        _ => "",
    }
}

/// The known facts about the only holder, by the names of the fields.
fn facts(holder: &Party, seen: &Snapshot) -> Vec<(&'static str, String)> {
    let now = seen.now;
    let mut facts = vec![("by", who(holder) + whether_alive(holder))];
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    let said = holder.published();
    add("asked", holder.asked.as_ref().map(|ask| safe(&ask.words_at(now))));
    add("slot", holder.slot.map(|slot| slot.to_string()));
    add("reason", said.and_then(|said| said.about.reason.as_deref()).map(safe));
    add("job", said.and_then(|said| said.about.job.as_deref()).map(safe));
    add("since", holder.since.and_then(moment));
    let kept = said.and_then(crate::holder::Published::kept_until).filter(|until| *until > now);
    let kept = kept.and_then(moment).map(|at| format!("until {at} at least (--min-hold)"));
    add("kept", kept);
    add("lease", lease(holder, seen));
    add("token", holder.token.map(|token| token.to_string()));
    add("owner", Some(safe(&holder.id())));
    facts
}

/// The length of its lease, and what is left of it.
fn lease(holder: &Party, seen: &Snapshot) -> Option<String> {
    if holder.is_done() {
        return None;
    }
    let ttl = holder.published().and_then(|said| said.about.ttl);
    let delay = holder.published().and_then(|said| said.about.delay);
    let longest = ttl.map(|ttl| ttl.saturating_add(delay.unwrap_or_default()).saturating_add(MOMENT));
    let left = match (holder.left, holder.renewed) {
        (Some(Left::Forever), _) => Some(match &seen.remedy {
            Some(remedy) => format!("never expires: if its owner is gone, free it by {}", safe(remedy)),
            None => "never expires: delete it by hand if its owner is gone".to_owned(),
        }),
        (Some(Left::Millis(left)), _)
            if kept_until(holder).is_some() && longest.is_some_and(|longest| left > longest) =>
        {
            Some(format!("{} left (--min-hold)", seconds(left)))
        }
        (Some(Left::Millis(left)), _) => Some(format!("{} left unless it is renewed", seconds(left))),
        (None, Some(renewed)) => Some(format!("renewed {} ago", seconds(seen.now.saturating_sub(renewed)))),
        (None, None) => None,
    }?;
    let millis = |millis| format_duration(Duration::from_millis(millis));
    let delay = delay.map(|delay| format!(" with {} of --lock-delay", millis(delay))).unwrap_or_default();
    Some(ttl.map(|ttl| format!("{}{delay}, ", millis(ttl))).unwrap_or_default() + &left)
}

/// One of several holders, in one line.
fn brief(holder: &Party, now: u64) -> String {
    let mut line = who(holder) + whether_alive(holder);
    let mut add = |what: Option<String>| {
        if let Some(what) = what {
            let _ = write!(line, ", {what}");
        }
    };
    if holder.is_done() {
        let until = kept_until(holder);
        let left = until.map(|until| format!(" for another {}", seconds(until.saturating_sub(now))));
        add(Some(format!("finished, and kept{} (--min-hold)", left.unwrap_or_default())));
    } else {
        add(holder.age(now).map(|age| format!("for {}", seconds(age))));
        add(match holder.left {
            Some(Left::Millis(left)) => Some(format!("{} left", seconds(left))),
            Some(Left::Forever) | None => None,
        });
    }
    add(holder.token.map(|token| format!("token {token}")));
    add(Some(format!("owner {}", safe(&holder.id()))));
    add(holder.asked.as_ref().map(|ask| safe(&ask.words_at(now))));
    add(holder
        .published()
        .and_then(|said| said.about.reason.as_deref())
        .map(|reason| format!("reason: {}", safe(reason))));
    line
}

/// One waiter, in one line.
fn waiting(waiter: &Party, now: u64) -> String {
    let how = match waiter.mode {
        Some(Mode::Shared) => " to read",
        Some(Mode::Slots(_)) => " for a slot",
        _ => "",
    };
    let age = waiter.age(now).map(|age| format!(" {}", seconds(age))).unwrap_or_default();
    let reason = waiter.published().and_then(|said| said.about.reason.as_deref());
    let reason = reason.map(|reason| format!(", reason: {}", safe(reason))).unwrap_or_default();
    let job = waiter.published().and_then(|said| said.about.job.as_deref());
    let job = job.map(|job| format!(", job: {}", safe(job))).unwrap_or_default();
    format!("{}, waiting{how}{age}{reason}{job}", who(waiter))
}

#[cfg(test)]
mod tests;
