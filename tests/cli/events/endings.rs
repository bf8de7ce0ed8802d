//! How runs end that are not told by others: each has its line, but for a dlock that is killed.

use nix::sys::signal::Signal;

use crate::cli::events::sequences::gated;
use crate::cli::events::{ended, happened, journal, lines, only, wait_for};
use crate::support::process;
use crate::support::service::{FileService, RedisService, Service};

#[test]
fn a_command_that_takes_too_long_is_told_with_each_step_of_its_end() {
    let service = RedisService::fresh();
    let path = journal(&service, "events");
    let run = |options: &[&str], script: &str| {
        let _ = std::fs::remove_file(&path);
        let outcome = service.run("job").args(options).arg("--events").arg(&path).shell(script).output();
        outcome.stderr();
        lines(&path)
    };
    let stubborn = "trap '' TERM; while :; do sleep 0.05; done";
    let lines = run(&["--max-run", "200ms", "--kill-after", "200ms"], stubborn);
    assert_eq!(happened(&lines), ["acquired", "started", "stopping", "stopping", "exited", "released", "end"]);
    assert_eq!((&lines[2]["signal"], &lines[2]["cause"]), (&"TERM".into(), &"max-run".into()));
    assert_eq!((&lines[3]["signal"], &lines[3]["cause"]), (&"KILL".into(), &"max-run".into()));
    ended(&lines, 124);
    // What is left behind is stopped after the command's end.
    let lines = run(&["--leftovers", "kill"], "sleep 60 & exit 4");
    assert_eq!(happened(&lines), ["acquired", "started", "exited", "stopping", "released", "end"]);
    assert_eq!(only(&lines, "stopping")["cause"], "leftovers");
    ended(&lines, 4);
    // The lock stays taken.
    let lines = run(&["--min-hold", "2s"], "true");
    assert_eq!(only(&lines, "released")["freed"], false);
}

#[test]
fn a_lock_that_was_taken_away_is_told_and_with_on_lost_kill_the_only_signal_is_kill() {
    let service = RedisService::fresh();
    let path = journal(&service, "events");
    let run = service.run("job").args(["-t", "3s", "--on-lost", "kill", "--events"]).arg(&path);
    let dlock = run.shell("exec sleep 60").spawn();
    wait_for(&path, "started");
    service.redis.cli(&["SET", "dlock:job", "theirs"]);
    dlock.wait().code(79).stderr();
    let lines = lines(&path);
    assert_eq!(happened(&lines), ["acquired", "started", "lost", "stopping", "exited", "end"]);
    assert_eq!(
        (&only(&lines, "stopping")["signal"], &only(&lines, "stopping")["cause"]),
        (&"KILL".into(), &"lost".into())
    );
    ended(&lines, 79);
}

#[test]
fn a_run_that_is_skipped_says_why() {
    let service = RedisService::fresh();
    let path = journal(&service, "events");
    let run =
        || service.run("job").args(["-q", "-E", "0", "--once-per", "1000h", "--events"]).arg(&path).command(["true"]);
    run().output().success();
    std::fs::remove_file(&path).unwrap();
    run().output().success();
    let lines = lines(&path);
    assert_eq!((happened(&lines), &lines[0]["why"]), (vec!["refused", "end"], &"done".into()));
    assert!(ended(&lines, 0)["error"].as_str().is_some_and(|error| error.starts_with("skipped: 'job' ")), "{lines:#?}");
    // An unreachable server is another reason.
    std::fs::remove_file(&path).unwrap();
    let dlock = service.scratch().dlock().run("job").backend("redis://127.0.0.1:1").args(["-n", "--events"]).arg(&path);
    dlock.command(["true"]).output().code(69).stderr();
    let lines = crate::cli::events::lines(&path);
    assert_eq!((happened(&lines), &lines[0]["why"]), (vec!["refused", "end"], &"backend".into()));
    ended(&lines, 69);
}

#[test]
fn several_locks_have_one_journal_and_a_run_inside_says_that_it_is_covered() {
    let service = RedisService::fresh();
    let path = journal(&service, "events");
    let inside = format!(
        "unset DLOCK_EVENTS; exec {} run -q -b {} -k a -k b --events inside -- true",
        *crate::support::dlock::DLOCK,
        service.url()
    );
    let run = service.run("a").args(["-k", "b", "--events"]).arg(&path);
    run.shell(inside).output().success();
    let outer = lines(&path);
    assert_eq!(happened(&outer), ["acquired", "started", "exited", "released", "end"]);
    let acquired = only(&outer, "acquired");
    assert_eq!((&acquired["key"], &acquired["keys"]), (&"a".into(), &vec!["a", "b"].into()));
    assert_eq!((&acquired["tokens"][0], acquired["tokens"].as_array().map(Vec::len)), (&acquired["token"], Some(2)));
    let inner = lines(&journal(&service, "inside"));
    assert_eq!(happened(&inner), ["acquired", "started", "exited", "end"]);
    let covered = only(&inner, "acquired");
    assert_eq!((&covered["covered"], &covered["tokens"]), (&true.into(), &acquired["tokens"]));
}

#[test]
fn after_a_dlock_that_is_killed_all_lines_are_whole_and_a_killed_guard_is_told() {
    let service = FileService::fresh();
    let killed = gated(&service, "killed", &[]);
    wait_for(&journal(&service, "killed"), "started");
    process::signal(killed.pid(), Signal::SIGKILL);
    let _ = killed.let_go().stderr();
    assert_eq!(happened(&lines(&journal(&service, "killed"))), ["acquired", "started"]);
    let service = RedisService::fresh();
    let guarded = gated(&service, "guarded", &[]);
    wait_for(&journal(&service, "guarded"), "started");
    process::signal(guarded.running.guard_pid(), Signal::SIGKILL);
    guarded.running.wait().code(70).stderr();
    let lines = lines(&journal(&service, "guarded"));
    assert_eq!(happened(&lines), ["acquired", "started", "stopping", "released", "end"]);
    assert_eq!(only(&lines, "stopping")["cause"], "guard");
    ended(&lines, 70);
}
