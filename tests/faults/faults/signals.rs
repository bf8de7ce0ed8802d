//! Signals in every order and at every moment.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::quick::{self, Stay};
use crate::support::dlock::{DLOCK, Dlock, NO_CONFIG};
use crate::support::process;
use crate::support::proxy::Mode;
use crate::support::pty::Pty;
use crate::support::recorder::{RECORDER_CODE, Recorder, send_as_somebody_else};
use crate::support::rendezvous::{Gate, Lifeline, boottime, eventually};
use crate::world::Column;

/// Signals that shells, supervisors and terminals send to whole groups.
const TO_GROUPS: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// What an impatient user sends, again and again.
const STORM: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// How soon a dlock that is told to stop during the acquire has ended, with a service that answers.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Resets the signals of a terminal to their default action, whatever this program was started with: a shell ignores
/// some for background jobs, as does nohup.
pub(super) fn usual_signals() -> io::Result<()> {
    for signal in TO_GROUPS {
        // SAFETY: signal is async-signal-safe.
        if unsafe { libc::signal(signal as libc::c_int, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

pub(super) fn with_usual_signals(dlock: Dlock) -> Dlock {
    // SAFETY: it only makes system calls.
    unsafe { dlock.pre_exec(usual_signals) }
}

/// How a signal reaches a whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// `kill %1`
    Shell,
    /// systemd, or another supervisor that signals each process of a list
    Supervisor,
    /// timeout(1)
    Timeout,
    /// a key
    Terminal,
}

/// A signal to the whole group reaches the command once.
pub fn to_the_group(episode: &mut Episode<'_>) {
    let mut recorder = Recorder::new(&episode.scratch);
    let command = episode.section(&format!("exec '{}'", recorder.program().display()));
    let senders = [Sender::Shell, Sender::Supervisor, Sender::Timeout, Sender::Terminal];
    match *episode.rng.choice(&senders).expect("one of several") {
        Sender::Terminal => {
            let terminal = Pty::spawn(&mut on_terminal(episode, &[], &command));
            recorder.ready();
            episode.queue_some();
            let dlock = terminal.pid().as_raw();
            for _ in 0..episode.rng.u32(1..=4) {
                let (key, signal) = if episode.coin() { ('c', Signal::SIGINT) } else { ('\\', Signal::SIGQUIT) };
                signalled(episode, &mut recorder, dlock, signal, |_| terminal.send_key(key));
            }
            recorder.end();
            heard_nothing_else(episode, &mut recorder);
            let status = terminal.wait();
            if status.code() != Some(RECORDER_CODE) {
                episode.violation(Invariant::EndsRight, format!("{status}, {:?}", terminal.screen()));
            }
        }
        Sender::Timeout => {
            let signal = *episode.rng.choice(&TO_GROUPS).expect("one of several");
            let timeout = ["timeout", "-s", &signal.as_str()[3..], "1000"];
            let dlock = with_usual_signals(episode.dlock(Way::Straight)).command(command);
            let running = dlock.wrapped_by(timeout).spawn();
            recorder.ready();
            episode.queue_some();
            let dlock = running.dlock_pid();
            // Its timeout expires.
            signalled(episode, &mut recorder, dlock, signal, |_| running.signal(Signal::SIGALRM));
            recorder.end();
            heard_nothing_else(episode, &mut recorder);
            episode.ends(running, &[Ending::Own(124)]);
        }
        sender => {
            let dlock = with_usual_signals(episode.dlock(Way::Straight)).command(command);
            let running = dlock.new_process_group().spawn();
            let recorder_pid = recorder.ready();
            episode.queue_some();
            let group = running.pid();
            let listener = eventually("the guard's listener", || running.listener_pid());
            let mut list = [group, running.guard_pid(), listener, recorder_pid];
            for _ in 0..episode.rng.u32(1..=6) {
                let signal = *episode.rng.choice(&TO_GROUPS).expect("one of several");
                signalled(episode, &mut recorder, group, signal, |episode| {
                    if sender == Sender::Shell {
                        process::signal_group(group, signal);
                    } else {
                        episode.rng.shuffle(&mut list);
                        for &pid in &list {
                            process::signal(pid, signal);
                        }
                    }
                });
            }
            episode.look_at(&running);
            recorder.end();
            heard_nothing_else(episode, &mut recorder);
            episode.ends(running, &[Ending::Own(RECORDER_CODE)]);
        }
    }
    episode.mended();
}

/// Checks that the command hears `signal` exactly once when it is sent.
fn signalled(
    episode: &mut Episode<'_>,
    recorder: &mut Recorder,
    dlock: i32,
    signal: Signal,
    send: impl FnOnce(&mut Episode<'_>),
) {
    episode.linger(Duration::from_millis(300));
    episode.broken();
    send(episode);
    let mut heard = Vec::new();
    // As in Recorder::expect_nothing_more, with a signal that arrives after all others that are on their way.
    for _ in 0..2 {
        process::wait_taken(dlock, Signal::SIGWINCH);
        send_as_somebody_else(dlock, Signal::SIGWINCH);
        heard.extend(std::iter::repeat_with(|| recorder.next().signal).take_while(|&next| next != Signal::SIGWINCH));
    }
    // timeout(1) also continues its group, in case it was suspended.
    heard.retain(|&heard| heard != Signal::SIGCONT);
    if heard != [signal] {
        episode.violation(Invariant::EndsRight, format!("of one {signal} to the group the command heard {heard:?}"));
    }
}

fn heard_nothing_else(episode: &mut Episode<'_>, recorder: &mut Recorder) {
    let rest = recorder.rest();
    if !rest.is_empty() {
        episode.violation(Invariant::EndsRight, format!("nobody sent the command {rest:?}"));
    }
}

/// `dlock run` with `options` and `command` on a terminal: in the episode's directory and with the environment that
/// every dlock has.
pub(super) fn on_terminal(episode: &Episode<'_>, options: &[&str], command: &[OsString]) -> Command {
    let mut dlock = Command::new(*DLOCK);
    let ttl = format!("{}s", episode.ttl.as_secs());
    dlock.args(["run", "--key", KEY, "--backend", &episode.world.url(), "-t", &ttl]);
    dlock.args(options).arg("--").args(command);
    surround(episode, &mut dlock);
    dlock
}

pub(super) fn surround(episode: &Episode<'_>, command: &mut Command) {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    command.env_clear().env("PATH", path).env("HOME", episode.scratch.root()).current_dir(episode.scratch.root());
    command.envs([NO_CONFIG]);
    // SAFETY: it only makes system calls.
    unsafe { command.pre_exec(usual_signals) };
}

/// The command's own end counts, and the lock is kept no longer than its lease.
pub fn storm_at_release(episode: &mut Episode<'_>) {
    let ends = [
        ("exit 0", Ending::Own(0)),
        ("exit 7", Ending::Own(7)),
        ("kill -TERM $$", Ending::By(Signal::SIGTERM)),
        ("kill -KILL $$", Ending::By(Signal::SIGKILL)),
    ];
    let (how, ending) = *episode.rng.choice(&ends).expect("one of several");
    let gate = Gate::new(episode.scratch.path("storm-gate"));
    let (lifeline, end) = Lifeline::pair();
    let work = format!("{}; {}; {how}", episode.store.write(), gate.wait());
    let dlock = with_usual_signals(episode.dlock(Way::Detour)).command(episode.section(&work));
    let running = dlock.new_process_group().lifeline(end).spawn();
    episode.expect_begun(&running, |episode| episode.store.has_written(1));
    episode.queue_some();
    let ttl = episode.ttl;
    episode.linger(ttl);
    let delay = Duration::from_millis(episode.rng.u64(5..=200));
    let modes = [Mode::Hold, Mode::Delay(delay), Mode::DropReplies, Mode::Silent, Mode::Forward];
    episode.world.set_way(*episode.rng.choice(&modes).expect("one of several"));
    // While frozen, it gets the end and the storm at the same time.
    let frozen = episode.coin();
    if frozen {
        process::signal(running.pid(), Signal::SIGSTOP);
        process::wait_stopped(running.pid());
    }
    gate.open();
    lifeline.closed_at();
    episode.mended();
    for _ in 0..episode.rng.u32(1..=6) {
        let signal = *episode.rng.choice(&STORM).expect("one of several");
        episode.broken();
        if episode.coin() {
            running.signal(signal);
        } else {
            process::signal_group(running.pid(), signal);
        }
        episode.linger(if frozen { Duration::from_millis(5) } else { delay });
    }
    if frozen {
        process::signal(running.pid(), Signal::SIGCONT);
    }
    episode.linger(ttl / 2);
    episode.world.set_way(Mode::Forward);
    episode.ends(running, &[ending]);
}

/// dlock or the command ends by that signal; neither a lock nor a queue entry stays.
pub fn storm_at_acquire(episode: &mut Episode<'_>) {
    let holder = if episode.coin() { Some(episode.hold(Way::Straight, &[])) } else { None };
    let delay = Duration::from_millis(episode.rng.u64(2..=60));
    // What it cannot take back in a short time it leaves behind: a queue entry expires, a directory does not.
    episode.cut_short = true;
    let held_up = !episode.world.proxies().is_empty() && episode.rng.u8(..4) == 0;
    episode.world.set_way(if held_up { Mode::Hold } else { Mode::Delay(delay) });
    let dlock = with_usual_signals(episode.dlock(Way::Detour)).command(quick::section(episode, Stay::Forever));
    let running = dlock.new_process_group().spawn();
    let waits = holder.is_some() && !held_up && episode.coin();
    if waits {
        let waits = || running.stderr_so_far().contains("waiting for ") || !running.is_running();
        eventually("a waiter", || waits().then_some(()));
    }
    // A few round trips; without servers, a few steps of the way there.
    let most = if episode.world.proxies().is_empty() { Duration::from_millis(20) } else { 12 * delay };
    episode.linger(most);
    if let Some(holder) = &holder
        && episode.coin()
    {
        // Its turn comes just then.
        holder.let_go();
        episode.linger(most);
    }
    // Where a majority has to answer quickly, it can give up first.
    let mut allowed = if episode.world.column == Column::Redlock { vec![Ending::Unavailable] } else { Vec::new() };
    let first = boottime();
    for _ in 0..episode.rng.u32(1..=4) {
        let signal = *episode.rng.choice(&STORM).expect("one of several");
        allowed.push(Ending::By(signal));
        episode.broken();
        if episode.coin() {
            running.signal(signal);
        } else {
            process::signal_group(running.pid(), signal);
        }
        episode.linger(delay);
    }
    if held_up {
        episode.linger(10 * delay);
        episode.world.set_way(Mode::Forward);
    }
    let outcome = running.wait();
    let late = boottime() - first;
    episode.ended(&outcome, &allowed);
    if late > AT_ONCE {
        episode.violation(Invariant::EndsRight, format!("told to stop, it took {late:?}\n{outcome:?}"));
    }
    episode.world.set_way(Mode::Forward);
    if let Some(holder) = holder {
        holder.let_go();
        episode.ends(holder.running, &[Ending::Own(0)]);
    }
    episode.mended();
}
