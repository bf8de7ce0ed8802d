/*!
Several locks in one run: all or none, taken in one order whatever the user's, kept while the next one is waited for.
*/

use std::ffi::OsString;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::{on_every_backend, on_file_and_redis};
use crate::support::dlock::{DLOCK, Dlock};
use crate::support::process;
use crate::support::rendezvous::{Gate, boottime, eventually};
use crate::support::scratch::Scratch;
use crate::support::service::{FileService, Gated, Service};
use crate::support::taken::Taken;
use crate::support::witness::{Witness, read_counter};

on_every_backend! {
    without_a_wait_it_holds_all_or_none
}

on_file_and_redis! {
    crossed_keys_neither_deadlock_nor_overlap
    what_is_taken_away_is_the_loss_of_all_and_the_others_are_free
    one_that_is_lost_during_the_wait_has_it_begin_again
    a_lock_is_kept_alive_while_another_is_waited_for
    tokens_are_in_the_order_of_the_keys
    readers_of_several_locks_hold_them_together
    a_nested_run_takes_only_what_is_not_held_around_it
    a_run_inside_of_one_that_holds_all_passes_through
}

/// `dlock run` for these keys on `service`.
fn run<S: Service>(service: &S, keys: &[&str]) -> Dlock {
    service.run(keys[0]).args(keys[1..].iter().flat_map(|key| ["--key", *key]))
}

/// Shell code that runs `script` under a dlock with these options and keys.
fn inner<S: Service>(service: &S, keys: &[&str], options: &str, script: &str) -> String {
    let (dlock, url, script) = (*DLOCK, service.url(), script.replace('\'', r"'\''"));
    let more: Vec<String> = service.options().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let keys: Vec<String> = keys.iter().map(|key| format!("--key {key}")).collect();
    let words = [keys.join(" "), more.join(" "), options.to_owned()].join(" ");
    format!("'{dlock}' run --backend '{url}' {words} -- sh -c '{script}'")
}

/// How many contend, and how often each of them holds the locks.
const CONTENDERS: usize = 10;
const ROUNDS: usize = 3;

fn crossed_keys_neither_deadlock_nor_overlap<S: Service>(service: &S) {
    let (witness, counter) = (Witness::in_dir(service.scratch().root()), service.scratch().path("counter"));
    let often = r#"for round in 1 2 3; do "$@" || exit; done"#;
    let contend = |number: usize| {
        // The witness wants tokens that rise: those of one lock.
        let (keys, token) = if number.is_multiple_of(2) {
            (["a", "b"], "${DLOCK_TOKENS% *}")
        } else {
            (["b", "a"], "${DLOCK_TOKENS#* }")
        };
        let of_a = format!(r#"DLOCK_TOKEN={token} exec "$@""#);
        let mut command: Vec<OsString> = ["/bin/sh".into(), "-c".into(), of_a.into(), "sh".into()].into();
        command.extend(witness.counter_command(&counter));
        // With -w, so that a deadlock ends.
        let dlock = run(service, &keys).args(["-q", "-w", "60"]).command(command);
        dlock.wrapped_by(["sh", "-c", often, "sh"]).spawn()
    };
    let contenders: Vec<_> = (0..CONTENDERS).map(contend).collect();
    for contender in contenders {
        contender.wait().success();
    }
    assert_eq!(read_counter(&counter), (CONTENDERS * ROUNDS) as u64);
    assert_eq!(witness.check().len(), CONTENDERS * ROUNDS);
    service.assert_free("a");
    service.assert_free("b");
}

fn without_a_wait_it_holds_all_or_none<S: Service>(service: &S) {
    let holder = service.hold("b");
    for keys in [["a", "b"], ["b", "a"], ["b", "c"]] {
        for options in [&["-n"][..], &["-w", "0.3"]] {
            let refused = run(service, &keys).args(options).command(["echo", "overlap"]).output();
            refused.code(75).stdout_is("").stderr_ends_with_line("did not get 'b'");
            for free in keys.iter().filter(|key| **key != "b") {
                service.assert_free(free);
            }
        }
    }
    holder.let_go().success();
    run(service, &["a", "b"]).arg("-n").command(["true"]).output().success();
}

fn what_is_taken_away_is_the_loss_of_all_and_the_others_are_free<S: Taken>(service: &S) {
    let holder = Gated::spawn(service.scratch(), run(service, &["a", "b", "c"]).args(["--ttl", "3s"]));
    holder.wait_held();
    service.take_away("b");
    holder.running.wait().code(79).stderr_ends_with_line(" ('b'); stopping sh");
    for key in ["a", "b", "c"] {
        service.assert_free(key);
    }
}

fn one_that_is_lost_during_the_wait_has_it_begin_again<S: Taken>(service: &S) {
    let other = service.hold("b");
    let waiter = Gated::spawn(service.scratch(), run(service, &["a", "b"]).args(["--ttl", "3s", "-w", "60"]));
    waiter.running.wait_stderr("waiting for 'b'");
    service.assert_held("a");
    service.take_away("a");
    eventually("it to hold a again", || {
        let looked = service.run("a").args(["-n", "-q"]).command(["true"]).output();
        (looked.status().code() == Some(75)).then_some(())
    });
    assert!(!waiter.has_held());
    other.let_go().success();
    waiter.wait_held();
    service.assert_held("a");
    service.assert_held("b");
    let outcome = waiter.let_go();
    outcome.code(0);
    assert!(outcome.stderr().lines().all(|line| line.starts_with("dlock: waiting for ")), "{outcome:?}");
}

fn a_lock_is_kept_alive_while_another_is_waited_for<S: Service>(service: &S) {
    let other = service.hold("b");
    let waiter = Gated::spawn(service.scratch(), run(service, &["a", "b"]).args(["--ttl", "2s", "-q"]));
    eventually("it to hold a", || {
        let looked = service.run("a").args(["-n", "-q"]).command(["true"]).output();
        (looked.status().code() == Some(75)).then_some(())
    });
    // ZooKeeper grants 4 s at least.
    let end = boottime() + Duration::from_secs(6);
    while boottime() < end {
        service.assert_held("a");
    }
    other.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}

fn tokens_are_in_the_order_of_the_keys<S: Service>(service: &S) {
    let told = |keys: &[&str]| {
        let outcome = run(service, keys).shell(r#"echo "$DLOCK_KEY $DLOCK_TOKEN=$DLOCK_TOKENS""#).output();
        let told = outcome.success().stdout();
        let (key, tokens) = told.trim_end().split_once(' ').unwrap();
        let (first, all) = tokens.split_once('=').unwrap();
        let all: Vec<u64> = all.split(' ').map(|token| token.parse().unwrap()).collect();
        assert_eq!((key, first.parse()), (keys[0], Ok(all[0])), "{told}");
        all
    };
    let [b, a] = told(&["b", "a"])[..] else { panic!("two tokens") };
    let [later_a, later_b] = told(&["a", "b", "a"])[..] else { panic!("two tokens") };
    assert!(later_a > a && later_b > b, "{a} {b}, then {later_a} {later_b}");
    assert!(told(&["a"])[0] > later_a);
}

fn readers_of_several_locks_hold_them_together<S: Service>(service: &S) {
    let readers = [["a", "b"], ["b", "a"]].map(|keys| Gated::spawn(service.scratch(), run(service, &keys).arg("-s")));
    readers.iter().for_each(Gated::wait_held);
    service.run("b").args(["-n", "-q"]).command(["echo", "overlap"]).output().code(75).stdout_is("").quiet();
    for reader in readers {
        reader.let_go().success();
    }
    run(service, &["a", "b"]).arg("-n").command(["true"]).output().success();
}

fn a_nested_run_takes_only_what_is_not_held_around_it<S: Service>(service: &S) {
    let [inside, after] = ["inside", "after"].map(|name| Gate::new(service.scratch().path(name)));
    let script = format!("echo inside $DLOCK_KEY $DLOCK_TOKENS; {}", inside.wait());
    let nested = inner(service, &["c", "b", "a"], "-n", &script);
    let outer = service.run("b").shell(format!("echo outer $DLOCK_TOKEN; {nested}; echo after; {}", after.wait()));
    let outer = outer.spawn();
    let told = outer.wait_stdout("inside ");
    let [_, key, _, token, _] = told.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{told:?}") };
    let of_outer = outer.wait_stdout("outer ");
    assert_eq!((key, of_outer.trim_end()), ("c", &*format!("outer {token}")));
    for key in ["a", "b", "c"] {
        service.assert_held(key);
    }
    inside.open();
    outer.wait_stdout("after");
    service.assert_free("a");
    service.assert_free("c");
    service.assert_held("b");
    after.open();
    outer.wait().success();
    service.assert_free("b");
}

fn a_run_inside_of_one_that_holds_all_passes_through<S: Service>(service: &S) {
    let told = "echo $DLOCK_TOKENS";
    let deeper = inner(service, &["b"], "-n", told);
    let all = inner(service, &["a", "b"], "-n -v", &format!("{told}; {deeper}"));
    let one = inner(service, &["a"], "-n", told);
    let outcome = run(service, &["b", "a"]).shell(format!("{told}; {all}; {one}; {told}")).output();
    outcome.code(0).stderr_is_one_line("'a', 'b' are held by the outer dlock run");
    let told = outcome.stdout();
    let [outer, crossed, deeper, one, last] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told:?}") };
    let (b, a) = outer.split_once(' ').unwrap();
    assert_eq!((crossed, deeper, one, last), (&*format!("{a} {b}"), b, a, outer), "{told}");
    service.assert_free("a");
    service.assert_free("b");
}

#[test]
fn killed_on_file_all_stay_locked_until_the_command_ends() {
    for options in [&[][..], &["--close"]] {
        let service = FileService::fresh();
        let holder = Gated::spawn(service.scratch(), run(&service, &["a", "b"]).args(options));
        holder.wait_held();
        holder.running.signal(Signal::SIGKILL);
        eventually("dlock to be dead", || (!process::is_alive(holder.pid())).then_some(()));
        service.assert_held("a");
        service.assert_held("b");
        holder.let_go().signal(Signal::SIGKILL).quiet();
        eventually("both to be free", || {
            let free = run(&service, &["b", "a"]).args(["-n", "-q"]).command(["true"]).output();
            free.status().success().then_some(())
        });
    }
}

#[test]
fn sixteen_locks_are_as_many_as_there_can_be() {
    let scratch = Scratch::new();
    let names: Vec<String> = (0..17).map(|number| format!("k{number}")).collect();
    let dlock = |count: usize| {
        let keys = names[1..count].iter().flat_map(|name| ["--key", name.as_str()]);
        scratch.dlock().run(&names[0]).backend(scratch.file_url()).args(keys).shell("set -- $DLOCK_TOKENS; echo $#")
    };
    dlock(16).output().success().stdout_is("16\n");
    dlock(17).output().code(64).stdout_is("").stderr_is_one_line("one run holds at most 16");
    let file = format!("file://{}?path", scratch.path("one").display());
    let both = scratch.dlock().run("a").backend(file).args(["--key", "b"]).command(["echo", "ran"]).output();
    both.code(64).stdout_is("").stderr_is_one_line("is one lock, whatever its key");
}
