//! What stays of a break: who looks at the lock later, and who has it next, is told who broke it, when and why.

use serde_json::Value;

use crate::cli::events::{happened, journal, lines, only};
use crate::locks::breaking::{break_it, owner, short};
use crate::locks::kept::ward::Ward;
use crate::locks::looking::{list, look, status, told};
use crate::support::backends::{on_every_backend, on_file_and_redis};
use crate::support::service::{Gated, RedisService, Service};

on_every_backend! {
    the_next_holders_and_those_who_look_are_told
}

on_file_and_redis! {
    a_request_is_its_holders_own_while_that_goes_on_and_the_last_one_stays
}

mod taken {
    use super::what_is_taken_away_is_told_too;
    use crate::support::backends::on_every_server;

    on_every_server! { what_is_taken_away_is_told_too }
}

/// Where it is kept next to other things.
mod beside {
    use super::{those_who_share_the_lock_keep_it, what_was_recorded_of_a_period_stays};
    use crate::support::backends::on_backend;

    on_backend! { file: service::FileService { those_who_share_the_lock_keep_it what_was_recorded_of_a_period_stays } }
    on_backend! { zookeeper: service::ZooKeeperService { what_was_recorded_of_a_period_stays } }
    on_backend! { postgres: database_services::PostgresService { what_was_recorded_of_a_period_stays } }
    on_backend! { mysql: database_services::MysqlService { what_was_recorded_of_a_period_stays } }
}

/// A run that holds `job` with these options.
fn hold<S: Service>(service: &S, options: &[&str]) -> Gated {
    let gated = Gated::spawn(service.scratch(), service.run("job").args(["-t", short::<S>()]).args(options));
    gated.wait_held();
    gated
}

/// A holder of `job` is asked to stop, with these words, and stops.
#[track_caller]
fn broken<S: Service>(service: &S, words: &[&str]) -> String {
    let holder = hold(service, &[]);
    let id = owner(service);
    break_it(service, &id, words).code(0).stderr_ends_with_line("'job' was released after ");
    holder.running.wait().code(79).stderr_is_one_line("asked it to stop");
    id
}

/// The line with which `dlock status` tells of a break of `job`.
#[track_caller]
fn line<S: Service>(service: &S, code: i32) -> Option<String> {
    let text = told(service, "job", code);
    text.lines().find_map(|line| line.strip_prefix("  earlier  ")).map(str::to_owned)
}

fn the_next_holders_and_those_who_look_are_told<S: Service>(service: &S) {
    assert_eq!((status(service, "job")["last_break"].clone(), line(service, 0)), (Value::Null, None));
    let id = broken(service, &["--reason", "restore \u{1b}\"first\""]);
    let seen = status(service, "job")["last_break"].clone();
    assert_eq!(
        (&seen["reason"], &seen["holder_id"]),
        (&"restore \u{1b}\"first\"".into(), &id.as_str().into()),
        "{seen}"
    );
    assert_eq!(seen["taken"], false);
    let by = seen["by"].as_str().filter(|by| by.contains('@')).expect("who").to_owned();
    let holder = seen["holder"].as_str().expect("whom").to_owned();
    assert!(holder.starts_with(&by) && holder.ends_with(" (sh)") && holder.contains(", pid "), "{seen}");
    assert!(seen["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{seen}");
    let why = format!("Z) {by} asked {holder}, to stop, reason: restore \\u{{1b}}\"first\"");
    let text = line(service, 0).expect("a line");
    assert!(text.ends_with(&why), "{text}");
    // Once for each run that gets the lock and wants details.
    service.run("job").command(["true"]).output().success();
    for _ in 0..2 {
        let path = journal(service, "events");
        let next = service.run("job").args(["-v", "--events"]).arg(&path).command(["true"]).output();
        let said = next.code(0).stderr();
        let said: Vec<&str> = said.lines().collect();
        assert!(said.len() == 3 && said[0].starts_with("dlock: acquired 'job' at "), "{said:?}");
        let begins = format!("dlock: 'job' at {}: ", service.url());
        assert!(said[1].starts_with(&begins) && said[1].ends_with(&why), "{said:?}");
        let lines = lines(&path);
        assert_eq!(happened(&lines), ["acquired", "last_break", "started", "exited", "released", "end"]);
        let told = only(&lines, "last_break");
        for field in ["by", "reason", "at", "holder", "holder_id", "taken"] {
            assert_eq!(told[field], seen[field], "{field}");
        }
        assert_eq!(told["lock"], "job");
        std::fs::remove_file(path).unwrap();
    }
    // A waiter that gets it, and a run with several locks.
    let holder = hold(service, &[]);
    assert!(line(service, 75).is_some_and(|text| text.ends_with(&why)));
    let dlock = service.scratch().dlock().args(["run", "-v", "-k", "another", "-k", "job"]);
    let next = dlock.backend(service.url()).args(service.options()).command(["true"]).spawn();
    next.wait_stderr("waiting for 'job'");
    holder.let_go().success();
    let said = next.wait().code(0).stderr();
    assert_eq!(said.matches(" to stop, reason: ").count(), 1, "{said}");
    assert!(said.lines().any(|line| line.starts_with("dlock: 'job' at ") && line.ends_with(&why)), "{said}");
    let holder = hold(service, &[]);
    assert!(list(service, &[])["locks"][0].get("last_break").is_none());
    holder.let_go().success();
}

fn a_request_is_its_holders_own_while_that_goes_on_and_the_last_one_stays<S: Service>(service: &S) {
    let holder = hold(service, &["--on-lost", "ignore"]);
    break_it(service, &owner(service), &["-w", "3s"])
        .code(75)
        .stderr_ends_with_line("'job' was not released within 3s");
    let seen = status(service, "job");
    assert!(seen["last_break"].is_null() && !seen["holder"]["asked"].is_null(), "{seen}");
    holder.let_go().code(0).stderr_is_one_line("asked it to stop");
    let seen = status(service, "job");
    assert_eq!(seen["last_break"]["taken"], false, "{seen}");
    let id = broken(service, &["--reason", "two"]);
    let seen = status(service, "job")["last_break"].clone();
    assert_eq!((&seen["reason"], &seen["holder_id"]), (&"two".into(), &id.into()), "{seen}");
    let other = service.run("other").args(["-v"]).command(["true"]).output();
    assert!(!other.code(0).stderr().contains(" ago ("), "{other:?}");
}

fn those_who_share_the_lock_keep_it<S: Service>(service: &S) {
    let two = [0; 2].map(|_| hold(service, &["--slots", "2"]));
    let seen = status(service, "job");
    let named = seen["holders"][0].clone();
    break_it(service, named["id"].as_str().unwrap(), &["--reason", "slot"]).code(0).stderr_ends_with_line("'job' ");
    assert_eq!(status(service, "job")["last_break"]["reason"], "slot");
    for one in two {
        if named["pid"] == one.pid() {
            one.running.wait().code(79).stderr_is_one_line("asked it to stop");
        } else {
            one.let_go().success();
        }
    }
    // Many who come and go.
    let many = [0; 6].map(|_| hold(service, &["--slots", "6"]));
    assert_eq!(status(service, "job")["last_break"]["reason"], "slot");
    for one in many {
        one.let_go().success();
    }
    for mode in [["--slots", "3"], ["--min-hold", "1ms"]] {
        service.run("job").args(mode).command(["true"]).output().success();
        assert_eq!(status(service, "job")["last_break"]["reason"], "slot", "{mode:?}");
    }
}

fn what_was_recorded_of_a_period_stays<S: Service>(service: &S) {
    let once = || service.run("job").args(["--once-per", "1000d"]).command(["true"]).output();
    once().success();
    broken(service, &[]);
    once().code(75).stderr_is_one_line("skipped: ");
    assert_eq!(status(service, "job")["last_break"]["taken"], false);
    service.run("job").command(["true"]).output().success();
    once().code(75).stderr_is_one_line("skipped: ");
    assert_eq!(status(service, "job")["last_break"]["taken"], false);
}

fn what_is_taken_away_is_told_too<S: Service>(service: &S) {
    let holder = hold(service, &[]);
    let id = owner(service);
    let words = ["--now", "--reason", "its host is gone"];
    break_it(service, &id, &words).code(0).stderr_is_one_line("took 'job' away from ");
    let seen = status(service, "job")["last_break"].clone();
    assert_eq!((&seen["taken"], &seen["holder_id"], &seen["reason"]), (&true.into(), &id.into(), &words[2].into()));
    let text = line(service, 0).expect("a line");
    assert!(text.contains(" took it away from ") && text.ends_with(", reason: its host is gone"), "{text}");
    let said = holder.running.wait().code(79).stderr();
    let [first, last] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(first.starts_with("dlock: lost 'job' at ") && last.contains(" was taken away by "), "{said}");
    assert!(last.starts_with("dlock: 'job' at ") && last.ends_with(", reason: its host is gone"), "{said}");
    let ward = Ward::idle();
    let pid = ward.pid().to_string();
    let kept = look(service, &["acquire", "-v", "-k", "job", "--while-pid", &pid]).output();
    let said = kept.code(0).stderr();
    assert!(said.lines().any(|line| line.ends_with(", reason: its host is gone")), "{said}");
    let release = service.scratch().dlock().args(["release", kept.stdout().trim()]);
    release.args(service.options()).output().success();
    assert_eq!(status(service, "job")["last_break"]["taken"], true);
}

/// What anybody may have written there is shown if it makes sense, and harms nobody.
#[test]
fn what_is_no_trace_is_not_told() {
    let service = RedisService::fresh();
    let side = "{dlock:job}\u{1}broken";
    let set = |text: &str| service.redis.cli(&["SET", side, text]);
    for text in [
        "x",
        r#"{"v":1,"id":"0123456789abcdef0123456789abcdef","by":"a@b","at":1}"#,
        r#"{"v":1,"stop":"0123456789abcdef0123456789abcdef","by":"a@b","at":1}"#,
    ] {
        set(text);
        assert_eq!(line(&service, 0), None, "{text}");
    }
    service.redis.cli(&["DEL", side]);
    service.redis.cli(&["LPUSH", side, "x"]);
    assert_eq!(line(&service, 0), None);
    let next = service.run("job").args(["-v"]).command(["true"]).output();
    assert!(!next.code(0).stderr().contains(" ago ("), "{next:?}");
    let holder = hold(&service, &[]);
    break_it(&service, &owner(&service), &["--reason", "anew"])
        .code(0)
        .stderr_ends_with_line("'job' was released after ");
    holder.running.wait().code(79).stderr_is_one_line("asked it to stop");
    assert!(line(&service, 0).is_some_and(|line| line.ends_with(", reason: anew")));
}
