/*!
Tests of listing and signalling the children of this process, and of shells.
*/

use super::*;
use crate::supervise::process::{has_ended, stat};

fn me() -> pid_t {
    pid_t::try_from(std::process::id()).expect("pid")
}

#[test]
fn both_ways_of_listing_find_the_same_child() {
    let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
    let pid = pid_t::try_from(child.id()).expect("pid");
    let mut sweep = Sweep::new();
    assert!(sweep.works());
    for by_parent in [false, true] {
        sweep.by_parent = by_parent;
        let children = sweep.children(me());
        assert!(children.complete && children.listed.contains(&pid), "{children:?}");
    }
    assert_eq!(parent_of(pid), Some(me()));
    assert!(!has_ended(pid));
    child.kill().expect("kill");
    child.wait().expect("wait");
}

/// On an overloaded machine a process that waits for a processor to die on would outlive its lease.
#[test]
fn what_is_killed_goes_before_others_where_the_user_may() {
    let mut shell = std::process::Command::new("sh");
    let mut shell = shell.args(["-c", "sleep 600 & kill -STOP $$"]).spawn().expect("sh");
    let root = pid_t::try_from(shell.id()).expect("pid");
    // While it is stopped, it does not collect its child, whose policy can be seen then.
    nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(root), Some(nix::sys::wait::WaitPidFlag::WUNTRACED))
        .expect("wait");
    let mut sweep = Sweep::new();
    let child = sweep.children(root).listed[0];
    // Killed several times, and raised only once.
    for _ in 0..3 {
        assert_eq!(sweep.kill_below(root, &[]).signalled, 1);
    }
    while !has_ended(child) {
        std::thread::yield_now();
    }
    let policy = stat(child, 38, |policy| std::str::from_utf8(policy).ok()?.parse().ok());
    let expected = if nix::unistd::geteuid().is_root() { libc::SCHED_RR } else { libc::SCHED_OTHER };
    assert_eq!(policy, Some(expected));
    let priority: Option<i32> = stat(child, 37, |priority| std::str::from_utf8(priority).ok()?.parse().ok());
    assert_eq!(priority, Some(i32::from(expected == libc::SCHED_RR)));
    shell.kill().expect("kill");
    shell.wait().expect("wait");
}

/// A storm leaves thousands of ended processes, and a pass of SIGTERM through them must not delay SIGKILL.
#[test]
fn a_pass_spends_no_time_on_what_has_ended_and_breaks_off_in_time() {
    let (mut ended, mut living) = (std::process::Command::new("true"), std::process::Command::new("sleep"));
    let mut ended = ended.spawn().expect("true");
    let mut living = living.arg("600").spawn().expect("sleep");
    let [dead, alive] = [&ended, &living].map(|child| pid_t::try_from(child.id()).expect("pid"));
    while child(dead) != Some(Child::Ended) {
        std::thread::yield_now();
    }
    // Signal 0 does nothing to the children that other tests have at the same time.
    let mut sweep = Sweep::new();
    assert!(sweep.children(me()).listed.contains(&dead));
    let past = Some(Instant::from_nanos(1));
    assert_eq!(sweep.signal_below(me(), &[0], &[], past), Tally::default());
    sweep.signal_below(me(), &[0], &[], None);
    assert!(sweep.met(alive) && !sweep.met(dead));
    assert_eq!(signal_each(me(), [(dead, me())].into_iter(), &[0], None).signalled, 0);
    living.kill().expect("kill");
    living.wait().expect("wait");
    ended.wait().expect("wait");
}

#[test]
fn the_pause_between_two_passes_is_bounded() {
    let mut sweep = Sweep::new();
    let pause = Duration::from_millis(2);
    for (cost, at_most) in [(0, pause), (10, Duration::from_millis(40)), (60_000, LONGEST_PAUSE)] {
        sweep.cost = Duration::from_millis(cost);
        let before = Instant::now();
        let again = sweep.again(pause);
        assert!(again >= before + at_most && again <= Instant::now() + at_most, "{cost} ms");
    }
}

#[test]
fn what_cannot_be_listed_is_not_taken_for_gone() {
    let mut sweep = Sweep::new();
    assert!(sweep.works());
    assert!(sweep.children(pid_t::MAX).complete, "a process that has ended has no children");
    sweep.reserve().expect("descriptors");
    // The listing has its own descriptors.
    assert!(sweep.spare.iter().all(Option::is_some));
    assert!(sweep.children(me()).complete);
    assert!(sweep.spare.iter().all(Option::is_some));
    for pid in 1..=pid_t::try_from(MAX_LISTED).expect("a number") {
        sweep.push(me(), pid);
    }
    assert!(!sweep.complete, "there was no more room");
}
