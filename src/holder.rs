/*!
The text that the holder of a lock publishes about itself, and its reader.

The text is JSON that begins with `{"v":1,"id":"…",`, or with `{"v":1,"hold":…,"id":"…",` if the lock is to be held for
at least that many milliseconds; ownership is compared by that beginning. The text of a lock that is no longer used, and
only kept for that time, begins with `{"v":1,"done":true,` instead of `{"v":1,`. Readers use the fields that they know
and ignore the rest, so that a newer dlock may publish more.
*/

pub(crate) mod ask;
pub(crate) mod done;

use std::fmt::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lock::admission::Mode;
pub(crate) use crate::printable::moment;
use crate::printable::{MAX_SHOWN, shown};

/// The maximum length of [`About::rest`]: with the owner's id, the token and the time it stays within [`MAX_SHOWN`].
const MAX_REST: usize = MAX_SHOWN - 256;

/// The suffix of the side file beside a locked file that is not dlock's own; the side file has what the holder
/// publishes.
pub(crate) const BESIDE: &str = ".dlock";

/// The first bytes of every lock file that dlock has written. The holders' texts follow, each on its own line.
pub(crate) const LOCK_FILE: &str = "dlock:1 ";

/// The beginning of the text of a holder that no longer uses its lock.
const DONE: &str = "{\"v\":1,\"done\":true,";

/// Returns the published `text` as it is when its holder no longer uses the lock.
#[must_use]
pub(crate) fn finished(text: &str) -> String {
    text.replacen("{\"v\":1,", DONE, 1)
}

/// The id of one acquisition: 128 random bits in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner(String);

impl Owner {
    /// Makes a new id. Fails if the kernel gives no random numbers.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(bytes))))
    }

    /// Reads an id: 32 hexadecimal digits, as [`Owner::random`] makes them; `None` if the text is no id.
    #[must_use]
    pub(crate) fn read(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 32 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// Returns the id as text.
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the beginning of the published text of this owner, under a claim that holds the lock for at least
    /// `min_hold`; no other owner's text begins like that.
    #[must_use]
    pub(crate) fn prefix(&self, min_hold: Duration) -> String {
        let hold = if min_hold.is_zero() { String::new() } else { format!("\"hold\":{},", min_hold.as_millis()) };
        format!("{{\"v\":1,{hold}\"id\":\"{}\",", self.0)
    }
}

/// The properties that a holder publishes, without those that the grant adds (token, time).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct About {
    /// The host's name.
    pub host: String,
    /// The user's name, or the number of one without a name.
    pub user: String,
    /// dlock's process id.
    pub pid: i32,
    /// The program's name, never its arguments.
    pub program: String,
    /// The lease in milliseconds; `None` for a lock without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// The part of it that the command does not count on (`--lock-delay`), in milliseconds; `None` without such a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<u64>,
    /// The text of `--reason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The CI job's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The beginning of the kernel's id of the boot: together with the next two fields it identifies the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// The inode of the PID namespace in which `pid` counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<u64>,
    /// The start of the process, in clock ticks after the boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// The time that it gives its command to end, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill_after: Option<u64>,
    /// `true` if it honors [requests](crate::holder::ask) to stop.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stop: bool,
    /// `true` if the lock is held by its handle alone: the process that took it has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub handle: bool,
}

impl About {
    /// Shortens it until it can be read back as a whole: readers look at [`MAX_SHOWN`] bytes, and cannot find the owner
    /// in a truncated text.
    #[must_use]
    pub(crate) fn fitted(mut self) -> Self {
        while self.rest().len() > MAX_REST {
            if self.job.take().is_some() {
                continue;
            }
            let reason = self.reason.as_mut().filter(|reason| reason.len() >= self.program.len());
            let longest = reason.unwrap_or(&mut self.program);
            let mut cut = longest.len() / 4 * 3;
            while !longest.is_char_boundary(cut) {
                cut -= 1;
            }
            longest.truncate(cut);
            if cut == 0 {
                break;
            }
        }
        self
    }

    /// Returns the process that holds the lock, in words.
    #[must_use]
    pub(crate) fn process(&self) -> String {
        if self.handle { "taken by dlock acquire".to_owned() } else { format!("pid {}", self.pid) }
    }

    /// Returns the published text after [`Owner::prefix`] and after what the grant adds: the rest of the JSON object.
    #[must_use]
    pub(crate) fn rest(&self) -> String {
        // A struct of texts and numbers always serializes; its first byte is the brace that the prefix has.
        let json = serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned());
        json[1..].to_owned()
    }
}

/// A dlock that holds a lock, as read back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Published {
    /// The format's version.
    pub v: u32,
    /// The owner's id.
    pub id: String,
    /// The fencing token.
    pub token: Option<u64>,
    /// The [name](crate::lock::admission::Mode::name) of the mode in which it holds the lock; exclusive if missing.
    pub mode: Option<String>,
    /// The number of its slot.
    pub slot: Option<u32>,
    /// The time of the grant, in milliseconds since 1970.
    pub since: Option<u64>,
    /// The least time for which it is held (`--min-hold`), in milliseconds.
    pub hold: Option<u64>,
    /// The time until which it stays taken at least (`--min-hold`), in milliseconds since 1970.
    pub until: Option<u64>,
    /// `true` if its holder has finished, and it is only kept until then.
    pub done: bool,
    /// The properties that the holder publishes.
    #[serde(flatten)]
    pub about: About,
}

/// The holder of a lock, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A dlock.
    Dlock(Box<Published>),
    /// Another program, with the value that it wrote.
    Foreign(Vec<u8>),
    /// Another program on this host, by process id and name.
    Process(i32, String),
    /// Something that is not a lock occupies the name; a description of it.
    InTheWay(String),
    /// Nobody: the lock is free, and the first waiter is about to take it.
    Nobody,
    /// The service does not tell.
    Unknown,
}

impl Published {
    /// Returns the mode in which it holds the lock; `None` for a mode of a newer dlock that this one does not know.
    #[must_use]
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.mode.as_deref().map_or(Some(Mode::Exclusive), Mode::read)
    }

    /// Returns the time for which its command may count on the lock after a renewal; `None` for a lock without a lease.
    #[must_use]
    pub(crate) fn lease(&self) -> Option<Duration> {
        let left = self.about.ttl?.saturating_sub(self.about.delay.unwrap_or_default());
        Some(Duration::from_millis(left))
    }

    /// Returns the earliest end of the hold, in milliseconds since 1970; `None` without a minimum hold.
    #[must_use]
    pub(crate) fn kept_until(&self) -> Option<u64> {
        self.until.or_else(|| Some(self.since?.saturating_add(self.hold?)))
    }
}

impl Holder {
    /// Reads what a holder published.
    #[must_use]
    pub(crate) fn read(text: &[u8]) -> Self {
        match serde_json::from_slice::<Published>(text) {
            Ok(published) if published.v >= 1 && !published.id.is_empty() => Self::Dlock(Box::new(published)),
            _ => Self::Foreign(text.to_vec()),
        }
    }

    /// Returns this holder as one that has finished: it no longer uses the lock, which only stays taken.
    #[must_use]
    pub(crate) fn finished(mut self) -> Self {
        if let Self::Dlock(published) = &mut self {
            published.done = true;
        }
        self
    }

    /// Returns the owner's id, if it is a dlock.
    #[must_use]
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::Dlock(published) => Some(&published.id),
            _ => None,
        }
    }

    /// Describes the holder: `held by …`, safe for a terminal and at most 4 KiB long. `now` is the time in milliseconds
    /// since 1970 by the clock that granted the lock.
    #[must_use]
    pub(crate) fn describe(&self, now: u64) -> String {
        self.told("held by ", now)
    }

    /// Describes the holder like [`describe`](Self::describe), and how it holds the lock together with `beside` others:
    /// `held by 3 readers, among them …`.
    #[must_use]
    pub(crate) fn describe_with(&self, beside: u64, now: u64) -> String {
        match self {
            Self::Dlock(published) => self.told(&held(published.mode(), beside), now),
            _ => self.told("held by ", now),
        }
    }

    /// Returns its name in a few words, safe for a terminal: a dlock with its process, without its hold.
    #[must_use]
    pub(crate) fn name(&self) -> String {
        let about = |published: &Published| Published {
            about: About { reason: None, job: None, ..published.about.clone() },
            ..Published::default()
        };
        let line = match self {
            Self::Dlock(published) => describe(&about(published), "", 0),
            other => other.told("", 0).trim_start_matches("held by ").to_owned(),
        };
        shown(line.as_bytes()).to_string()
    }

    /// Describes the holder in words; those about a dlock begin with `held`.
    fn told(&self, held: &str, now: u64) -> String {
        let line = match self {
            Self::Dlock(published) => describe(published, held, now),
            Self::Foreign(text) if text.is_empty() => "held by another program".to_owned(),
            Self::Foreign(text) => format!("held by another program: {}", shown(text)),
            Self::Process(pid, name) => format!("held by {} (pid {pid})", shown(name.as_bytes())),
            Self::InTheWay(what) => format!("blocked by {}", shown(what.as_bytes())),
            Self::Nobody => "free, and the next in line is about to take it".to_owned(),
            Self::Unknown => "held".to_owned(),
        };
        shown(line.as_bytes()).to_string()
    }
}

/// Returns the beginning of the words about a lock that `beside` others hold in this mode together with the holder who
/// is named next. The mode may be unknown.
fn held(mode: Option<Mode>, beside: u64) -> String {
    let holders = beside.saturating_add(1);
    match mode {
        Some(Mode::Shared) if beside > 0 => format!("held by {holders} readers, among them "),
        Some(Mode::Shared) => "held shared by ".to_owned(),
        Some(Mode::Slots(slots)) if slots.get() == 1 => "its only slot is taken by ".to_owned(),
        Some(Mode::Slots(slots)) if holders >= u64::from(slots.get()) => {
            format!("all {slots} slots are taken, one by ")
        }
        Some(Mode::Slots(slots)) if beside > 0 => format!("{holders} of {slots} slots are taken, one by "),
        Some(Mode::Slots(slots)) => format!("1 of {slots} slots is taken by "),
        Some(Mode::Exclusive) | None => "held by ".to_owned(),
    }
}

/// Describes a dlock that holds a lock, in words that begin with `held`.
fn describe(published: &Published, held: &str, now: u64) -> String {
    let about = &published.about;
    let text = |text: &str| shown(text.as_bytes()).to_string();
    let mut line = format!("{held}{}@{}, {}", text(&about.user), text(&about.host), about.process());
    if !about.program.is_empty() {
        let _ = write!(line, " ({})", text(&about.program));
    }
    let seconds = |millis: u64| humantime::format_duration(Duration::from_secs(millis / 1000));
    // The time that is left is only known by a known clock.
    let kept = published.kept_until().filter(|&until| now > 0 && until > now);
    if published.done {
        line.push_str(", finished");
        if let (Some(until), Some(at)) = (kept, kept.and_then(moment)) {
            let _ = write!(line, "; kept until {at} (another {}, --min-hold)", seconds(until - now));
        }
    } else if let Some(since) = published.since {
        if let Some(at) = moment(since) {
            let _ = write!(line, ", since {at} ({})", seconds(now.saturating_sub(since)));
        }
        if let Some(at) = kept.and_then(moment) {
            let _ = write!(line, ", at least until {at} (--min-hold)");
        }
    }
    if let Some(reason) = &about.reason {
        let _ = write!(line, ", reason: {}", text(reason));
    }
    if let Some(job) = &about.job {
        let _ = write!(line, ", {}", text(job));
    }
    line
}

#[cfg(test)]
mod tests;
