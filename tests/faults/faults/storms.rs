//! Commands that fork without a pause, and commands of thousands of processes, while the servers no longer answer.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Holder, Way};
use crate::support::cgroup::CpuGroup;
use crate::support::process;
use crate::support::programs::unruly;
use crate::support::proxy::Mode;
use crate::support::rendezvous::Gate;

/// A lease that leaves time after thousands of processes have died.
const LONG: Duration = Duration::from_secs(15);

/// The servers stop answering: the whole command is dead before its lease can expire.
pub fn silent(episode: &mut Episode<'_>) {
    let what = match episode.rng.u8(..4) {
        0 => "storm 30".to_owned(),
        1 => "storm 60".to_owned(),
        2 => format!("crowd {}", episode.rng.u32(3000..=8000)),
        _ => "headless".to_owned(),
    };
    let holder = unruly_scene(episode, &what);
    episode.broken();
    episode.world.set_way(Mode::Silent);
    episode.mended();
    episode.dies_in_time(&holder);
    episode.ends(holder.running, &[Ending::Lost]);
    episode.world.set_way(Mode::Forward);
}

/// A part of each second, in short and in long periods, as a quota and its period in milliseconds.
const QUOTAS: [(u64, u64); 6] = [(10, 100), (50, 500), (20, 100), (100, 500), (25, 50), (250, 500)];

/// The servers stop answering while busy processes of the command leave dlock and the guard hardly any processor: all of it is
/// dead before the lease can expire.
pub fn throttled(episode: &mut Episode<'_>) {
    let (granted, period) = QUOTAS[episode.rng.usize(..QUOTAS.len())];
    let busy = if episode.coin() { 30 } else { 60 };
    // Two turns of each, and two periods, have to fit into the half of a lease that is sure to be left.
    let needed = 2 * (2 * period + 9 * busy * period / granted);
    episode.ttl = Duration::from_millis(needed.max(5_000)) + Duration::from_secs(episode.rng.u64(..3));
    let Some(group) = CpuGroup::new(Duration::from_millis(granted), Duration::from_millis(period)) else {
        episode.report.hindered = Some("no control group with a CPU quota can be made here");
        panic!("no control group");
    };
    let gate = Gate::new(episode.scratch.path("gate"));
    let program = unruly(&episode.scratch, &format!("busy {busy}"));
    let work = format!("{}; {program}; true", gate.wait());
    let mut dlock = group.bring(episode.dlock(Way::Detour)).command(episode.section(&work));
    if episode.coin() {
        open_to_everybody(episode);
        dlock = dlock.unprivileged();
    }
    let holder = episode.hold_as_told(dlock);
    episode.queue_some();
    gate.open();
    holder.running.wait_stdout("busy ");
    // Longer, and dlock loses the lock by itself, for want of renewals.
    let some = episode.ttl / 5;
    episode.linger(some);
    episode.broken();
    episode.world.set_way(Mode::Silent);
    episode.mended();
    episode.dies_in_time(&holder);
    group.lift();
    episode.ends(holder.running, &[Ending::Lost]);
    episode.world.set_way(Mode::Forward);
}

/// The guard is killed: dlock has to stop a storm on its own.
pub fn guard_killed(episode: &mut Episode<'_>) {
    let holder = unruly_scene(episode, "storm 30");
    episode.broken();
    episode.broken();
    process::signal(holder.running.guard_pid(), Signal::SIGKILL);
    holder.died_at();
    episode.mended();
    episode.ends(holder.running, &[Ending::GuardKilled]);
}

/// Starts a holder whose command runs an unruly program, perhaps as an ordinary user, and waiters behind it.
#[track_caller]
fn unruly_scene(episode: &mut Episode<'_>, what: &str) -> Holder {
    episode.ttl = LONG;
    let gate = Gate::new(episode.scratch.path("gate"));
    let program = unruly(&episode.scratch, what);
    let work = format!("{}; trap '' TERM; {program} & wait; sleep 1000; true", gate.wait());
    let mut dlock = episode.dlock(Way::Detour).args(["--kill-after", "1s"]).command(episode.section(&work));
    // A lock directory belongs to its owner.
    if episode.world.column.has_leases() && episode.coin() {
        open_to_everybody(episode);
        dlock = dlock.unprivileged();
    }
    let holder = episode.hold_as_told(dlock);
    // Before nothing else gets to run any more.
    episode.queue_some();
    gate.open();
    holder.running.wait_stdout(if what == "headless" { "worker " } else { what.split(' ').next().unwrap_or_default() });
    holder
}

/// The witness can be used by users of all kinds.
fn open_to_everybody(episode: &Episode<'_>) {
    for name in ["witness.lock", "log"] {
        let path = episode.scratch.file(name, "");
        fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    }
}
