//! A picture that is kept up to date: lines of JSON, one for each change, and a terminal that is drawn in place.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::locks::looking::{look, told};
use crate::support::backends::on_file_and_redis;
use crate::support::dlock::{DLOCK, Running};
use crate::support::pty::{PROMPT, Pty, bash};
use crate::support::rendezvous::eventually;
use crate::support::servers::Redis;
use crate::support::service::{RedisService, Service};

/// The documents so far.
fn documents(watching: &Running) -> Vec<Value> {
    let text = watching.stdout_so_far();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for so many documents; returns the last one.
fn wait_for(watching: &Running, count: usize) -> Value {
    eventually(&format!("{count} documents"), || {
        let documents = documents(watching);
        (documents.len() >= count).then(|| documents[count - 1].clone())
    })
}

fn a_line_tells_each_change_and_nothing_else<S: Service>(service: &S) {
    let watching = look(service, &["status", "-k", "job", "--json", "--watch"]).spawn();
    assert_eq!(wait_for(&watching, 1)["state"], "free");
    let holder = service.hold("job");
    let held = eventually("the holder", || {
        documents(&watching).into_iter().find(|document| document["holder"]["pid"] == holder.pid())
    });
    assert_eq!(held["state"], "held");
    let before = documents(&watching).len();
    // Ages and leases count, and are no news.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let after = documents(&watching);
    assert!(after.len() <= before + 1, "{:?}", &after[before..]);
    holder.let_go().success();
    eventually("the end", || (documents(&watching).last().unwrap()["state"] == "free").then_some(()));
    watching.signal(Signal::SIGINT);
    watching.wait().code(0).quiet();
}

fn a_list_is_watched_too<S: Service>(service: &S) {
    let watching = look(service, &["list", "--json", "--watch"]).spawn();
    assert_eq!(wait_for(&watching, 1)["locks"], Value::Array(Vec::new()));
    let holder = service.hold("job");
    let held = eventually("the lock", || {
        documents(&watching).into_iter().find(|document| document["locks"][0]["state"] == "held")
    });
    assert_eq!(held["locks"][0]["key"], "job");
    holder.let_go().success();
    watching.signal(Signal::SIGTERM);
    watching.wait().code(0).quiet();
}

on_file_and_redis! {
    a_line_tells_each_change_and_nothing_else
    a_list_is_watched_too
}

/// From the first column of the first line, everything is drawn anew.
#[test]
fn a_terminal_is_drawn_in_place_and_left_as_it_was() {
    let service = RedisService::on(Redis::start());
    let mut bash = bash();
    bash.current_dir(service.scratch().root())
        .env("D", *DLOCK)
        .env("DLOCK_BACKEND", service.url())
        .env("TERM", "vt100");
    let terminal = Pty::spawn(&mut bash);
    terminal.expect(PROMPT);
    terminal.resize(20, 60);
    terminal.send("$D status -k job --watch; echo code=$?\n");
    terminal.expect("\u{1b}[?25l");
    terminal.expect("Z  every 1s  Ctrl-C to leave\r\njob: free\r\n  at       redis://");
    let holder = service.hold("job");
    // Three lines were there.
    terminal.expect("\u{1b}[3F\u{1b}[J");
    terminal.expect("job: held for ");
    // The line to type takes as many lines as it needs.
    let text = told(&service, "job", 75);
    let next = text.lines().last().unwrap();
    assert!(next.starts_with("  stop it  dlock break "), "{text}");
    terminal.expect(&format!("{next}\r\n"));
    terminal.expect(&format!("\u{1b}[{}F\u{1b}[J", 8 + next.len().div_ceil(60)));
    // What was seen last stays while the server is silent.
    service.redis.stop();
    terminal.expect("seen ");
    terminal.expect(" ago; cannot read 'job': ");
    terminal.expect("job: held for ");
    service.redis.cont();
    holder.let_go().success();
    terminal.expect("job: free");
    terminal.send_key('c');
    terminal.expect("\u{1b}[?25h");
    terminal.expect("code=0");
    let screen = terminal.screen();
    let lines = screen.lines().map(|line| line.trim_end_matches('\r'));
    assert!(
        lines
            .filter(|line| !line.contains('$') && !line.starts_with("  stop it "))
            .all(|line| line.chars().count() <= 80),
        "{screen}"
    );
}

#[test]
fn an_outage_is_one_line_and_watching_goes_on() {
    let service = RedisService::on(Redis::start());
    let watching = look(&service, &["status", "-k", "job", "--json", "--watch"]).spawn();
    wait_for(&watching, 1);
    service.redis.kill();
    let trouble = wait_for(&watching, 2);
    assert!(trouble["error"]["message"].is_string() && trouble["v"] == 1, "{trouble}");
    service.redis.restart();
    assert_eq!(wait_for(&watching, 3)["state"], "free");
    watching.signal(Signal::SIGINT);
    watching.wait().code(0).quiet();
}

/// As `tail -f` does, and while nothing changes.
#[test]
fn watching_ends_when_nobody_reads_any_more() {
    let service = RedisService::fresh();
    for words in [&["status", "-k", "job", "--json", "--watch"][..], &["list", "--json", "--watch"]] {
        let shell = "\"$@\" | head -n 1; echo \"codes ${PIPESTATUS[0]}\"";
        let outcome = look(&service, words).wrapped_by(["bash", "-c", shell, "bash"]).output();
        outcome.code(0).quiet();
        let text = outcome.stdout();
        assert!(text.lines().count() == 2 && text.ends_with("codes 0\n"), "{text}");
    }
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_is_none() {
    let service = RedisService::fresh();
    let mut bash = bash();
    bash.current_dir(service.scratch().root()).env("D", *DLOCK).env("DLOCK_BACKEND", service.url()).env("TERM", "dumb");
    let terminal = Pty::spawn(&mut bash);
    terminal.expect(PROMPT);
    terminal.send("$D status -k job --watch; echo code=$?\n");
    terminal.expect("--watch needs a terminal or --json");
    terminal.expect("code=64");
    assert!(!terminal.screen().contains("\u{1b}[?25l"));
}
