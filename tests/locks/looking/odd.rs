//! What is in the way without being a lock, holders that are gone, older dlocks, and users who may only read.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::locks::looking::{list, look, names, read, status, told};
use crate::support::foreign::{Foreign, Kind};
use crate::support::process;
use crate::support::redis_services::{Redlock3, SentinelService};
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service};

#[test]
fn something_else_at_a_locks_name_blocks_it() {
    let redis = RedisService::fresh();
    redis.redis.cli(&["RPUSH", "dlock:job", "x"]);
    let seen = status(&redis, "job");
    assert_eq!((&seen["state"], &seen["blocked_by"]), (&"blocked".into(), &"a redis list at the lock's key".into()));
    assert_eq!(seen["holder"], Value::Null);
    assert!(told(&redis, "job", 75).ends_with(": blocked by a redis list at the lock's key\n"));
    assert_eq!(list(&redis, &[])["locks"][0]["state"], "blocked");
    let etcd = EtcdService::fresh();
    etcd.etcd.put("dlock/job/config", "x", 0);
    let seen = status(&etcd, "job");
    let expected = "the key dlock/job/config, a key without a lease";
    assert_eq!((&seen["state"], &seen["blocked_by"]), (&"blocked".into(), &expected.into()));
    assert_eq!(list(&etcd, &[])["locks"][0]["state"], "blocked");
}

#[test]
fn a_holder_that_was_killed_is_gone_and_its_lease_is_still_there() {
    let service = RedisService::fresh();
    let holder = service.hold("job");
    let pid = holder.pid();
    process::signal(pid, Signal::SIGKILL);
    holder.running.wait().stderr();
    let seen = status(&service, "job");
    assert_eq!((&seen["state"], &seen["holder"]["alive"]), (&"held".into(), &false.into()), "{seen}");
    let text = told(&service, "job", 75);
    assert!(text.contains(&format!(", pid {pid} (sh), gone: no such process here\n")), "{text}");
    // On another host, nothing is known of it: there is no guess by the host's name.
    let value = service.redis.get("dlock:job").unwrap();
    let boot = value.split("\"boot\":\"").nth(1).unwrap().get(..8).unwrap();
    service.redis.cli(&["SET", "dlock:job", &value.replace(boot, "00000000"), "PX", "9000"]);
    let seen = status(&service, "job");
    assert_eq!((&seen["holder"]["alive"], &seen["holder"]["self"]), (&Value::Null, &false.into()), "{seen}");
}

#[test]
fn a_lock_file_whose_holder_was_killed_is_held_as_long_as_the_command_lives() {
    let service = FileService::fresh();
    let holder = service.hold("job");
    process::signal(holder.pid(), Signal::SIGKILL);
    let seen = status(&service, "job");
    assert_eq!(seen["state"], "held", "{seen}");
    let text = told(&service, "job", 75);
    assert!(
        text.ends_with("  next     its command still has the lock file open: it is free when that has ended\n"),
        "{text}"
    );
    holder.let_go().stderr();
    crate::support::rendezvous::eventually("it to be free", || {
        (status(&service, "job")["state"] == "free").then_some(())
    });
}

#[test]
fn what_an_older_dlock_publishes_is_shown_as_far_as_it_goes() {
    let service = RedisService::fresh();
    let value = r#"{"v":1,"id":"e457f1b7a38ab51a0c8ce773f17aabeb","token":5,"since":1795298745000,"host":"web1","user":"deploy","pid":4711,"program":"backup.sh","ttl":30000}"#;
    service.redis.cli(&["SET", "dlock:job", value, "PX", "20000"]);
    let seen = status(&service, "job");
    let holder = &seen["holder"];
    assert_eq!((&holder["host"], &holder["token"], &holder["alive"]), (&"web1".into(), &5.into(), &Value::Null));
    // Its waiters are ids.
    let waiter = Gated::spawn(service.scratch(), service.run("job").arg("-q"));
    service.wait_queued("job", 1);
    let id = status(&service, "job")["queue"][0]["id"].clone();
    service.redis.cli(&["DEL", "{dlock:job}\u{1}who"]);
    let seen = status(&service, "job");
    assert_eq!((&seen["queue"][0]["id"], &seen["queue"][0]["host"]), (&id, &Value::Null), "{seen}");
    let text = told(&service, "job", 75);
    assert!(text.contains(&format!("    1      a dlock with the id {}, waiting\n", id.as_str().unwrap())), "{text}");
    service.redis.cli(&["DEL", "dlock:job"]);
    waiter.wait_held();
    waiter.let_go().success();
}

#[test]
fn a_waiter_leaves_nothing_of_what_it_published() {
    let service = RedisService::fresh();
    let holder = service.hold("job");
    let waiters = [service.queue_up("job", &["-q"]), service.queue_up("job", &["-q"])];
    let who = "{dlock:job}\u{1}who";
    assert_eq!(service.redis.cli(&["HLEN", who]), "2");
    assert!((1..=60_000).contains(&service.redis.pttl(who)));
    holder.let_go().success();
    for waiter in waiters {
        waiter.wait_held();
        waiter.let_go().success();
    }
    assert_eq!(service.redis.cli(&["EXISTS", who]), "0");
}

#[test]
fn each_server_of_a_majority_is_told() {
    let service = Redlock3::fresh();
    let servers = service.cluster().redis();
    servers[0].cli(&["SET", "dlock:job", "one", "PX", "60000"]);
    assert_eq!(status(&service, "job")["state"], "free");
    servers[1].cli(&["SET", "dlock:job", "two", "PX", "60000"]);
    let seen = status(&service, "job");
    assert_eq!((&seen["state"], &seen["holder"]), (&"contested".into(), &Value::Null), "{seen}");
    let states: Vec<&Value> = seen["votes"].as_array().unwrap().iter().map(|vote| &vote["state"]).collect();
    assert_eq!(states, ["held", "held", "free"]);
    assert!(told(&service, "job", 75).contains(": held by nobody with a majority\n  server   "));
    servers[1].cli(&["SET", "dlock:job", "one", "PX", "30000"]);
    let seen = status(&service, "job");
    assert_eq!((&seen["state"], &seen["holder"]["text"]), (&"held".into(), &"one".into()), "{seen}");
    assert!(seen["holder"]["ttl_left_ms"].as_u64().is_some_and(|left| left <= 30_000), "{seen}");
    // Without one server a majority still tells; without two nobody does.
    service.cluster().node(2).kill();
    assert_eq!(status(&service, "job")["votes"][2]["state"], "unknown");
    service.cluster().node(1).kill();
    look(&service, &["status", "-k", "job"]).output().code(69).stderr_is_one_line("cannot read 'job': no majority");
}

#[test]
fn without_a_namespace_only_locks_of_dlock_are_listed_on_redis() {
    let service = RedisService::fresh();
    service.redis.cli(&["SET", "session", "x"]);
    service.redis.cli(&["RPUSH", "jobs", "x"]);
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["--namespace", ""]));
    holder.wait_held();
    let outcome = look(&service, &["list", "--json", "--namespace", ""]).output();
    outcome.code(0).stderr_is_one_line("only locks of dlock are shown");
    assert_eq!(names(&read(&outcome)), ["job"]);
    holder.let_go().success();
}

#[test]
fn wrong_usage_is_refused_and_a_service_that_is_not_there_is_told() {
    let service = FileService::fresh();
    let run = |words: &[&str]| service.scratch().dlock().args(words);
    run(&["status"]).output().code(64).stderr_is_one_line("--key");
    run(&["status", "-k", ""]).output().code(64).stderr_is_one_line("--key: a key must not be empty");
    run(&["list", "--limit", "x"]).output().code(64).stderr_is_one_line("--limit");
    run(&["list", "--watch"]).output().code(64).stderr_is_one_line("--watch needs a terminal or --json");
    run(&["status", "-k", "k", "-b", "redis://127.0.0.1:1"]).output().code(69).stderr_is_one_line("cannot read 'k': ");
    run(&["list", "-b", "file:///does/not/exist"])
        .output()
        .code(73)
        .stderr_is_one_line("cannot read the locks in the namespace 'dlock': ");
}

/// There the kernel's table of locks shows those of its own processes alone.
#[test]
fn in_another_pid_namespace_a_holder_outside_cannot_be_seen_and_that_is_said() {
    let service = FileService::fresh();
    let holder = service.hold("job");
    let inside = |words: &[&str]| look(&service, words).wrapped_by(["unshare", "-rpf", "--mount-proc"]);
    let outcome = inside(&["status", "--json", "-k", "job"]).output();
    outcome.code(69).quiet();
    let seen = read(&outcome);
    assert_eq!((&seen["state"], &seen["holder"]), (&"unknown".into(), &Value::Null), "{seen}");
    let outcome = inside(&["status", "-k", "job"]).output();
    outcome.code(69).quiet();
    assert!(outcome.stdout().ends_with(": cannot be told from this PID namespace\n"), "{outcome:?}");
    inside(&["status", "-k", "other"]).output().code(0).quiet();
    holder.let_go().success();
    // On a server everything is seen, but whether the process lives.
    let service = RedisService::fresh();
    let holder = service.hold("job");
    let outcome =
        look(&service, &["status", "--json", "-k", "job"]).wrapped_by(["unshare", "-rpf", "--mount-proc"]).output();
    outcome.code(75).quiet();
    let seen = read(&outcome);
    let who = &seen["holder"];
    assert_eq!(
        (&who["pid"], &who["alive"], &who["self"]),
        (&holder.pid().into(), &Value::Null, &false.into()),
        "{seen}"
    );
    holder.let_go().success();
}

/// And a holder inside of one, from outside.
#[test]
fn a_holder_in_a_pid_namespace_is_known_by_its_number_there() {
    let service = FileService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").wrapped_by(["unshare", "-rpf", "--mount-proc"]));
    holder.wait_held();
    let seen = status(&service, "job");
    assert_eq!((&seen["holder"]["kind"], &seen["holder"]["program"]), (&"dlock".into(), &"sh".into()), "{seen}");
    assert_eq!(seen["holder"]["alive"], Value::Null, "{seen}");
    holder.let_go().stderr();
}

#[test]
fn the_master_that_sentinels_name_is_looked_at() {
    let service = SentinelService::fresh();
    let holder = service.hold("job");
    assert_eq!(status(&service, "job")["holder"]["pid"], holder.pid());
    assert_eq!(names(&list(&service, &[])), ["job"]);
    holder.let_go().success();
    assert_eq!(status(&service, "job")["state"], "free");
}

#[test]
fn a_file_that_the_url_names_is_one_lock_whatever_the_key() {
    let service = FileService::fresh();
    let path = service.scratch().path("any");
    std::fs::write(&path, "theirs").unwrap();
    let url = format!("file://{}?path", path.display());
    let run = |words: &[&str]| service.scratch().dlock().args(words).backend(&url);
    let mut flock = Foreign::spawn(Kind::Flock, "", path.to_str().unwrap());
    flock.acquire();
    let outcome = run(&["status", "--json", "-k", "x"]).output();
    outcome.code(75).quiet();
    assert_eq!(read(&outcome)["holder"]["program"], "flock");
    let outcome = run(&["list", "--json"]).output();
    outcome.success();
    let list = read(&outcome);
    assert_eq!((&list["locks"][0]["place"], &list["total"]), (&path.to_str().unwrap().into(), &1.into()), "{list}");
    flock.release();
    run(&["status", "-k", "y"]).output().code(0).quiet();
    run(&["list", "-q"]).output().success().stdout_is("");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
    assert!(!service.scratch().path("any.dlock").exists());
}

#[test]
fn a_default_directory_that_does_not_exist_has_no_locks_and_is_not_made() {
    let service = FileService::fresh();
    let status = service.scratch().dlock().args(["status", "-k", "never-used-by-anybody"]);
    // The directory of root is the system's.
    let status = if process::is_root() { status.unprivileged() } else { status };
    status.output().code(0).stderr_is_one_line("no backend was chosen, so this shows the locks of this user");
}

/// The line of the manual for a monitoring system.
#[test]
fn a_monitoring_system_is_told_of_locks_that_need_a_look() {
    let service = RedisService::fresh();
    let jq = "any(.holders[]; .expires == false or .held_ms > 600000)) | .key] | length == 0";
    let shell =
        format!("set -o pipefail; \"$@\" | jq -e '[.locks[] | select(.state == \"blocked\" or {jq}' > /dev/null");
    let manual = std::fs::read_to_string("src/command/generate/manual/list.txt").unwrap();
    assert!(manual.contains(jq));
    let healthy = || {
        let words = ["list", "--limit", "0", "--json", "-q"];
        look(&service, &words).wrapped_by(["bash", "-c", &shell, "bash"]).output().status().code()
    };
    let holder = service.hold("job");
    assert_eq!(healthy(), Some(0));
    service.redis.cli(&["SET", "dlock:stuck", "x"]);
    assert_eq!(healthy(), Some(1));
    service.redis.cli(&["DEL", "dlock:stuck"]);
    service.redis.cli(&["RPUSH", "dlock:blocked", "x"]);
    assert_eq!(healthy(), Some(1));
    holder.let_go().success();
}

#[test]
fn the_line_that_breaks_a_lock_names_it_whatever_is_in_its_name() {
    let service = RedisService::fresh();
    for key in ["k\u{202e}x", "it's\u{200b}\\", "a b\u{feff}7"] {
        let holder = Gated::spawn(service.scratch(), service.run(key).args(["-t", "4s"]));
        holder.wait_held();
        let text = look(&service, &["status", "--key", key]).output();
        let text = text.code(75).stdout();
        assert!(!text.contains(['\u{202e}', '\u{200b}', '\u{feff}']), "{text}");
        let line = text.split("  stop it  ").nth(1).unwrap_or_else(|| panic!("{text}")).trim();
        // As it is typed.
        let words = std::process::Command::new("bash")
            .args(["-c", &format!("dlock() {{ printf '%s\\0' \"$@\"; }}; {line}")])
            .output()
            .unwrap();
        let words = String::from_utf8(words.stdout).unwrap();
        let words: Vec<&str> = words.split_terminator('\0').collect();
        service.scratch().dlock().args(words).output().code(0).stderr_ends_with_line("was released after ");
        holder.running.wait().code(79).stderr();
        let json = look(&service, &["status", "--json", "--key", key]).output();
        let json = json.code(0).stdout();
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["key"], key);
    }
}
