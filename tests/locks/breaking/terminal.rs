//! On a terminal, a break is asked about first; and what is found out before the answer may have changed by then.

use std::process::Command;

use crate::locks::breaking::owner;
use crate::support::dlock::DLOCK;
use crate::support::pty::Pty;
use crate::support::service::{Gated, RedisService, Service};

/// `dlock break --key job` on a terminal, which has shown the lock.
fn on_a_terminal(service: &RedisService, owner: &str, words: &[&str], question: &str) -> Pty {
    let mut dlock = Command::new(*DLOCK);
    dlock.args(["break", "--key", "job", "--owner", owner, "--backend", &service.url()]).args(words);
    let terminal = Pty::spawn(dlock.current_dir(service.scratch().root()));
    let shown = terminal.expect(question);
    assert!(shown.contains("job at redis://") && shown.contains(&format!("  owner    {owner}")), "{shown}");
    terminal
}

#[test]
fn only_a_yes_is_a_yes() {
    let service = RedisService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    holder.wait_held();
    let id = owner(&service);
    for answer in ["\n", "n\n", "job\n"] {
        let terminal = on_a_terminal(&service, &id, &[], " to stop sh? [y/N] ");
        terminal.send(answer);
        terminal.expect("dlock: 'job': nothing was done");
        assert_eq!(terminal.wait().code(), Some(75));
    }
    assert!(holder.running.is_running());
    let terminal = on_a_terminal(&service, &id, &[], " to stop sh? [y/N] ");
    terminal.send("y\n");
    terminal.expect(" to stop: it checks every ");
    terminal.expect("dlock: 'job' was released after ");
    assert_eq!(terminal.wait().code(), Some(0));
    holder.running.wait().code(79).stderr_is_one_line("asked it to stop");
}

/// The owner is compared where the lock is taken away, and not only when it is looked at.
#[test]
fn the_lock_of_whoever_has_come_meanwhile_is_not_taken_away() {
    let service = RedisService::fresh();
    let first = service.hold("job");
    let id = owner(&service);
    let taking = on_a_terminal(&service, &id, &["--now"], "Type the key to go on: ");
    let asking = on_a_terminal(&service, &id, &[], " to stop sh? [y/N] ");
    first.let_go().success();
    let next = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    next.wait_held();
    for (terminal, answer) in [(taking, "job\n"), (asking, "y\n")] {
        terminal.send(answer);
        terminal.expect("dlock: 'job' ");
        terminal.expect("held by ");
        assert_eq!(terminal.wait().code(), Some(0));
    }
    assert_eq!(service.redis.cli(&["KEYS", "*stop*"]), "");
    next.let_go().success();
}
