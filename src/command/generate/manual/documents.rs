/*!
dlock-json(7), the man page about the documents that dlock prints.
*/

use clap_mangen::roff::{Roff, roman};

use crate::command::generate::manual::parts::{DATE, list, listed, paragraphs, see_also};
use crate::schema;

/// The name of this page, in the place of a subcommand.
pub(super) const DOCUMENTS: &str = "json";

/// Rules for all documents.
const ABOUT_DOCUMENTS: &[&str] = &[
    "With --json, dlock status, list, acquire, latch show, check and config print one JSON document on one line. With --watch, status and \
     list print one at once and another whenever something changes; that time passes (renewed, and fields in _ms that only \
     count) is no change.",
    "Fields are only ever added. Every field is always present, and null where nothing is known. Times are RFC 3339 in UTC with \
     milliseconds; durations are integers in milliseconds; tokens are integers below 2^53. Where a field has one of several \
     words, new words may be added: ignore those that you do not know. Text that other programs wrote is cut at 4 KiB, and \
     bytes that are not UTF-8 become U+FFFD.",
    "If dlock status, list or latch show fails, the document has v and error instead: the message, and dlock's exit code (exit). dlock check says in its own document what fails. dlock acquire prints nothing then, so that nobody takes an error for a handle. With \
     --watch there is one such line for each outage, and watching goes on. If a list fails after a part of it was printed, its \
     document ends there.",
];

/// Rules for the lines of `--events`.
const ABOUT_EVENTS: &[&str] = &[
    "With --events, dlock run and dlock acquire write a JSON document on a line of its own for each thing that happens to a run. \
     A line is written at once and in one piece of at most 4096 bytes, so that several runs can share a file or a pipe; longer \
     texts are cut and end in …. A file that does not exist is created with mode 0600; otherwise lines are appended. A FIFO \
     needs no reader: lines wait in it until it is full.",
    "Symbolic links that another user could have put there are not followed. root does not write to files or FIFOs of other users \
     either: give it a directory that only root can write to. If /etc/dlock/config.toml names a file that a user cannot open, \
     dlock warns and goes on without it.",
    "The lock never waits for a reader. A reader that does not keep up is waited for once, for 100 ms. Lines that are lost, because \
     of that or of a full disk, are counted in dropped of the next line, and -v says once why a line could not be written. With \
     several --key options, key and owner are those of the first; acquired has them all.",
];

/// Example queries of the documents and the events.
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
        ("LATCH", schema::LATCH),
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
            "dlock-latch(1)",
            "dlock-check(1)",
            "dlock-config(1)",
        ],
    );
    text.extend_from_slice(page.render().as_bytes());
}
