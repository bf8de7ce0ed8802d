//! `dlock check`: on a service in order it passes and leaves nothing; and each thing that can be wrong is provoked on a real server,
//! and told with what to do about it.

mod databases;
mod files;
mod redis_servers;
mod servers;
mod stopped;

use serde_json::Value;

use crate::support::backends::on_every_backend;
use crate::support::dlock::{Dlock, Outcome};
use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::service::{RedisService, Service};

/// `dlock check` of this service with these words.
pub(super) fn check<S: Service>(service: &S, words: &[&str]) -> Dlock {
    check_at(service.scratch(), &service.url(), words).args(service.options())
}

/// `dlock check` of the backend at this URL.
pub(super) fn check_at(scratch: &Scratch, url: &str, words: &[&str]) -> Dlock {
    scratch.dlock().arg("check").backend(url).args(words)
}

/// What one check has found.
pub(crate) struct Found(pub Value);

impl Found {
    /// By `dlock check --json` at this URL, which ends with this code.
    #[track_caller]
    pub fn at(scratch: &Scratch, url: &str, words: &[&str], code: i32) -> Self {
        Self::by(check_at(scratch, url, words), code)
    }

    /// By this `dlock check`, which ends with this code.
    #[track_caller]
    pub fn by(check: Dlock, code: i32) -> Self {
        let outcome = check.arg("--json").output();
        outcome.code(code);
        Self::read(&outcome)
    }

    #[track_caller]
    fn read(outcome: &Outcome) -> Self {
        let (text, stderr) = (outcome.stdout(), outcome.stderr());
        assert_eq!(text.lines().count(), 1, "{outcome:?}");
        let document: Value = serde_json::from_str(&text).unwrap();
        let count =
            |result| document["probes"].as_array().unwrap().iter().filter(|one| one["result"] == result).count();
        let (failures, warnings) = (count("fail"), count("warn"));
        let expected = if failures > 0 {
            "fail"
        } else if warnings > 0 {
            "warn"
        } else {
            "ok"
        };
        assert_eq!(document["result"], expected, "{document}");
        let told = |count: usize, what: &str| stderr.contains(&format!("{count} {what}"));
        assert!(failures == 0 || told(failures, "failure"), "{stderr}");
        assert!(warnings == 0 || told(warnings, "warning"), "{stderr}");
        Self(document)
    }

    /// The results and texts of this probe.
    pub fn of(&self, probe: &str) -> Vec<(&str, &str)> {
        let probes = self.0["probes"].as_array().unwrap().iter().filter(|one| one["name"] == probe);
        probes.map(|one| (one["result"].as_str().unwrap(), one["text"].as_str().unwrap())).collect()
    }

    /// Asserts that this probe has this result once, with this text; and that there is a remedy unless all is well.
    #[track_caller]
    pub fn has(&self, result: &str, probe: &str, text: &str) -> &Self {
        let probes = self.0["probes"].as_array().unwrap();
        let is_it = |one: &&Value| {
            one["name"] == probe
                && one["result"] == result
                && one["text"].as_str().is_some_and(|said| said.contains(text))
        };
        let found: Vec<&Value> = probes.iter().filter(is_it).collect();
        assert!(!found.is_empty(), "no {result} {probe} {text}: {:#}", self.0);
        for one in found {
            // What is said of a lock is what `run` says, in one sentence.
            let needs_none = ["ok", "skip"].contains(&result) || ["servers", "lock"].contains(&probe);
            assert!(needs_none || one["remedy"].is_string(), "what is to be done? {one}");
        }
        self
    }

    /// The names of the probes that have this result, each once.
    pub fn with(&self, result: &str) -> Vec<&str> {
        let probes = self.0["probes"].as_array().unwrap().iter().filter(|one| one["result"] == result);
        let mut names: Vec<&str> = probes.map(|one| one["name"].as_str().unwrap()).collect();
        names.dedup();
        names
    }
}

/// Waits until the service is as if nothing had ever been there.
#[track_caller]
pub(super) fn assert_untouched<S: Service>(service: &S) {
    eventually("nothing to be left", || service.litter(&[]).is_empty().then_some(()));
}

fn a_service_in_order_passes_and_is_left_as_it_was<S: Service>(service: &S) {
    let found = Found::by(check(service, &[]), 0);
    let document = &found.0;
    assert_eq!((&document["v"], &document["backend"]), (&1.into(), &service.url().into()));
    assert_eq!(document["origin"], "flag");
    assert_eq!(found.of("host"), [("ok", "commands can be supervised here")]);
    assert_eq!(found.of("lock"), [("ok", "taken, refused to another contender, renewed and released")]);
    assert!(!found.of("identity").is_empty() && found.with("fail").is_empty(), "{document:#}");
    let latency = &document["latency"];
    if S::KIND == "file" {
        assert!(latency.is_null() && found.of("reach").is_empty(), "{document:#}");
    } else {
        let samples: Vec<u64> =
            latency["samples_us"].as_array().unwrap().iter().map(|one| one.as_u64().unwrap()).collect();
        assert_eq!((samples.len(), &latency["count"]), (20, &20.into()));
        assert_eq!(latency["worst_us"], *samples.iter().max().unwrap());
        assert_eq!(found.of("latency").len(), 1);
        assert!(!found.of("reach").is_empty() && !found.of("version").is_empty(), "{document:#}");
    }
    assert_untouched(service);
    // For people: the first line says what is checked, and each other one is a probe.
    let outcome = check(service, &[]).output();
    outcome.code(0);
    let _ = outcome.stderr();
    let text = outcome.stdout();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(format!("{} (from flag)", service.url()).as_str()));
    for line in lines {
        let (result, rest) = line.split_at(6);
        assert!(["ok    ", "warn  ", "skip  "].contains(&result) && rest.starts_with(char::is_alphabetic), "{text}");
    }
    let quiet = check(service, &["-q"]).output();
    quiet.success().quiet().stdout_is("");
    assert_untouched(service);
}

fn locks_that_are_held_are_left_alone<S: Service>(service: &S) {
    let holder = service.hold("job");
    Found::by(check(service, &[]), 0);
    service.assert_held("job");
    assert!(holder.running.is_running());
    holder.let_go().success();
}

#[test]
fn the_origin_of_the_url_is_told() {
    let service = RedisService::fresh();
    let scratch = service.scratch();
    let origin = |dlock: Dlock| {
        let outcome = dlock.args(["check", "--json"]).output();
        outcome.code(0);
        Found::read(&outcome).0["origin"].as_str().unwrap().to_owned()
    };
    assert_eq!(origin(scratch.dlock().env("DLOCK_BACKEND", service.url())), "DLOCK_BACKEND");
    let file = scratch.file("config.toml", format!("wait = 1\nbackend = \"{}\"\n", service.url()));
    assert_eq!(origin(scratch.dlock().env("DLOCK_CONFIG", &file)), format!("{}:2", file.display()));
    let outcome = scratch.dlock().arg("check").output();
    outcome.code(0).stderr_is_one_line("no backend was chosen, so this checks the locks of this user");
    assert!(outcome.stdout().starts_with("file: (from default)\n"), "{outcome:?}");
}

on_every_backend! {
    a_service_in_order_passes_and_is_left_as_it_was
    locks_that_are_held_are_left_alone
}
