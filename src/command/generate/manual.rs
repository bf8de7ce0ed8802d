/*!
The man pages: what the parser's definitions say, and the sections that no option has.
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

/// What the command finds in its environment.
const GIVEN: &[(&str, &str)] = &[
    (variables::KEY, "the lock's name; of several, that of the first --key"),
    (
        variables::TOKEN,
        "the fencing token, a decimal integer below 2^53: larger than that of every earlier holder that this one excludes, so \
         that a resource can refuse the older holder. Runs with --shared do not exclude each other, and runs with --slots \
         only those in the same slot: there a resource compares DLOCK_TOKEN for each DLOCK_SLOT",
    ),
    (
        variables::TOKENS,
        "the fencing tokens of all locks, in the order of the --key options, separated by spaces: each is compared with those of \
         its own key. DLOCK_TOKEN is the first of them",
    ),
    (
        variables::SLOT,
        "with --slots N: the number of the run's slot, from 0 to N-1, which no other run has at the same time but those inside it; unset otherwise",
    ),
    (
        variables::OWNER,
        "the id of this acquisition, as the holder's published text has it; of several locks, that of the first --key",
    ),
    (
        variables::LEASE_TTL,
        "the granted lease in seconds, of several the shortest; 0 for file:, where the lock has none",
    ),
    // What it may be is for the backends to say.
    (variables::BACKEND_KIND, ""),
    (
        variables::HELD,
        "for nested runs of dlock: the locks that are held around the command; dlock run for one of them starts its command \
         at once under the lock that is held already, and of several keys takes only the others",
    ),
];

/// Variables that belong to no option.
const OTHERS: &[(&str, &str)] = &[
    (
        variables::PASSWORD,
        "the password for the backend, where neither the URL nor --password-file gives one; never passed on to the command",
    ),
    (
        variables::HANDLE_SHELL,
        "the shell that has DLOCK_HANDLE from dlock acquire --shell: a process id, a colon, and the owner id of the lock",
    ),
    (
        variables::CONFIG,
        "the absolute path of a config file that is read instead of those of the user and the system; /dev/null for none. See \
         dlock-config(5)",
    ),
];

/// The files of latches and barriers.
const MEETING_FILES: &[(&str, &str)] = &[
    (
        "KEY.latch",
        "on file:, in the directory of the lock files: what a latch remembers; stays until it is forgotten (dlock latch forget)",
    ),
    ("KEY.meet", "on file:, in the same place: who waits at a barrier; the last one to leave removes it"),
];

/// What is known to be wrong with latches and barriers.
const MEETING_BUGS: &[&str] = &[
    "On file: and zk: what a latch remembers stays until it is forgotten, although it does not count after --keep.",
    "A single Redis server that fails over or restarts empty forgets latches, and breaks barriers.",
];

/// Files that dlock makes, and those that it reads.
const FILES: &[(&str, &str)] = &[
    ("~/.config/dlock/config.toml, /etc/dlock/config.toml", "values for options, see dlock-config(5)"),
    (
        "/run/dlock/KEY.lock",
        "the lock of root with file:, and its fencing counter; other users have /run/lock/dlock-UID/KEY.lock, or \
         /tmp/dlock-UID/KEY.lock where /run/lock is not sticky and writable for all. With file:///dir it is /dir/KEY.lock",
    ),
    ("FILE.dlock", "the fencing counter of file:///FILE?path, which all users of FILE must be able to write"),
    ("/var/lib/dlock", "for root: a lower bound of the counters of file:, for a clock that is older after a restart"),
];

/// What cannot be seen, and how that is told.
const UNSEEN: &[&str] = &[
    "In a PID namespace (a container), the kernel does not show the locks of processes outside, nor a lock whose process has \
     ended while another one goes on with the open file. A lock file that exists there and that nobody is seen to hold may be \
     held: dlock status ends with 69, and dlock list says on standard error that locks may be missing.",
    "A lock file that this user may not read is shown with the process that the kernel names, without what is written in it. \
     Without the right to reach it, or where only its content tells (--min-hold), dlock status ends with 77.",
    "Waiters of redlock are in no queue, and so cannot be seen.",
];

/// How to find out who holds a lock, without dlock.
const LOOK: &[(&str, &str)] = &[
    ("file", "fuser -v /run/dlock/KEY.lock"),
    (
        "redis",
        "redis-cli GET dlock:KEY; what is left of its lease, in milliseconds: redis-cli PTTL dlock:KEY; all who hold it \
         together: redis-cli HVALS $'{dlock:KEY}\\x01details'",
    ),
    ("redlock", "as redis, on each server: the value that a majority of them has"),
    ("etcd", "etcdctl get --prefix dlock/KEY/ --sort-by=CREATE --limit=1"),
    ("zookeeper", "ls /dlock/KEY in zkCli.sh (below the chroot), then get of the node with the lowest number"),
    (
        "postgres",
        "SELECT * FROM shedlock WHERE name = 'dlock:KEY'; all who hold it with --shared or --slots are in dlock_member",
    ),
    ("mysql", "as postgres"),
];

/// What is known to be wrong.
const BUGS: &[&str] = &[
    "dlock keeps commands from overlapping. Without --min-hold it does not keep a job from running once on each of several \
     hosts whose clocks differ by more than the job takes.",
    "While --min-hold keeps a lock whose command has ended, only other dlocks wait on file: and zk:, while flock(1), Curator and \
     kazoo do not. On file:, a reboot ends the hold, and a waiter that is suspended then keeps all others waiting.",
    "On file:, a waiter that is suspended (Ctrl-Z) when its turn comes keeps those behind it waiting until it goes on or ends, \
     and keeps those of several locks that it has already. Elsewhere its place is lost after --ttl at the latest.",
    "Runs inside one run share its lock, and do not exclude each other. Nor do runs under one handle at the same time: it is \
     one holder, on however many hosts.",
    "Runs with several keys do not wait for each other, because they take them in one order. Runs inside each other take theirs in \
     the order of their nesting, and other programs take them in their own: where those orders cross, --wait ends the wait.",
    "With --once-per, a job may run again in a period if dlock was killed, or its lock lost, between the success of its command \
     and the record of it, and if the record was lost with the server's data (on file:, with the lock file, also by a reboot). A job \
     whose start is spread at random over the boundary between two periods may run in either: boundaries are multiples of the \
     period since 1970 in UTC. etcd does not tell its time: there a host whose clock is ahead keeps the others out for two periods. \
     What was done is remembered for two periods: a run that waits for longer than that, or is suspended, may do it again. Of \
     several locks one that is lost unnoticed makes dlock exit with 79, while the others have recorded the success.",
    "A URL with a password can be seen in the list of processes when dlock starts: use --password-file or DLOCK_PASSWORD.",
];

/// What is different with a backend for a command line of flock.
const FLOCK: &[&str] = &[
    "Variables and config files apply as they do to dlock run: DLOCK_TTL, DLOCK_NAMESPACE and DLOCK_MIN_HOLD, for instance, say what \
     flock has no option for. Like flock, dlock says nothing while it waits and when the lock is held, unless --verbose or DLOCK_VERBOSE \
     is given. It always says when it has stopped the command, and why.",
    "The key is the path as it was typed, so all hosts must type the same one: dlock status -k /var/lock/jobs/backup shows who holds \
     it. A relative path begins at the working directory. A path over 512 bytes is refused (64).",
    "The command does not hold the lock itself, so what it leaves in the background does not keep it: DLOCK_LEFTOVERS=wait does. dlock stays \
     its parent, also with -F: it passes signals on, and ends as the command does. -o matters on file: only.",
    "A server cannot lock a descriptor (flock 9), nor remove a lock by -u: both are refused (64), with what to write instead. Where only \
     config files name a backend, that goes for a descriptor whose file flock-paths names. A flock inside another one of the same file \
     starts its command at once, as a nested dlock run does; without a backend it waits for itself.",
    "DLOCK_REQUIRE_BACKEND=1 refuses (64) what would be locked on this host only. In a config file, require-backend has no effect on flock. \
     A path that flock-paths names is refused (78) while no backend is configured.",
];

/// What is known to be wrong with dlock as flock.
const FLOCK_BUGS: &[&str] = &[
    "Messages are in English, and SECONDS has a decimal point, in every locale.",
    "The crontabs of users look for commands in /usr/bin and /bin alone unless they set PATH, and a line may name /usr/bin/flock.",
    "Two hosts whose clocks differ by more than a job takes both run it, one after the other, even with -n: set DLOCK_MIN_HOLD.",
];

/// What dlock does not promise, in the same words everywhere.
const LIMITS: &[&str] = &[
    "A lock with a lease is as good as the clock that measures it and the server that keeps it. Single Redis loses \
     locks when it fails over or restarts empty, PostgreSQL and MySQL when they fail over; Redlock needs clocks that run at \
     about the same rate and servers that do not come back empty within a ttl; etcd and ZooKeeper do not have these \
     gaps. Every lease assumes that the clocks of the servers and of this host run at rates within 10% of each other.",
    "Two commands can run at once if dlock and its guard (\"lockguard\" in ps, the command's parent, which stops it when \
     dlock cannot) are both killed or frozen within --kill-after of each other, if everything is frozen and later \
     resumed, or if somebody deletes the lock, until dlock notices.",
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
    write(cli, command, examples, text)
        .map_err(|error| Failure::new(Exit::Internal, Event::Settings(error.to_string())))
}

/// What the parser's definition of `command` gives for its page.
fn described(mut command: clap::Command, title: &str) -> Man {
    // As in the help: a synopsis that lists every option has no room for their values.
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let source = format!("dlock {}", env!("CARGO_PKG_VERSION"));
    Man::new(command).title(title.to_uppercase()).section("1").date(DATE).source(source).manual("User Commands")
}

fn write(cli: &clap::Command, command: clap::Command, examples: &[(&str, &str)], text: &mut Vec<u8>) -> io::Result<()> {
    let title = command.get_display_name().unwrap_or("dlock").to_owned();
    let run = cli.find_subcommand("run").cloned().unwrap_or_default();
    let has_subcommands = command.has_subcommands();
    let meets = ["dlock-latch", "dlock-barrier"].contains(&title.as_str()).then(|| command.clone());
    let man = described(command, &title);
    man.render_title(text)?;
    let title_ends = text.len();
    man.render_name_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    if has_subcommands {
        man.render_subcommands_section(text)?;
    }
    mend_spaces(text, title_ends);
    let mut page = Roff::new();
    if let Some(command) = meets {
        about_meetings(&mut page, &command, examples);
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
            about_locks(&mut page, &run);
        }
        page.control("SH", ["EXAMPLES"]);
        listed(&mut page, examples);
        paragraphs(&mut page, "WHAT DLOCK DOES NOT PROMISE", LIMITS);
        paragraphs(&mut page, "BUGS", BUGS);
    }
    page.control("SH", ["SEE ALSO"]);
    see_also(&mut page, also(&title));
    text.extend_from_slice(page.render().as_bytes());
    Ok(())
}

/// The pages that the one of this title names at its end.
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

/// What a page on latches or barriers has besides the options of its `command`.
fn about_meetings(page: &mut Roff, command: &clap::Command, examples: &[(&str, &str)]) {
    list(page, "EXIT STATUS", meanings::MEETINGS.iter().copied());
    backends(page);
    options(page, command);
    list(page, "FILES", MEETING_FILES.iter().copied());
    page.control("SH", ["EXAMPLES"]);
    listed(page, examples);
    paragraphs(page, "BUGS", MEETING_BUGS);
}

/// What a page has besides its options that shares no section with others.
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

/// What a page on locks has besides its options.
fn about_locks(page: &mut Roff, run: &clap::Command) {
    backends(page);
    page.control("PP", []);
    page.text([roman("dlock status tells who holds a lock, and so does the backend (with the default namespace):")]);
    entries(page, LOOK.iter().copied());
    environment(page, run);
    list(page, "FILES", FILES.iter().copied());
}

/// The backends, and all forms of their URLs.
fn backends(page: &mut Roff) {
    let backends: Vec<(&str, String)> = table().collect();
    list(page, "BACKENDS", backends.iter().map(|(name, forms)| (*name, forms.as_str())));
}

/// The variables that dlock reads, and those that the command finds.
fn environment(page: &mut Roff, run: &clap::Command) {
    options(page, run);
    page.control("PP", []);
    page.text([roman("The command run under a lock finds:")]);
    let kinds = names();
    let meaning_of = |name, meaning| if name == variables::BACKEND_KIND { kinds.as_str() } else { meaning };
    entries(page, GIVEN.iter().map(|&(name, meaning)| (name, meaning_of(name, meaning))));
}

/// The variables that dlock reads for the options of `command`.
fn options(page: &mut Roff, command: &clap::Command) {
    let options: Vec<(String, String)> = command
        .get_arguments()
        .filter_map(|option| {
            let variable = option.get_env()?.to_str()?.to_owned();
            Some((variable, format!("default of --{}", option.get_long()?)))
        })
        .collect();
    let options = options.iter().map(|(name, meaning)| (name.as_str(), meaning.as_str()));
    page.control("SH", ["ENVIRONMENT"]);
    page.text([roman(
        "Options override variables, and a variable that is empty counts as not set. For an option without a value, 1, \
         yes, true and on set it, 0, no, false and off do not, and anything else is an error. An unknown variable \
         DLOCK_... is a warning.",
    )]);
    entries(page, options.chain(OTHERS.iter().copied()));
}

/// An empty line between two breaks is meant as a space; manual checkers want it said so.
fn mend_spaces(text: &mut Vec<u8>, from: usize) {
    let page = String::from_utf8_lossy(&text[from..]).replace("\n.br\n\n.br\n", "\n.sp\n");
    text.truncate(from);
    text.extend_from_slice(page.as_bytes());
}
