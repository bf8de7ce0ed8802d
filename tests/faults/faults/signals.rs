//! Signals in every order and at every moment, and terminals and pipes that close.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::quick::{self, Stay};
use crate::support::dlock::{DLOCK, Dlock};
use crate::support::process;
use crate::support::proxy::Mode;
use crate::support::pty::{PROMPT, Pty, bash};
use crate::support::recorder::{RECORDER_CODE, Recorder, send_as_somebody_else};
use crate::support::rendezvous::{Gate, Lifeline, boottime, eventually, last_until};
use crate::world::{Column, Servers};

/// Signals that shells, supervisors and terminals send to whole groups.
const TO_GROUPS: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// What an impatient user sends, again and again.
const STORM: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// How soon a dlock that is told to stop during the acquire has ended, with a service that answers.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Resets the signals of a terminal to their default action, whatever this program was started with: a shell ignores
/// some for background jobs, as does nohup.
fn usual_signals() -> io::Result<()> {
    for signal in TO_GROUPS {
        // SAFETY: signal is async-signal-safe.
        if unsafe { libc::signal(signal as libc::c_int, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn with_usual_signals(dlock: Dlock) -> Dlock {
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
            let ear = eventually("the guard's ear", || running.ear_pid());
            let mut list = [group, running.guard_pid(), ear, recorder_pid];
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
fn on_terminal(episode: &Episode<'_>, options: &[&str], command: &[OsString]) -> Command {
    let mut dlock = Command::new(*DLOCK);
    let ttl = format!("{}s", episode.ttl.as_secs());
    dlock.args(["run", "--key", KEY, "--backend", &episode.world.url(), "-t", &ttl]);
    dlock.args(options).arg("--").args(command);
    surround(episode, &mut dlock);
    dlock
}

fn surround(episode: &Episode<'_>, command: &mut Command) {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    command.env_clear().env("PATH", path).env("HOME", episode.scratch.root()).current_dir(episode.scratch.root());
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

/// What a command does when its terminal hangs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hup {
    Dies,
    Handles,
    Ignores,
}

/// Which process leads the session on the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leader {
    Dlock,
    Script,
    Shell,
}

/// The command ends by SIGHUP, or handles it as it likes; the lock is kept exactly as long as the command runs.
pub fn terminal_closed(episode: &mut Episode<'_>) {
    let leader = *episode.rng.choice(&[Leader::Dlock, Leader::Script, Leader::Shell]).expect("one of several");
    let hup = *episode.rng.choice(&[Hup::Dies, Hup::Handles, Hup::Ignores]).expect("one of several");
    let waits = episode.rng.u8(..4) == 0;
    let holder = if waits { Some(episode.hold(Way::Straight, &[])) } else { None };
    let gate = Gate::new(episode.scratch.path("terminal-gate"));
    let trap = match hup {
        Hup::Dies => "",
        Hup::Handles => "trap 'stamp end; trap - EXIT; exit 7' HUP; ",
        Hup::Ignores => "trap '' HUP; ",
    };
    let (write, wait) = (episode.store.write(), gate.wait());
    let options: &[&str] = if episode.coin() { &["-v"] } else { &[] };
    let command = episode.section(&format!("{trap}{write}; {wait}"));
    let (lifeline, end) = Lifeline::pair();
    let dlock = on_terminal(episode, options, &command);
    let script: String = [dlock.get_program()].into_iter().chain(dlock.get_args()).map(quoted).collect();
    episode.scratch.script("on-terminal", &format!("#!/bin/sh\nexec{script}\n"));
    let mut first = match leader {
        Leader::Dlock => dlock,
        Leader::Script => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "./on-terminal; :"]);
            surround(episode, &mut shell);
            shell
        }
        Leader::Shell => {
            let mut shell = bash();
            shell.current_dir(episode.scratch.root());
            // SAFETY: it only makes system calls.
            unsafe { shell.pre_exec(usual_signals) };
            shell
        }
    };
    end.attach(&mut first);
    let mut terminal = Pty::spawn(&mut first);
    drop(first);
    if leader == Leader::Shell {
        terminal.expect(PROMPT);
        terminal.send("./on-terminal\n");
    }
    if waits {
        terminal.expect("waiting for ");
    } else {
        let store = &episode.store;
        eventually("a command on the terminal", || store.has_written(1).then_some(()));
        episode.queue_some();
    }
    let program = fs::canonicalize(*DLOCK).ok();
    let leader_pid = terminal.pid().as_raw();
    let mut session = [leader_pid].into_iter().chain(process::descendants(leader_pid));
    let dlock = session.find(|&pid| process::exe(pid) == program).expect("a dlock on the terminal");
    let ttl = episode.ttl;
    episode.linger(ttl);
    episode.broken();
    terminal.close();
    if hup == Hup::Ignores && !waits {
        episode.linger(ttl);
        if !lifeline.is_open() || !process::is_alive(dlock) {
            episode.violation(Invariant::EndsRight, "a command that ignores HUP, or its dlock, did not survive it");
        }
        gate.open();
    }
    lifeline.closed_at();
    episode.mended();
    // Otherwise it would go with the terminal.
    process::wait_gone(dlock);
    if leader == Leader::Dlock {
        let status = terminal.wait();
        let fits = match hup {
            _ if waits => status.signal() == Some(Signal::SIGHUP as i32),
            Hup::Dies => status.signal() == Some(Signal::SIGHUP as i32),
            Hup::Handles => status.code() == Some(7),
            Hup::Ignores => status.code() == Some(0),
        };
        if !fits {
            episode.violation(Invariant::EndsRight, format!("{hup:?}: {status}\n{}", terminal.screen()));
        }
    }
    if let Some(holder) = holder {
        holder.let_go();
        episode.ends(holder.running, &[Ending::Own(0)]);
        episode.mended();
    }
}

fn quoted(word: &std::ffi::OsStr) -> String {
    format!(" '{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

/// Nobody reads dlock's messages; everything else is as usual.
pub fn broken_pipe(episode: &mut Episode<'_>) {
    let (reader, writer) = io::pipe().unwrap();
    let ttl = episode.ttl;
    let options: &[&str] = if episode.coin() { &["-v"] } else { &[] };
    let leases = episode.world.column.has_leases();
    match episode.rng.u8(..if leases { 4 } else { 2 }) {
        // It says that it waits.
        0 => {
            let holder = episode.hold(Way::Straight, &[]);
            let code = episode.rng.i32(0..=9);
            let command = episode.section(&format!("{}; exit {code}", episode.store.write()));
            episode.broken();
            let waiter = episode.dlock(Way::Straight).args(options).command(command).stderr(writer).spawn();
            drop(reader);
            // Long enough to say so.
            let how_long = Duration::from_millis(500) + episode.some_time(ttl);
            last_until(boottime() + how_long);
            holder.let_go();
            episode.ends(holder.running, &[Ending::Own(0)]);
            episode.mended();
            episode.ends(waiter, &[Ending::Own(code)]);
        }
        // It loses its lock.
        1 => {
            let dlock = episode.dlock(Way::Detour).args(options).stderr(writer);
            let holder = episode.hold_by(dlock);
            episode.linger(ttl);
            drop(reader);
            episode.broken();
            if let Servers::File(scratch) = &episode.world.servers {
                fs::remove_file(scratch.lock_dir().join(format!("{KEY}.lock"))).unwrap();
                holder.died_at();
            } else {
                episode.world.set_way(Mode::Silent);
                episode.dies_in_time(&holder);
            }
            episode.mended();
            episode.ends(holder.running, &[Ending::Own(79)]);
            episode.world.set_way(Mode::Forward);
        }
        // It cannot release the lock.
        2 => {
            let dlock = episode.dlock(Way::Detour).args(options).stderr(writer);
            let holder = episode.hold_by(dlock);
            episode.queue_some();
            episode.linger(ttl);
            drop(reader);
            episode.broken();
            episode.world.set_way(Mode::DropReplies);
            holder.let_go();
            holder.died_at();
            episode.mended();
            episode.ends(holder.running, &[Ending::Own(0)]);
            episode.world.set_way(Mode::Forward);
        }
        // Its guard is left alone.
        _ => {
            let dlock = episode.dlock(Way::Straight).args(options).stderr(writer);
            let holder = episode.hold_by(dlock);
            episode.queue_some();
            episode.linger(ttl);
            drop(reader);
            episode.broken();
            holder.running.signal(Signal::SIGKILL);
            process::wait_gone(holder.running.pid());
            episode.mended();
            episode.dies_in_time(&holder);
            episode.ends(holder.running, &[Ending::By(Signal::SIGKILL)]);
        }
    }
}
