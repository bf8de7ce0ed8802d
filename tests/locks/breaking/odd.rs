//! Who is not asked: nobody, others than the one who is named, other programs, and holders that cannot answer.

use nix::sys::signal::Signal;

use crate::locks::breaking::{break_it, owner, short, start_breaking};
use crate::locks::looking::{look, status};
use crate::support::backends::{on_every_backend, on_file_and_redis};
use crate::support::dlock::Outcome;
use crate::support::foreign::{Foreign, Kind};
use crate::support::rendezvous::eventually;
use crate::support::service::{FileService, Gated, RedisService, Service};

on_every_backend! {
    ;
    where_nobody_or_another_holds_the_lock_nothing_is_done
}

on_file_and_redis! {
    an_owner_that_has_ended_is_not_asked_and_its_successor_goes_on
    a_frozen_holder_is_asked_and_stops_when_it_goes_on
    a_lock_that_is_only_kept_has_nobody_to_ask
    two_who_ask_at_once_are_both_served
}

const NOBODY: &str = "0123456789abcdef0123456789abcdef";

fn where_nobody_or_another_holds_the_lock_nothing_is_done<S: Service>(service: &S) {
    let free = break_it(service, NOBODY, &[]);
    free.code(0).stdout_is("").stderr_is_one_line("dlock: 'job' is free: there is nothing to break");
    service.assert_tidy(&[]);
    let holder = service.hold("job");
    let id = owner(service);
    let before = status(service, "job")["holder"]["asked"].clone();
    let other = break_it(service, NOBODY, &[]);
    other.code(79).stderr_is_one_line(&format!(", owner {id}: nothing was done"));
    assert!(other.stderr().starts_with("dlock: 'job' is held by "), "{other:?}");
    for short in ["", "0", &id[..7], "foreign:"] {
        break_it(service, short, &[]).code(64).stderr_is_one_line("give at least the first 8 characters");
    }
    look(service, &["break", "--key", "job"]).output().code(64).stderr_is_one_line("--owner");
    assert_eq!(status(service, "job")["holder"]["asked"], before);
    holder.let_go().success();
}

fn an_owner_that_has_ended_is_not_asked_and_its_successor_goes_on<S: Service>(service: &S) {
    let first = service.hold("job");
    let id = owner(service);
    first.let_go().success();
    let next = service.hold("job");
    break_it(service, &id, &[]).code(79).stderr_is_one_line("nothing was done");
    assert!(next.running.is_running());
    next.let_go().success();
}

fn a_frozen_holder_is_asked_and_stops_when_it_goes_on<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "30s"]));
    holder.wait_held();
    holder.running.signal(Signal::SIGSTOP);
    let id = owner(service);
    break_it(service, &id, &["-w", "1s"]).code(75).stderr_ends_with_line("'job' was not released within 1s");
    service.assert_held("job");
    let breaking = start_breaking(service, &id, &[]);
    breaking.wait_stderr("asked");
    holder.running.signal(Signal::SIGCONT);
    breaking.wait().code(0).stderr_ends_with_line("'job' was released after ");
    holder.running.wait().code(79).stderr_is_one_line("asked it to stop");
}

fn a_lock_that_is_only_kept_has_nobody_to_ask<S: Service>(service: &S) {
    service.run("job").args(["--min-hold", "1m"]).command(["true"]).output().success();
    let refused = break_it(service, &owner(service), &[]);
    refused
        .code(75)
        .stderr_is_one_line("cannot be asked, it is a run that has finished (--min-hold): nothing was done");
    assert_eq!(status(service, "job")["holder"]["finished"], true);
}

fn two_who_ask_at_once_are_both_served<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", short::<S>()]));
    holder.wait_held();
    let id = owner(service);
    let both = [0; 2].map(|_| start_breaking(service, &id, &[]));
    for breaking in both {
        // The second one may find the lock free already.
        breaking.wait().code(0).stderr_ends_with_line("'job' ");
    }
    holder.running.wait().code(79).stderr_is_one_line("asked it to stop");
    service.assert_free("job");
}

#[test]
fn flock_is_named_and_its_process_has_to_be_ended() {
    let service = FileService::fresh();
    service.run("other").command(["true"]).output().success();
    let path = service.scratch().lock_dir().join("job.lock");
    let mut other = Foreign::spawn(Kind::Flock, "", &path.display().to_string());
    other.acquire();
    let id = owner(&service);
    let refused = break_it(&service, &id, &[]);
    refused.code(75).stderr_is_one_line("cannot be asked: it is flock, pid ");
    let now = break_it(&service, &id, &["--now"]);
    now.code(64).stderr_is_one_line("--now is not for file:");
    other.release();
}

#[test]
fn another_program_and_an_older_dlock_are_not_asked() {
    let service = RedisService::fresh();
    for (value, who) in [
        ("some-token", "another program"),
        (
            r#"{"v":1,"id":"0123456789abcdef0123456789abcdef","token":1,"host":"h","user":"u","pid":1,"ttl":30000}"#,
            "an older dlock",
        ),
    ] {
        service.redis.cli(&["SET", "dlock:job", value, "PX", "60000"]);
        let refused = break_it(&service, &owner(&service), &[]);
        refused.code(75).stderr_is_one_line(&format!(
            "cannot be asked, it is {who}: nothing was done; --now takes the lock away at once"
        ));
        assert_eq!(service.redis.cli(&["GET", "dlock:job"]), value);
    }
    assert_eq!(service.redis.cli(&["KEYS", "*stop*"]), "");
}

/// A request is for one owner: one that was made to an earlier owner is ignored, whatever is left of it.
#[test]
fn a_request_that_is_left_over_is_ignored() {
    let service = RedisService::fresh();
    let side = "{dlock:job}\u{1}stop";
    let request = format!(r#"{{"v":1,"stop":"{NOBODY}","by":"a@b","at":1}}"#);
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    holder.wait_held();
    let id = owner(&service);
    // Under its own id too, if it is not meant.
    for field in [NOBODY, &id] {
        service.redis.cli(&["HSET", side, field, &request]);
    }
    let renewed = || {
        let mut last = i64::MAX;
        eventually("a renewal", || {
            (service.redis.pttl("dlock:job") > std::mem::replace(&mut last, service.redis.pttl("dlock:job")))
                .then_some(())
        });
    };
    renewed();
    renewed();
    renewed();
    // Something else in the place of the requests keeps nobody from renewing.
    service.redis.cli(&["DEL", side]);
    service.redis.cli(&["SET", side, "x"]);
    renewed();
    renewed();
    break_it(&service, &id, &[]).code(0).stderr_ends_with_line("'job' was released after ");
    holder.running.wait().code(79).stderr_is_one_line("asked it to stop");
}

/// Whoever lacks a right is told all of them, and with those it works.
#[test]
fn the_rights_that_are_named_are_enough_on_redis() {
    let service = RedisService::fresh();
    let acl = |words: &[&str]| service.redis.cli(&[&["ACL", "SETUSER", "ops"], words].concat());
    acl(&["on", ">secret", "resetkeys", "~dlock:*", "~{dlock:*", "-@all", "+multi", "+exec", "+time", "+type"]);
    acl(&["+getrange", "+get", "+pttl", "+zcard", "+zrange", "+hmget", "+scan"]);
    let url = service.url().replace("redis://", "redis://ops@");
    let breaking = |owner: &str, words: &[&str]| {
        let words = [&["break", "--key", "job", "--owner", owner], words].concat();
        service.scratch().dlock().args(words).backend(&url).env("DLOCK_PASSWORD", "secret").output()
    };
    let first = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    first.wait_held();
    let refused = breaking(&owner(&service), &[]);
    refused.code(77).stderr_is_one_line("+eval");
    let said = refused.stderr();
    let named =
        said.split_whitespace().filter(|word| word.starts_with('+')).map(|word| word.trim_end_matches([',', ')']));
    acl(&named.collect::<Vec<_>>());
    breaking(&owner(&service), &[]).code(0).stderr_ends_with_line("'job' was released after ");
    first.running.wait().code(79).stderr_is_one_line("asked it to stop");
    let next = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    next.wait_held();
    breaking(&owner(&service), &["--now"]).code(0).stderr_is_one_line("took 'job' away from ");
    next.running.wait().code(79).stderr_ends_with_line(" was taken away by ");
}

/// A command that dlock names for this shell to run as it stands.
fn as_typed<S: Service>(service: &S, words: &str) -> Outcome {
    service.scratch().dlock().wrapped_by(["/bin/sh", "-c", &format!("exec \"$0\" {words}")]).output()
}

#[test]
fn what_a_refusal_and_a_look_name_can_be_typed_as_it_stands() {
    let service = RedisService::fresh();
    let key = "a b's";
    let options = ["--namespace", "odd\"one", "--connect-timeout", "4s"];
    let gated = Gated::spawn(service.scratch(), service.run(key).args(options).args(["-t", "3s"]));
    gated.wait_held();
    let refused = service.run(key).args(options).arg("-n").command(["true"]).output();
    refused.code(75);
    let said = refused.stderr();
    let (_, words) = said.trim_end().rsplit_once("; see dlock ").expect("a command");
    let seen = as_typed(&service, words);
    seen.code(75).quiet();
    let picture = seen.stdout();
    let words = picture.lines().find_map(|line| line.strip_prefix("  stop it  dlock ")).expect("a command");
    as_typed(&service, words).code(0).stderr_ends_with_line(r"'a b'\''s' was released after ");
    gated.running.wait().code(79).stderr_is_one_line("asked it to stop");
}

/// Where a lock has no lease, the command goes on with it after its dlock was killed, and nobody is there to hear a request.
#[test]
fn a_holder_whose_dlock_was_killed_is_not_asked_where_its_command_keeps_the_lock() {
    let service = FileService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job"));
    holder.wait_held();
    let id = owner(&service);
    holder.running.signal(Signal::SIGKILL);
    eventually("the end of dlock", || (status(&service, "job")["holder"]["alive"] == false).then_some(()));
    let refused = break_it(&service, &id, &[]);
    refused.code(75).stderr_is_one_line("its dlock has ended: end its command and every process it has started");
    assert_eq!(status(&service, "job")["holder"]["asked"], serde_json::Value::Null);
    holder.open();
    eventually("the end of the command", || (status(&service, "job")["state"] == "free").then_some(()));
    let _ = holder.let_go().stderr();
}

/// A lease ends by itself, which is waited for.
#[test]
fn a_lock_whose_dlock_was_killed_passes_on_when_its_lease_ends() {
    let service = RedisService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    holder.wait_held();
    let id = owner(&service);
    holder.running.signal(Signal::SIGKILL);
    break_it(&service, &id, &[]).code(0).stderr_ends_with_line("'job' was released after ");
    service.assert_free("job");
    let _ = holder.let_go().stderr();
}
