/*!
Readers and slots on lock files: who shares the lock with whom, and who comes next; beside flock(1) and an older dlock.
*/

use std::fs;

use nix::sys::signal::Signal;

use super::held::{Held, enters, flock, flock_enters, lock_file, run};
use crate::support::dlock::Running;
use crate::support::process::wait_stopped;
use crate::support::rendezvous::{Fifo, Gate, eventually};
use crate::support::scratch::Scratch;

#[test]
fn readers_slots_and_flock_share_the_lock_or_exclude_each_other() {
    let scratch = Scratch::new();
    let tries = || {
        let by_dlock = [&["-s"][..], &["--slots", "2"], &[]].map(|options| enters(&scratch, options));
        let as_flock = ["-s", "-x"].map(|option| flock_enters(&scratch, option));
        [by_dlock.as_slice(), &as_flock].concat()
    };
    for (number, (options, expected)) in [
        (&["-s"][..], [true, false, false, true, false]),
        (&["--slots", "2"], [false, true, false, true, false]),
        (&["--slots", "1"], [false, false, false, true, false]),
        (&[], [false, false, false, false, false]),
    ]
    .into_iter()
    .enumerate()
    {
        let holder = Held::now(&scratch, &number.to_string(), options);
        if options == ["--slots", "1"] {
            let refused = run(&scratch, &["-n", "--slots", "2"]).command(["echo", "overlap"]).output();
            refused.code(64).stdout_is("").stderr_is_one_line("in use with --slots 1");
            assert!(!enters(&scratch, options) && !enters(&scratch, &["-s"]));
        } else {
            assert_eq!(tries(), expected, "held by dlock {options:?}");
        }
        holder.let_go();
    }
    let mut words = Fifo::new(scratch.path("words"));
    let gate = Gate::new(scratch.path("gate"));
    for (option, expected) in [("-s", [true, true, false, true, false]), ("-x", [false; 5])] {
        let holder = flock(&scratch, &[option], &format!("{}; {}", words.say("held"), gate.wait()));
        words.expect("held");
        assert_eq!(tries(), expected, "held by flock {option}");
        if option == "-x" {
            let refused = run(&scratch, &["-n", "-s"]).command(["true"]).output();
            refused.code(75).stderr_is_one_line(&format!("held by flock (pid {})", holder.pid()));
        }
        gate.open();
        assert_eq!(holder.code(), 0);
    }
    assert_eq!(tries(), [true; 5], "held by nobody");
}

#[test]
fn readers_that_come_after_a_writer_wait_for_it_and_then_read_together() {
    let scratch = Scratch::new();
    let first = Held::now(&scratch, "first", &["-s"]);
    let writer = Held::waiting(&scratch, "writer", &[]);
    let readers: Vec<Held> =
        (0..5).map(|number| Held::waiting(&scratch, &format!("reader-{number}"), &["-s"])).collect();
    let last = Held::waiting(&scratch, "last", &[]);
    for options in [&["-s"][..], &[], &["--slots", "2"]] {
        assert!(!enters(&scratch, options), "{options:?}");
    }
    first.let_go();
    writer.wait_slot("");
    assert!(!enters(&scratch, &["-s"]) && !readers.iter().any(Held::holds));
    writer.let_go();
    for reader in &readers {
        reader.wait_slot("");
    }
    assert!(!last.holds() && !enters(&scratch, &["-s"]));
    readers.into_iter().for_each(Held::let_go);
    last.wait_slot("");
    last.let_go();
}

/// A reader of flock(1) would pass it.
#[test]
fn readers_do_not_pass_a_writer_that_knows_of_no_line() {
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    let gate = Gate::new(scratch.path("gate"));
    let reader = Held::now(&scratch, "reader", &["-s"]);
    let writer = flock(&scratch, &["-x"], &format!("{}; {}", words.say("writes"), gate.wait()));
    eventually("flock to wait", || scratch.waiting("k").contains(&writer.pid()).then_some(()));
    assert!(!enters(&scratch, &["-s"]) && flock_enters(&scratch, "-s"));
    let next = Held::waiting(&scratch, "next", &["-s"]);
    reader.let_go();
    words.expect("writes");
    assert!(!next.holds());
    gate.open();
    next.wait_slot("");
    assert_eq!(writer.code(), 0);
    next.let_go();
}

#[test]
fn a_hundred_readers_at_once_are_not_in_each_others_way() {
    let scratch = Scratch::new();
    let gate = Gate::new(scratch.path("gate"));
    let script = format!("echo held; {}", gate.wait());
    let mut readers: Vec<Running> = Vec::new();
    // A run that does not wait gives up after two seconds, and a slow machine needs longer to start all of them.
    for _ in 0..5 {
        let before = readers.len();
        readers.extend((0..20).map(|_| run(&scratch, &["-n", "-s"]).shell(&script).spawn()));
        for reader in &readers[before..] {
            reader.wait_stdout("held");
        }
    }
    run(&scratch, &["-n"]).command(["true"]).output().code(75).stderr_is_one_line("held by 100 readers, among them ");
    for _ in &readers {
        gate.open();
    }
    for reader in readers {
        reader.wait().success();
    }
    assert!(enters(&scratch, &[]));
}

#[test]
fn the_lowest_slot_that_is_free_is_given_and_another_number_of_slots_is_refused() {
    let scratch = Scratch::new();
    let [zero, one] = ["zero", "one"].map(|name| Held::now(&scratch, name, &["--slots", "3"]));
    zero.let_go();
    let again = Held::now(&scratch, "again", &["--slots", "3"]);
    again.wait_slot("0.");
    let refused = |options: &[&str]| {
        let refused = run(&scratch, options).command(["echo", "overlap"]).output();
        refused.code(64).stdout_is("").stderr_is_one_line("in use with --slots 3");
    };
    refused(&["--slots", "2"]);
    refused(&["-n", "--slots", "4"]);
    one.let_go();
    again.let_go();
    // Also while they are only waited for, and whoever waits in front.
    let holder = Held::now(&scratch, "holder", &[]);
    let first = Held::waiting(&scratch, "first", &["-s"]);
    let waiter = Held::waiting(&scratch, "waiter", &["--slots", "3"]);
    refused(&["--slots", "2"]);
    refused(&["-n", "--slots", "4"]);
    for held in [holder, first, waiter] {
        held.wait_slot("");
        held.let_go();
    }
    assert!(enters(&scratch, &["--slots", "2"]));
}

/// What an older dlock does: it knows of no seats and of no records, and writes the file anew.
#[test]
fn an_older_dlock_waits_for_readers_and_they_go_on_with_its_counter() {
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    let gate = Gate::new(scratch.path("gate"));
    let readers = ["one", "other"].map(|name| Held::now(&scratch, name, &["-s"]));
    let text = r#"{"v":1,"id":"x","token":4000000000000000,"host":"h","user":"u","pid":%d}"#;
    let write = format!("printf 'dlock:1 4000000000000000\\n{text}\\n' $PPID > '{}'", lock_file(&scratch).display());
    let older = flock(&scratch, &["-x"], &format!("{write}; {}; {}", words.say("held"), gate.wait()));
    eventually("the older one to wait", || scratch.waiting("k").contains(&older.pid()).then_some(()));
    // It reads the counter in the first line, and no holder in the second one.
    let file = fs::read(lock_file(&scratch)).unwrap();
    let counter = std::str::from_utf8(&file[..28]).unwrap();
    assert!(counter.starts_with("dlock:1 0") && counter.ends_with('\n') && file[28] == b'\n', "{counter:?}");
    readers.into_iter().for_each(Held::let_go);
    words.expect("held");
    let refused = run(&scratch, &["-n", "-s"]).command(["true"]).output();
    refused.code(75).stderr_is_one_line(&format!("held by u@h, pid {}", older.pid()));
    let waiter = Held::waiting(&scratch, "waiter", &["-s"]);
    gate.open();
    waiter.wait_slot("");
    let token = |options: &[&str]| run(&scratch, options).shell("printf $DLOCK_TOKEN").output().success().stdout();
    assert_eq!(token(&["-s"]), "4000000000000002");
    waiter.let_go();
    assert_eq!(token(&["--slots", "2"]), "4000000000000003");
    assert_eq!(token(&[]), "4000000000000004");
    assert_eq!(older.code(), 0);
}

#[test]
fn who_is_behind_a_suspended_waiter_is_told_so() {
    let scratch = Scratch::new();
    let holder = Held::now(&scratch, "holder", &[]);
    let waiter = Held::waiting(&scratch, "waiter", &["-s"]);
    waiter.running.signal(Signal::SIGSTOP);
    wait_stopped(waiter.running.pid());
    holder.let_go();
    for options in [&["-n"][..], &["-n", "-s"], &["-n", "--slots", "2"]] {
        let refused = run(&scratch, options).command(["true"]).output();
        let message = format!("blocked by dlock (pid {}), which is first in line and suspended", waiter.running.pid());
        refused.code(75).stderr_is_one_line(&message);
    }
    waiter.running.signal(Signal::SIGCONT);
    waiter.wait_slot("");
    waiter.let_go();
}
