/*!
The examples of the man pages: a sentence and a command each.
*/

/// Returns the examples for the page of this subcommand, or of dlock itself.
pub(super) fn of(subcommand: Option<&str>) -> &'static [(&'static str, &'static str)] {
    match subcommand {
        None => DLOCK,
        Some("run") => RUN,
        Some("flock") => FLOCK,
        Some("status") => STATUS,
        Some("held") => HELD,
        Some("list") => LIST,
        Some("check") => CHECK,
        Some("config") => CONFIG,
        Some("break") => BREAK,
        Some("acquire") => ACQUIRE,
        Some("renew") => RENEW,
        Some("release") => RELEASE,
        Some("latch") => LATCH,
        Some("barrier") => BARRIER,
        Some(_) => GENERATE,
    }
}

const RUN: &[(&str, &str)] = &[
    ("On one host, a job that must not overlap with itself:", "dlock run --key backup -- ./backup.sh"),
    (
        "In the crontabs of five hosts: one of them runs the job, and the others skip it and report success:",
        "*/5 * * * *  dlock run -b redis://locks/ --key report -n -E 0 -q --min-hold 1m -- /usr/local/bin/report",
    ),
    (
        "In the crontabs of five hosts: exactly one run per hour succeeds, and if it fails, the next host takes over:",
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
        "Two locks for one transfer, both or none, in any order:",
        "dlock run -b redis://locks/ -k account-17 -k account-4 -- ./transfer 17 4",
    ),
    ("Run under a lock that dlock acquire took; it stays held:", "dlock run --handle \"$h\" -- ./deploy.sh"),
    (
        "Let the database refuse an older holder:",
        "dlock run -k import -c 'psql -v token=\"$DLOCK_TOKEN\" -f import.sql'",
    ),
    (
        "Share the lock with flock(1):",
        "dlock run -b 'file:///var/lock/app?path' -k job -- ./job & flock /var/lock/app ./other",
    ),
];

const FLOCK: &[(&str, &str)] = &[
    (
        "/etc/dlock/config.toml of five hosts whose crontabs have lines such as flock -n /var/lock/jobs/backup backup.sh. With the link \
         below, these jobs exclude each other on all hosts, and every other flock stays what it was. The last line keeps a \
         short job from running on one host after the other because their clocks differ; it counts for every dlock run, too:",
        "backend = \"redis://locks/\"\nflock-paths = [\"/var/lock/jobs/*\"]\nmin-hold = \"1m\"",
    ),
    ("The link. Without it, nothing changes:", "ln -s \"$(command -v dlock)\" /usr/local/bin/flock"),
    (
        "The same for all lines of one crontab, by three lines at its top:",
        "PATH=/usr/local/bin:/usr/bin:/bin\nDLOCK_BACKEND=redis://locks/\nDLOCK_MIN_HOLD=1m",
    ),
    (
        "Instead of (flock -n 9 || exit 1; ...) 9>/var/lock/jobs/backup, for the rest of a script:",
        "dlock acquire -n -k /var/lock/jobs/backup --while-pid $$ >/dev/null || exit 1",
    ),
];

const DLOCK: &[(&str, &str)] = &[
    ("Run a command under a lock on this host:", "dlock run --key backup -- ./backup.sh"),
    ("The same for all hosts that use one redis server:", "dlock run -b redis://locks/ --key backup -- ./backup.sh"),
    ("Load the completions into a running bash:", ". <(dlock generate bash)"),
];

const CHECK: &[(&str, &str)] = &[
    ("Before the first job, as the user that will run it:", "dlock check -b redis://locks/"),
    ("Test whether the backend is near enough for short leases:", "dlock check -b redis://locks/ --ttl 2s"),
    (
        "For a monitoring system: what is wrong, and what to do about it:",
        "dlock check --json | jq -r '.probes[] | select(.result == \"warn\" or .result == \"fail\") | \"\\(.name): \\(.text); \\(.remedy)\"'",
    ),
];

const CONFIG: &[(&str, &str)] = &[
    ("The settings of a run without options:", "dlock config"),
    (
        "The options that a profile sets, for a script:",
        "dlock config --profile ci --json | jq -r '.settings[] | select(.value) | .option'",
    ),
];

const STATUS: &[(&str, &str)] = &[
    ("Show who holds the lock, and who waits for it:", "dlock status -b redis://locks -k backup"),
    ("Start something else if the lock is free:", "dlock status -k backup >/dev/null && ./other"),
    ("Print since when the lock is held, for a script:", "dlock status -k backup --json | jq -r .holder.since"),
    (
        "For a monitoring system: has the nightly job, which runs with --once-per 1d, been done?",
        "dlock status -b redis://locks -k nightly --done-within 25h",
    ),
    ("Watch the lock until Ctrl-C:", "dlock status -k backup --watch"),
];

const HELD: &[(&str, &str)] = &[
    (
        "The first line of a script that runs once at a time, on whichever host:",
        "dlock held -b redis://locks/ -k nightly || exec dlock run -n -b redis://locks/ -k nightly -- \"$0\" \"$@\"",
    ),
    ("Refuse to run without the lock:", "dlock held -k db || { echo 'use dlock run -k db' >&2; exit 1; }"),
];

const LIST: &[(&str, &str)] = &[
    ("All locks that are held on one redis server:", "dlock list -b redis://locks"),
    ("Locks whose names begin with deploy/:", "dlock list -b redis://locks deploy/"),
    (
        "Locks that have been held for more than an hour:",
        "dlock list -b redis://locks --limit 0 --json | jq -r '.locks[] | select(.holder.held_ms > 3600000) | .key'",
    ),
    (
        "When each job that runs with --once-per last succeeded:",
        "dlock list -b redis://locks --json | jq -r '.last_successes[] | \"\\(.at) \\(.key)\"'",
    ),
    (
        "For a monitoring system: fail if a lock is blocked, never expires, or has been held for more than ten minutes:",
        "set -o pipefail; dlock list -b redis://locks --limit 0 --json | jq -e '[.locks[] | select(.state == \"blocked\" or \
         any(.holders[]; .expires == false or .held_ms > 600000)) | .key] | length == 0'",
    ),
];

const BREAK: &[(&str, &str)] = &[
    (
        "Ask the holder that dlock status shows to stop, and wait until it has released the lock:",
        "dlock break -b redis://locks -k backup --owner e457f1b7 --reason 'restore first'",
    ),
    (
        "Take the lock away from a holder that is frozen, if two commands at once are the lesser evil:",
        "dlock break -b redis://locks -k backup --owner e457f1b7 --now",
    ),
];

const ACQUIRE: &[(&str, &str)] = &[
    (
        "Hold a lock over several steps, each in a shell of its own. The lock ends 30 minutes after it was last renewed:",
        "h=$(dlock acquire -b redis://locks/ -k deploy --ttl 30m) || exit",
    ),
    (
        "In later steps: a command that is stopped if the lock is lost, and in the last one, which always runs:",
        "dlock run --handle \"$h\" -- ./deploy.sh; dlock release \"$h\"",
    ),
    (
        "The same in one shell, with the variables of the lock:",
        "s=$(dlock acquire -b redis://locks/ -k deploy --ttl 30m --shell) || exit; eval \"$s\"",
    ),
    (
        "Hold a lock for the rest of a script, and log its events:",
        "dlock acquire -k nightly --while-pid $$ --events nightly.jsonl >/dev/null || exit",
    ),
];

const RENEW: &[(&str, &str)] = &[
    ("Go on only if the lock is still held, for another --ttl:", "dlock renew \"$h\" || exit"),
    ("By the handle that dlock acquire --shell has exported:", "dlock renew"),
];

const RELEASE: &[(&str, &str)] = &[
    ("Release a lock, even one that may not have been acquired:", "dlock release \"$h\""),
    ("Release it however the script ends:", "trap 'dlock release \"$h\"' EXIT"),
];

const GENERATE: &[(&str, &str)] = &[
    ("Read the manual page of a subcommand:", "dlock generate man run | man -l -"),
    ("Load the completions into a running bash:", ". <(dlock generate bash)"),
    ("Install them for fish:", "dlock generate fish > ~/.config/fish/completions/dlock.fish"),
];

const LATCH: &[(&str, &str)] = &[
    (
        "At the end of each of three build jobs, which may end in any order:",
        "dlock latch -b redis://locks/ -k \"deploy-$CI_PIPELINE_ID\" done --as \"$CI_JOB_NAME\"",
    ),
    (
        "Wait at most an hour for all three, then deploy:",
        "dlock latch -b redis://locks/ -k \"deploy-$CI_PIPELINE_ID\" -w 1h wait --count 3 && ./deploy",
    ),
    (
        "Tell all who wait, now or later, that there is nothing to deploy:",
        "dlock latch -b redis://locks/ -k \"deploy-$CI_PIPELINE_ID\" fail --reason 'tests are red'",
    ),
];

const BARRIER: &[(&str, &str)] = &[
    (
        "On each of five hosts: begin a load test at the same moment:",
        "dlock barrier -b etcd://a,b,c -k load-test --parties 5 -w 10m && ./load-test",
    ),
    (
        "On one host: three programs that run their rounds together:",
        "while ./round; do dlock barrier -k rounds --parties 3 || break; done",
    ),
];
