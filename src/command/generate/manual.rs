/*!
The man pages, from the parser's definitions, and the sections that belong to no option.
*/

mod configuration;
mod documents;
mod examples;
mod parts;
mod probes;

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use self::configuration::{CONFIGURATION, configuration};
use self::documents::{DOCUMENTS, documents};
use self::parts::{DATE, entries, list, listed, paragraphs, see_also};
use self::probes::PROBES;
use crate::backend::registry::{names, table};
use crate::exit::{Exit, Failure, meanings};
use crate::report::event::Event;
use crate::variables;

/// Variables that the command finds in its environment.
const GIVEN: &[(&str, &str)] = &[
    (variables::KEY, "the lock's name; with several locks, that of the first --key"),
    (
        variables::TOKEN,
        "the fencing token, a decimal integer below 2^53. It is larger than that of every earlier holder that this one excludes, so \
         a resource can refuse the older holder. Runs with --shared do not exclude each other; runs with --slots exclude only \
         those in the same slot, so a resource must compare DLOCK_TOKEN for each DLOCK_SLOT",
    ),
    (
        variables::TOKENS,
        "the fencing tokens of all locks, in the order of the --key options, separated by spaces. Compare each only with tokens of \
         the same key. DLOCK_TOKEN is the first of them",
    ),
    (
        variables::SLOT,
        "with --slots N: the number of the slot, from 0 to N-1, which no other run has at the same time, except nested runs; otherwise unset",
    ),
    (
        variables::OWNER,
        "the id of this acquisition, as dlock status shows it; with several locks, that of the first --key",
    ),
    (
        variables::LEASE_TTL,
        "the granted lease in seconds, with several locks the shortest; 0 for file:, which has no lease",
    ),
    // The backends define its values.
    (variables::BACKEND_KIND, ""),
    (
        variables::HELD,
        "for nested runs of dlock: the locks that the command runs under. A dlock run for one of them starts its command at once, \
         under the lock that is already held; with several keys it takes only the others",
    ),
];

/// Variables that belong to no option.
const OTHERS: &[(&str, &str)] = &[
    (
        variables::PASSWORD,
        "the password for the backend, if neither the URL nor --password-file gives one; never passed on to the command",
    ),
    (
        variables::HANDLE_SHELL,
        "the shell that got DLOCK_HANDLE from dlock acquire --shell: a process id, a colon, and the owner id of the lock",
    ),
    (
        variables::CONFIG,
        "the absolute path of a config file to read instead of those of the user and the system; /dev/null for none. See \
         dlock-config(5)",
    ),
    (
        "JOURNAL_STREAM",
        "set by systemd: where standard error is that stream, each line of dlock begins with its priority, so that journalctl -p err \
         shows lost locks",
    ),
];

/// Files of latches and barriers.
const MEETING_FILES: &[(&str, &str)] = &[
    (
        "KEY.latch",
        "on file:, in the directory of the lock files: the names of a latch; stays until dlock latch forget removes it",
    ),
    ("KEY.meet", "on file:, in the same directory: the parties at a barrier; the last one to leave removes it"),
];

/// Known bugs of latches and barriers.
const MEETING_BUGS: &[&str] = &[
    "On file: and zk:, the names of a latch stay until dlock latch forget removes them, although they do not count after --keep.",
    "A single Redis server that fails over or restarts empty forgets its latches and breaks its barriers.",
];

/// Files that dlock creates or reads.
const FILES: &[(&str, &str)] = &[
    ("~/.config/dlock/config.toml, /etc/dlock/config.toml", "values for options, see dlock-config(5)"),
    (
        "/run/dlock/KEY.lock",
        "the lock of root with file:, and its fencing counter. Other users have /run/lock/dlock-UID/KEY.lock, or \
         /tmp/dlock-UID/KEY.lock if /run/lock is not sticky and writable for all. With file:///dir, it is /dir/KEY.lock",
    ),
    ("FILE.dlock", "the fencing counter of file:///FILE?path; all users of FILE must be able to write it"),
    ("/var/lib/dlock", "for root: a lower bound of the counters of file:, in case the clock is behind after a restart"),
];

/// Limits of what dlock can see, and how it reports them.
const UNSEEN: &[&str] = &[
    "In a PID namespace (a container), the kernel shows neither the locks of processes outside, nor a lock whose process has \
     ended while another one has the file open. A lock file there without a visible holder may be held: dlock status exits with \
     69, and dlock list says on standard error that locks may be missing.",
    "Of a lock file that this user may not read, only the process that the kernel names is shown, without its details. If the \
     file cannot be reached, or only its content tells (--min-hold), dlock status exits with 77.",
    "The waiters of redlock are in no queue, so they are not shown.",
];

/// Ways to find out who holds a lock without dlock.
const LOOK: &[(&str, &str)] = &[
    ("file", "fuser -v /run/dlock/KEY.lock"),
    (
        "redis",
        "redis-cli GET dlock:KEY; the rest of its lease in milliseconds: redis-cli PTTL dlock:KEY; all holders of a \
         shared lock: redis-cli HVALS $'{dlock:KEY}\\x01details'",
    ),
    ("redlock", "as for redis, on each server: the value that a majority of them has"),
    ("etcd", "etcdctl get --prefix dlock/KEY/ --sort-by=CREATE --limit=1"),
    ("zookeeper", "ls /dlock/KEY in zkCli.sh (below the chroot), then get of the node with the lowest number"),
    (
        "postgres",
        "SELECT * FROM shedlock WHERE name = 'dlock:KEY'; all holders with --shared or --slots are in dlock_member",
    ),
    ("mysql", "as postgres"),
];

/// Known bugs.
const BUGS: &[&str] = &[
    "dlock keeps commands from overlapping. It does not keep a job from running once on each of several hosts whose clocks differ \
     by more than the job takes: use --once-per or --min-hold.",
    "On file: and zk:, a lock that --min-hold keeps after its command has ended keeps out only other dlocks, not flock(1), Curator \
     or kazoo. On file:, a reboot ends the hold, and a waiter that is suspended at that time keeps all others waiting.",
    "On file:, a waiter that is suspended (Ctrl-Z) when its turn comes keeps those behind it waiting until it goes on or ends; \
     with several keys it also keeps the locks that it already has. Elsewhere it loses its place after --ttl at the latest.",
    "Nested runs share the lock of the outer run, and do not exclude each other. Nor do runs under one handle: a handle is \
     one holder, on however many hosts.",
    "Runs with several keys cannot deadlock, because all of them take the locks in the same order. Nested runs take theirs in the \
     order of their nesting, and other programs in an order of their own. If those orders cross, only --wait ends the wait.",
    "With --once-per, a job may run again in a period if dlock was killed, or its lock was lost, between the success of the command \
     and its record, or if the record was lost with the data of the server (on file:, with the lock file, also by a reboot). A job \
     whose start is spread at random over the boundary between two periods may run in either: boundaries are multiples of the \
     period since 1970 in UTC. etcd does not tell its time, so a host whose clock is ahead keeps the others out for two periods. A \
     success is remembered for two periods: a run that waits longer than that, or is suspended, may do the work again. If one of \
     several locks is lost unnoticed, dlock exits with 79, although the other locks have recorded the success.",
    "A password in a URL can be seen in the list of processes while dlock starts: use --password-file or DLOCK_PASSWORD.",
];

/// Differences of dlock as flock with a backend.
const FLOCK: &[&str] = &[
    "Variables and config files apply as to dlock run: DLOCK_TTL, DLOCK_NAMESPACE and DLOCK_MIN_HOLD, for example, set what flock \
     has no option for. Like flock, dlock prints nothing while it waits or when the lock is held, unless --verbose or DLOCK_VERBOSE \
     is given. When it stops the command, it always says so, and why.",
    "The key is the path as it was typed, so it must be the same on all hosts: dlock status -k /var/lock/jobs/backup shows who holds \
     it. A relative path starts at the working directory. A path over 512 bytes is refused (64).",
    "The command does not hold the lock itself, so processes that it leaves in the background do not keep it, unless \
     DLOCK_LEFTOVERS=wait. dlock stays the parent of the command, even with -F: it passes signals on, and ends as the command does. \
     -o has an effect on file: only.",
    "A server can neither lock a descriptor (flock 9) nor remove a lock with -u: both are refused (64), with the line to write instead. \
     If only config files name a backend, that applies to descriptors whose file flock-paths names. A flock inside another one of the \
     same file starts its command at once, as a nested dlock run does; without a backend it waits for itself.",
    "With DLOCK_REQUIRE_BACKEND=1, a lock on this host only is refused (64). In a config file, require-backend has no effect on flock. \
     A path that flock-paths names is refused (78) if no backend is configured.",
];

/// Known bugs of dlock as flock.
const FLOCK_BUGS: &[&str] = &[
    "Messages are in English, and SECONDS has a decimal point, in every locale.",
    "A user's crontab looks for commands only in /usr/bin and /bin unless it sets PATH, and a line may name /usr/bin/flock itself.",
    "If the clocks of two hosts differ by more than the job takes, both run it, one after the other, even with -n: set DLOCK_MIN_HOLD.",
];

/// The pointer to dlock(1) on the pages of the other subcommands.
const ELSEWHERE: &[&str] = &["See WHAT DLOCK DOES NOT PROMISE and BUGS in dlock(1)."];

/// Limits of dlock's promises.
const LIMITS: &[&str] = &[
    "A lock with a lease is as good as the clock that measures it and the server that keeps it. Single Redis loses \
     locks when it fails over or restarts empty, PostgreSQL and MySQL when they fail over; Redlock needs clocks that run at \
     about the same rate and servers that do not come back empty within a ttl; etcd and ZooKeeper do not have these \
     gaps. Every lease assumes that the clocks of the servers and of this host run at rates within 10% of each other.",
    "Two commands can run at once if dlock and its guard (\"lockguard\" in ps, the command's parent, which stops it when \
     dlock cannot) are both killed or frozen before they have stopped the command, which takes up to --kill-after where \
     one of them was killed, and up to the lease's end where dlock was frozen; if everything is frozen and later resumed; or if somebody deletes the lock, until dlock notices.",
    "dlock cannot stop what it may not signal (a command under sudo) or cannot see (work started through ssh, docker or \
     systemd-run, a process in uninterruptible sleep, a whole machine that was paused). A job that must never run twice \
     checks DLOCK_TOKEN where it writes.",
];

/// Writes the page of the subcommand `name`, or of dlock itself.
pub(super) fn page(cli: &clap::Command, name: Option<&str>, text: &mut Vec<u8>) -> Result<(), Failure> {
    let command = match name {
        Some(DOCUMENTS) => {
            documents(text);
            return Ok(());
        }
        Some(CONFIGURATION) => {
            configuration(text);
            return Ok(());
        }
        None => cli.clone(),
        Some(name) => {
            let missing = || Failure::new(Exit::Usage, Event::NoSuchPage(name.to_owned()));
            cli.find_subcommand(name).cloned().ok_or_else(missing)?.version(env!("CARGO_PKG_VERSION"))
        }
    };
    let examples = examples::of(name);
    // Writing to memory cannot fail.
    write(command, examples, text).map_err(|error| Failure::new(Exit::Internal, Event::Settings(error.to_string())))
}

/// Returns the page that the parser's definition of `command` gives.
fn described(mut command: clap::Command, title: &str) -> Man {
    // As in the help: a synopsis that lists every option has no room for their values.
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let source = format!("dlock {}", env!("CARGO_PKG_VERSION"));
    Man::new(command).title(title.to_uppercase()).section("1").date(DATE).source(source).manual("User Commands")
}

fn write(command: clap::Command, examples: &[(&str, &str)], text: &mut Vec<u8>) -> io::Result<()> {
    let title = command.get_display_name().unwrap_or("dlock").to_owned();
    let has_subcommands = command.has_subcommands();
    let meets = ["dlock-latch", "dlock-barrier"].contains(&title.as_str());
    let man = described(command, &title);
    man.render_title(text)?;
    let title_ends = text.len();
    man.render_name_section(text)?;
    lower_name(text);
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    if has_subcommands {
        man.render_subcommands_section(text)?;
    }
    mend_spaces(text, title_ends);
    let mut page = Roff::new();
    if meets {
        about_meetings(&mut page, &title, examples);
    } else if ["dlock-flock", "dlock-config", "dlock-check"].contains(&title.as_str()) {
        about_itself(&mut page, &title, examples);
    } else {
        let (codes, notes) = match title.as_str() {
            "dlock-status" => (meanings::STATUS, UNSEEN),
            "dlock-list" => (meanings::LIST, UNSEEN),
            "dlock-held" => (meanings::HELD, &[][..]),
            "dlock-break" => (meanings::BREAK, &[][..]),
            "dlock-acquire" => (meanings::ACQUIRE, &[][..]),
            "dlock-renew" => (meanings::RENEW, &[][..]),
            "dlock-release" => (meanings::RELEASE, &[][..]),
            "dlock-run" => (meanings::RUN, &[][..]),
            "dlock-generate" => (meanings::GENERATE, &[][..]),
            _ => (meanings::ALL, &[][..]),
        };
        list(&mut page, "EXIT STATUS", codes.iter().copied());
        if !notes.is_empty() {
            paragraphs(&mut page, "NOTES", notes);
        }
        if title == "dlock" || title == "dlock-run" {
            about_locks(&mut page);
        }
        page.control("SH", ["EXAMPLES"]);
        listed(&mut page, examples);
        if title == "dlock" || title == "dlock-run" {
            paragraphs(&mut page, "WHAT DLOCK DOES NOT PROMISE", LIMITS);
            paragraphs(&mut page, "BUGS", BUGS);
        } else {
            paragraphs(&mut page, "BUGS", ELSEWHERE);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    see_also(&mut page, also(&title));
    text.extend_from_slice(page.render().as_bytes());
    Ok(())
}

/// Returns the pages listed under SEE ALSO on the page of this title.
fn also(title: &str) -> &'static [&'static str] {
    match title {
        "dlock" => &[
            "dlock-run(1)",
            "dlock-flock(1)",
            "dlock-status(1)",
            "dlock-list(1)",
            "dlock-held(1)",
            "dlock-break(1)",
            "dlock-acquire(1)",
            "dlock-renew(1)",
            "dlock-release(1)",
            "dlock-check(1)",
            "dlock-config(1)",
            "dlock-latch(1)",
            "dlock-barrier(1)",
            "dlock-generate(1)",
            "dlock-config(5)",
            "dlock-json(7)",
            "flock(1)",
            "timeout(1)",
        ][..],
        "dlock-check" => &["dlock(1)", "dlock-run(1)", "dlock-config(1)", "dlock-json(7)"],
        "dlock-config" => &["dlock(1)", "dlock-run(1)", "dlock-config(5)", "dlock-json(7)"],
        "dlock-status" | "dlock-list" => &["dlock(1)", "dlock-run(1)", "dlock-break(1)", "dlock-json(7)"],
        "dlock-held" | "dlock-break" => &["dlock(1)", "dlock-run(1)", "dlock-status(1)"],
        "dlock-acquire" => &["dlock(1)", "dlock-release(1)", "dlock-renew(1)", "dlock-run(1)", "dlock-json(7)"],
        "dlock-renew" | "dlock-release" => &["dlock(1)", "dlock-acquire(1)", "dlock-run(1)"],
        "dlock-flock" => &["dlock(1)", "dlock-run(1)", "dlock-acquire(1)", "dlock-config(5)", "flock(1)", "flock(2)"],
        "dlock-run" => &["dlock(1)", "dlock-flock(1)", "dlock-config(5)", "flock(1)", "timeout(1)"],
        _ => &["dlock(1)", "flock(1)", "timeout(1)"],
    }
}

/// Writes what a page on latches or barriers has besides its options.
fn about_meetings(page: &mut Roff, title: &str, examples: &[(&str, &str)]) {
    list(page, "EXIT STATUS", meanings::MEETINGS.iter().copied());
    backends(page, if title == "dlock-barrier" { &["redlock"] } else { &[] });
    options(page);
    list(page, "FILES", MEETING_FILES.iter().copied());
    page.control("SH", ["EXAMPLES"]);
    listed(page, examples);
    paragraphs(page, "BUGS", MEETING_BUGS);
}

/// Writes the sections, other than options, of a page that shares none with other pages.
fn about_itself(page: &mut Roff, title: &str, examples: &[(&str, &str)]) {
    let is_flock = title == "dlock-flock";
    let codes = match title {
        "dlock-check" => meanings::CHECK,
        "dlock-flock" => meanings::FLOCK,
        _ => meanings::CONFIG,
    };
    if title == "dlock-check" {
        list(page, "PROBES", PROBES.iter().copied());
    }
    list(page, "EXIT STATUS", codes.iter().copied());
    if is_flock {
        paragraphs(page, "WITH A BACKEND", FLOCK);
    }
    page.control("SH", ["EXAMPLES"]);
    listed(page, examples);
    if is_flock {
        paragraphs(page, "BUGS", FLOCK_BUGS);
    }
}

/// Writes what a page on locks has besides its options.
fn about_locks(page: &mut Roff) {
    backends(page, &[]);
    page.control("PP", []);
    page.text([roman("dlock status shows who holds a lock. So does the backend itself (with the default namespace):")]);
    entries(page, LOOK.iter().copied());
    environment(page);
    list(page, "FILES", FILES.iter().copied());
}

/// Writes the backends, except some, with all forms of their URLs.
fn backends(page: &mut Roff, without: &[&str]) {
    let backends: Vec<(&str, String)> = table().filter(|(name, _)| !without.contains(name)).collect();
    page.control("SH", ["BACKENDS"]);
    // The URLs are too long for lines of even length.
    page.control("na", []);
    entries(page, backends.iter().map(|(name, forms)| (*name, forms.as_str())));
    page.control("ad", []);
}

/// Writes the variables that dlock reads, and those that the command finds.
fn environment(page: &mut Roff) {
    options(page);
    page.control("PP", []);
    page.text([roman("The command finds in its environment:")]);
    let kinds = names();
    let meaning_of = |name, meaning| if name == variables::BACKEND_KIND { kinds.as_str() } else { meaning };
    entries(page, GIVEN.iter().map(|&(name, meaning)| (name, meaning_of(name, meaning))));
}

/// Writes the variables that dlock reads for options.
fn options(page: &mut Roff) {
    page.control("SH", ["ENVIRONMENT"]);
    page.text([roman(
        "Every option except --key can also be set by a variable: DLOCK_ and the long name of the option in capitals, with an \
         underscore for each dash, such as DLOCK_MAX_RUN for --max-run. The command line wins. An empty variable counts as not \
         set. For an option without a value, 1, yes, true and on turn it on, and 0, no, false and off turn it off; anything \
         else is an error. An unknown variable DLOCK_... is a warning. dlock also reads:",
    )]);
    entries(page, OTHERS.iter().copied());
}

/// Makes the description in NAME begin with a small letter, as all pages do.
fn lower_name(text: &mut [u8]) {
    const DASH: &[u8] = b" \\- ";
    let at = text.windows(DASH.len()).rposition(|part| part == DASH).map(|at| at + DASH.len());
    if let Some(letter) = at.and_then(|at| text.get_mut(at)) {
        letter.make_ascii_lowercase();
    }
}

/// Replaces an empty line between two breaks, which is meant as a space, by `.sp`, as manual checkers demand.
fn mend_spaces(text: &mut Vec<u8>, from: usize) {
    let page = String::from_utf8_lossy(&text[from..]).replace("\n.br\n\n.br\n", "\n.sp\n");
    text.truncate(from);
    text.extend_from_slice(page.as_bytes());
}
