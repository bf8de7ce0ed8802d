//! Slots: never more than there are, each with a number of its own, and all that use a lock agree on how many there are.

use std::collections::BTreeSet;

use super::{any_has_held, assert_clean, begin, ended_well, hold, let_go, refused, wait};
use crate::support::backends::{on_every_backend, on_file_and_redis, on_variant};
use crate::support::mode_witness::{Mode, ModeWitness};
use crate::support::service::{Gated, Service};

on_every_backend! {
    each_holder_has_a_number_and_the_next_one_gets_what_is_free
}

on_file_and_redis! {
    a_crowd_never_shares_a_slot
    who_waits_for_a_slot_is_served_in_order
    another_number_of_slots_is_refused_until_nobody_uses_the_lock
    the_variable_is_set_for_slots_and_for_nothing_else
}

on_variant! { redis_replicas: redis_services::ReplicasService { a_crowd_never_shares_a_slot } }

on_variant! { redis_sentinel: redis_services::SentinelService { a_crowd_never_shares_a_slot } }

const THREE: [&str; 2] = ["--slots", "3"];

fn each_holder_has_a_number_and_the_next_one_gets_what_is_free<S: Service>(service: &S) {
    let mut holders: Vec<Gated> = (0..3).map(|_| hold(service, "job", THREE)).collect();
    let slots: Vec<u32> = holders.iter().map(|holder| holder.slot().expect("a slot")).collect();
    if S::IN_ORDER {
        assert_eq!(slots, [0, 1, 2]);
    }
    assert_eq!(slots.iter().copied().collect::<BTreeSet<u32>>(), BTreeSet::from([0, 1, 2]));
    refused(service, "job", &THREE);
    refused(service, "job", &["-s"]);
    refused(service, "job", &[]);
    let fourth = wait(service, "job", THREE);
    assert!(!fourth.has_held());
    let gone = holders.remove(1);
    let_go([gone]);
    assert_eq!(fourth.slot(), Some(slots[1]));
    refused(service, "job", &THREE);
    let (verbose, last) = (service.run("job").args(THREE).args(["-n", "-v"]), holders.remove(0));
    let_go([last]);
    let outcome = verbose.shell("echo $DLOCK_SLOT").output();
    outcome.code(0).stdout_is(&format!("{}\n", slots[0])).stderr_ends_with_line("released 'job'");
    assert!(outcome.stderr().contains(&format!(", slot {}", slots[0])), "{outcome:?}");
    let_go(holders.into_iter().chain([fourth]));
    assert_clean(service, &["job"]);
}

/// How many want one of three slots.
const CROWD: usize = 50;

fn a_crowd_never_shares_a_slot<S: Service>(service: &S) {
    let witness = ModeWitness::in_dir(service.scratch().root());
    let mode = Mode::Slots(3);
    let holder = service.hold("job");
    let contend = |_| service.run("job").args(mode.options()).command(witness.command(mode, "0.02")).spawn();
    let crowd: Vec<_> = (0..CROWD).map(contend).collect();
    for contender in &crowd {
        contender.wait_stderr("waiting for ");
    }
    holder.let_go().success();
    for contender in crowd {
        ended_well(&contender.wait());
    }
    let sections = witness.check();
    assert!(sections.len() == CROWD && sections.iter().all(|section| section.ended), "{}", witness.log());
    let used: BTreeSet<Option<u32>> = sections.iter().map(|section| section.hold.slot).collect();
    assert_eq!(used, BTreeSet::from([Some(0), Some(1), Some(2)]), "{}", witness.log());
    assert_clean(service, &["job"]);
}

fn who_waits_for_a_slot_is_served_in_order<S: Service>(service: &S) {
    if !S::IN_ORDER {
        return;
    }
    let slots = ["--slots", "2"];
    let mut holders: Vec<Gated> = (0..2).map(|_| hold(service, "job", slots)).collect();
    // One of another mode among them has its turn like the others.
    let mut line: Vec<Gated> = (0..3).map(|_| wait(service, "job", slots)).collect();
    line.push(wait(service, "job", ["-s"]));
    line.push(wait(service, "job", slots));
    for turn in 0..3 {
        let_go([holders.remove(0)]);
        let next = line.remove(0);
        next.wait_held();
        assert!(!any_has_held(&line), "turn {turn}");
        holders.push(next);
    }
    let_go([holders.remove(0)]);
    assert!(!any_has_held(&line), "a reader runs beside a slot");
    let_go([holders.remove(0)]);
    let (reader, last) = (line.remove(0), line.remove(0));
    reader.wait_held();
    assert!(!last.has_held());
    let_go([reader]);
    assert_eq!(last.slot(), Some(0));
    let_go([last]);
    assert_clean(service, &["job"]);
}

fn another_number_of_slots_is_refused_until_nobody_uses_the_lock<S: Service>(service: &S) {
    let other = |options: &[&str], slots: &str| {
        let outcome = service.run("job").args(options).args(["--slots", slots]).command(["echo", "overlap"]).output();
        outcome.code(64).stdout_is("");
        outcome
    };
    let holder = hold(service, "job", ["--slots", "2"]);
    // It is no busy lock, so no option about waiting changes it.
    for options in [&["-n"][..], &["-n", "-E", "0"], &["-w", "60"], &["-q"], &[]] {
        let who = format!(", pid {} (sh)", holder.pid());
        let outcome = other(options, "3");
        outcome.stderr_is_one_line("'job' at ").stderr_is_one_line("in use with --slots 2 (by ");
        assert!(outcome.stderr().contains(&who), "{outcome:?}");
    }
    // Who is refused was never there: another slot is free.
    let beside = hold(service, "job", ["--slots", "2"]);
    assert_ne!(beside.slot(), holder.slot());
    let_go([holder, beside]);
    if S::IN_ORDER {
        // A waiter counts too.
        let alone = hold(service, "job", ["-x"]);
        let waiter = wait(service, "job", ["--slots", "2"]);
        other(&["-n"], "3").stderr_is_one_line("in use with --slots 2");
        let_go([alone]);
        assert_eq!(waiter.slot(), Some(0));
        let_go([waiter]);
    }
    let free = service.run("job").args(["-n", "--slots", "3"]).shell("[ $DLOCK_SLOT -lt 3 ]").output();
    free.success();
    assert_clean(service, &["job"]);
}

fn the_variable_is_set_for_slots_and_for_nothing_else<S: Service>(service: &S) {
    // Not in addition to an inherited one: a program may read the first or the last of two.
    for (options, expected) in [(&["-x"][..], None), (&["-s"], None), (&["--slots", "2"], Some("0")), (&[], None)] {
        let dlock = service.run("job").args(options).env("DLOCK_SLOT", "inherited");
        let holder = Gated::spawn(service.scratch(), dlock);
        holder.wait_held();
        let block = std::fs::read(format!("/proc/{}/environ", holder.running.command_pid())).unwrap();
        let pairs = block.split(|&byte| byte == 0).filter_map(|pair| pair.strip_prefix(b"DLOCK_SLOT="));
        let values: Vec<String> = pairs.map(|value| String::from_utf8_lossy(value).into_owned()).collect();
        assert!(values.len() <= 1, "{options:?}: {values:?}");
        match (expected, values.first().map(String::as_str)) {
            // Where there is no order, any number is free.
            (Some(_), Some(slot)) if !S::IN_ORDER => assert!(["0", "1"].contains(&slot), "{slot}"),
            (expected, slot) => assert_eq!(slot, expected, "{options:?}"),
        }
        let_go([holder]);
    }
    let late = begin(service, "job", ["--slots", "1000"]);
    assert!(late.slot().is_some_and(|slot| slot < 1000));
    let_go([late]);
}
