//! dlock, its guard and its command are killed and frozen.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::episode::{Ending, Episode, Holder, Invariant, Way};
use crate::support::process;
use crate::support::rendezvous::{boottime, eventually, last_until};

/// No fault: the lock passes from one contender to the next.
pub fn none(episode: &mut Episode<'_>) {
    let holder = episode.hold(Way::Straight, &[]);
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl * 2);
    episode.look_at(&holder.running);
    // Much sooner than the lease would expire: it is renewed every third of its time.
    episode.recovers_within = Some(ttl / 2);
    episode.mended();
    holder.let_go();
    episode.ends(holder.running, &[Ending::Own(0)]);
}

/// Killed dlock: on file the command lives on and stays locked.
pub fn dlock_killed(episode: &mut Episode<'_>) {
    let holder = episode.stubborn_scene(Way::Straight);
    episode.broken();
    holder.running.signal(Signal::SIGKILL);
    process::wait_gone(holder.running.pid());
    if episode.world.column.has_leases() {
        episode.mended();
        episode.dies_in_time(&holder);
    } else {
        outlived(episode, &holder);
    }
    episode.ends(holder.running, &[Ending::By(Signal::SIGKILL)]);
}

/// The command lives as long as it likes, and the lock with it.
fn outlived(episode: &mut Episode<'_>, holder: &Holder) {
    let ttl = episode.ttl;
    episode.linger(ttl);
    let members = holder.members();
    if !members.iter().copied().all(process::is_alive) {
        episode.violation(Invariant::EndsRight, "the command did not outlive a dlock that holds a lock file");
    }
    for pid in members {
        process::signal(pid, Signal::SIGKILL);
    }
    holder.died_at();
    episode.mended();
}

/// Frozen dlock: with leases everything is over when it wakes; on file nobody notices.
pub fn dlock_frozen(episode: &mut Episode<'_>) {
    let leases = episode.world.column.has_leases();
    let holder = if leases { episode.stubborn_scene(Way::Straight) } else { episode.scene(Way::Straight) };
    let ttl = episode.ttl;
    let frozen = episode.broken();
    process::signal(holder.running.pid(), Signal::SIGSTOP);
    process::wait_stopped(holder.running.pid());
    if leases {
        episode.mended();
        episode.dies_in_time(&holder);
    }
    last_until(frozen + 3 * ttl);
    process::signal(holder.running.pid(), Signal::SIGCONT);
    if leases {
        episode.ends(holder.running, &[Ending::Lost]);
    } else {
        holder.let_go();
        episode.ends(holder.running, &[Ending::Own(0)]);
    }
}

/// Killed guard: dlock stops everything at once and says so.
pub fn guard_killed(episode: &mut Episode<'_>) {
    let holder = episode.hold_stubbornly(Way::Straight, &["--kill-after", "300ms"]);
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    let guard = holder.running.guard_pid();
    episode.broken();
    process::signal(guard, Signal::SIGKILL);
    holder.died_at();
    episode.mended();
    episode.ends(holder.running, &[Ending::GuardKilled]);
}

/// Frozen guard: dlock wakes it, and nobody notices.
pub fn guard_frozen(episode: &mut Episode<'_>) {
    let holder = episode.hold(Way::Straight, &[]);
    episode.queue_some();
    let guard = holder.running.guard_pid();
    let ttl = episode.ttl;
    for _ in 0..episode.rng.u32(1..=3) {
        episode.linger(ttl / 2);
        episode.broken();
        process::signal(guard, Signal::SIGSTOP);
        eventually("the guard to be woken", || (process::state(guard) != process::State::Stopped).then_some(()));
    }
    episode.look_at(&holder.running);
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    episode.could_have_kept(ending);
}

/// dlock, guard and command are frozen, so nothing is left that could act: only the token protects, and the command is
/// stopped when it thaws.
pub fn all_frozen(episode: &mut Episode<'_>) {
    let holder = episode.scene(Way::Straight);
    let ttl = episode.ttl;
    let frozen = episode.broken();
    let guard = holder.running.guard_pid();
    // The writer to the store has its own session and goes on.
    killpg(Pid::from_raw(holder.running.pid()), Signal::SIGSTOP).unwrap();
    process::signal(guard, Signal::SIGSTOP);
    let how_long = ttl / 2 + episode.some_time(3 * ttl);
    last_until(frozen + how_long);
    let thawed = boottime();
    killpg(Pid::from_raw(holder.running.pid()), Signal::SIGCONT).unwrap();
    process::signal(guard, Signal::SIGCONT);
    episode.mended();
    let leases = episode.world.column.has_leases();
    let is_over = leases && how_long > ttl;
    if is_over && episode.coin() {
        let died = holder.died_at();
        if died > thawed + ttl / 4 {
            let what = format!("thawed after its lease, the command lived for {:?}", died - thawed);
            episode.violation(Invariant::DeadInTime, what);
        }
        episode.ends(holder.running, &[Ending::Lost]);
        return;
    }
    holder.let_go();
    let allowed: &[Ending] = if leases { &[Ending::Lost, Ending::Own(0)] } else { &[Ending::Own(0)] };
    let ending = episode.ends(holder.running, allowed);
    if ending == Some(Ending::Own(0)) && leases && how_long > ttl + episode.world.column.granularity() * 2 {
        episode.violation(Invariant::EndsRight, format!("frozen for {how_long:?}, it says that all is well"));
    }
}

/// Killed command: dlock ends by the same signal, and the lock is free at once.
pub fn command_killed(episode: &mut Episode<'_>) {
    let holder = episode.scene(Way::Straight);
    let command = holder.running.command_pid();
    // Its child must not survive it: what a command leaves behind is left alone.
    let children = process::children(command);
    episode.broken();
    for pid in children.into_iter().chain([command]) {
        process::signal(pid, Signal::SIGKILL);
        process::wait_gone(pid);
    }
    episode.mended();
    episode.ends(holder.running, &[Ending::By(Signal::SIGKILL)]);
}

/// A command that ignores SIGTERM stays locked as long as it lives, also after a second SIGTERM.
pub fn command_stubborn(episode: &mut Episode<'_>) {
    let holder = episode.stubborn_scene(Way::Detour);
    let ttl = episode.ttl;
    if episode.world.proxies().is_empty() {
        for _ in 0..episode.rng.u32(1..=3) {
            episode.broken();
            holder.running.signal(Signal::SIGTERM);
            episode.linger(ttl / 4);
        }
        if !holder.is_alive() {
            episode.violation(Invariant::EndsRight, "a command that ignores TERM was not waited for");
        }
        // The command last: what it leaves behind is left alone.
        for pid in holder.members().into_iter().rev() {
            process::signal(pid, Signal::SIGKILL);
            process::wait_gone(pid);
        }
        holder.died_at();
        episode.mended();
        episode.ends(holder.running, &[Ending::By(Signal::SIGKILL)]);
    } else {
        episode.broken();
        episode.world.set_way(crate::support::proxy::Mode::Silent);
        episode.mended();
        episode.dies_in_time(&holder);
        episode.ends(holder.running, &[Ending::Lost]);
        episode.world.set_way(crate::support::proxy::Mode::Forward);
    }
}

/// Killed waiter: those behind it get their turn all the same, even if it had just been told that its turn has come.
pub fn waiter_killed(episode: &mut Episode<'_>) {
    let holder = episode.hold(Way::Straight, &[]);
    let waiter = episode.dlock(Way::Straight).command(["false"]).spawn();
    waiter.wait_stderr("waiting for ");
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.broken();
    let told = episode.coin();
    if told {
        process::signal(waiter.pid(), Signal::SIGSTOP);
        process::wait_stopped(waiter.pid());
        holder.let_go();
        process::wait_gone(holder.running.pid());
    }
    waiter.signal(Signal::SIGKILL);
    process::wait_gone(waiter.pid());
    if !told {
        episode.linger(ttl);
    }
    let freed = boottime();
    if !told {
        holder.let_go();
    }
    episode.ends(holder.running, &[Ending::Own(0)]);
    episode.ends(waiter, &[Ending::By(Signal::SIGKILL)]);
    episode.mended_at(freed);
}
