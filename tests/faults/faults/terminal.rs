//! Terminals and pipes that close.

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::dlock::DLOCK;
use crate::support::process;
use crate::support::proxy::Mode;
use crate::support::pty::{PROMPT, Pty, bash};
use crate::support::rendezvous::{Gate, Lifeline, boottime, eventually, last_until};
use crate::world::Servers;

use super::signals::{on_terminal, surround, usual_signals};

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
        // Who leads the session, or dlock, may send another.
        Hup::Handles => "trap 'trap \"\" HUP; stamp end; trap - EXIT; exit 7' HUP; ",
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
        // On a dumb terminal it is a line: "waiting for KEY".
        terminal.expect("waiting ");
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
