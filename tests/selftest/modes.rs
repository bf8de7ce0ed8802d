//! The witness of locks that several hold: what excludes each other is seen, and what does not is not.

use std::process::{Child, Command, Stdio};

use crate::support::mode_witness::Mode::{self, Exclusive, Shared, Slots};
use crate::support::mode_witness::ModeWitness;
use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::witness::OVERLAP_CODE;

/// A command under the witness, as a dlock would start it with this token and slot.
fn command(witness: &ModeWitness, mode: Mode, slot: Option<u32>, token: u64, work: &str) -> Command {
    let argv = witness.command(mode, work);
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).env("DLOCK_TOKEN", token.to_string()).stderr(Stdio::null());
    match slot {
        Some(slot) => command.env("DLOCK_SLOT", slot.to_string()),
        None => command.env_remove("DLOCK_SLOT"),
    };
    command
}

/// One that goes on until its input ends.
fn holds(witness: &ModeWitness, mode: Mode, slot: Option<u32>, token: u64) -> Child {
    let child = command(witness, mode, slot, token, "read -r _; :").stdin(Stdio::piped()).spawn().unwrap();
    eventually("the command to begin", || witness.log().contains(&format!("start {} ", child.id())).then_some(()));
    child
}

fn ends(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn who_may_run_together_is_left_alone_and_nobody_else() {
    let all = [
        (Exclusive, None),
        (Shared, None),
        (Slots(2), Some(0)),
        (Slots(2), Some(1)),
        (Slots(3), Some(0)),
        (Slots(3), Some(2)),
        // These are never right.
        (Slots(2), Some(2)),
        (Slots(2), None),
        (Shared, Some(0)),
    ];
    for (mode, slot) in &all[..6] {
        let scratch = Scratch::new();
        let witness = ModeWitness::in_dir(scratch.root());
        let holder = holds(&witness, *mode, *slot, 1);
        for (other, its_slot) in all {
            let fits = matches!(
                (mode, slot, other, its_slot),
                (Shared, None, Shared, None)
                    | (Slots(2), Some(0), Slots(2), Some(1))
                    | (Slots(2), Some(1), Slots(2), Some(0))
                    | (Slots(3), Some(0), Slots(3), Some(2))
                    | (Slots(3), Some(2), Slots(3), Some(0))
            );
            let status = command(&witness, other, its_slot, 2, "exit 5").status().unwrap();
            let expected = if fits { 5 } else { OVERLAP_CODE };
            assert_eq!(status.code(), Some(expected), "{other:?} in {its_slot:?} beside {mode:?} in {slot:?}");
        }
        assert!(witness.verdict().unwrap_err().contains("at the same time"));
        ends(holder);
    }
}

#[test]
fn tokens_must_rise_where_commands_exclude_each_other() {
    for (sections, is_right) in [
        (&[(Exclusive, None, 1), (Shared, None, 3), (Shared, None, 2), (Exclusive, None, 4)][..], true),
        (&[(Exclusive, None, 2), (Shared, None, 1)], false),
        (&[(Shared, None, 3), (Shared, None, 2), (Exclusive, None, 3)], false),
        (&[(Slots(2), Some(0), 2), (Slots(2), Some(1), 1), (Slots(2), Some(1), 3)], true),
        (&[(Slots(2), Some(0), 2), (Slots(2), Some(1), 1), (Slots(2), Some(0), 2)], false),
        (&[(Slots(2), Some(0), 2), (Slots(3), Some(1), 1)], false),
    ] {
        let scratch = Scratch::new();
        let witness = ModeWitness::in_dir(scratch.root());
        for &(mode, slot, token) in sections {
            assert!(command(&witness, mode, slot, token, "0").status().unwrap().success());
        }
        let verdict = witness.verdict();
        assert_eq!(verdict.is_ok(), is_right, "{sections:?}: {verdict:?}");
        if let Ok(seen) = verdict {
            assert!(seen.len() == sections.len() && seen.iter().all(|section| section.ended), "{seen:?}");
        }
    }
}

#[test]
fn what_outlives_its_command_counts() {
    let scratch = Scratch::new();
    let witness = ModeWitness::in_dir(scratch.root());
    let mut left = command(&witness, Exclusive, None, 1, "exec 9<&0; cat <&9 > /dev/null & exit 0");
    let mut left = left.stdin(Stdio::piped()).spawn().unwrap();
    let input = left.stdin.take();
    assert!(left.wait().unwrap().success());
    assert_eq!(command(&witness, Shared, None, 2, "0").status().unwrap().code(), Some(OVERLAP_CODE));
    drop(input);
    eventually("the last process to go", || {
        command(&witness, Shared, None, 3, "0").status().unwrap().success().then_some(())
    });
}
