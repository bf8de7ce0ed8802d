//! SIGKILL and SIGSTOP to the whole process group of the caller.

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Holder, Invariant, Way};
use crate::support::process;
use crate::support::programs::sh;
use crate::support::rendezvous::Fifo;

/// What hits the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hit {
    /// `timeout -k`: TERM, and KILL half a second later.
    Timeout,
    /// `kill -9 %1`
    Kill,
    /// `kill -STOP %1`, for longer than a lease.
    Stop,
}

/// Where the work is: in the group, in the group of a timeout(1) within it, or in a session of its own.
const PLACES: [&str; 3] = ["", "timeout 1000", "setsid"];

/// Processes that were not hit are gone before the next holder begins. On file they may go on for as long as they like,
/// locked.
pub fn hit(episode: &mut Episode<'_>) {
    let hit = *episode.rng.choice(&[Hit::Timeout, Hit::Kill, Hit::Stop]).expect("one of several");
    let place = *episode.rng.choice(&PLACES).expect("one of several");
    let mut words = Fifo::new(episode.scratch.path("words"));
    let deaf = sh(&format!("trap '' TERM; {}; exec sleep 1000", words.say("$$")));
    let work = format!("trap '' TERM; {} & {place} {deaf} & wait; exit 5", episode.store.write_on());
    let mut dlock = episode.dlock(Way::Straight);
    if !episode.world.column.has_leases() && episode.coin() {
        // Then the guard alone holds the lock.
        dlock = dlock.arg("--close");
    }
    dlock = match hit {
        Hit::Timeout => dlock.wrapped_by(["timeout", "-k", "0.5", "1000"]),
        Hit::Kill | Hit::Stop => dlock.new_process_group(),
    };
    let holder = episode.hold_as_told(dlock.command(episode.section(&work)));
    let left: i32 = words.word().parse().unwrap();
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.broken();
    match hit {
        // Its time is over.
        Hit::Timeout => holder.running.signal(Signal::SIGALRM),
        Hit::Kill => process::signal_group(holder.running.pid(), Signal::SIGKILL),
        Hit::Stop => process::signal_group(holder.running.pid(), Signal::SIGSTOP),
    }
    if !episode.world.column.has_leases() {
        return without_a_lease(episode, holder, left, hit);
    }
    episode.mended();
    episode.dies_in_time(&holder);
    if hit == Hit::Stop {
        episode.linger(ttl);
        process::signal_group(holder.running.pid(), Signal::SIGCONT);
        episode.ends(holder.running, &[Ending::Lost]);
    } else {
        episode.ends(holder.running, &[Ending::By(Signal::SIGKILL)]);
    }
}

/// The lock stays locked as long as any process of the command lives.
fn without_a_lease(episode: &mut Episode<'_>, holder: Holder, left: i32, hit: Hit) {
    let ttl = episode.ttl;
    if hit == Hit::Timeout {
        process::wait_gone(holder.running.pid());
    }
    episode.linger(ttl);
    if hit == Hit::Stop {
        if !process::is_alive(left) {
            episode.violation(Invariant::EndsRight, "what was frozen for a moment was stopped");
        }
        process::signal_group(holder.running.pid(), Signal::SIGCONT);
        // The command ends once both of its children have.
        for pid in process::descendants(holder.running.command_pid()) {
            process::signal(pid, Signal::SIGKILL);
        }
        holder.died_at();
        episode.mended();
        episode.ends(holder.running, &[Ending::Own(5)]);
        return;
    }
    for pid in episode.scratch.processes() {
        if matches!(process::comm(pid).as_deref(), Some("sleep" | "perl" | "timeout")) {
            process::signal(pid, Signal::SIGKILL);
        }
    }
    holder.died_at();
    episode.mended();
    episode.ends(holder.running, &[Ending::By(Signal::SIGKILL)]);
}
