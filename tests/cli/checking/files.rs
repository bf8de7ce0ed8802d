//! What can be wrong with a directory of lock files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::cli::checking::{Found, check_at};
use crate::support::scratch::Scratch;

fn url(path: &std::path::Path) -> String {
    format!("file://{}", path.display())
}

#[test]
fn a_directory_that_cannot_be_used_is_told() {
    let scratch = Scratch::new();
    let open = scratch.directory("open", 0o777);
    let missing = scratch.path("missing");
    for (path, text) in [(&open, "other users can replace files"), (&missing, "it does not exist")] {
        let found = Found::at(&scratch, &url(path), &[], 73);
        let [("fail", said)] = found.of("directory")[..] else { panic!("{:#}", found.0) };
        assert!(said.contains("could not use the lock directory") || said.contains(text), "{said}");
        found.has("skip", "lock", "");
    }
    let closed = scratch.directory("closed", 0o555);
    scratch.give_away("closed");
    let found = Found::by(check_at(&scratch, &url(&closed), &[]).unprivileged(), 73);
    found.has("ok", "directory", "closed").has("fail", "lock", "could not use the lock file");
}

#[test]
fn a_lock_file_that_is_every_lock_is_left_alone() {
    let scratch = Scratch::new();
    let file = scratch.file("app", "theirs");
    let before = fs::metadata(&file).unwrap();
    let found = Found::at(&scratch, &format!("{}?path", url(&file)), &[], 0);
    found.has("skip", "lock", "every key there is the same lock");
    let after = fs::metadata(&file).unwrap();
    assert_eq!(
        (before.modified().unwrap(), before.permissions().mode()),
        (after.modified().unwrap(), after.permissions().mode())
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
    assert!(!scratch.path("app.dlock").exists());
}

/// What `run` could not open is no success of a check, either.
#[test]
fn a_lock_file_that_cannot_be_opened_fails() {
    let scratch = Scratch::new();
    let closed = scratch.file("closed", "theirs");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    let directory = scratch.directory("directory", 0o755);
    for (path, text) in [(&closed, "Permission denied"), (&directory, "it is not a regular file")] {
        let found = Found::by(check_at(&scratch, &format!("{}?path", url(path)), &[]).unprivileged(), 73);
        found.has("fail", "directory", "could not use the lock file").has("fail", "directory", text);
    }
}

#[test]
fn a_disk_that_is_full_and_a_container_are_told() {
    let scratch = Scratch::new();
    let disk = scratch.directory("disk", 0o700);
    let full = r#"mount -t tmpfs -o mode=0700,size=16k tmpfs "$disk" && { head -c 1M /dev/zero > "$disk/fill" 2>/dev/null; exec "$@"; }"#;
    let check = check_at(&scratch, &url(&disk), &[]).env("disk", &disk);
    let outcome = check.arg("--json").wrapped_by(["unshare", "-rm", "sh", "-c", full, "sh"]).output();
    let _ = outcome.stderr();
    let text = outcome.stdout();
    assert!(text.contains("its file system is full: 0 KiB are free"), "{text}");
    let inside = check_at(&scratch, &url(&disk), &["--json"]).wrapped_by(["unshare", "-rpf", "--mount-proc"]).output();
    inside.code(0).stderr_is_one_line("1 warning");
    assert!(inside.stdout().contains("holders outside of it cannot be seen"), "{}", inside.stdout());
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
    let hidden = ["unshare", "-rm", "sh", "-c", r#"mount -t tmpfs tmpfs /proc && exec "$@""#, "sh"];
    for (wrapper, text) in [
        (&["unshare", "-rpf"][..], "/proc shows the processes of another PID namespace"),
        (&hidden, "/proc is missing or hides the processes"),
    ] {
        let outcome = check_at(&scratch, &url(&disk), &["--json"]).wrapped_by(wrapper).output();
        outcome.code(69);
        let _ = outcome.stderr();
        assert!(outcome.stdout().contains(text), "{}", outcome.stdout());
    }
}
