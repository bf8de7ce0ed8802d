//! flock(1) on the lock file: shared locks, `-o`, deaths, and files and directories that dlock did not create.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{KEY, Shared, is_served_in_order};
use crate::support::dlock::Dlock;
use crate::support::foreign::Kind;
use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate};
use crate::support::scratch::Scratch;
use crate::support::servers::need;
use crate::support::service::{FileService, Service};

/// The lock file of [`KEY`].
fn lock_file(service: &FileService) -> PathBuf {
    service.scratch().lock_dir().join(format!("{KEY}.lock"))
}

impl Shared for FileService {
    fn place(&self) -> (String, String) {
        (String::new(), lock_file(self).display().to_string())
    }

    fn traces(&self) -> BTreeSet<String> {
        [format!("inode {}", fs::metadata(lock_file(self)).unwrap().ino())].into()
    }

    fn shown(&self, token: &str) -> String {
        format!("held by flock (pid {token})")
    }

    fn rob(&self) {
        fs::remove_file(lock_file(self)).unwrap();
    }

    fn is_left_by(&self, kind: Kind, litter: &str) -> bool {
        // A lock file that dlock has never used.
        kind == Kind::Flock && litter == format!("{KEY}.lock: ")
    }
}

#[test]
fn dlocks_and_flocks_are_served_in_the_order_in_which_they_came() {
    let flock = Some(Kind::Flock);
    is_served_in_order(&FileService::fresh(), &[flock, None, flock, None, None, flock]);
}

/// The file lock `k` of a scratch directory, as dlock and flock(1) use it.
struct FileLock<'a> {
    scratch: &'a Scratch,
}

impl FileLock<'_> {
    fn dlock(&self) -> Dlock {
        self.scratch.dlock().run("k").backend(self.scratch.file_url())
    }

    /// `flock OPTIONS locks/k.lock sh -c SCRIPT`, which works in the scratch directory, so that nothing of it stays.
    fn flock(&self, options: &[&str], script: &str) -> Command {
        let mut flock = Command::new(need("flock", "util-linux"));
        flock.args(options).arg(self.scratch.lock_dir().join("k.lock")).args(["sh", "-c", script]);
        flock.current_dir(self.scratch.root()).stdin(Stdio::null());
        flock
    }
}

/// A foreign program that is killed if the test does not see its end.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Its exit code.
    fn code(mut self) -> i32 {
        self.0.wait().unwrap().code().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn flock_and_dlock_refuse_each_other() {
    let scratch = Scratch::new();
    let lock = FileLock { scratch: &scratch };
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    let hold = format!("{}; {}", events.say("held"), gate.wait());
    // A reader's shared lock keeps a writer out as well.
    for options in [&["-x"][..], &["-s"], &["-o"]] {
        let flock = Program::start(&mut lock.flock(options, &hold));
        events.expect("held");
        let refused = lock.dlock().arg("-n").command(["touch", "ran"]).output();
        refused.code(75).stderr_is_one_line(&format!("held by flock (pid {})", flock.0.id()));
        gate.open();
        assert_eq!(flock.code(), 0);
        lock.dlock().arg("-n").command(["true"]).output().success();
    }
    for arguments in [&[][..], &["-o"]] {
        let dlock = lock.dlock().args(arguments).shell(&hold).spawn();
        events.expect("held");
        for options in [&["-n", "-E", "17"][..], &["-s", "-n", "-E", "17"]] {
            assert_eq!(Program::start(&mut lock.flock(options, "touch ran")).code(), 17);
        }
        gate.open();
        dlock.wait().success();
        assert_eq!(Program::start(&mut lock.flock(&["-n", "-E", "17"], "exit 3")).code(), 3);
    }
    assert!(!scratch.path("ran").exists());
}

#[test]
fn a_killed_flock_hands_over_and_a_killed_dlock_leaves_its_command_locked() {
    let scratch = Scratch::new();
    let lock = FileLock { scratch: &scratch };
    let mut events = Fifo::new(scratch.path("events"));
    let gate = Gate::new(scratch.path("gate"));
    let mut flock = Program::start(&mut lock.flock(&["-o"], &format!("{}; exec sleep 1000", events.say("held"))));
    events.expect("held");
    let hold = format!("{}; {}; {}", events.say("dlock"), gate.wait(), events.say("end"));
    let dlock = lock.dlock().shell(hold).spawn();
    dlock.wait_stderr("waiting for 'k'");
    flock.0.kill().unwrap();
    events.expect("dlock");
    // As with flock: the command goes on and stays locked, whatever becomes of the process that locked it.
    process::signal(dlock.dlock_pid(), nix::sys::signal::Signal::SIGKILL);
    dlock.wait().signal(nix::sys::signal::Signal::SIGKILL).stderr();
    assert_eq!(Program::start(&mut lock.flock(&["-n", "-E", "17"], "true")).code(), 17);
    gate.open();
    events.expect("end");
    assert_eq!(Program::start(&mut lock.flock(&[], "exit 3")).code(), 3);
}

#[test]
fn a_lock_file_that_flock_made_is_used_and_stays_usable() {
    let scratch = Scratch::new();
    let lock = FileLock { scratch: &scratch };
    let file = scratch.lock_dir().join("k.lock");
    let inode = || fs::metadata(&file).unwrap().ino();
    assert_eq!(Program::start(&mut lock.flock(&[], "true")).code(), 0);
    let before = inode();
    let mut last = 0;
    for _ in 0..3 {
        let outcome = lock.dlock().shell("printf $DLOCK_TOKEN").output();
        outcome.success();
        let token: u64 = outcome.stdout().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(Program::start(&mut lock.flock(&[], "exit 3")).code(), 3);
        assert_eq!(inode(), before, "the lock file was replaced");
    }
}

#[test]
fn users_who_share_a_sticky_directory_exclude_each_other() {
    let scratch = Scratch::new();
    let shared = scratch.directory("shared", 0o1777);
    let url = format!("file://{}", shared.display());
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    let hold = format!("{}; {}", events.say("held"), gate.wait());
    let run = || scratch.dlock().run("k").backend(&url).umask(0);
    // The first one creates the file; with this umask every user can open it.
    let first = run().unprivileged().shell(&hold).spawn();
    events.expect("held");
    run().arg("-n").command(["true"]).output().code(75).stderr_is_one_line("held by");
    gate.open();
    first.wait().success();
    let second = run().shell(&hold).spawn();
    events.expect("held");
    run().unprivileged().arg("-n").command(["true"]).output().code(75).stderr_is_one_line("held by");
    gate.open();
    second.wait().success();
    run().unprivileged().command(["true"]).output().success();
}
