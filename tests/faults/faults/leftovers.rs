//! What a command leaves behind when a signal ends it, and runs in the background that are covered by its lock.

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Holder, Invariant, KEY, Way};
use crate::support::dlock::DLOCK;
use crate::support::exhausted::SmallMemory;
use crate::support::process;
use crate::support::programs::{sh, unruly};
use crate::support::rendezvous::{Fifo, Gate, eventually};

/// How much memory, in MiB, there is for a command that takes more.
const LITTLE: u64 = 100;

/// How the command comes to its end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// By this signal, which dlock passes on.
    Told(Signal),
    /// By a SIGKILL sent to the command itself.
    Killed,
    /// By the kernel, which has no more memory for it.
    OutOfMemory,
}

/// What the command started is gone before the next holder begins, although some of it ignores SIGTERM and some has its
/// own session.
pub fn ended_by_a_signal(episode: &mut Episode<'_>) {
    let ends = [End::Told(Signal::SIGTERM), End::Told(Signal::SIGHUP), End::Killed, End::OutOfMemory];
    let end = *episode.rng.choice(&ends).expect("one of several");
    let memory = matches!(end, End::OutOfMemory).then(|| SmallMemory::of(LITTLE)).flatten();
    let end = if memory.is_some() || !matches!(end, End::OutOfMemory) { end } else { End::Killed };
    let mut words = Fifo::new(episode.scratch.path("words"));
    let gate = Gate::new(episode.scratch.path("gate"));
    let deaf = sh(&format!("trap '' TERM HUP; {}; exec sleep 1000", words.say("$$")));
    let hog = unruly(&episode.scratch, "hog");
    let last = if memory.is_some() { format!("{}; exec {hog}", gate.wait()) } else { "wait; true".to_owned() };
    let work = format!("{} & {}; {deaf} & {last}", episode.store.write_on(), words.say("$!"));
    let mut dlock = episode.dlock(Way::Straight).args(["--kill-after", "300ms"]);
    if let Some(memory) = &memory {
        dlock = dlock.wrapped_by(memory.wrapper());
    }
    let dlock = dlock.command(episode.section(&work));
    let holder = episode.hold_as_told(dlock);
    let left = [words.word(), words.word()].map(|pid| pid.parse().unwrap());
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.broken();
    let by = match end {
        End::Told(signal) => {
            holder.running.signal(signal);
            signal
        }
        End::Killed => {
            process::signal(holder.running.command_pid(), Signal::SIGKILL);
            Signal::SIGKILL
        }
        End::OutOfMemory => {
            gate.open();
            Signal::SIGKILL
        }
    };
    nothing_left(episode, &holder, &left);
    episode.ends(holder.running, &[Ending::By(by)]);
}

/// Checks that these processes are gone when dlock has ended.
fn nothing_left(episode: &mut Episode<'_>, holder: &Holder, these: &[i32]) {
    eventually("the end of dlock", || (!holder.running.is_running()).then_some(()));
    if these.iter().any(|&pid| process::is_alive(pid)) {
        episode.violation(Invariant::NoOverlap, "what the command started is left when dlock has ended");
        // Long enough to see the result.
        let ttl = episode.ttl;
        episode.linger(ttl);
        for &pid in these {
            process::signal(pid, Signal::SIGKILL);
        }
    }
    holder.died_at();
    episode.mended();
}

/// The outer run releases its lock once the covered run is gone.
pub fn covered_run(episode: &mut Episode<'_>) {
    let mut words = Fifo::new(episode.scratch.path("words"));
    let gate = Gate::new(episode.scratch.path("gate"));
    let deaf = format!("trap '' TERM; {}; sleep 1000; true", words.say("$$"));
    let work: Vec<String> = episode.section(&deaf).iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let (url, session) = (episode.world.url(), if episode.coin() { "setsid" } else { "" });
    let options = format!("--key {KEY} --backend '{url}' --kill-after 300ms {}", episode.held.options());
    let script = format!("{session} '{}' run {options} -- {} 2>/dev/null & {}", *DLOCK, work.join(" "), gate.wait());
    let dlock = episode.dlock(Way::Straight).shell(script);
    let holder = episode.hold_as_told(dlock);
    let left = words.word().parse().unwrap();
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.broken();
    gate.open();
    nothing_left(episode, &holder, &[left]);
    episode.ends(holder.running, &[Ending::Own(0)]);
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
