/*!
The JSON documents that dlock prints, and the meanings of their fields: dlock-json(7) is made from the same lists.

Fields are only ever added, and all of them are always present, `null` if nothing is known. Lists of words may grow.
*/

mod acquired;
pub(crate) mod checked;
pub(crate) mod events;
mod fields;
mod latch;
pub(crate) mod listing;
mod news;
pub(crate) mod settings;

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use crate::backend::survey::{Left, Location, Party, Snapshot, State, Vote};
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::lock::admission::Mode;
use crate::printable::{MAX_SHOWN, is_unsafe};
pub(crate) use crate::schema::acquired::{ACQUIRED, acquired};
pub(crate) use crate::schema::checked::{checked, middle_and_worst};
pub(crate) use crate::schema::fields::{HOLDER, LIST, LOCK, WAITER};
pub(crate) use crate::schema::latch::{LATCH, latch};
pub(crate) use crate::schema::news::news;

/// The version of all documents.
const VERSION: u32 = 1;
/// The first time that the formatter of times refuses, in milliseconds since 1970: the year 10000.
const TOO_LATE: u64 = 253_402_300_800_000;
/// The first number that some readers of JSON cannot tell from the next one.
const INEXACT: u64 = 1 << 53;

/// The place where locks were looked at.
#[derive(Clone, Debug)]
pub(crate) struct LookedAt {
    /// The URL of the backend, without a password.
    pub backend: String,
    /// The namespace.
    pub namespace: String,
    /// The table, with its schema, if locks are in one.
    pub table: Option<String>,
}

#[derive(Serialize)]
struct Lock<'a> {
    v: u32,
    backend: &'a str,
    namespace: &'a str,
    table: Option<&'a str>,
    time: Option<String>,
    key: Option<&'a str>,
    place: &'a str,
    state: &'static str,
    blocked_by: Option<String>,
    mode: Option<&'static str>,
    slots: Option<u32>,
    holder: Option<HolderOf>,
    held_by: u64,
    holders: Vec<HolderOf>,
    waiting: Option<u64>,
    #[serde(flatten)]
    whole: Option<Whole>,
    votes: Option<Vec<VoteOf<'a>>>,
}

/// The fields that a status has and a list does not.
#[derive(Serialize)]
struct Whole {
    queue: Option<Vec<WaiterOf>>,
    queue_cut: Option<bool>,
    last_break: Option<BreakOf>,
    last_success: Option<SuccessOf>,
}

/// A success of a run with `--once-per`, as it was recorded.
#[derive(Serialize)]
struct SuccessOf {
    host: String,
    user: String,
    pid: i32,
    at: Option<String>,
    period_ms: Option<u64>,
}

impl SuccessOf {
    fn of(done: &Done) -> Self {
        let Done { host, user, .. } = done;
        let [host, user] = [host, user].map(|name| text(name.as_bytes()));
        Self { host, user, pid: done.pid, at: moment(done.at), period_ms: exact(Some(done.length)) }
    }
}

/// A latch or a barrier.
#[derive(Serialize)]
struct MeetingAt<'a> {
    key: Option<&'a str>,
    place: &'a str,
}

impl<'a> MeetingAt<'a> {
    fn of(location: &'a Location) -> Self {
        Self { key: location.key.as_deref(), place: &location.place }
    }
}

/// A success under one of several locks.
#[derive(Serialize)]
struct SuccessAt<'a> {
    key: Option<&'a str>,
    place: &'a str,
    #[serde(flatten)]
    success: SuccessOf,
}

impl<'a> SuccessAt<'a> {
    fn of((location, done): (&'a Location, &Done)) -> Self {
        Self { key: location.key.as_deref(), place: &location.place, success: SuccessOf::of(done) }
    }
}

#[derive(Clone, Serialize)]
struct Person {
    host: Option<String>,
    user: Option<String>,
    pid: Option<i32>,
    program: Option<String>,
    reason: Option<String>,
    job: Option<String>,
}

#[derive(Clone, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the document")]
struct HolderOf {
    kind: &'static str,
    id: String,
    token: Option<u64>,
    slot: Option<u32>,
    #[serde(flatten)]
    person: Person,
    since: Option<String>,
    held_ms: Option<u64>,
    kept_until: Option<String>,
    finished: bool,
    ttl_ms: Option<u64>,
    delay_ms: Option<u64>,
    ttl_left_ms: Option<u64>,
    expires: bool,
    renewed: Option<String>,
    alive: Option<bool>,
    #[serde(rename = "self")]
    own: bool,
    handle: bool,
    text: Option<String>,
    asked: Option<AskOf>,
    can_be_asked: bool,
}

#[derive(Clone, Serialize)]
struct AskOf {
    by: String,
    reason: Option<String>,
    at: Option<String>,
}

/// A break, as it was recorded.
#[derive(Clone, Serialize)]
pub(crate) struct BreakOf {
    by: String,
    reason: Option<String>,
    at: Option<String>,
    holder: Option<String>,
    holder_id: String,
    taken: bool,
}

impl BreakOf {
    /// The break that `ask` records.
    #[must_use]
    pub(crate) fn of(ask: Ask) -> Self {
        let Ask { by, reason, at, from, stop, taken, .. } = ask;
        Self { by, reason, at: moment(at), holder: from, holder_id: stop, taken }
    }

    fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let Self { by, reason, holder, holder_id, .. } = self;
        reason.iter_mut().chain(holder).chain([by, holder_id])
    }
}

#[derive(Serialize)]
struct WaiterOf {
    position: u64,
    kind: &'static str,
    id: String,
    mode: Option<&'static str>,
    #[serde(flatten)]
    person: Person,
    since: Option<String>,
    waiting_ms: Option<u64>,
    alive: Option<bool>,
    #[serde(rename = "self")]
    own: bool,
    text: Option<String>,
}

#[derive(Serialize)]
struct VoteOf<'a> {
    server: &'a str,
    state: &'static str,
    id: Option<&'a str>,
}

#[derive(Serialize)]
struct Trouble<'a> {
    v: u32,
    error: TroubleOf<'a>,
}

#[derive(Serialize)]
struct TroubleOf<'a> {
    message: &'a str,
    exit: u8,
}

/// A time in milliseconds since 1970, as documents have it; `None` beyond the year 9999.
fn moment(millis: u64) -> Option<String> {
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(millis)).filter(|_| millis < TOO_LATE)?;
    Some(humantime::format_rfc3339_millis(at).to_string())
}

/// A number that others have written; `None` if readers could take it for another one.
fn exact(number: Option<u64>) -> Option<u64> {
    number.filter(|number| *number < INEXACT)
}

/// Foreign text: at most 4 KiB of it, with U+FFFD for what is not UTF-8.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut end = text.len().min(MAX_SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

fn mode(mode: Option<Mode>) -> Option<&'static str> {
    mode.map(|mode| match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Slots(_) => "slots",
    })
}

fn kind(party: &Party) -> &'static str {
    match party.who {
        Holder::Dlock(_) => "dlock",
        Holder::Process(..) => "process",
        _ => "foreign",
    }
}

/// The text that another program has written.
fn foreign(party: &Party) -> Option<String> {
    match &party.who {
        Holder::Foreign(bytes) if !bytes.is_empty() => Some(text(bytes)),
        _ => None,
    }
}

fn person(party: &Party) -> Person {
    let known = |said: &str| Some(text(said.as_bytes())).filter(|said| !said.is_empty());
    match &party.who {
        Holder::Dlock(said) => {
            let about = &said.about;
            Person {
                host: known(&about.host),
                user: known(&about.user),
                pid: Some(about.pid).filter(|pid| *pid > 0),
                program: known(&about.program),
                reason: about.reason.as_deref().and_then(known),
                job: about.job.as_deref().and_then(known),
            }
        }
        Holder::Process(pid, name) => Person {
            host: None,
            user: party.user.clone(),
            pid: Some(*pid),
            program: known(name),
            reason: None,
            job: None,
        },
        _ => Person { host: None, user: None, pid: None, program: None, reason: None, job: None },
    }
}

fn holder(party: &Party, now: u64) -> HolderOf {
    let said = party.published();
    HolderOf {
        kind: kind(party),
        id: text(party.id().as_bytes()),
        token: exact(party.token),
        slot: party.slot,
        person: person(party),
        since: party.since.and_then(moment),
        held_ms: party.age(now),
        kept_until: said.and_then(crate::holder::Published::kept_until).and_then(moment),
        finished: party.is_done(),
        ttl_ms: exact(said.and_then(|said| said.about.ttl)),
        delay_ms: exact(said.and_then(|said| said.about.delay)),
        ttl_left_ms: match party.left {
            Some(Left::Millis(left)) => exact(Some(left)),
            Some(Left::Forever) | None => None,
        },
        expires: party.left != Some(Left::Forever),
        renewed: party.renewed.and_then(moment),
        alive: party.alive,
        own: party.is_own,
        handle: said.is_some_and(|said| said.about.handle),
        text: foreign(party),
        asked: party.asked.clone().map(|ask| AskOf { by: ask.by, reason: ask.reason, at: moment(ask.at) }),
        can_be_asked: party.can_be_asked() && party.alive != Some(false),
    }
}

fn waiter((at, party): (usize, &Party), now: u64) -> WaiterOf {
    WaiterOf {
        position: at as u64 + 1,
        kind: kind(party),
        id: text(party.id().as_bytes()),
        mode: mode(party.mode),
        person: person(party),
        since: party.since.and_then(moment),
        waiting_ms: party.age(now),
        alive: party.alive,
        own: party.is_own,
        text: foreign(party),
    }
}

fn vote(vote: &Vote) -> VoteOf<'_> {
    VoteOf { server: &vote.server, state: vote.state, id: vote.id.as_deref() }
}

fn lock<'a>(seen: &'a Snapshot, place: &'a LookedAt, is_whole: bool) -> Lock<'a> {
    let holders: Vec<HolderOf> = seen.holders.iter().map(|party| holder(party, seen.now)).collect();
    let waiters = || seen.queue.iter().enumerate().map(|one| waiter(one, seen.now)).collect();
    let is_cut = seen.waiting > seen.queue.len() as u64;
    let whole = || Whole {
        queue: (!seen.has_no_queue).then(waiters),
        queue_cut: (!seen.has_no_queue).then_some(is_cut),
        last_break: seen.last_break.clone().map(BreakOf::of),
        last_success: seen.last_success.as_ref().map(SuccessOf::of),
    };
    Lock {
        v: VERSION,
        backend: &place.backend,
        namespace: &place.namespace,
        table: place.table.as_deref(),
        time: moment(seen.now),
        key: seen.location.key.as_deref(),
        place: &seen.location.place,
        state: seen.state.name(),
        blocked_by: if let State::Blocked(what) = &seen.state { Some(text(what.as_bytes())) } else { None },
        mode: mode(seen.mode()).filter(|_| seen.state == State::Held),
        slots: seen.mode().and_then(Mode::slots),
        holder: holders.first().cloned(),
        held_by: seen.held_by,
        holders,
        waiting: (!seen.has_no_queue).then_some(seen.waiting),
        whole: is_whole.then(whole),
        votes: seen.votes.as_ref().map(|votes| votes.iter().map(vote).collect()),
    }
}

/// Writes JSON in which the characters that are not safe to show are escaped: people see it in terminals too.
struct Shown;

impl serde_json::ser::Formatter for Shown {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // The fast path for nearly all names: there may be a hundred thousand locks.
        if fragment.is_ascii() && !fragment.contains('\x7f') {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((at, character)) = rest.char_indices().find(|(_, character)| is_unsafe(*character)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + character.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

/// A value as JSON: these structs of texts, numbers and lists always serialize.
fn json(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Shown));
    written.map(|()| String::from_utf8(text).unwrap_or_default()).unwrap_or_default()
}

/// The line for a document.
fn line(document: &impl Serialize) -> String {
    json(document) + "\n"
}

/// The document of `dlock status`.
#[must_use]
pub(crate) fn status(seen: &Snapshot, place: &LookedAt) -> String {
    line(&lock(seen, place, true))
}

/// The document of a look that failed: the reason, and the exit code that it has, or would have without `--watch`.
#[must_use]
pub(crate) fn trouble(error: &str, exit: u8) -> String {
    let message = &text(error.as_bytes());
    line(&Trouble { v: VERSION, error: TroubleOf { message, exit } })
}

#[cfg(test)]
mod tests;
