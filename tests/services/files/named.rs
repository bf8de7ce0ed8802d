/*!
`file:///dir/file?path`: exactly that file is locked, as flock(1) does it, and nothing is written to it.
*/

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::dlock::{DLOCK, Dlock};
use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate, eventually};
use crate::support::scratch::Scratch;

/// A file that is locked by its path, with what somebody has in it.
struct Named {
    scratch: Scratch,
    file: PathBuf,
}

const CONTENT: &str = "#!/bin/sh\n# precious\n";

impl Named {
    fn with(content: &str) -> Self {
        let scratch = Scratch::new();
        let file = scratch.lock_dir().join("x");
        fs::write(&file, content).unwrap();
        Self { scratch, file }
    }

    fn url(&self) -> String {
        format!("file://{}?path", self.file.display())
    }

    fn dlock(&self, key: &str) -> Dlock {
        self.scratch.dlock().run(key).backend(self.url())
    }

    /// `flock -n` on the file: whether it is free for it.
    fn is_free_for_flock(&self) -> bool {
        let code = Command::new("flock").args(["-n", "-E", "17"]).arg(&self.file).arg("true").status().unwrap().code();
        assert!(matches!(code, Some(0 | 17)), "{code:?}");
        code == Some(0)
    }

    #[track_caller]
    fn token(&self, key: &str) -> u64 {
        self.dlock(key).shell("printf $DLOCK_TOKEN").output().success().stdout().parse().unwrap()
    }
}

#[test]
fn flock_and_dlock_exclude_each_other_on_it_whatever_the_key() {
    let named = Named::with(CONTENT);
    let gate = Gate::new(named.scratch.path("gate"));
    let holder = named.dlock("one").shell(format!("echo held; {}", gate.wait())).spawn();
    holder.wait_stdout("held");
    assert!(!named.is_free_for_flock());
    let holding = format!(", pid {} (sh)", holder.dlock_pid());
    named.dlock("other").arg("-n").command(["true"]).output().code(75).stderr_is_one_line(&holding);
    // It stays locked with the command, as with flock.
    process::signal(holder.dlock_pid(), Signal::SIGKILL);
    holder.wait().signal(Signal::SIGKILL).stderr();
    assert!(!named.is_free_for_flock());
    let waiter = named.dlock("other").command(["true"]).spawn();
    waiter.wait_stderr("waiting for 'other'");
    gate.open();
    waiter.wait().code(0).stderr_ends_with_line("waiting for 'other'");
    assert!(named.is_free_for_flock());
    // The other way round.
    let held = File::open(&named.file).unwrap();
    held.lock().unwrap();
    let refused = named.dlock("one").arg("-n").command(["true"]).output();
    refused.code(75).stderr_is_one_line(&format!("(pid {})", std::process::id()));
    // A child of another test has it too until it is another program.
    held.unlock().unwrap();
    named.dlock("one").arg("-n").command(["true"]).output().success();
    assert_eq!(fs::read_to_string(&named.file).unwrap(), CONTENT);
}

#[test]
fn its_counter_is_beside_it_and_outlives_what_others_do_to_the_file() {
    let named = Named::with("");
    let first = named.token("k");
    let beside = named.file.with_file_name("x.dlock");
    assert_eq!(fs::read_to_string(&beside).unwrap(), format!("dlock:1 {first:019}\n"));
    assert_eq!(fs::read_to_string(&named.file).unwrap(), "");
    // `( … ) 9>file` empties it.
    fs::write(&named.file, "4711\n").unwrap();
    fs::write(&beside, "dlock:1 4000000000000000\n").unwrap();
    assert_eq!(named.token("other"), 4_000_000_000_000_001);
    fs::write(&named.file, "").unwrap();
    assert_eq!(named.token("k"), 4_000_000_000_000_002);
    // By another name it is the same file, with the same counter.
    let link = named.scratch.path("link");
    symlink(&named.file, &link).unwrap();
    let by_link = named.scratch.dlock().run("k").backend(format!("file://{}?path", link.display()));
    by_link.shell("printf $DLOCK_TOKEN").output().success().stdout_is("4000000000000003");
    assert!(!named.scratch.path("link.dlock").exists());
    // One that is not there is made, as flock makes it.
    fs::remove_file(&named.file).unwrap();
    assert_eq!(named.token("k"), 4_000_000_000_000_004);
    assert_eq!(fs::read_to_string(&named.file).unwrap(), "");
    fs::write(&beside, "dlock:1 garbage\n").unwrap();
    named.dlock("k").command(["true"]).output().code(73).stderr_is_one_line("x.dlock: its fencing counter is damaged");
}

/// A link such as `current -> releases/7`, to the file itself or to its directory.
#[test]
fn a_link_that_leads_elsewhere_by_now_is_a_file_that_was_replaced() {
    for by_directory in [false, true] {
        let scratch = Scratch::new();
        for release in ["one", "two"] {
            fs::create_dir(scratch.lock_dir().join(release)).unwrap();
            fs::write(scratch.lock_dir().join(release).join("x"), "").unwrap();
        }
        let link = scratch.lock_dir().join("current");
        let lead = |release: &str| {
            let target = scratch.lock_dir().join(release);
            let fresh = scratch.lock_dir().join("fresh");
            symlink(if by_directory { target } else { target.join("x") }, &fresh).unwrap();
            fs::rename(&fresh, &link).unwrap();
        };
        lead("one");
        let named = if by_directory { link.join("x") } else { link.clone() };
        let run = |key: &str| scratch.dlock().run(key).backend(format!("file://{}?path", named.display()));
        let mut words = Fifo::new(scratch.path("words"));
        let holder = run("k").shell(format!("{}; sleep 1000", words.say("held"))).spawn();
        words.expect("held");
        let gate = Gate::new(scratch.path("gate"));
        let waiter = run("k").arg("-q").shell(format!("{}; {}", words.say("next"), gate.wait())).spawn();
        let pid = format!(" {} ", waiter.dlock_pid());
        eventually("the waiter to be in the kernel's queue", || {
            let table = fs::read_to_string("/proc/locks").unwrap();
            table.lines().any(|line| line.contains("->") && line.contains(&pid)).then_some(())
        });
        lead("two");
        holder.wait().code(79).stderr_is_one_line("was removed or replaced");
        words.expect("next");
        // The one that waited has the file to which the path leads now.
        run("k").arg("-n").command(["true"]).output().code(75).stderr_is_one_line("held by ");
        gate.open();
        waiter.wait().success();
    }
}

#[test]
fn a_run_inside_it_passes_through_also_when_the_outer_dlock_is_gone() {
    let named = Named::with(CONTENT);
    let inner = format!("'{}' run -n --key other --backend '{}' -- echo passed", *DLOCK, named.url());
    named.dlock("k").shell(&inner).output().success().stdout_is("passed\n");
    let mut words = Fifo::new(named.scratch.path("words"));
    let gate = Gate::new(named.scratch.path("gate"));
    let script = format!("{}; {}; {inner} && {}", words.say("held"), gate.wait(), words.say("passed"));
    let holder = named.dlock("k").shell(script).spawn();
    words.expect("held");
    let guard = holder.guard_pid();
    process::signal(holder.dlock_pid(), Signal::SIGKILL);
    process::wait_gone(guard);
    gate.open();
    words.expect("passed");
    holder.wait().signal(Signal::SIGKILL).stderr();
}

#[test]
fn what_cannot_be_locked_so_is_refused() {
    let named = Named::with(CONTENT);
    let run = |url: &str| named.scratch.dlock().run("k").backend(url).command(["touch", "ran"]).output();
    let locks = named.scratch.lock_dir();
    for (url, code, told) in [
        (format!("file://{}?path", locks.display()), 73, "not a regular file"),
        (format!("file://{}/none/x?path", locks.display()), 73, "does not exist"),
        (format!("file://{}/?path", locks.display()), 64, "needs a file"),
        ("file:?path".to_owned(), 64, "needs a file"),
        (format!("file://{}?paths", named.file.display()), 64, "knows only ?path"),
    ] {
        run(&url).code(code).stderr_is_one_line(told);
    }
    // A lock file of dlock has a counter of its own, for its key.
    named.scratch.dlock().run("k").backend(named.scratch.file_url()).command(["true"]).output().success();
    let own = fs::read_to_string(locks.join("k.lock")).unwrap();
    run(&format!("file://{}/k.lock?path", locks.display())).code(73).stderr_is_one_line("use file:///dir and its key");
    assert_eq!(fs::read_to_string(locks.join("k.lock")).unwrap(), own);
    assert!(!named.scratch.path("ran").exists());
    // What may be read only is locked too; its counter needs a place.
    let shared = named.scratch.directory("shared", 0o1777);
    fs::write(shared.join("script"), CONTENT).unwrap();
    let url = format!("file://{}/script?path", shared.display());
    named.scratch.dlock().run("k").backend(&url).unprivileged().command(["true"]).output().success();
    if process::is_root() {
        let roots = named.scratch.directory("roots", 0o755);
        fs::write(roots.join("script"), CONTENT).unwrap();
        let url = format!("file://{}/script?path", roots.display());
        let refused = named.scratch.dlock().run("k").backend(&url).unprivileged().command(["true"]).output();
        refused.code(73).stderr_is_one_line("script.dlock: Permission denied");
    }
}
