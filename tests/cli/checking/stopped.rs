//! A check that is stopped in the middle, servers that answer late, and one that is silent.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::cli::checking::{Found, assert_untouched, check_at};
use crate::support::backends::{Detour, on_every_server};
use crate::support::database_services::PostgresService;
use crate::support::dlock::DLOCK;
use crate::support::proxy::Mode;
use crate::support::pty::{PROMPT, Pty, bash};
use crate::support::rendezvous::eventually;
use crate::support::service::{EtcdService, RedisService, Service, ZooKeeperService};

/// The names of the locks that are held.
fn held<S: Service>(service: &S) -> Vec<String> {
    let list =
        service.scratch().dlock().args(["list", "--json"]).backend(service.url()).args(service.options()).output();
    list.code(0);
    let _ = list.stderr();
    let list: Value = serde_json::from_str(&list.stdout()).unwrap();
    list["locks"].as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap().to_owned()).collect()
}

fn what_is_stopped_in_the_middle_gives_its_lock_back<S: Service>(service: &S) {
    let detour = Detour::to(service);
    // As long as the lock is renewed so slowly, it is there.
    detour.set(Mode::DelayReplies(Duration::from_millis(60)));
    let checking = check_at(service.scratch(), detour.url(), &[]).args(service.options()).spawn();
    let key = eventually("the scratch key", || held(service).pop());
    assert!(key.starts_with("dlock-check-") && key.len() == 12 + 32, "{key}");
    checking.signal(Signal::SIGINT);
    detour.set(Mode::Forward);
    let outcome = checking.wait();
    outcome.signal(Signal::SIGINT).quiet();
    assert!(!outcome.stdout().contains("ok    lock"), "too late: {outcome:?}");
    drop(detour);
    // At once, and not when its lease ends.
    assert_eq!(held(service), Vec::<String>::new());
    assert_untouched(service);
}

on_every_server! {
    what_is_stopped_in_the_middle_gives_its_lock_back
}

#[test]
fn a_server_that_answers_late_is_told_by_the_length_of_leases() {
    let service = RedisService::fresh();
    let detour = Detour::to(&service);
    detour.set(Mode::DelayReplies(Duration::from_millis(200)));
    for (ttl, code, result, text) in [
        ("1s", 69, "fail", "too slow for a --ttl of 1s"),
        ("3s", 0, "warn", "slow for a --ttl of 3s"),
        ("1h", 0, "ok", "worst of "),
    ] {
        Found::at(service.scratch(), detour.url(), &["--ttl", ttl], code).has(result, "latency", text);
    }
}

/// As long as three probes may take: what is silent from the beginning is asked no further.
#[test]
fn a_silent_server_is_given_up_in_time() {
    fn on<S: Service>() {
        let service = S::fresh();
        let detour = Detour::to(&service);
        detour.set(Mode::Silent);
        let check = check_at(service.scratch(), detour.url(), &["--json"]).args(service.options());
        let outcome = check.output();
        assert!(outcome.elapsed() < Duration::from_secs(12), "{outcome:?}");
        let found = Found::by(check_at(service.scratch(), "redis://127.0.0.1:1", &[]), 69);
        found.has("fail", "reach", "connection refused").has("skip", "lock", "not tried");
        outcome.code(69).stderr_is_one_line("1 failure");
        assert!(outcome.stdout().contains("did not answer within 5s"), "{outcome:?}");
    }
    std::thread::scope(|all| {
        for test in [on::<RedisService>, on::<EtcdService>, on::<ZooKeeperService>, on::<PostgresService>] {
            all.spawn(test);
        }
    });
}

/// It falls silent after it has answered: the rest is asked, each for as long as a probe may take.
#[test]
fn a_server_that_falls_silent_is_given_up_in_time() {
    let service = RedisService::fresh();
    let detour = Detour::to(&service);
    detour.set(Mode::DelayReplies(Duration::from_millis(60)));
    let checking = check_at(service.scratch(), detour.url(), &["--json"]).spawn();
    eventually("the scratch key", || held(&service).pop());
    detour.set(Mode::Silent);
    let outcome = checking.wait();
    assert!(outcome.elapsed() < Duration::from_secs(25), "{outcome:?}");
    outcome.code(69);
    let _ = outcome.stderr();
}

#[test]
fn bars_are_drawn_on_a_terminal_that_has_them() {
    let service = RedisService::fresh();
    for (locale, has_bars) in [("C.UTF-8", true), ("C", false)] {
        let mut bash = bash();
        bash.current_dir(service.scratch().root()).env("D", *DLOCK).env("DLOCK_BACKEND", service.url());
        let terminal = Pty::spawn(bash.env("LC_ALL", locale));
        terminal.expect(PROMPT);
        terminal.send("$D check; echo code=$?\n");
        terminal.expect("code=0");
        let screen = terminal.screen();
        assert!(screen.contains("worst of 20 renewals") && screen.contains('█') == has_bars, "{screen}");
    }
    let piped = check_at(service.scratch(), &service.url(), &[]).env("LC_ALL", "C.UTF-8").output();
    piped.code(0).stderr_is_one_line("warning");
    assert!(!piped.stdout().contains('█'));
}
