/*!
The man page about the documents that dlock prints, which is no subcommand's.
*/

use clap_mangen::roff::{Roff, roman};

use crate::command::generate::manual::parts::{DATE, list, listed, paragraphs, see_also};
use crate::schema;

/// What it is called for, in the place of a subcommand.
pub(super) const DOCUMENTS: &str = "json";

/// What is true of all documents.
const ABOUT_DOCUMENTS: &[&str] = &[
    "With --json, dlock status, dlock list, dlock acquire, dlock check and dlock config print one JSON document on one line. With --watch status and list print one line at once, and \
     another one for each change of anything but time, renewed and the fields in _ms that only count. A look that fails is a \
     line with the fields v and error, and watching goes on.",
    "Fields are only ever added. All fields are always there, and null where nothing is known. Times are RFC 3339 in UTC with \
     milliseconds, lengths are integers in milliseconds, tokens are integers below 2^53. Lists of words may grow: a word that \
     is not known must not break a reader. What other programs wrote is text of at most 4 KiB; bytes that are not UTF-8 become \
     U+FFFD.",
    "If dlock status or dlock list fails, the document has v and error, with the fields message and exit (dlock's exit code). With \
     --watch such a line comes for each outage, and watching goes on. If a list fails that was printed in part, its document ends \
     there.",
];

/// What is true of the lines of `--events`.
const ABOUT_EVENTS: &[&str] = &[
    "With --events, dlock run and dlock acquire write one JSON document on a line for each thing that happens to a run. A line \
     is written at once and as a whole, of at most 4096 bytes, so that several runs may share a file or a pipe; longer texts \
     are cut, and end in …. A file is made with mode 0600 if it is not there, and lines are added to its end. A FIFO needs no \
     reader: lines wait in it until it is full.",
    "A symbolic link that another user could have put there is not followed. root also writes to no file or FIFO of another user; \
     give it a directory that only root can write. If /etc/dlock/config.toml names a file that a user cannot open, dlock warns and \
     goes on without it.",
    "The lock never waits for a reader: one that does not read is waited for 100ms, once, and lines that are lost, as on a full \
     disk, are counted in dropped of the next one; -v reports once why a line could not be written. With several --key, key and owner are those of the first, and acquired has \
     all of them.",
];

/// What can be asked of the documents and of the events.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "Which locks are held for more than an hour?",
        "dlock list --json | jq -r '.locks[] | select(.holder.held_ms > 3600000) | .key'",
    ),
    ("Why did a job not run?", "jq -r 'select(.event == \"refused\") | \"\\(.time) \\(.error)\"' events.jsonl"),
    (
        "Who broke the lock of a holder before this run, when and why?",
        "jq -r 'select(.event == \"last_break\") | \"\\(.at) \\(.by): \\(.reason)\"' events.jsonl",
    ),
    ("Who had it stopped, and why?", "jq -r 'select(.event == \"asked\") | \"\\(.by): \\(.reason)\"' events.jsonl"),
    (
        "How did each run end, and how long did it take?",
        "jq -r 'select(.event == \"end\") | [.time, .host, .key, .outcome, .exit, .ran_ms] | @tsv' events.jsonl",
    ),
];

/// Writes dlock-json(7).
pub(super) fn documents(text: &mut Vec<u8>) {
    let mut page = Roff::new();
    let (title, source) =
        (format!("DLOCK-{}", DOCUMENTS.to_uppercase()), format!("dlock {}", env!("CARGO_PKG_VERSION")));
    page.control("TH", [title.as_str(), "7", DATE, source.as_str(), "Miscellaneous Information"]);
    page.control("SH", ["NAME"]);
    page.text([roman("dlock-json - the JSON documents and events of dlock")]);
    paragraphs(&mut page, "DESCRIPTION", ABOUT_DOCUMENTS);
    for (title, fields) in [
        ("STATUS", schema::LOCK),
        ("HOLDERS", schema::HOLDER),
        ("WAITERS", schema::WAITER),
        ("LIST", schema::LIST),
        ("CONFIG", schema::settings::SETTINGS),
        ("SETTINGS", schema::settings::SETTING),
        ("ACQUIRE", schema::ACQUIRED),
        ("CHECK", schema::checked::CHECKED),
        ("PROBES", schema::checked::PROBE),
        ("LATENCY", schema::checked::LATENCY),
    ] {
        list(&mut page, title, fields.iter().copied());
    }
    paragraphs(&mut page, "EVENTS", ABOUT_EVENTS);
    list(&mut page, "FIELDS OF ALL EVENTS", schema::events::EVENT.iter().copied());
    for (name, when, fields) in schema::events::EVENTS {
        let when = format!("{when}; its fields:");
        let head = [(*name, when.as_str())];
        list(&mut page, &format!("EVENT {}", name.to_uppercase()), head.into_iter().chain(fields.iter().copied()));
    }
    list(&mut page, "HOLDER OF AN EVENT", schema::events::EVENT_HOLDER.iter().copied());
    page.control("SH", ["EXAMPLES"]);
    listed(&mut page, EXAMPLES);
    page.control("SH", ["SEE ALSO"]);
    see_also(
        &mut page,
        &[
            "dlock(1)",
            "dlock-run(1)",
            "dlock-status(1)",
            "dlock-list(1)",
            "dlock-acquire(1)",
            "dlock-check(1)",
            "dlock-config(1)",
        ],
    );
    text.extend_from_slice(page.render().as_bytes());
}
