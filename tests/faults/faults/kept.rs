//! A lock is kept for a process that dlock did not start (`acquire --while-pid`): what happens to the servers, to the keeper and to
//! the process, which ignores SIGTERM.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::breaks::{break_it, check_told};
use crate::episode::{Episode, Invariant, KEY};
use crate::quick::{Stay, section};
use crate::support::process;
use crate::support::rendezvous::{Gate, boottime, eventually, eventually_within, last_until};
use crate::world::Column;

/// A process that works under the lock, and its keeper.
struct Kept {
    ward: Ward,
    keeper: i32,
    owner: String,
}

/// It ends at the latest with the episode.
struct Ward(Child);

impl Drop for Ward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ward {
    /// Waits for its end; returns the time of that.
    fn died_at(&mut self) -> Duration {
        eventually("the end of the process", || self.0.try_wait().unwrap());
        boottime()
    }
}

/// The process is dead before anybody else gets the lock, whatever stops it.
pub fn kept(episode: &mut Episode<'_>) {
    let mut kept = keep(episode);
    episode.queue_some();
    let (ttl, has_servers) = (episode.ttl, episode.world.column != Column::File);
    episode.linger(ttl);
    let way = episode.rng.usize(0..if has_servers { 4 } else { 3 });
    if way < 3 {
        episode.broken();
    }
    match way {
        0 => process::signal(i32::try_from(kept.ward.0.id()).unwrap(), Signal::SIGKILL),
        1 => asked(episode, &mut kept),
        2 => {
            // Much shorter than its lease.
            process::signal(kept.keeper, Signal::SIGSTOP);
            process::wait_stopped(kept.keeper);
            let frozen = episode.some_time(ttl / 4);
            std::thread::sleep(frozen);
            process::signal(kept.keeper, Signal::SIGCONT);
            asked(episode, &mut kept);
        }
        _ => frozen(episode, &mut kept),
    }
    kept.ward.died_at();
    episode.mended();
    if eventually_within(ttl + Duration::from_secs(15), || (!process::is_alive(kept.keeper)).then_some(())).is_none() {
        episode.violation(Invariant::NothingLeft, "the keeper goes on without its process");
    }
}

/// Takes the lock for a process, which then begins to work.
fn keep(episode: &mut Episode<'_>) -> Kept {
    let gate = Gate::new(episode.scratch.path("kept"));
    let script =
        format!("trap '' TERM; read -r DLOCK_TOKEN < '{}'; export DLOCK_TOKEN; exec \"$@\"", gate.path().display());
    let work = section(episode, Stay::Forever);
    let ward = Command::new("/bin/sh")
        .args(["-c", &script, "ward"])
        .args(work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let ward = Ward(ward);
    let (pid, ttl) = (ward.0.id().to_string(), format!("{}s", episode.ttl.as_secs()));
    let acquire = episode.scratch.dlock().args(["acquire", "--key", KEY, "--while-pid", &pid, "--ttl", &ttl, "--json"]);
    let outcome = acquire.args(["--kill-after", "300ms"]).backend(episode.world.url()).output();
    outcome.success();
    let document: Value = serde_json::from_str(&outcome.stdout()).unwrap();
    std::fs::write(gate.path(), format!("{}\n", document["token"])).unwrap();
    let begun = eventually_within(Duration::from_secs(30), || (!episode.store.starts().is_empty()).then_some(()));
    assert!(begun.is_some(), "the process does not begin to work");
    let keeper = document["keeper"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap();
    Kept { ward, keeper, owner: document["owner"].as_str().unwrap().to_owned() }
}

fn asked(episode: &mut Episode<'_>, kept: &mut Kept) {
    let breaking = break_it(episode, &kept.owner);
    kept.ward.died_at();
    let outcome = breaking.wait();
    if outcome.status().code() != Some(0) {
        episode.violation(Invariant::EndsRight, format!("{outcome:?}"));
    }
    let _ = outcome.stderr();
    check_told(episode, &kept.owner.clone());
}

/// All servers are frozen: the process is dead before the lease can end.
fn frozen(episode: &mut Episode<'_>, kept: &mut Kept) {
    let (ttl, world) = (episode.ttl, episode.world);
    episode.servers_fail();
    let frozen = episode.broken();
    for index in 0..world.size() {
        world.node(index).freeze();
    }
    let silent = boottime();
    let died = kept.ward.died_at();
    if died >= silent + ttl {
        let what =
            format!("the process lived for {:?} after the last servers that could renew its lease", died - silent);
        episode.violation(Invariant::DeadInTime, what);
    }
    last_until(frozen + 3 * ttl);
    for index in 0..world.size() {
        world.node(index).thaw();
    }
    episode.wait_serving();
}
