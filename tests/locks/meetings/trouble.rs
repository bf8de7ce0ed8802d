//! Crowds, and servers that do not answer, at latches and barriers.

use nix::sys::signal::Signal;

use crate::support::backends::on_backend;
use crate::support::redis_services::Redlock3;
use crate::support::service::{FileService, RedisService, Service};

use super::{KEY, dlock};

/// Makes a module of tests for each kind of backend with barriers on servers.
macro_rules! on_every_server_with_barriers {
    ($($test:ident)*) => {
        on_backend! { redis: service::RedisService { $($test)* } }
        on_backend! { etcd: service::EtcdService { $($test)* } }
        on_backend! { zookeeper: service::ZooKeeperService { $($test)* } }
    };
}

on_backend! { file: service::FileService { a_crowd_that_comes_at_once_goes_on_together } }

on_every_server_with_barriers! {
    a_crowd_that_comes_at_once_goes_on_together
    a_party_that_gave_up_while_the_servers_were_frozen_is_not_counted
}

fn a_crowd_that_comes_at_once_goes_on_together<S: Service>(service: &S) {
    let parties = S::CONTENDERS.min(40);
    let count = parties.to_string();
    let party = |number: usize| {
        let name = format!("p{number}");
        dlock(service, "barrier").args(["--parties", &count, "--as", &name, "-q", "-w", "50"]).spawn()
    };
    let all: Vec<_> = (0..parties).map(party).collect();
    for party in all {
        party.wait().code(0).quiet();
    }
    service.assert_tidy(&[]);
}

fn a_party_that_gave_up_while_the_servers_were_frozen_is_not_counted<S: Service>(service: &S) {
    let party = |name: &str| dlock(service, "barrier").args(["--parties", "3", "--as", name]);
    let early = ["a", "b"].map(|name| {
        let early = party(name).spawn();
        early.wait_stderr("waiting for barrier 'k': ");
        early
    });
    let nodes = service.cluster().nodes();
    for node in &nodes {
        node.freeze();
    }
    party("late").args(["-q", "-w", "1"]).output().code(69).stderr_is_one_line("did not answer within 1s");
    for node in &nodes {
        node.thaw();
    }
    // What it asked for is carried out now, if at all.
    party("c").args(["-q", "-w", "25"]).output().success();
    for early in early {
        let outcome = early.wait();
        assert!(outcome.code(0).stderr().contains("dlock: waiting for barrier 'k': "), "{outcome:?}");
    }
}

#[test]
fn a_latch_is_forgotten_by_every_server_or_dlock_says_so() {
    let service = Redlock3::fresh();
    let nodes = service.cluster().nodes();
    dlock(&service, "latch").args(["down", "--as", "a"]).output().success();
    nodes[0].freeze();
    let forget = || dlock(&service, "latch").arg("forget");
    forget().output().code(69).stderr_is_one_line("could not use latch 'k': 1 of 3 servers may still have names: ");
    nodes[0].thaw();
    forget().output().success();
    // That server is in the majority now.
    nodes[1].freeze();
    let wait = dlock(&service, "latch").args(["wait", "--count", "1", "-w", "0"]).output();
    nodes[1].thaw();
    wait.code(75).stderr_is_one_line("latch 'k' is not open: none of 1 is done");
}

#[test]
fn a_wait_outlives_a_server_that_loses_its_data() {
    let service = RedisService::fresh();
    dlock(&service, "latch").args(["down", "--as", "a"]).output().success();
    let waiter = dlock(&service, "latch").args(["wait", "--count", "2"]).spawn();
    waiter.wait_stderr("waiting for latch 'k': 1 of 2 is done (a)");
    let party = dlock(&service, "barrier").args(["--parties", "2"]).spawn();
    party.wait_stderr("waiting for barrier 'k': 1 of 2 is here");
    service.cluster().redis()[0].cli(&["FLUSHALL"]);
    party.wait().code(79).stderr_ends_with_line("or has lost its data");
    for name in ["b", "c"] {
        dlock(&service, "latch").args(["down", "--as", name]).output().success();
    }
    waiter.wait().code(0).stderr_is_one_line("waiting for latch 'k': 1 of 2 is done (a)");
}

#[test]
fn a_signal_ends_a_wait_for_a_frozen_server() {
    let service = RedisService::fresh();
    let party = dlock(&service, "barrier").args(["--parties", "2"]).spawn();
    party.wait_stderr("waiting for barrier 'k'");
    let node = service.cluster().node(0);
    node.freeze();
    party.signal(Signal::SIGINT);
    party.wait().signal(Signal::SIGINT).stderr_is_one_line("waiting for barrier 'k'");
    node.thaw();
}

/// A name that finds no room leaves the others as they are.
#[test]
fn a_full_disk_loses_no_name_of_a_latch() {
    let service = FileService::fresh();
    let disk = service.scratch().directory("disk", 0o700);
    let script = r#"
        mount -t tmpfs -o mode=0700,size=16k tmpfs "$disk" && head -c 1M /dev/zero > "$disk/fill" 2>/dev/null
        truncate -s -4096 "$disk/fill"
        for number in $(seq 100); do
            "$@" down --as "$number-$(printf %090d 0)" 2>"$disk/../said" || { code=$?; break; }
        done
        echo "$number $code"; cat "$disk/../said"
        rm "$disk/fill"
        "$@" wait --count $((number - 1)) && echo open
        "$@" down --as last && "$@" wait --count "$number" && echo open
    "#;
    let url = format!("file://{}", disk.display());
    let latch = service.scratch().dlock().args(["latch", "--key", KEY, "-w", "0", "-q"]).backend(url);
    let outcome = latch.env("disk", &disk).wrapped_by(["unshare", "-rm", "sh", "-c", script, "sh"]).output();
    let stdout = outcome.success().stdout();
    let [first, said, "open", "open"] = stdout.lines().collect::<Vec<_>>()[..] else { panic!("{outcome:?}") };
    assert!(first.ends_with(" 73") && !first.starts_with("100 ") && said.contains("No space left"), "{outcome:?}");
}

/// They are a longer answer than any about a lock.
#[test]
fn a_thousand_long_names_are_shown() {
    let (redis, redlock) = (RedisService::fresh(), Redlock3::fresh());
    let names: Vec<String> = (0..1000).map(|number| format!("{number:0128}")).collect();
    let mut add = vec!["ZADD", "{dlock:k}\x01latch"];
    add.extend(names.iter().flat_map(|name| ["9999999999999", name.as_str()]));
    for server in redlock.servers.iter().chain([&*redis.redis]) {
        server.ask(&add).unwrap();
    }
    for outcome in [dlock(&redis, "latch").arg("show").output(), dlock(&redlock, "latch").arg("show").output()] {
        outcome.code(0).quiet();
        assert_eq!(outcome.stdout().lines().count(), 1001);
    }
}

#[test]
fn a_file_that_is_not_of_a_latch_is_not_forgotten() {
    let service = FileService::fresh();
    dlock(&service, "latch").args(["down", "--as", "a"]).output().success();
    let file = service.scratch().lock_dir().join("k.latch");
    std::fs::write(&file, "4711\n").unwrap();
    dlock(&service, "latch").arg("forget").output().code(73).stderr_is_one_line("it holds data that is not dlock's");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "4711\n");
}
