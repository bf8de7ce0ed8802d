//! Servers and holders that are frozen, killed or hostile while one looks.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::locks::looking::{look, status};
use crate::services::hostile::{assert_harmless, wait_within_memory};
use crate::support::backends::{on_every_server, on_redis_and_etcd};
use crate::support::process;
use crate::support::proxy::{Behaviour, Hostile};
use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::service::{Gated, Service};

fn freeze<S: Service>(service: &S) {
    for node in service.cluster().nodes() {
        node.freeze();
    }
}

fn thaw<S: Service>(service: &S) {
    for node in service.cluster().nodes() {
        node.thaw();
    }
}

fn a_server_that_does_not_answer_is_given_up_in_time<S: Service>(service: &S) {
    let holder = service.hold("job");
    freeze(service);
    for (limit, most) in [("700ms", Duration::from_millis(1600)), ("3s", Duration::from_millis(3900))] {
        let looks = [&["status", "-k", "job"][..], &["list"]];
        for looking in looks.map(|words| look(service, words).args(["--connect-timeout", limit]).spawn()) {
            let outcome = looking.wait();
            outcome.code(69).stdout_is("").stderr_is_one_line("cannot read ");
            assert!(outcome.elapsed() < most, "{outcome:?}");
        }
    }
    thaw(service);
    drop(holder);
}

/// A server that is frozen while it is watched is one line, and watching goes on when it is back.
fn a_server_that_is_frozen_while_it_is_watched_is_told_once<S: Service>(service: &S) {
    let watching = look(service, &["status", "-k", "job", "--json", "--watch", "--connect-timeout", "1s"]).spawn();
    let documents = || -> Vec<Value> {
        let text = watching.stdout_so_far();
        text.split_inclusive('\n').filter_map(|line| serde_json::from_str(line.strip_suffix('\n')?).ok()).collect()
    };
    eventually("the first document", || (documents().len() == 1).then_some(()));
    freeze(service);
    eventually("the trouble", || documents().last().unwrap()["error"]["message"].is_string().then_some(()));
    thaw(service);
    eventually("the lock again", || (documents().last().unwrap()["state"] == "free").then_some(()));
    watching.signal(Signal::SIGINT);
    watching.wait().code(0).quiet();
}

fn a_frozen_holder_holds_the_lock_until_its_lease_ends<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "4s"]));
    holder.wait_held();
    process::signal(holder.pid(), Signal::SIGSTOP);
    let seen = status(service, "job");
    assert_eq!((&seen["state"], &seen["holder"]["pid"]), (&"held".into(), &holder.pid().into()), "{seen}");
    // Its process is there, and says nothing.
    assert_eq!(seen["holder"]["alive"], true, "{seen}");
    eventually("its lease to end", || (status(service, "job")["state"] == "free").then_some(()));
    process::signal(holder.pid(), Signal::SIGCONT);
    holder.running.wait().code(79).stderr();
}

fn a_killed_holder_is_gone_and_holds_the_lock_until_its_lease_ends<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "6s"]));
    holder.wait_held();
    let pid = holder.pid();
    process::signal(pid, Signal::SIGKILL);
    holder.running.wait().stderr();
    let seen = status(service, "job");
    assert_eq!((&seen["state"], &seen["holder"]["pid"]), (&"held".into(), &pid.into()), "{seen}");
    assert_eq!((&seen["holder"]["alive"], &seen["holder"]["self"]), (&false.into(), &true.into()), "{seen}");
    let outcome = look(service, &["status", "-k", "job"]).output();
    outcome.code(75).quiet();
    let text = outcome.stdout();
    assert!(text.contains(&format!(", pid {pid} (sh), gone: no such process here\n")), "{text}");
    // ZooKeeper does not tell how long a session lasts.
    let is_told = text.contains("\n  next     nobody renews it any more: it is free in ");
    assert_eq!(is_told, S::KIND != "zookeeper", "{text}");
    // Nobody is there to be asked.
    let owner = seen["holder"]["id"].as_str().unwrap();
    let broken = look(service, &["break", "-k", "job", "--owner", owner, "-w", "30s"]).output();
    let said = broken.code(0).stdout_is("").stderr();
    assert!(said.contains(&format!(", pid {pid} (sh) is gone: waiting until its lease has run out\n")), "{said}");
    assert_eq!(status(service, "job")["state"], "free");
}

on_every_server! {
    a_server_that_does_not_answer_is_given_up_in_time
    a_server_that_is_frozen_while_it_is_watched_is_told_once
}

on_redis_and_etcd! {
    a_frozen_holder_holds_the_lock_until_its_lease_ends
    a_killed_holder_is_gone_and_holds_the_lock_until_its_lease_ends
}

#[test]
fn servers_that_lie_are_given_up_in_time_and_cost_little_memory() {
    let lie = |behaviour: Behaviour, scheme: &str, words: &[&str]| {
        let (scratch, server) = (Scratch::new(), Hostile::start(behaviour));
        // MySQL has no database of its own for a user.
        let path = if scheme == "mysql" { "/db" } else { "" };
        let url = format!("{scheme}://user:secret@127.0.0.1:{}{path}", server.port());
        let dlock = scratch.dlock().args(words).backend(url).args(["--connect-timeout", "1s"]);
        let outcome = wait_within_memory(dlock.spawn());
        let (stderr, code) = (outcome.stderr(), outcome.status().code());
        assert!(code == Some(69) || code == Some(77), "{scheme} {behaviour:?}: {outcome:?}");
        outcome.stdout_is("").stderr_is_one_line("cannot read ");
        assert_harmless(&stderr);
        assert!(!stderr.contains("secret"), "{stderr}");
        assert!(outcome.elapsed() < Duration::from_secs(10), "{scheme} {behaviour:?}: {outcome:?}");
    };
    for scheme in ["redis", "redlock", "etcd", "zk", "postgres", "mysql"] {
        std::thread::scope(|scope| {
            for behaviour in Behaviour::ALL {
                scope.spawn(move || lie(behaviour, scheme, &["status", "-k", "job"]));
            }
            scope.spawn(move || lie(Behaviour::ALL[0], scheme, &["list"]));
        });
    }
}
