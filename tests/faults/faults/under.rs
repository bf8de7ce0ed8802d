//! Commands under the handle of a lock, in their own `dlock run`: the lock does not pass on while one of them lives, whatever ends
//! the script around it. The commands ignore SIGTERM.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::breaks::{break_it, check_told};
use crate::episode::{Episode, Invariant, KEY};
use crate::quick::{Stay, section};
use crate::support::dlock::Running;
use crate::support::process;
use crate::support::rendezvous::eventually_within;

/// How long a guard leaves a command that is to stop.
const KILL_AFTER: &str = "800ms";

/// Takes the lock for itself, and runs the command under the handle, as the first argument says: behind it, beside it, or in its
/// place.
const SCRIPT: &str = r#"
way=$1; shift
"$0" acquire --key "$KEY" --while-pid $$ --ttl "$TTL" --kill-after 300ms --json >"$TOLD" || exit
h=$(sed 's/.*"handle": *"\([^"]*\)".*/\1/' "$TOLD")
set -- "$0" run --handle "$h" --kill-after "$KILL_AFTER" -- /bin/sh -c 'trap "" TERM; exec "$@"' sh "$@"
case $way in
exec) exec "$@" ;;
timeout) trap : TERM; "$@" ;;
beside) "$@" & while [ ! -e "$TOLD.end" ]; do sleep 0.05; done ;;
*) "$@" ;;
esac
"#;

/// What a script has taken.
struct Taken {
    running: Running,
    keeper: i32,
    owner: String,
    told: PathBuf,
}

/// The lock of a keeper passes on only when the run under its handle is over.
pub fn kept(episode: &mut Episode<'_>) {
    let ways = ["killed", "beside", "timeout", "exec", "asked"];
    let way = ways[episode.rng.usize(0..ways.len())];
    // What a run's end or a guard does not end must end by itself.
    let lasting = Stay::For(episode.ttl.as_secs_f64() * 1.5);
    let stay = if matches!(way, "killed" | "beside") { lasting } else { Stay::Forever };
    let taken = take(episode, way, stay);
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.broken();
    match way {
        "beside" => drop(std::fs::write(taken.told.with_extension("end"), "")),
        // It sends SIGTERM to its whole process group now, and SIGKILL later.
        "timeout" => process::signal(taken.running.pid(), Signal::SIGTERM),
        "asked" => {
            let outcome = break_it(episode, &taken.owner).wait();
            if outcome.status().code() != Some(0) {
                episode.violation(Invariant::EndsRight, format!("{outcome:?}"));
            }
            let _ = outcome.stderr();
            check_told(episode, &taken.owner);
        }
        _ => process::signal(taken.running.pid(), Signal::SIGKILL),
    }
    let limit = 2 * ttl + Duration::from_secs(15);
    if eventually_within(limit, || (!process::is_alive(taken.keeper)).then_some(())).is_none() {
        episode.violation(Invariant::NothingLeft, "the keeper goes on without its process and without a run");
    }
    episode.mended();
    let _ = taken.running.wait().stderr();
}

/// Starts a script that takes the lock and runs a command under its handle, which has begun to work.
fn take(episode: &mut Episode<'_>, way: &str, stay: Stay) -> Taken {
    let told = episode.scratch.path("told");
    let script = ["/bin/sh", "-c", SCRIPT];
    let words: Vec<&str> = if way == "timeout" {
        ["timeout", "-k", "0.3", "1000"].into_iter().chain(script).collect()
    } else {
        script.into()
    };
    let command: Vec<OsString> = std::iter::once(way.into()).chain(section(episode, stay)).collect();
    let dlock = episode.scratch.dlock().args(command).env("KEY", KEY).env("TOLD", &told).env("KILL_AFTER", KILL_AFTER);
    let dlock = dlock.env("TTL", format!("{}s", episode.ttl.as_secs())).env("DLOCK_BACKEND", episode.world.url());
    let running = dlock.wrapped_by(words).new_process_group().spawn();
    begun(episode);
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&told).unwrap()).unwrap();
    let keeper = document["keeper"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap();
    Taken { running, keeper, owner: document["owner"].as_str().unwrap().to_owned(), told }
}

#[track_caller]
fn begun(episode: &Episode<'_>) {
    let begun = eventually_within(Duration::from_secs(30), || (!episode.store.starts().is_empty()).then_some(()));
    assert!(begun.is_some(), "the command does not begin to work");
}

/// dlock is killed, alone or with its process group, or its guard is, and the lock is released at once, as by the last step of a
/// pipeline.
pub fn released(episode: &mut Episode<'_>) {
    let ttl = format!("{}s", episode.ttl.as_secs());
    let acquire = episode
        .scratch
        .dlock()
        .args(["acquire", "--key", KEY, "--ttl", &ttl, "-w", "10s"])
        .backend(episode.world.url());
    let outcome = acquire.output();
    outcome.success();
    let handle = outcome.stdout().trim_end().to_owned();
    let run = episode.scratch.dlock().args(["run", "--handle", &handle, "--kill-after", KILL_AFTER, "--"]);
    let stubborn = ["/bin/sh", "-c", "trap '' TERM; setsid -w \"$@\"; true", "sh"].map(OsString::from);
    let run = run.args(stubborn.into_iter().chain(section(episode, Stay::Forever))).new_process_group().spawn();
    begun(episode);
    episode.queue_some();
    let most = episode.ttl;
    episode.linger(most);
    episode.broken();
    match episode.rng.u8(..3) {
        0 => process::signal_group(run.pid(), Signal::SIGKILL),
        1 => process::signal(run.pid(), Signal::SIGKILL),
        _ => process::signal(run.guard_pid(), Signal::SIGKILL),
    }
    let released = episode.scratch.dlock().args(["release", &handle]).output();
    episode.mended();
    // On a slow machine the lease can end meanwhile.
    if !matches!(released.status().code(), Some(0 | 79)) {
        episode.violation(Invariant::EndsRight, format!("{released:?}"));
    }
    let _ = (released.stderr(), run.wait().stderr());
}
