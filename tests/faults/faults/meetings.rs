//! Latches and barriers: parties are killed or frozen, and servers do not answer.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::episode::{Episode, Invariant};
use crate::support::dlock::{Dlock, Running};
use crate::support::rendezvous::{boottime, last_until};
use crate::world::Column;

/// How long a party waits for the others.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a name is kept that may not have been put down.
const BRIEF: Duration = Duration::from_secs(20);
/// How much later than its lease ends a party that died may still be counted, in addition to the service's own time.
const SLACK: Duration = Duration::from_secs(2);

fn point(episode: &Episode<'_>, subcommand: &str) -> Dlock {
    let world = episode.world;
    let dlock = episode.scratch.dlock().args([subcommand, "--key", "meeting", "-q"]);
    dlock.backend(world.url()).args(world.options())
}

fn party(episode: &Episode<'_>, parties: usize, index: usize) -> Running {
    let (parties, name) = (parties.to_string(), format!("p{index}"));
    let (ttl, patience) = (format!("{}s", episode.ttl.as_secs()), format!("{}s", PATIENCE.as_secs()));
    let barrier = point(episode, "barrier").args(["--parties", &parties, "--as", &name, "--ttl", &ttl]);
    barrier.args(["-w", &patience]).spawn()
}

/// How a party or a wait has ended. What it said is of no interest here.
fn end_of(running: Running) -> Option<i32> {
    let outcome = running.wait();
    let _ = outcome.stderr();
    outcome.status().code()
}

/// One party is killed or frozen while the last one comes: all others go on, or none does. A retry of all goes on.
pub fn party_lost(episode: &mut Episode<'_>) {
    let parties = episode.rng.usize(3..=6);
    let victim = episode.rng.usize(..parties - 1);
    let is_frozen = episode.coin();
    let early: Vec<Running> = (0..parties - 1).map(|index| party(episode, parties, index)).collect();
    episode.linger(episode.ttl);
    let mut last = None;
    if episode.coin() {
        last = Some(party(episode, parties, parties - 1));
        episode.linger(Duration::from_millis(60));
    }
    let since = episode.broken();
    early[victim].signal(if is_frozen { Signal::SIGSTOP } else { Signal::SIGKILL });
    let comes = last.is_none().then(|| {
        let longest = episode.ttl + episode.world.column.granularity() + 2 * SLACK;
        episode.linger(longest);
        last = Some(party(episode, parties, parties - 1));
        boottime()
    });
    let mut ends = Vec::new();
    let mut frozen = None;
    for (index, party) in early.into_iter().chain(last).enumerate() {
        if index == victim {
            frozen = Some(party);
        } else {
            ends.push(end_of(party));
        }
    }
    let frozen = frozen.expect("the victim");
    frozen.signal(Signal::SIGCONT);
    let victims = end_of(frozen);
    let opened = ends.contains(&Some(0));
    if opened && ends.iter().any(|code| *code != Some(0)) {
        episode.violation(Invariant::MeetsRight, format!("some parties went on without the others: {ends:?}"));
    }
    if !opened && victims == Some(0) {
        episode.violation(Invariant::MeetsRight, "a party that was frozen went on alone");
    }
    let counted = if episode.world.column.has_leases() { episode.ttl } else { Duration::ZERO };
    let forgotten = since + counted + episode.world.column.granularity() + SLACK;
    if !is_frozen && opened && comes.is_some_and(|comes| comes > forgotten) {
        episode.violation(Invariant::MeetsRight, "a party counted long after it had died");
    }
    if ends.iter().any(|code| !matches!(code, Some(0 | 75 | 79))) {
        episode.violation(Invariant::EndsRight, format!("parties ended with {ends:?}"));
    }
    let retry: Vec<Running> = (0..parties).map(|index| party(episode, parties, index)).collect();
    let ends: Vec<Option<i32>> = retry.into_iter().map(end_of).collect();
    if ends.iter().any(|code| *code != Some(0)) {
        episode.violation(Invariant::GoesOn, format!("the retry ended with {ends:?}"));
    }
    episode.mended();
}

/// Servers are frozen while names are put down at a latch: every name counts whose dlock has ended with 0, and no other one
/// that was not asked for.
pub fn names_put_down(episode: &mut Episode<'_>) {
    let names = episode.rng.usize(3..=8);
    let waiter = |episode: &Episode<'_>, count: usize, wait: &str| {
        point(episode, "latch").args(["wait", "--count", &count.to_string(), "-w", wait]).spawn()
    };
    let waits = waiter(episode, names, "60s");
    let frozen: Vec<usize> = (0..episode.world.size()).filter(|_| episode.rng.u8(..3) > 0).collect();
    let down = |episode: &Episode<'_>, index: usize, wait: &str, keep: Duration| {
        let keep = format!("{}s", keep.as_secs());
        point(episode, "latch").args(["down", "--as", &format!("n{index}"), "-w", wait, "--keep", &keep]).spawn()
    };
    let (mut done, mut thawed) = (0, boottime());
    if episode.world.column.has_leases() {
        episode.broken();
        for &index in &frozen {
            episode.world.node(index).freeze();
        }
        let early = names / 2;
        let tried: Vec<Running> = (0..early).map(|index| down(episode, index, "2s", BRIEF)).collect();
        done = tried.into_iter().map(end_of).filter(|code| *code == Some(0)).count();
        for &index in &frozen {
            episode.world.node(index).thaw();
        }
        episode.wait_serving();
        thawed = boottime();
    }
    if done > 0 && end_of(waiter(episode, done, "20s")) != Some(0) {
        episode.violation(Invariant::MeetsRight, format!("{done} names are down, and do not count"));
    }
    for index in 0..names {
        if end_of(down(episode, index, "20s", 100 * BRIEF)) != Some(0) {
            episode.violation(Invariant::EndsRight, format!("the name {index} could not be put down"));
        }
    }
    if end_of(waits) != Some(0) || boottime() > thawed + PATIENCE + Duration::from_secs(20) {
        episode.violation(Invariant::MeetsRight, "the waiter was not let through");
    }
    if end_of(waiter(episode, names + 1, "0")) != Some(75) {
        episode.violation(Invariant::MeetsRight, format!("more than {names} names are down"));
    }
    if end_of(point(episode, "latch").arg("forget").spawn()) != Some(0) {
        episode.violation(Invariant::EndsRight, "the latch could not be forgotten");
    }
    if matches!(episode.world.column, Column::Etcd | Column::ZooKeeper) {
        // A lease or a session that is granted when nobody waits for it any more.
        last_until(thawed + BRIEF);
    }
    episode.mended();
}
