/*!
The lines of `--events`, and the meaning of their fields.
*/

mod course;
mod entry;
mod fields;

use serde::Serialize;

pub(crate) use crate::schema::BreakOf;
pub(crate) use crate::schema::events::course::Course;
pub(crate) use crate::schema::events::entry::{Cause, Entry, HolderOf, Why, millis};
pub(crate) use crate::schema::events::fields::{EVENT, EVENT_HOLDER, EVENTS};
use crate::schema::{VERSION, moment};

/// The longest line, with its newline: a pipe takes it as a whole, also with another newline before it.
const LONGEST: usize = 4094;
/// The numbers of bytes to which texts are cut, one after the other, until the line is short enough.
const CUTS: [usize; 5] = [1024, 512, 256, 128, 64];

/// The data that all lines of a run have in common.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The lock's name; the first one of several.
    pub key: String,
    /// The id of its owner.
    pub owner: String,
    /// The URL of the backend, without a password.
    pub backend: String,
    /// The namespace.
    pub namespace: String,
    /// The process id of dlock.
    pub pid: u32,
    /// The name of its host.
    pub host: String,
    /// The name of its user.
    pub user: String,
    /// The name of the program that is to run; empty if there is none.
    pub program: String,
}

#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    event: &'static str,
    time: Option<String>,
    boot_ms: u64,
    key: &'a str,
    owner: &'a str,
    backend: &'a str,
    namespace: &'a str,
    pid: u32,
    host: &'a str,
    user: &'a str,
    command: Option<&'a str>,
    dropped: u64,
    #[serde(flatten)]
    entry: &'a Entry,
}

/// The time of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Milliseconds since 1970, by this host's clock.
    pub wall: u64,
    /// Milliseconds since this host was started.
    pub boot: u64,
}

/// The line for an entry, with the number of lines `dropped` before it. Its texts are cut, and then the names of locks,
/// until it has no more than `LONGEST` bytes.
#[must_use]
pub(crate) fn line(run: &Run, at: Moment, dropped: u64, mut entry: Entry) -> String {
    let mut run = run.clone();
    let write = |run: &Run, entry: &Entry| {
        let (key, owner) = (run.key.as_str(), run.owner.as_str());
        let (backend, namespace) = (run.backend.as_str(), run.namespace.as_str());
        let (time, event) = (moment(at.wall), entry.name());
        let (host, user) = (run.host.as_str(), run.user.as_str());
        let command = Some(run.program.as_str()).filter(|program| !program.is_empty());
        let (v, boot_ms, pid) = (VERSION, at.boot, run.pid);
        crate::schema::line(&Line {
            v,
            event,
            time,
            boot_ms,
            key,
            owner,
            backend,
            namespace,
            pid,
            host,
            user,
            command,
            dropped,
            entry,
        })
    };
    let mut line = write(&run, &entry);
    for most in CUTS {
        if line.len() <= LONGEST {
            return line;
        }
        entry.texts().into_iter().chain([&mut run.backend]).for_each(|text| cut(text, most));
        line = write(&run, &entry);
    }
    for most in CUTS {
        if line.len() <= LONGEST {
            break;
        }
        entry.names().into_iter().chain([&mut run.key, &mut run.namespace]).for_each(|text| cut(text, most));
        line = write(&run, &entry);
    }
    line
}

/// Cuts a text that is longer than `most` bytes, and marks that with an ellipsis.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most - '…'.len_utf8()).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests;
