//! Looking at locks: what `status` and `list` say on every backend of dlock's holders and waiters and of other programs', as
//! text, as JSON and as an exit code; and that looking changes nothing.

mod closed;
mod faults;
mod foreign;
mod many;
mod met;
mod odd;
pub mod rights;
mod rows;
mod untouched;
mod watching;

use serde_json::Value;

use crate::support::backends::{on_every_backend, on_file_and_redis};
use crate::support::dlock::{Dlock, Outcome};
use crate::support::service::Service;

/// `dlock status` for this key, or `dlock list`, at this service.
pub(crate) fn look<S: Service>(service: &S, words: &[&str]) -> Dlock {
    service.scratch().dlock().args(words).backend(service.url()).args(service.options())
}

/// What `dlock status --key KEY` says in words, with this exit code.
#[track_caller]
pub(super) fn told<S: Service>(service: &S, key: &str, code: i32) -> String {
    let outcome = look(service, &["status", "--key", key]).output();
    outcome.code(code).quiet();
    outcome.stdout()
}

/// The document that `dlock status --json --key KEY` prints; checks that the exit code agrees with it.
#[track_caller]
pub(crate) fn status<S: Service>(service: &S, key: &str) -> Value {
    let outcome = look(service, &["status", "--json", "--key", key]).output();
    let document = read(&outcome);
    let code = if document["state"] == "free" { 0 } else { 75 };
    outcome.code(code).quiet();
    document
}

/// What `dlock list` says as a document.
#[track_caller]
pub(super) fn list<S: Service>(service: &S, words: &[&str]) -> Value {
    let outcome = look(service, &[&["list", "--json"], words].concat()).output();
    outcome.code(0);
    // A list may be cut, or be empty.
    let _ = outcome.stderr();
    read(&outcome)
}

/// The only document on standard output.
#[track_caller]
pub(super) fn read(outcome: &Outcome) -> Value {
    let text = outcome.stdout();
    assert!(text.ends_with('\n') && text.lines().count() == 1, "one line: {outcome:?}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// The names of the locks in a list.
pub(super) fn names(list: &Value) -> Vec<&str> {
    list["locks"].as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap_or("-")).collect()
}

fn a_lock_that_was_never_taken_is_free_and_looking_leaves_nothing<S: Service>(service: &S) {
    // Without a queue there is nothing to count.
    let none = |value: Value| if S::IN_ORDER { value } else { Value::Null };
    let free = status(service, "job");
    assert_eq!((&free["state"], &free["holder"], &free["waiting"]), (&"free".into(), &Value::Null, &none(0.into())));
    assert_eq!((&free["key"], &free["queue_cut"]), (&"job".into(), &none(false.into())));
    assert_eq!(told(service, "job", 0), format!("job at {}: free\n", service.url()));
    let none = look(service, &["list"]).output();
    let place = if S::KIND == "file" { "no lock is held at " } else { "no lock is held in the namespace dlock at " };
    none.code(0).stdout_is("").stderr_is_one_line(place);
    look(service, &["list", "-q"]).output().success().stdout_is("");
    let list = list(service, &[]);
    assert_eq!((names(&list), &list["total"], &list["cut"]), (vec![], &0.into(), &false.into()));
    service.assert_tidy(&[]);
    // And one that was given back.
    service.run("job").command(["true"]).output().success();
    assert_eq!(status(service, "job")["state"], "free");
    look(service, &["list", "-q"]).output().success().stdout_is("");
}

fn who_holds_a_lock_is_told_in_words_and_as_a_document<S: Service>(service: &S) {
    let reason = "nightly \u{1b}[2J load";
    let holder = service.scratch().dlock().run("job").backend(service.url()).args(service.options());
    let holder = crate::support::service::Gated::spawn(service.scratch(), holder.args(["--reason", reason]));
    let token = holder.token();
    let held = status(service, "job");
    let who = &held["holder"];
    assert_eq!((&held["state"], &held["mode"], &held["held_by"]), (&"held".into(), &"exclusive".into(), &1.into()));
    assert_eq!((&who["kind"], &who["pid"], &who["program"]), (&"dlock".into(), &holder.pid().into(), &"sh".into()));
    assert_eq!((&who["reason"], &who["alive"], &who["self"]), (&reason.into(), &true.into(), &true.into()));
    assert_eq!((&who["token"], &who["finished"]), (&token.into(), &false.into()));
    assert_eq!(held["holders"], Value::Array(vec![who.clone()]));
    assert_eq!(who["id"].as_str().map(str::len), Some(32));
    assert!(who["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{who}");
    assert!(who["held_ms"].as_u64().is_some_and(|held| held < 60_000), "{who}");
    match S::KIND {
        "file" => assert_eq!((&who["ttl_ms"], &who["ttl_left_ms"]), (&Value::Null, &Value::Null)),
        "zookeeper" => assert!(who["ttl_left_ms"].is_null() && who["renewed"].is_string(), "{who}"),
        _ => assert!(who["ttl_left_ms"].as_u64().is_some_and(|left| (1..=31_000).contains(&left)), "{who}"),
    }
    let text = told(service, "job", 75);
    let table = match S::KIND {
        "postgres" => " (table public.shedlock)",
        "mysql" => " (table locks.shedlock)",
        _ => "",
    };
    assert!(text.starts_with(&format!("job at {}{table}: held for ", service.url())), "{text}");
    assert!(text.contains(&format!(", pid {} (sh), this user on this host\n", holder.pid())), "{text}");
    assert!(
        text.contains("  reason   nightly \\u{1b}[2J load\n") && text.contains(&format!("  token    {token}\n")),
        "{text}"
    );
    let list = list(service, &[]);
    assert_eq!((names(&list), &list["total"]), (vec!["job"], &1.into()));
    assert_eq!(list["locks"][0]["holder"]["id"], who["id"]);
    assert_eq!((list["locks"][0].get("queue"), &list["locks"][0]["place"]), (None, &held["place"]));
    let table = look(service, &["list"]).output();
    table.success();
    let lines: Vec<String> = table.stdout().lines().map(str::to_owned).collect();
    assert!(lines.len() == 2 && lines[0].starts_with("KEY  HELD BY") && lines[1].starts_with("job  "), "{lines:?}");
    holder.let_go().success();
}

fn a_quiet_status_is_told_by_its_exit_code_alone<S: Service>(service: &S) {
    let quiet = |words: &[&str]| look(service, &[&["status", "-q", "-k", "job"], words].concat()).output();
    quiet(&[]).code(0).quiet().stdout_is("");
    let holder = service.hold("job");
    quiet(&[]).code(75).quiet().stdout_is("");
    assert_eq!(read(quiet(&["--json"]).code(75).quiet())["state"], "held");
    holder.let_go().success();
}

fn times_are_those_of_this_host_on_request<S: Service>(service: &S) {
    let holder = service.hold("job");
    let since = |words: &[&str], zone: &str, variable: &str| {
        let look =
            look(service, &[&["status", "-k", "job"], words].concat()).env("TZ", zone).env("DLOCK_TIME", variable);
        let text = look.output().code(75).stdout();
        text.lines()
            .find_map(|line| line.strip_prefix("  since    ").map(str::to_owned))
            .unwrap_or_else(|| panic!("{text}"))
    };
    let utc = since(&[], "XYZ-5:30", "");
    assert!(utc.ends_with('Z'), "{utc}");
    assert_eq!(since(&["--time", "local"], "XYZ0", ""), utc.replace('Z', "+00:00"));
    let local = since(&[], "XYZ-5:30", "local");
    assert!(local.ends_with("+05:30") && local[14..19] != utc[14..19], "{local} {utc}");
    assert!(since(&["--time", "local"], "XYZ3:15", "utc").ends_with("-03:15"));
    assert_eq!(since(&["--time", "utc"], "XYZ3:15", "local"), utc);
    let document = look(service, &["status", "-k", "job", "--json", "--time", "local"]).env("TZ", "XYZ3").output();
    assert!(read(&document)["holder"]["since"].as_str().unwrap().ends_with('Z'));
    holder.let_go().success();
}

fn waiters_are_shown_in_their_order<S: Service>(service: &S) {
    let holder = service.hold("job");
    if !S::IN_ORDER {
        // There is no queue, and so nobody can tell how many wait.
        let waiter = crate::support::service::Gated::spawn(service.scratch(), service.run("job"));
        waiter.running.wait_stderr("waiting for 'job'");
        let seen = status(service, "job");
        for field in ["waiting", "queue", "queue_cut"] {
            assert_eq!(seen.get(field), Some(&Value::Null), "{seen}");
        }
        assert_eq!(list(service, &[])["locks"][0]["waiting"], Value::Null);
        holder.let_go().success();
        waiter.wait_held();
        waiter.let_go().stderr();
        return;
    }
    let waiters: Vec<_> = (0..3).map(|_| service.queue_up("job", &["-q", "--reason", "mine"])).collect();
    let seen = status(service, "job");
    assert_eq!((&seen["waiting"], &seen["queue_cut"]), (&3.into(), &false.into()));
    let queue = seen["queue"].as_array().unwrap();
    let pids: Vec<i64> = queue.iter().map(|waiter| waiter["pid"].as_i64().unwrap()).collect();
    assert_eq!(pids, waiters.iter().map(|waiter| i64::from(waiter.pid())).collect::<Vec<_>>());
    for (position, waiter) in (1..).zip(queue) {
        assert_eq!((&waiter["position"], &waiter["alive"]), (&position.into(), &true.into()));
        if S::KIND == "file" {
            assert_eq!((&waiter["kind"], &waiter["program"]), (&"process".into(), &"dlock".into()));
        } else {
            assert_eq!((&waiter["kind"], &waiter["reason"]), (&"dlock".into(), &"mine".into()));
            assert!(waiter["waiting_ms"].as_u64().is_some_and(|waiting| waiting < 60_000), "{waiter}");
        }
    }
    let text = told(service, "job", 75);
    assert!(text.contains("  queue    3\n    1      ") && text.contains("\n    3      "), "{text}");
    assert_eq!(list(service, &[])["locks"][0]["waiting"], 3);
    holder.let_go().success();
    for waiter in waiters {
        waiter.wait_held();
        waiter.let_go().success();
    }
}

fn all_who_share_a_lock_are_named<S: Service>(service: &S) {
    let hold = |mode: &[&str]| {
        let holder = crate::support::service::Gated::spawn(service.scratch(), service.run("job").args(mode));
        holder.wait_held();
        holder
    };
    let pids = |seen: &Value| -> Vec<i64> {
        let mut pids: Vec<i64> =
            seen["holders"].as_array().unwrap().iter().map(|holder| holder["pid"].as_i64().unwrap()).collect();
        pids.sort_unstable();
        pids
    };
    let readers = [hold(&["-s"]), hold(&["-s"]), hold(&["-s"])];
    let seen = status(service, "job");
    let mut expected = readers.each_ref().map(|reader| i64::from(reader.pid()));
    expected.sort_unstable();
    assert_eq!((&seen["mode"], &seen["held_by"], pids(&seen)), (&"shared".into(), &3.into(), expected.to_vec()));
    let text = told(service, "job", 75);
    assert!(text.lines().next().is_some_and(|line| line.ends_with(": held by 3 readers")), "{text}");
    for reader in readers {
        reader.let_go().success();
    }
    let slots = [hold(&["--slots", "3"]), hold(&["--slots", "3"])];
    let seen = status(service, "job");
    assert_eq!((&seen["mode"], &seen["slots"], &seen["held_by"]), (&"slots".into(), &3.into(), &2.into()));
    let holders = seen["holders"].as_array().unwrap();
    let numbers: Vec<u64> = holders.iter().map(|holder| holder["slot"].as_u64().unwrap()).collect();
    let mut taken = slots.each_ref().map(|slot| u64::from(slot.slot().unwrap()));
    taken.sort_unstable();
    assert_eq!(numbers, taken);
    let text = told(service, "job", 75);
    assert!(text.lines().next().is_some_and(|line| line.ends_with(": 2 of 3 slots are taken")), "{text}");
    assert!(text.contains(&format!("\n    slot {} ", taken[1])), "{text}");
    for slot in slots {
        slot.let_go().success();
    }
    assert_eq!(status(service, "job")["state"], "free");
}

fn a_lock_that_is_only_kept_is_finished<S: Service>(service: &S) {
    service.run("job").args(["--min-hold", "1m"]).command(["true"]).output().success();
    let seen = status(service, "job");
    let holder = &seen["holder"];
    assert_eq!((&seen["state"], &holder["finished"]), (&"held".into(), &true.into()), "{seen}");
    assert!(holder["kept_until"].is_string(), "{seen}");
    let text = told(service, "job", 75);
    let first = text.lines().next().unwrap();
    assert!(first.contains(": finished, and kept for another ") && first.ends_with(" (--min-hold)"), "{text}");
    assert_eq!(names(&list(service, &[])), ["job"]);
}

fn what_is_no_lock_is_not_shown_as_one<S: Service>(service: &S) {
    for key in ["hourly", "too"] {
        service.run(key).args(["--once-per", "1h"]).command(["true"]).output().success();
    }
    look(service, &["latch", "--key", "build", "down", "--as", "a"]).output().success();
    assert_eq!(status(service, "hourly")["state"], "free");
    assert_eq!(status(service, "build")["state"], "free");
    // Nor are they counted.
    let list = list(service, &["--limit", "1"]);
    assert_eq!((names(&list), &list["total"], &list["cut"]), (vec![], &0.into(), &false.into()), "{list}");
}

fn each_of_several_locks_is_shown<S: Service>(service: &S) {
    let run = service.scratch().dlock().args(["run", "-k", "one", "-k", "two"]).backend(service.url());
    let holder = crate::support::service::Gated::spawn(service.scratch(), run.args(service.options()));
    holder.wait_held();
    let list = list(service, &[]);
    assert_eq!(names(&list), ["one", "two"]);
    let [one, two] = [0, 1].map(|at| &list["locks"][at]["holder"]);
    assert_eq!((&one["pid"], &two["pid"]), (&holder.pid().into(), &holder.pid().into()));
    assert!(one["token"].is_u64() && two["token"].is_u64(), "{list}");
    holder.let_go().success();
}

/// Names that the services spell in other ways, in the order of the list.
const ODD: &[&str] = &[" a", "%41", "*", ".hidden", "[x]", "a b", "a/b", "a{b}c", "ü"];

fn a_list_is_sorted_by_name_and_may_be_cut<S: Service>(service: &S) {
    let holders: Vec<_> = ODD
        .iter()
        .rev()
        .map(|key| {
            let holder = crate::support::service::Gated::spawn(service.scratch(), service.run(key).arg("-q"));
            holder.wait_held();
            holder
        })
        .collect();
    assert_eq!(names(&list(service, &[])), ODD);
    assert_eq!(names(&list(service, &["a"])), ["a b", "a/b", "a{b}c"]);
    assert_eq!(names(&list(service, &["a/"])), ["a/b"]);
    assert_eq!(names(&list(service, &["."])), [".hidden"]);
    assert_eq!(names(&list(service, &["*"])), ["*"]);
    assert_eq!(names(&list(service, &["--limit", "0"])), ODD);
    for key in ODD {
        assert_eq!(status(service, key)["key"], *key);
    }
    let cut = look(service, &["list", "--json", "--limit", "2"]).output();
    cut.code(0).stderr_is_one_line("locks shown");
    let document = read(&cut);
    assert_eq!((document["locks"].as_array().unwrap().len(), &document["cut"]), (2, &true.into()));
    for holder in holders {
        holder.let_go().success();
    }
    assert_eq!(names(&list(service, &[])), Vec::<&str>::new());
}

on_every_backend! {
    a_lock_that_was_never_taken_is_free_and_looking_leaves_nothing
    who_holds_a_lock_is_told_in_words_and_as_a_document
    waiters_are_shown_in_their_order
    all_who_share_a_lock_are_named
    a_lock_that_is_only_kept_is_finished
    a_list_is_sorted_by_name_and_may_be_cut
    what_is_no_lock_is_not_shown_as_one
    each_of_several_locks_is_shown
}

#[test]
fn a_look_that_fails_is_a_document_too() {
    let scratch = crate::support::scratch::Scratch::new();
    for (words, url, code, said) in [
        (&["status", "-k", "job"][..], "redis://127.0.0.1:1", 69, "cannot read 'job': "),
        (&["list"], "redis://127.0.0.1:1", 69, "cannot read the locks in the namespace 'dlock': "),
        (&["status", "-k", "job", "--done-within", "1h"], "redis://127.0.0.1:1", 69, "cannot read 'job': "),
        (&["list"], "nonsense://x", 64, "nonsense"),
        (&["list", "--limit", "x"], "redis://127.0.0.1:1", 64, "--limit x: must be a whole number"),
        (&["status"], "redis://127.0.0.1:1", 64, "--key <KEY> is missing"),
        (&["latch", "-k", "job", "show"], "redis://127.0.0.1:1", 69, "could not use latch 'job': "),
        (&["latch", "-k", "job", "show"], "nonsense://x", 64, "nonsense"),
    ] {
        let outcome = scratch.dlock().args(words).arg("--json").backend(url).output();
        let error = read(outcome.code(code).stderr_is_one_line(said))["error"].clone();
        assert!(error["message"].as_str().is_some_and(|message| message.contains(said)), "{error}");
        assert_eq!(error["exit"], code);
        scratch.dlock().args(words).backend(url).output().code(code).stdout_is("").stderr_is_one_line(said);
    }
}

on_file_and_redis! {
    times_are_those_of_this_host_on_request
    a_quiet_status_is_told_by_its_exit_code_alone
}
