/*!
The man pages: what the parser's definitions say, and the sections that no option has.
*/

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::backend::registry::{names, table};
use crate::exit::{self, Exit, Failure};
use crate::report::event::Event;
use crate::variables;

/// The date in the pages' feet: when their words last changed, so that the same source gives the same page.
const DATE: &str = "2026-11-22";

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
const OTHERS: &[(&str, &str)] = &[(
    variables::PASSWORD,
    "the password for the backend, where neither the URL nor --password-file gives one; never passed on to the command",
)];

const RUN_EXAMPLES: &[(&str, &str)] = &[
    ("On one host, a job that must not overlap with itself:", "dlock run --key backup -- ./backup.sh"),
    (
        "In the crontabs of five hosts: one of them runs it, and the others skip it and report success:",
        "*/5 * * * *  dlock run -b redis://locks/ --key report -n -E 0 -q --min-hold 1m -- /usr/local/bin/report",
    ),
    (
        "In the crontabs of five hosts: one of them does it in each hour, and when it fails, the next one takes over:",
        "0 * * * *  dlock run -b redis://locks/ --key hourly -E 0 -q --once-per 1h -- /usr/local/bin/hourly",
    ),
    (
        "Wait at most ten minutes, and stop the command after an hour:",
        "dlock run -k deploy -w 10m --max-run 1h -- ./deploy.sh",
    ),
    (
        "At most three integration tests at a time, each with a database of its own (0, 1 or 2):",
        "dlock run -b redis://locks/ -k tests --slots 3 -c 'make integration DB=test_$DLOCK_SLOT'",
    ),
    (
        "The readers of a report, which run together, and its nightly writer, which runs alone:",
        "dlock run -b redis://locks/ -k report -s -- ./read & dlock run -b redis://locks/ -k report -- ./write",
    ),
    (
        "Two accounts in one transfer, both or none, in whichever order they are named:",
        "dlock run -b redis://locks/ -k account-17 -k account-4 -- ./transfer 17 4",
    ),
    (
        "Let the database refuse a holder that has been overtaken:",
        "dlock run -k import -c 'psql -v token=\"$DLOCK_TOKEN\" -f import.sql'",
    ),
    (
        "Share the lock with flock(1):",
        "dlock run -b 'file:///var/lock/app?path' -k job -- ./job & flock /var/lock/app ./other",
    ),
];

const EXAMPLES: &[(&str, &str)] = &[
    ("Run a command under a lock on this host:", "dlock run --key backup -- ./backup.sh"),
    ("The same for all hosts that use one redis server:", "dlock run -b redis://locks/ --key backup -- ./backup.sh"),
    ("Load the completions into a running bash:", ". <(dlock generate bash)"),
];

const GENERATE_EXAMPLES: &[(&str, &str)] = &[
    ("Read the manual page of a subcommand:", "dlock generate man run | man -l -"),
    ("Load the completions into a running bash:", ". <(dlock generate bash)"),
    ("Install them for fish:", "dlock generate fish > ~/.config/fish/completions/dlock.fish"),
];

const LATCH_EXAMPLES: &[(&str, &str)] = &[
    (
        "At the end of each of three build jobs, which may end in any order:",
        "dlock latch -b redis://locks/ -k \"deploy-$CI_PIPELINE_ID\" down --as \"$CI_JOB_NAME\"",
    ),
    (
        "Deploy when all three are done, and wait for that for an hour at most:",
        "dlock latch -b redis://locks/ -k \"deploy-$CI_PIPELINE_ID\" -w 1h wait --count 3 && ./deploy",
    ),
    (
        "Tell whoever waits, now or later, that there will be nothing to deploy:",
        "dlock latch -b redis://locks/ -k \"deploy-$CI_PIPELINE_ID\" fail --reason 'tests are red'",
    ),
];

const BARRIER_EXAMPLES: &[(&str, &str)] = &[
    (
        "On each of five hosts: begin a load test at the same moment:",
        "dlock barrier -b etcd://a,b,c -k load-test --parties 5 -w 10m && ./load-test",
    ),
    (
        "On one host: three programs go through their rounds together:",
        "while ./round; do dlock barrier -k rounds --parties 3 || break; done",
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

/// Files that dlock makes.
const FILES: &[(&str, &str)] = &[
    (
        "/run/dlock/KEY.lock",
        "the lock of root with file:, and its fencing counter; other users have /run/lock/dlock-UID/KEY.lock, or \
         /tmp/dlock-UID/KEY.lock where /run/lock is not sticky and writable for all. With file:///dir it is /dir/KEY.lock",
    ),
    ("FILE.dlock", "the fencing counter of file:///FILE?path, which all users of FILE must be able to write"),
    ("/var/lib/dlock", "for root: a lower bound of the counters of file:, for a clock that is older after a restart"),
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
];

/// What is known to be wrong.
const BUGS: &[&str] = &[
    "dlock keeps commands from overlapping. Without --min-hold it does not keep a job from running once on each of several \
     hosts whose clocks differ by more than the job takes.",
    "While --min-hold keeps a lock whose command has ended, only other dlocks wait on file: and zk:, while flock(1), Curator and \
     kazoo do not. On file:, a reboot ends the hold, and a waiter that is suspended then keeps all others waiting.",
    "On file:, a waiter that is suspended (Ctrl-Z) when its turn comes keeps those behind it waiting until it goes on or ends, \
     and keeps those of several locks that it has already. Elsewhere its place is lost after --ttl at the latest.",
    "Runs inside one run share its lock, and do not exclude each other.",
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

/// What dlock does not promise, in the same words everywhere.
const LIMITS: &[&str] = &[
    "A lock with a lease is as good as the clock that measures it and the server that keeps it. Single Redis loses locks \
     when it fails over or restarts empty; Redlock needs clocks that run at about the same rate and servers that do not \
     come back empty within a ttl; etcd and ZooKeeper do not have these gaps. Every lease assumes that the clocks of the servers and of this host run at rates \
     within 10% of each other.",
    "Two commands can run at once if dlock and its guard (\"lockguard\" in ps, the command's parent, which stops it when \
     dlock cannot) are both killed or frozen within --kill-after of each other, if everything is frozen and later \
     resumed, or if somebody deletes the lock, until dlock notices.",
    "dlock cannot stop what it may not signal (a command under sudo) or cannot see (work started through ssh, docker or \
     systemd-run, a process in uninterruptible sleep, a whole machine that was paused). A job that must never run twice \
     checks DLOCK_TOKEN where it writes.",
];

/// Writes the page of the subcommand `name`, or of dlock itself.
pub(super) fn page(cli: &clap::Command, name: Option<&str>, text: &mut Vec<u8>) -> Result<(), Failure> {
    let (command, examples) = match name {
        None => (cli.clone(), EXAMPLES),
        Some(name) => {
            let found = cli.find_subcommand(name).cloned();
            let missing = || Failure::new(Exit::Usage, Event::NoSuchPage(name.to_owned()));
            let examples = match name {
                "run" => RUN_EXAMPLES,
                "latch" => LATCH_EXAMPLES,
                "barrier" => BARRIER_EXAMPLES,
                _ => GENERATE_EXAMPLES,
            };
            (found.ok_or_else(missing)?.version(env!("CARGO_PKG_VERSION")), examples)
        }
    };
    // Writing to memory cannot fail.
    write(cli, command, examples, text)
        .map_err(|error| Failure::new(Exit::Internal, Event::Settings(error.to_string())))
}

fn write(cli: &clap::Command, command: clap::Command, examples: &[(&str, &str)], text: &mut Vec<u8>) -> io::Result<()> {
    let title = command.get_display_name().unwrap_or("dlock").to_owned();
    let run = cli.find_subcommand("run").cloned().unwrap_or_default();
    let has_subcommands = command.has_subcommands();
    let meets = ["dlock-latch", "dlock-barrier"].contains(&title.as_str()).then(|| command.clone());
    let source = format!("dlock {}", env!("CARGO_PKG_VERSION"));
    let man =
        Man::new(command).title(title.to_uppercase()).section("1").date(DATE).source(source).manual("User Commands");
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
    } else {
        list(&mut page, "EXIT STATUS", exit::TABLE.iter().copied());
        if title != "dlock-generate" {
            about_locks(&mut page, &run);
        }
        page.control("SH", ["EXAMPLES"]);
        listed(&mut page, examples);
        paragraphs(&mut page, "WHAT DLOCK DOES NOT PROMISE", LIMITS);
        paragraphs(&mut page, "BUGS", BUGS);
    }
    page.control("SH", ["SEE ALSO"]);
    let also = if has_subcommands { "(1), dlock-generate(1), " } else { "(1), " };
    page.text([
        bold(if has_subcommands { "dlock-run" } else { "dlock" }),
        roman(also),
        bold("flock"),
        roman("(1), "),
        bold("timeout"),
        roman("(1)"),
    ]);
    text.extend_from_slice(page.render().as_bytes());
    Ok(())
}

/// What a page on latches or barriers has besides the options of its `command`.
fn about_meetings(page: &mut Roff, command: &clap::Command, examples: &[(&str, &str)]) {
    list(page, "EXIT STATUS", exit::MEETINGS.iter().copied());
    backends(page);
    options(page, command);
    list(page, "FILES", MEETING_FILES.iter().copied());
    page.control("SH", ["EXAMPLES"]);
    listed(page, examples);
    paragraphs(page, "BUGS", MEETING_BUGS);
}

/// What a page on locks has besides its options.
fn about_locks(page: &mut Roff, run: &clap::Command) {
    backends(page);
    page.control("PP", []);
    page.text([roman("The backend can tell who holds a lock, too (with the default namespace):")]);
    entries(page, LOOK.iter().copied());
    environment(page, run);
    list(page, "FILES", FILES.iter().copied());
}

fn paragraphs(page: &mut Roff, title: &str, paragraphs: &[&str]) {
    page.control("SH", [title]);
    for (index, paragraph) in paragraphs.iter().enumerate() {
        if index > 0 {
            page.control("PP", []);
        }
        page.text([roman(*paragraph)]);
    }
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

/// Examples: what each does, and its line.
fn listed(page: &mut Roff, examples: &[(&str, &str)]) {
    for (index, (what, line)) in examples.iter().enumerate() {
        if index > 0 {
            page.control("PP", []);
        }
        page.text([roman(*what)]);
        page.control("PP", []).control("RS", ["4"]).control("nf", []);
        page.text([roman(*line)]);
        page.control("fi", []).control("RE", []);
    }
}

/// An empty line between two breaks is meant as a space; manual checkers want it said so.
fn mend_spaces(text: &mut Vec<u8>, from: usize) {
    let page = String::from_utf8_lossy(&text[from..]).replace("\n.br\n\n.br\n", "\n.sp\n");
    text.truncate(from);
    text.extend_from_slice(page.as_bytes());
}

fn list<'a>(page: &mut Roff, title: &str, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    page.control("SH", [title]);
    entries(page, rows);
}

fn entries<'a>(page: &mut Roff, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, meaning) in rows {
        page.control("TP", []);
        page.text([bold(name)]);
        page.text([roman(meaning)]);
    }
}
