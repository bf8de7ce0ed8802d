/*!
How long those who share a lock file have their seats, and what they leave in the file.
*/

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::held::{Held, enters, flock_enters, lock_file, run};
use crate::support::dlock::DLOCK;
use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate, boottime};
use crate::support::scratch::Scratch;

/// As the lock itself: the command inherits it with the descriptor.
#[test]
fn a_seat_outlives_a_killed_dlock_and_ends_with_its_command() {
    let scratch = Scratch::new();
    let first = Held::now(&scratch, "first", &["--slots", "2"]);
    let second = Held::now(&scratch, "second", &["--slots", "2"]);
    let command = first.running.command_pid();
    process::signal(first.running.pid(), Signal::SIGKILL);
    process::wait_gone(first.running.pid());
    let refused = run(&scratch, &["-n", "--slots", "2"]).command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("all 2 slots are taken");
    assert!(!enters(&scratch, &["-s"]) && !enters(&scratch, &[]) && !flock_enters(&scratch, "-x"));
    let waiter = Held::waiting(&scratch, "waiter", &["--slots", "2"]);
    assert!(process::is_alive(command) && !waiter.holds());
    first.gate.open();
    waiter.wait_slot("0.");
    first.running.wait().signal(Signal::SIGKILL).stderr();
    waiter.let_go();
    second.let_go();
}

#[test]
fn what_a_killed_reader_or_slot_had_is_free_at_once() {
    let scratch = Scratch::new();
    let held = ["0", "1", "2"].map(|slot| {
        let held = Held::now(&scratch, slot, &["--slots", "3"]);
        held.wait_slot(&format!("{slot}."));
        held
    });
    let [zero, one, two] = held;
    let waiter = Held::waiting(&scratch, "waiter", &["--slots", "3"]);
    one.kill_all();
    waiter.wait_slot("1.");
    let next = Held::waiting(&scratch, "next", &["--slots", "3"]);
    two.let_go();
    next.wait_slot("2.");
    [zero, waiter, next].into_iter().for_each(Held::let_go);
    let reader = Held::now(&scratch, "reader", &["-s"]);
    let writer = Held::waiting(&scratch, "writer", &[]);
    reader.kill_all();
    writer.wait_slot("");
    writer.let_go();
}

#[test]
fn nothing_but_the_counter_is_left_in_the_file() {
    let scratch = Scratch::new();
    for options in [&["-s"][..], &["--slots", "5"], &["-s"]] {
        let held: Vec<Held> =
            (0..5).map(|number| Held::now(&scratch, &format!("{}-{number}", options[0]), options)).collect();
        for held in &held {
            held.gate.open();
        }
        for Held { gate, running } in held {
            running.wait().success();
            fs::remove_file(gate.path()).unwrap();
        }
        let text = fs::read_to_string(lock_file(&scratch)).unwrap();
        let counter = text.strip_prefix("dlock:1 ").and_then(|rest| rest.strip_suffix('\n'));
        assert!(counter.is_some_and(|counter| counter.parse::<u64>().is_ok()), "{text:?}");
        assert_eq!(scratch.kernel_locks("k"), Vec::<String>::new());
    }
}

#[test]
fn a_file_that_is_removed_under_three_readers_is_lost_for_all_of_them() {
    let scratch = Scratch::new();
    let readers = ["one", "two", "three"].map(|name| Held::now(&scratch, name, &["-s"]));
    fs::remove_file(lock_file(&scratch)).unwrap();
    // Others that share the new file know nothing of them.
    let next = Held::now(&scratch, "next", &["-s"]);
    for reader in readers {
        reader.running.wait().code(79).stderr_is_one_line("was removed or replaced");
    }
    let refused = run(&scratch, &["-n"]).command(["true"]).output();
    refused.code(75).stderr_is_one_line(&format!(", pid {} (sh)", next.running.pid()));
    next.let_go();
}

#[test]
fn a_run_inside_a_shared_one_passes_through_also_when_the_outer_dlock_is_gone() {
    let scratch = Scratch::new();
    let mut words = Fifo::new(scratch.path("words"));
    let gate = Gate::new(scratch.path("gate"));
    let inner = |options: &str, command: &str| {
        format!("'{}' run {options} --key k --backend '{}' -- {command}", *DLOCK, scratch.file_url())
    };
    let again = inner("-s", "true");
    let script = format!("{}; {}; {again} && {}", words.say("held"), gate.wait(), words.say("passed"));
    let outer = run(&scratch, &["-s"]).shell(script).spawn();
    words.expect("held");
    let other = Held::now(&scratch, "other", &["-s"]);
    let writer = Held::waiting(&scratch, "writer", &[]);
    let guard = outer.guard_pid();
    process::signal(outer.pid(), Signal::SIGKILL);
    process::wait_gone(guard);
    gate.open();
    words.expect("passed");
    outer.wait().signal(Signal::SIGKILL).stderr();
    other.let_go();
    writer.wait_slot("");
    writer.let_go();
    let nested = run(&scratch, &["--slots", "2"]).shell(inner("--slots 2", "sh -c 'echo slot $DLOCK_SLOT'")).output();
    nested.success().stdout_is("slot 0\n");
    let upgrade = run(&scratch, &["-s"]).shell(inner("-x", "echo overlap")).output();
    upgrade.code(64).stdout_is("").stderr_is_one_line("shared");
}

#[test]
fn the_next_writer_waits_for_the_latest_hold_of_the_readers() {
    let scratch = Scratch::new();
    let since = boottime();
    for hold in ["4s", "1s"] {
        // The second one shares it with what is left of the first.
        run(&scratch, &["-s", "--min-hold", hold]).command(["true"]).output().success();
    }
    assert!(boottime() - since < Duration::from_secs(4), "readers keep no reader out");
    let refused = run(&scratch, &["-n"]).command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("finished; kept until 2");
    assert!(!enters(&scratch, &["--slots", "2"]) && enters(&scratch, &["-s"]));
    run(&scratch, &["-q"]).command(["true"]).output().success();
    assert!(boottime() - since >= Duration::from_secs(4), "{:?}", boottime() - since);
    run(&scratch, &["-n", "--slots", "2"]).command(["true"]).output().success();
}

/// That is what makes it a limit of so many starts in that time.
#[test]
fn a_slot_stays_taken_as_long_as_it_is_held_at_least() {
    let scratch = Scratch::new();
    let options = ["--slots", "2", "--min-hold", "3s"];
    let since = boottime();
    for slot in ["0", "1"] {
        run(&scratch, &options).shell("printf $DLOCK_SLOT").output().success().stdout_is(slot);
    }
    let refused = run(&scratch, &["-n", "--slots", "2"]).command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("all 2 slots are taken, one by ");
    refused.stderr_is_one_line("finished; kept until 2");
    assert!(refused.stderr().contains(", --min-hold); see dlock status "), "nobody else is ahead of it: {refused:?}");
    let other = run(&scratch, &["-n", "--slots", "3"]).command(["true"]).output();
    other.code(64).stderr_is_one_line("in use with --slots 2 (by ");
    run(&scratch, &["-q", "--slots", "2"]).shell("printf $DLOCK_SLOT").output().success().stdout_is("0");
    assert!(boottime() - since >= Duration::from_secs(3), "{:?}", boottime() - since);
}

/// The user may have no right to write to it, and it is not written to.
#[test]
fn a_file_that_the_user_names_is_shared_too() {
    let scratch = Scratch::new();
    let file = scratch.lock_dir().join("script");
    fs::write(&file, "#!/bin/sh\n# precious\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let url = format!("file://{}?path", file.display());
    let named = |key: &str, options: &[&str]| scratch.dlock().run(key).backend(&url).args(options);
    let readers = ["one", "other"].map(|key| Held::start(&scratch, key, named(key, &["-s"])));
    for reader in &readers {
        reader.wait_slot("");
    }
    named("k", &["-n"]).command(["true"]).output().code(75).stderr_is_one_line("held by 2 readers, among them ");
    readers.into_iter().for_each(Held::let_go);
    let slot = Held::start(&scratch, "slot", named("k", &["--slots", "1"]));
    slot.wait_slot("0.");
    named("x", &["-n", "--slots", "1"])
        .command(["true"])
        .output()
        .code(75)
        .stderr_is_one_line("its only slot is taken by ");
    let waiter = named("x", &["--slots", "1"]).command(["true"]).spawn();
    waiter.wait_stderr("waiting for 'x'");
    slot.kill_all();
    waiter.wait().code(0).stderr_ends_with_line("waiting for 'x'");
    let beside = fs::read_to_string(file.with_file_name("script.dlock")).unwrap();
    assert!(beside.starts_with("dlock:1 ") && beside.len() == 28, "{beside:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "#!/bin/sh\n# precious\n");
}
