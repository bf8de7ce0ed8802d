//! Lock files that a user may not read, what is in the way of lock files, and processes that the kernel does not show: a lock
//! is never told to be free because it cannot be seen.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::Value;

use crate::locks::looking::{list, look, names, read, status, told};
use crate::support::foreign::{Foreign, Kind};
use crate::support::process;
use crate::support::service::{FileService, Gated, Service};

/// A directory that others may read, with a lock of `mode` that a dlock holds.
fn held(mode: u32) -> (FileService, Gated) {
    let service = FileService::fresh();
    fs::set_permissions(service.scratch().lock_dir(), Permissions::from_mode(0o755)).unwrap();
    let holder = service.hold("job");
    fs::set_permissions(service.scratch().lock_dir().join("job.lock"), Permissions::from_mode(mode)).unwrap();
    (service, holder)
}

#[test]
fn a_lock_file_that_may_not_be_read_is_held_by_whom_the_kernel_names() {
    if !process::is_root() {
        return;
    }
    let (service, holder) = held(0o600);
    let other = |words: &[&str]| look(&service, words).unprivileged().output();
    let outcome = other(&["status", "--json", "-k", "job"]);
    outcome.code(75).quiet();
    let seen = read(&outcome);
    let who = &seen["holder"];
    assert_eq!((&seen["state"], &who["kind"]), (&"held".into(), &"process".into()), "{seen}");
    assert_eq!((&who["pid"], &who["program"]), (&holder.pid().into(), &"dlock".into()), "{seen}");
    let outcome = other(&["list", "--json"]);
    outcome.code(0).quiet();
    let list = read(&outcome);
    assert_eq!((names(&list), &list["total"]), (vec!["job"], &1.into()), "{list}");
    assert_eq!(list["locks"][0]["holder"]["pid"], holder.pid());
    holder.let_go().success();
    // What is there is the counter alone, and nobody has it.
    other(&["status", "-k", "job"]).code(0).quiet();
    other(&["list", "-q"]).code(0).stdout_is("");
    // What else is there may keep it.
    service.run("job").args(["--min-hold", "1m"]).command(["true"]).output().success();
    other(&["status", "-k", "job"]).code(77).stdout_is("").stderr_is_one_line("may not look into ");
    let list = read(&other(&["list", "--json"]));
    assert_eq!((names(&list), &list["locks"][0]["state"]), (vec!["job"], &"unknown".into()), "{list}");
}

#[test]
fn a_directory_that_may_not_be_read_is_denied() {
    if !process::is_root() {
        return;
    }
    let (service, holder) = held(0o600);
    let mode = |mode| fs::set_permissions(service.scratch().lock_dir(), Permissions::from_mode(mode)).unwrap();
    let other = |words: &[&str]| look(&service, words).unprivileged().output();
    // Neither its names nor its files; its names alone; its files alone.
    for (bits, status) in [(0o700, 77), (0o744, 77), (0o711, 75)] {
        mode(bits);
        let outcome = other(&["status", "-k", "job"]);
        if status == 77 {
            outcome.code(77).stdout_is("").stderr_is_one_line("may not look into ");
        } else {
            outcome.code(75).quiet();
            assert!(outcome.stdout().contains(&format!("pid {}", holder.pid())), "{outcome:?}");
        }
        other(&["list"]).code(77).stdout_is("").stderr_is_one_line("may not look into ");
    }
    mode(0o700);
    holder.let_go().success();
}

#[test]
fn what_is_in_the_way_of_a_lock_file_is_told_and_a_name_that_is_no_text_is_listed() {
    let service = FileService::fresh();
    let directory = service.scratch().lock_dir();
    symlink("/dev/null", directory.join("link.lock")).unwrap();
    nix::unistd::mkfifo(&directory.join("fifo.lock"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(directory.join("tree.lock")).unwrap();
    for (key, what) in [("link", "a symbolic link"), ("fifo", "a FIFO"), ("tree", "a directory")] {
        let seen = status(&service, key);
        let expected = format!("{what} at the lock file's path");
        assert_eq!((&seen["state"], &seen["blocked_by"]), (&"blocked".into(), &expected.into()), "{seen}");
    }
    let odd = directory.join(OsStr::from_bytes(b"a\xffb.lock"));
    // Arguments of the other program are text.
    symlink(&odd, service.scratch().path("alias")).unwrap();
    let mut flock = Foreign::spawn(Kind::Flock, "", service.scratch().path("alias").to_str().unwrap());
    flock.acquire();
    let list = list(&service, &[]);
    assert_eq!((names(&list), &list["total"]), (vec!["-", "fifo", "link", "tree"], &4.into()), "{list}");
    let lock = &list["locks"][0];
    assert_eq!((&lock["key"], &lock["holder"]["program"]), (&Value::Null, &"flock".into()), "{lock}");
    assert!(lock["place"].as_str().is_some_and(|place| place.ends_with("/a\u{fffd}b.lock")), "{lock}");
    flock.release();
}

/// The kernel shows there neither the locks of processes outside, nor those whose process has ended.
#[test]
fn in_a_pid_namespace_a_lock_file_that_nobody_is_seen_to_hold_is_unknown() {
    let service = FileService::fresh();
    let inside = |words: &[&str]| look(&service, words).wrapped_by(["unshare", "-rpf", "--mount-proc"]).output();
    inside(&["status", "-k", "job"]).code(0).quiet();
    let mut flock = Foreign::spawn(Kind::Flock, "", service.scratch().lock_dir().join("job.lock").to_str().unwrap());
    flock.acquire();
    assert!(told(&service, "job", 75).contains("(flock)"));
    let outcome = inside(&["status", "--json", "-k", "job"]);
    outcome.code(69).quiet();
    assert_eq!(read(&outcome)["state"], "unknown");
    let outcome = inside(&["list", "--json"]);
    outcome.code(0).stderr_is_one_line("locks that other programs hold outside of this PID namespace are not shown");
    flock.release();
}

#[test]
fn the_default_directory_is_named_and_that_it_is_this_users() {
    let service = FileService::fresh();
    let look = |words: &[&str]| service.scratch().dlock().args(words).backend("file:").unprivileged().output();
    let outcome = look(&["status", "-k", "never-used-by-anybody"]);
    outcome.code(0).stderr_is_one_line("this shows the locks of this user on this host, in file:///");
    let text = outcome.stdout();
    assert!(text.starts_with("never-used-by-anybody at file:///") && text.ends_with(": free\n"), "{text}");
    let outcome = look(&["status", "--json", "-q", "-k", "never-used-by-anybody"]);
    outcome.code(0).quiet();
    assert_eq!(read(&outcome)["backend"], "file:");
}

/// A look leaves no trace: not even when a file was read last.
#[test]
fn a_look_does_not_change_the_access_time_of_a_lock_file() {
    let service = FileService::fresh();
    let holder = service.hold("job");
    let path = service.scratch().lock_dir().join("job.lock");
    let accessed = || fs::metadata(&path).unwrap().accessed().unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(24);
    fs::File::open(&path).unwrap().set_times(fs::FileTimes::new().set_accessed(old)).unwrap();
    assert_eq!(accessed(), old);
    told(&service, "job", 75);
    assert_eq!(accessed(), old);
    holder.let_go().success();
}
