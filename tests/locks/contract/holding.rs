//! What the command is told, and what the lock is to others meanwhile.

use crate::support::process;
use crate::support::rendezvous::Gate;
use crate::support::service::{Gated, Service};

/// The token as the command had it, checked for what every token promises.
fn token(text: &str) -> u64 {
    assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()), "{text:?} is not a decimal number");
    assert!(!text.starts_with('0'), "{text:?}");
    let token = text.parse().unwrap();
    assert!(token < 1 << 53, "{token} is not exact in every language");
    token
}

pub(super) fn tokens_strictly_rise<S: Service>(service: &S) {
    let often = r#"i=0; while [ "$i" -lt 30 ]; do "$@" || exit; i=$((i + 1)); done"#;
    let runs = service.run("job").wrapped_by(["sh", "-c", often, "sh"]).shell("echo $DLOCK_TOKEN").output();
    let printed = runs.success().stdout();
    let tokens: Vec<u64> = printed.lines().map(token).collect();
    assert_eq!(tokens.len(), 30);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

pub(super) fn the_command_is_told_about_its_lock<S: Service>(service: &S) {
    let names = ["KEY", "TOKEN", "OWNER", "LEASE_TTL", "BACKEND_KIND", "HELD"].map(|name| format!("DLOCK_{name}"));
    let mut dlock = service.run("job").args(["--ttl", "30s"]);
    for name in &names {
        dlock = dlock.env(name, "inherited");
    }
    let gate = Gate::new(service.scratch().path("gate"));
    let running = dlock.shell(format!("echo held; {}", gate.wait())).spawn();
    running.wait_stdout("held");
    let environment = process::environ(running.command_pid());
    let [key, given, owner, ttl, kind, held] = names.each_ref().map(|name| environment[name].as_str());
    assert_eq!((key, kind, ttl), ("job", S::KIND, S::LEASE_OF_30S));
    token(given);
    assert!(owner.len() == 32 && owner.bytes().all(|byte| byte.is_ascii_hexdigit()), "{owner:?}");
    let held: serde_json::Value = serde_json::from_str(held).unwrap();
    assert!(held.to_string().contains(owner), "{held}");
    // Only once, and not in addition to an inherited one: a program may read the first or the last of two.
    let block = std::fs::read(format!("/proc/{}/environ", running.command_pid())).unwrap();
    for name in &names {
        let start = format!("{name}=");
        let count = block.split(|&byte| byte == 0).filter(|pair| pair.starts_with(start.as_bytes())).count();
        assert_eq!(count, 1, "{name}");
    }
    gate.open();
    running.wait().success();
}

pub(super) fn different_keys_do_not_exclude_each_other<S: Service>(service: &S) {
    let (one, other) = (service.hold("one"), service.hold("other"));
    service.assert_held("one");
    service.assert_held("other");
    one.let_go().success();
    service.assert_free("one");
    service.assert_held("other");
    other.let_go().success();
}

pub(super) fn a_string_is_run_by_the_shell<S: Service>(service: &S) {
    let script = "echo one two | tr a-z A-Z; test \"$0\" = /bin/sh || echo \"$0\"; exit 5";
    let outcome = service.run("job").args(["-c", script]).output();
    outcome.code(5).stdout_is("ONE TWO\n").quiet();
    let long = service.run("job").args(["--command", "echo $DLOCK_KEY"]).output();
    long.success().stdout_is("job\n");
}

pub(super) fn odd_keys_exclude_themselves_and_nobody_else<S: Service>(service: &S) {
    let long = "x".repeat(511);
    let (a, b) = (format!("{long}a"), format!("{long}b"));
    let emoji = "🔒".repeat(128);
    let keys = [
        ".",
        "..",
        "...",
        "a/b",
        "a%2Fb",
        "a",
        "/",
        "-x",
        "--",
        ".hidden",
        "%2Ehidden",
        " ",
        "*",
        "{a}b",
        "锁",
        "قفل",
        "🔒",
        &a,
        &b,
        &emoji,
    ];
    let run = |key: &str| {
        let dlock = service.scratch().dlock().arg("run").arg(format!("--key={key}"));
        dlock.backend(service.url()).args(service.options())
    };
    let holders: Vec<_> = keys.iter().map(|key| Gated::spawn(service.scratch(), run(key))).collect();
    for holder in &holders {
        holder.wait_held();
    }
    for key in keys {
        let refused = run(key).arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line("held by ");
    }
    for holder in holders {
        holder.let_go().success();
    }
}
