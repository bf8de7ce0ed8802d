//! A lock file that is removed no longer locks anything.

use std::fs;
use std::time::Duration;

use crate::support::rendezvous::{Fifo, Gate, boottime};
use crate::support::scratch::Scratch;
use crate::support::tree::Tree;

use super::{assert_locked, dlock_n, lock_file};

#[test]
fn removed_while_held_it_is_a_loss_within_a_second() {
    loses(|scratch| fs::remove_file(lock_file(scratch)).unwrap());
}

#[test]
fn replaced_while_held_it_is_a_loss_within_a_second() {
    loses(|scratch| {
        let other = scratch.file("other", "");
        fs::rename(other, lock_file(scratch)).unwrap();
    });
}

fn loses(fault: impl FnOnce(&Scratch)) {
    let scratch = Scratch::new();
    let mut tree = Tree::new(&scratch);
    let dlock = scratch.dlock().run("job").backend(scratch.file_url()).args(["--kill-after", "500ms"]);
    let holder = dlock.shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    fault(&scratch);
    let lost = boottime();
    // The new file is a new lock, and its holder is not disturbed by the end of the old one.
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("{}; {}", words.say("held"), gate.wait());
    let other = scratch.dlock().run("job").backend(scratch.file_url()).arg("-n").shell(script).spawn();
    words.expect("held");
    let termed = tree.termed_at();
    assert!(termed - lost < Duration::from_millis(1500), "noticed after {:?}", termed - lost);
    holder.wait().code(79).stderr_is_one_line("was removed or replaced");
    assert!(!tree.is_alive());
    assert!(other.is_running());
    assert_locked(&scratch);
    let text = fs::read_to_string(lock_file(&scratch)).unwrap();
    assert!(text.contains(&format!("\"pid\":{}", other.pid())), "{text}");
    gate.open();
    other.wait().success();
    dlock_n(&scratch).output().success();
}
