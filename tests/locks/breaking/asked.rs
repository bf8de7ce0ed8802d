//! A holder that is asked to stop.

use std::time::Duration;

use crate::locks::breaking::{break_it, holder, only_the_trace_is_left, owner, short, start_breaking, wait_renewed};
use crate::locks::looking::{status, told};
use crate::support::backends::{on_every_backend, on_file_and_redis, on_variant};
use crate::support::rendezvous::boottime;
use crate::support::service::{Gated, Service};
use crate::support::tree::Tree;
use crate::support::witness::Witness;

on_every_backend! {
    it_stops_and_the_next_one_gets_the_lock_without_an_overlap
    it_hears_of_it_at_once_after_its_first_renewal;
    only_the_one_that_is_named_stops
}

on_file_and_redis! {
    a_request_is_shown_and_names_who_asks
    what_is_killed_at_once_or_ignored_is_the_holders_choice
    several_locks_of_one_run_end_together
}

on_variant! { sentinel: redis_services::SentinelService {
    it_stops_and_the_next_one_gets_the_lock_without_an_overlap
    it_hears_of_it_at_once_after_its_first_renewal
    only_the_one_that_is_named_stops
} }

fn it_stops_and_the_next_one_gets_the_lock_without_an_overlap<S: Service>(service: &S) {
    let witness = Witness::in_dir(service.scratch().path("."));
    // It needs a while to end.
    let work = "exec 2>/dev/null; trap 'sleep 0.5; exit 3' TERM; while :; do sleep 0.05; done";
    let run = || service.run("job").args(["-t", short::<S>(), "--kill-after", "1s"]);
    let first = run().command(witness.command(work)).spawn();
    crate::support::rendezvous::eventually("the first one", || witness.log().contains("start ").then_some(()));
    let id = owner(service);
    let next = run().arg("-q").command(witness.command("true")).spawn();
    let broken = break_it(service, &id[..8], &["--reason", "restore \"first\""]);
    broken.code(0).stdout_is("");
    let said = broken.stderr();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("dlock: asked ") && lines[0].contains(" to stop: it checks every "), "{said}");
    assert!(lines[0].ends_with(", and then has 1s to end its command"), "{said}");
    assert!(lines.len() == 2 && lines[1].starts_with("dlock: 'job' was released after "), "{said}");
    let lost = first.wait();
    let why = " asked it to stop: restore \"first\"; stopping sh";
    lost.code(79).stderr_is_one_line(why);
    assert!(lost.stderr().starts_with(&format!("dlock: lost 'job' at {}: ", service.url())), "{lost:?}");
    next.wait().success();
    let sections = witness.check();
    assert_eq!(sections.len(), 2, "{}", witness.log());
    service.assert_free("job");
    only_the_trace_is_left(service);
}

fn it_hears_of_it_at_once_after_its_first_renewal<S: Service>(service: &S) {
    let mut tree = Tree::new(service.scratch());
    let dlock =
        service.run("job").args(["-t", "15s", "--kill-after", "300ms"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    wait_renewed(service);
    let id = owner(service);
    let begun = boottime();
    let breaking = start_breaking(service, &id, &[]);
    let termed = tree.termed_at() - begun;
    let died = tree.died_at() - begun;
    breaking.wait().code(0).stderr_ends_with_line("'job' was released after ");
    println!("{}: asked to stop after {termed:?}, gone after {died:?}", S::KIND);
    // Renewals are at least five seconds apart. The machine may be busy.
    assert!(termed < Duration::from_secs(3), "told to stop only after {termed:?}");
    dlock.wait().code(79).stderr_is_one_line("asked it to stop; stopping sh");
}

fn a_request_is_shown_and_names_who_asks<S: Service>(service: &S) {
    let gated = Gated::spawn(service.scratch(), service.run("job").args(["-t", short::<S>(), "--on-lost", "ignore"]));
    gated.wait_held();
    let id = owner(service);
    let text = told(service, "job", 75);
    assert!(text.contains("  stop it  dlock break --backend "), "{text}");
    assert!(text.contains(&format!(" --key job --owner {id}\n")), "{text}");
    let before = holder(service);
    assert_eq!((&before["asked"], &before["can_be_asked"]), (&serde_json::Value::Null, &true.into()));
    let breaking = break_it(service, &id, &["--reason", "mainte\u{1b}nance", "-w", "3s"]);
    breaking.code(75).stderr_ends_with_line("'job' was not released within 3s");
    assert!(!breaking.stderr().contains("stops its command"), "{breaking:?}");
    let asked = &holder(service)["asked"];
    assert!(asked["by"].as_str().is_some_and(|by| by.contains('@')), "{asked}");
    assert_eq!(asked["reason"], "mainte\u{1b}nance");
    assert!(asked["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{asked}");
    let text = told(service, "job", 75);
    let line = text.lines().find(|line| line.starts_with("  asked    ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(" asked it to stop ") && line.ends_with(" ago: mainte\\u{1b}nance"), "{line}");
    let said = gated.running.wait_stderr("asked it to stop");
    assert!(said.contains(": mainte\\u{1b}nance; sh goes on (--on-lost ignore)"), "{said}");
    // It is told once, and the lock is kept until the command has ended.
    let outcome = gated.let_go();
    outcome.code(0).stderr_is_one_line("asked it to stop");
    service.assert_free("job");
}

fn only_the_one_that_is_named_stops<S: Service>(service: &S) {
    let hold = |key: &str, mode: &[&str]| {
        let one = Gated::spawn(service.scratch(), service.run(key).args(["-t", short::<S>()]).args(mode));
        one.wait_held();
        one
    };
    let slots = [0; 3].map(|_| hold("job", &["--slots", "3"]));
    let other = hold("other", &[]);
    let seen = status(service, "job");
    let holders = seen["holders"].as_array().unwrap();
    let named = &holders[1];
    let breaking = break_it(service, named["id"].as_str().unwrap(), &[]);
    breaking.code(0).stderr_ends_with_line("'job' was released after ");
    for one in slots {
        if named["pid"] == one.pid() {
            one.running.wait().code(79).stderr_is_one_line("asked it to stop");
        } else {
            assert!(one.running.is_running());
            one.let_go().success();
        }
    }
    other.let_go().success();
}

fn what_is_killed_at_once_or_ignored_is_the_holders_choice<S: Service>(service: &S) {
    let mut tree = Tree::new(service.scratch());
    let run = service.run("job").args(["-t", short::<S>(), "--on-lost", "kill"]);
    let dlock = run.shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    break_it(service, &owner(service), &[]).code(0).stderr_ends_with_line("'job' was released after ");
    assert!(!tree.is_alive(), "released before everything was gone");
    assert!(!tree.was_termed(), "SIGTERM");
    dlock.wait().code(79).stderr_is_one_line("asked it to stop");
}

fn several_locks_of_one_run_end_together<S: Service>(service: &S) {
    let run = service.scratch().dlock().args(["run", "-k", "job", "-k", "two", "-t", short::<S>()]);
    let both = Gated::spawn(service.scratch(), run.backend(service.url()).args(service.options()));
    both.wait_held();
    break_it(service, &owner(service), &[]).code(0).stderr_ends_with_line("'job' was released after ");
    both.running.wait().code(79).stderr_is_one_line("asked it to stop");
    service.assert_free("job");
    service.assert_free("two");
}
