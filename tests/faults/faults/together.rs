//! Several hold the lock together, and something befalls one of them.

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Invariant, Way};
use crate::support::process;
use crate::support::rendezvous::last_until;

/// One of several holders is killed or frozen: its command is dead before its own lease can end, whatever the others' leases
/// are, and the others notice nothing for longer than that.
pub fn one_of_several(episode: &mut Episode<'_>) {
    let holder = episode.hold_stubbornly(Way::Straight, &[]);
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.look_at(&holder.running);
    let leases = episode.world.column.has_leases();
    let freeze = leases && episode.coin();
    let broken = episode.broken();
    if freeze {
        process::signal(holder.running.pid(), Signal::SIGSTOP);
        process::wait_stopped(holder.running.pid());
    } else {
        holder.running.signal(Signal::SIGKILL);
        process::wait_gone(holder.running.pid());
    }
    if leases {
        episode.dies_in_time(&holder);
    } else {
        // The command outlives dlock there, and its part of the lock with it.
        for pid in holder.members() {
            process::signal(pid, Signal::SIGKILL);
        }
        holder.died_at();
    }
    last_until(broken + 2 * ttl);
    if !episode.company_is_well() {
        episode.violation(Invariant::EndsRight, "one of those who hold it too has ended");
    }
    if freeze {
        process::signal(holder.running.pid(), Signal::SIGCONT);
    }
    episode.mended();
    let ending = if freeze { Ending::Lost } else { Ending::By(Signal::SIGKILL) };
    episode.ends(holder.running, &[ending]);
}
