//! No descriptors, no processes, no room on a disk.

use std::fs::File;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::exhausted::{give_descriptors_back, take_free_descriptors};
use crate::support::process;
use crate::support::proxy::Mode;
use crate::world::Column;

/// One of the kinds of exhaustion below, at random.
pub fn exhausted(episode: &mut Episode<'_>) {
    match episode.rng.u8(..4) {
        0 => descriptors_of_a_holder(episode),
        1 => descriptors_from_the_start(episode),
        2 => processes(episode),
        _ => room_for_messages(episode),
    }
}

/// Open connections go on working; a holder whose connections break may lose the lock, and its command ends in time
/// then.
fn descriptors_of_a_holder(episode: &mut Episode<'_>) {
    let holder = episode.scene(Way::Detour);
    let ttl = episode.ttl;
    let (dlock, guard) = (holder.running.dlock_pid(), holder.running.guard_pid());
    episode.broken();
    for pid in [guard, dlock] {
        take_free_descriptors(pid);
    }
    if episode.coin() {
        episode.world.set_way(Mode::Reset);
        episode.world.set_way(Mode::Forward);
    }
    episode.linger(ttl);
    if process::is_alive(dlock) {
        give_descriptors_back(dlock);
    }
    episode.linger(ttl);
    holder.let_go();
    episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.mended();
}

/// With few descriptors from the start, dlock either runs or says why not.
fn descriptors_from_the_start(episode: &mut Episode<'_>) {
    for _ in 0..5 {
        let limit = episode.rng.u64(4..=40);
        episode.broken();
        let dlock = episode.dlock(Way::Straight).args(["-w", "10"]).command(["true"]);
        let outcome = dlock.limit(libc::RLIMIT_NOFILE, limit).output();
        refused_or_done(episode, &outcome);
    }
    episode.mended();
}

/// With few processes from the start, dlock either runs or says why not.
fn processes(episode: &mut Episode<'_>) {
    let url = if episode.world.column == Column::File {
        let directory = episode.scratch.directory("own", 0o700);
        episode.scratch.give_away("own");
        format!("file://{}", directory.display())
    } else {
        episode.world.url()
    };
    let ttl = format!("{}s", episode.ttl.as_secs());
    for _ in 0..5 {
        // In a user namespace of its own, no other processes count.
        let limit = format!("--nproc={}", episode.rng.u8(1..=12));
        episode.broken();
        let dlock = episode.scratch.dlock().run(KEY).backend(&url).args(["-t", &ttl, "-w", "10"]).command(["true"]);
        let outcome = dlock.unprivileged().wrapped_by(["unshare", "-r", "prlimit", &limit]).output();
        refused_or_done(episode, &outcome);
    }
    episode.mended();
}

fn refused_or_done(episode: &mut Episode<'_>, outcome: &crate::support::dlock::Outcome) {
    let stderr = outcome.stderr();
    let fits = match outcome.status().code() {
        Some(0) => stderr.is_empty(),
        // It may have said before that it waits for something better.
        Some(69 | 73) => stderr.lines().count() <= 2 && stderr.contains("could not "),
        _ => false,
    };
    if !fits {
        episode.violation(Invariant::EndsRight, format!("neither done nor refused:\n{outcome:?}"));
    }
}

/// dlock's messages go nowhere; everything else is as usual.
fn room_for_messages(episode: &mut Episode<'_>) {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let dlock = episode.dlock(Way::Straight).arg("-v").stderr(full());
    let holder = episode.hold_by(dlock);
    episode.queue_some();
    episode.broken();
    let refused = episode.dlock(Way::Straight).arg("-n").command(["false"]).stderr(full()).output();
    if refused.status().code() != Some(75) {
        episode.violation(Invariant::EndsRight, format!("not refused:\n{refused:?}"));
    }
    let ttl = episode.ttl;
    episode.linger(ttl);
    holder.let_go();
    episode.ends(holder.running, &[Ending::Own(0)]);
    episode.mended();
}
