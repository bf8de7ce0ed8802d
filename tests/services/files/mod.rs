/*!
Lock files: counters that are damaged, directories that a group shares, files that a user names himself, and locks that
are shared.
*/

mod held;
mod modes;
mod named;
mod seats;
mod shared;

use std::fs;

use crate::support::dlock::Dlock;
use crate::support::process;
use crate::support::scratch::Scratch;

/// The highest token that is granted: 2^53 - 2.
const HIGHEST: u64 = (1 << 53) - 2;

fn run(scratch: &Scratch) -> Dlock {
    scratch.dlock().run("k").backend(scratch.file_url())
}

/// Whatever happened to it, a smaller token than before would be one that the resource refuses, or worse, takes.
#[test]
fn a_damaged_counter_is_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let lock = scratch.lock_dir().join("k.lock");
    let damaged = ["garbage", "", "-1", "17 18", "0x11", &HIGHEST.to_string(), &u64::MAX.to_string(), &"9".repeat(40)];
    for counter in damaged {
        for text in [format!("dlock:1 {counter}\n"), format!("dlock:1 {counter}\n{{\"v\":1,\"id\":\"x\",\"pid\":1}}\n")]
        {
            fs::write(&lock, &text).unwrap();
            for waiting in [&["-n"][..], &["-w", "1"], &[]] {
                let outcome = run(&scratch).args(waiting).command(["touch", "ran"]).output();
                let told = format!("could not use the lock file {}: its fencing counter is damaged: ", lock.display());
                outcome.code(73).stdout_is("").stderr_is_one_line(&told);
                assert!(outcome.stderr().contains("remove the file"), "{outcome:?}");
                assert_eq!(fs::read_to_string(&lock).unwrap(), text);
            }
        }
    }
    assert!(!scratch.path("ran").exists());
    // It is mended as it is told: by a number, which the next token is above, or by removing the file.
    fs::write(&lock, format!("dlock:1 {}\n", HIGHEST - 2)).unwrap();
    let token = || run(&scratch).shell("printf $DLOCK_TOKEN").output().success().stdout();
    assert_eq!(token(), (HIGHEST - 1).to_string());
    assert_eq!(token(), HIGHEST.to_string());
    run(&scratch).command(["true"]).output().code(73).stderr_is_one_line("damaged");
    fs::remove_file(&lock).unwrap();
    assert!(token().parse::<u64>().unwrap() < HIGHEST - 2);
}

#[test]
fn a_lock_with_a_damaged_counter_is_busy_while_it_is_held_and_its_holder_is_named() {
    let scratch = Scratch::new();
    let gate = crate::support::rendezvous::Gate::new(scratch.path("gate"));
    let holder = run(&scratch).shell(format!("echo held; {}", gate.wait())).spawn();
    holder.wait_stdout("held");
    let lock = scratch.lock_dir().join("k.lock");
    let text = fs::read_to_string(&lock).unwrap();
    let (_, published) = text.split_once('\n').unwrap();
    fs::write(&lock, format!("dlock:1 garbage\n{published}")).unwrap();
    let refused = run(&scratch).arg("-n").command(["true"]).output();
    refused.code(75).stderr_is_one_line(&format!(", pid {} (sh)", holder.dlock_pid()));
    gate.open();
    // The holder knows its own token, and leaves a counter behind that is whole again.
    holder.wait().success();
    run(&scratch).command(["true"]).output().success();
}

/// A host may boot without a clock: a counter that is far ahead of it is no reason to refuse a lock on this host.
#[test]
fn a_counter_that_is_years_ahead_of_the_clock_is_kept() {
    let scratch = Scratch::new();
    fs::write(scratch.lock_dir().join("k.lock"), "dlock:1 4000000000000000\n").unwrap();
    run(&scratch).shell("printf $DLOCK_TOKEN").output().success().stdout_is("4000000000000001");
}

/// Whether this is root, who alone can become several users.
fn can_be_anybody() -> bool {
    process::is_root()
}
