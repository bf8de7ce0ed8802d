/*!
Directories that several users can write to: refused where one could replace another's lock file without being meant to, and
shared where the directory says so by its setgid bit.
*/

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

use super::can_be_anybody;
use crate::support::dlock::Dlock;
use crate::support::rendezvous::Gate;
use crate::support::scratch::Scratch;

/// A group, and users who share nothing but that.
const TEAM: u32 = 42_000;
const ANNA: u32 = 42_001;
const BORIS: u32 = 42_002;

/// As `user`, in `groups` besides his own one.
fn by(dlock: Dlock, user: u32, groups: &str) -> Dlock {
    let id = |option: &str, id: u32| format!("--{option}={id}");
    dlock
        .wrapped_by(["setpriv".to_owned(), id("reuid", user), id("regid", user), format!("--groups={groups}")])
        .reachable()
}

#[test]
fn a_directory_that_its_group_may_write_is_refused_unless_it_is_sticky_or_shared_on_purpose() {
    let scratch = Scratch::new();
    let directory = scratch.directory("locks", 0o700);
    let run = || scratch.dlock().run("k").backend(format!("file://{}", directory.display())).command(["touch", "ran"]);
    for mode in [0o770, 0o775, 0o730] {
        fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
        let refused = run().output();
        refused.code(73).stderr_is_one_line("its group may remove files in it: chmod g-w it, or share it");
        assert!(!scratch.path("ran").exists() && fs::read_dir(&directory).unwrap().count() == 0);
    }
    for mode in [0o750, 0o1770, 0o2770, 0o3770] {
        fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
        run().output().success();
    }
}

#[test]
fn two_users_of_one_group_exclude_each_other_in_a_directory_that_they_share() {
    if !can_be_anybody() {
        return;
    }
    let scratch = Scratch::new();
    let shared = scratch.directory("shared", 0o700);
    // One made by root for the team, and one that a member made for the others.
    for owner in [0, ANNA] {
        chown(&shared, Some(owner), Some(TEAM)).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o2770)).unwrap();
        let team = TEAM.to_string();
        let run = || scratch.dlock().run("k").backend(format!("file://{}", shared.display()));
        let gate = Gate::new(scratch.path(format!("gate-{owner}")));
        fs::set_permissions(gate.path(), Permissions::from_mode(0o666)).unwrap();
        // Whatever umask a user has, and whoever comes first.
        let first = by(run(), ANNA, &team).umask(0o077).shell(format!("umask; echo held; {}", gate.wait())).spawn();
        first.wait_stdout("held");
        let made = fs::metadata(shared.join("k.lock")).unwrap();
        assert_eq!((made.mode() & 0o7777, made.uid(), made.gid()), (0o660, ANNA, TEAM));
        let refused = by(run(), BORIS, &team).arg("-n").command(["true"]).output();
        refused.code(75).stderr_is_one_line(&format!("pid {} (sh)", first.dlock_pid()));
        let mut flock = Command::new("setpriv");
        flock.args([format!("--reuid={BORIS}"), format!("--regid={BORIS}"), format!("--groups={team}")]);
        let flock = flock.args(["flock", "-n", "-E", "17"]).arg(shared.join("k.lock")).arg("true").status().unwrap();
        assert_eq!(flock.code(), Some(17));
        gate.open();
        let outcome = first.wait();
        outcome.success();
        assert!(outcome.stdout().starts_with("0077\n"), "the command's umask is its own: {outcome:?}");
        let token = |user| by(run(), user, &team).shell("printf $DLOCK_TOKEN").output().success().stdout();
        let tokens: Vec<u64> = [BORIS, ANNA, BORIS].map(|user| token(user).parse().unwrap()).into();
        assert!(tokens.is_sorted() && tokens[0] < tokens[2], "{tokens:?}");
        // Whoever is not in the group has no business there.
        let stranger = by(run(), BORIS, &BORIS.to_string()).command(["true"]).output();
        stranger.code(73).stderr_is_one_line("could not use the lock directory");
        fs::remove_file(shared.join("k.lock")).unwrap();
    }
}
