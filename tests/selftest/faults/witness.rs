//! The witness, which notices two holders of one lock.

use super::*;
use crate::support::witness::{OVERLAP_CODE, Witness, read_counter};
use nix::time::{ClockId, clock_gettime};

#[test]
fn sections_are_recorded_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let witness = Witness::in_dir(dir.path());
    assert_eq!(witness.check(), []);
    let before = now();
    for (token, work, code) in [(7, "true", 0), (8, "exit 3", 3), (20, "test \"$DLOCK_TOKEN\" = 20", 0)] {
        assert_eq!(start(&witness.command(work), token).wait().unwrap().code(), Some(code));
    }
    let after = now();
    let sections = witness.check();
    assert_eq!(sections.iter().map(|section| section.token).collect::<Vec<_>>(), [7, 8, 20]);
    let mut last = before - crate::support::witness::RESOLUTION_NS;
    for section in sections {
        let end = section.end.expect("an end");
        assert!(last <= section.start && section.start <= end, "{section:?}");
        last = end;
    }
    assert!(last <= after);
}

#[test]
fn an_overlap_is_caught() {
    let dir = tempfile::tempdir().unwrap();
    let witness = Witness::in_dir(dir.path());
    let mut first = start(&witness.command("read line"), 1);
    eventually("the first section", || witness.log().contains("start 1 ").then_some(()));
    let second = start(&witness.command("echo did it"), 2).wait_with_output().unwrap();
    assert_eq!((second.status.code(), second.stdout), (Some(OVERLAP_CODE), Vec::new()));
    drop(first.stdin.take());
    first.wait().unwrap();
    assert_panics("two commands ran at the same time", || drop(witness.check()));
}

#[test]
fn a_surviving_grandchild_is_an_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let witness = Witness::in_dir(dir.path());
    let mut first = start(&witness.command("exec 4<&0; setsid cat <&4 >/dev/null &"), 1);
    // The shell has ended; the grandchild ends when its input does.
    let input = first.stdin.take();
    assert!(first.wait().unwrap().success());
    assert_eq!(start(&witness.command("true"), 2).wait().unwrap().code(), Some(OVERLAP_CODE));
    drop(input);
    eventually("the end of the grandchild", || {
        start(&witness.command("true"), 3).wait().unwrap().success().then_some(())
    });
    assert_panics("two commands ran at the same time", || drop(witness.check()));
}

#[test]
fn a_killed_section_has_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let witness = Witness::in_dir(dir.path());
    let mut first = start(&witness.command("read line"), 1);
    eventually("the first section", || witness.log().contains("start 1 ").then_some(()));
    first.kill().unwrap();
    assert_eq!(first.wait().unwrap().signal(), Some(9));
    assert!(start(&witness.command("true"), 2).wait().unwrap().success());
    let sections = witness.check();
    assert_eq!(sections.iter().map(|section| section.end.is_some()).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn tokens_that_do_not_rise_are_caught() {
    for second in [4, 5] {
        let dir = tempfile::tempdir().unwrap();
        let witness = Witness::in_dir(dir.path());
        for token in [5, second] {
            assert!(start(&witness.command("true"), token).wait().unwrap().success());
        }
        assert_panics("the token does not rise", || drop(witness.check()));
    }
}

#[test]
fn a_log_that_does_not_fit_together_is_caught() {
    for (log, what) in [
        ("start 1 10\nstart 2 20\nend 1 30\n", "ends a section that is not the one before it"),
        ("start 1 10\nend 1 20\nend 1 30\n", "ends a section that is not the one before it"),
        ("end 1 10\n", "ends a section that is not the one before it"),
        ("start 1 20\nend 1 10\n", "is earlier than the line before it"),
        ("start - 10\n", "no usable DLOCK_TOKEN"),
        ("start 1\n", "is not a line of the witness"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), log).unwrap();
        assert_panics(what, || drop(Witness::in_dir(dir.path()).check()));
    }
}

#[test]
fn the_counter_counts_and_is_not_protected() {
    let dir = tempfile::tempdir().unwrap();
    let counter = dir.path().join("counter");
    let [witness, other] = ["a", "b it's"].map(|name| {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        Witness::in_dir(dir.path().join(name))
    });
    for token in 1..=10 {
        assert!(start(&witness.counter_command(&counter), token).wait().unwrap().success());
    }
    assert_eq!((witness.check().len(), read_counter(&counter)), (10, 10));
    // Under different witnesses nothing keeps them apart, so updates are lost.
    eventually("a lost update", || {
        let before = read_counter(&counter);
        let both = [&witness, &other].map(|witness| start(&witness.counter_command(&counter), 1));
        for mut child in both {
            assert!(child.wait().unwrap().success());
        }
        (read_counter(&counter) != before + 2).then_some(())
    });
}

fn start(command: &[std::ffi::OsString], token: u64) -> Child {
    Command::new(&command[0])
        .args(&command[1..])
        .env("DLOCK_TOKEN", token.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn now() -> u64 {
    u64::try_from(Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap()).as_nanos()).unwrap()
}
