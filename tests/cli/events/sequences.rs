//! What is written of a run, in its order.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::cli::events::{ended, happened, journal, lines, only, wait_for};
use crate::locks::looking::{look, status};
use crate::support::backends::{Detour, on_file_and_redis};
use crate::support::proxy::Mode;
use crate::support::service::{Gated, Service};

on_file_and_redis! {
    a_run_is_told_from_its_lock_to_its_end
    a_wait_is_told_with_each_new_holder_and_so_is_its_end
    a_request_to_stop_is_told_with_all_that_follows
}

mod leases {
    use super::{a_lock_that_is_lost_is_told, what_acquire_does_is_told_and_what_runs_under_its_handle};
    use crate::support::backends::on_redis_and_etcd;

    on_redis_and_etcd! {
        a_lock_that_is_lost_is_told
        what_acquire_does_is_told_and_what_runs_under_its_handle
    }
}

fn a_run_is_told_from_its_lock_to_its_end<S: Service>(service: &S) {
    let path = journal(service, "events");
    let run = || service.run("job").arg("--events").arg(&path);
    let outcome = run().shell("echo $DLOCK_TOKEN $DLOCK_OWNER $$ $PPID; sleep 0.1; exit 3").output();
    outcome.code(3).quiet();
    let told = outcome.stdout();
    let [token, owner, pid, _guard] = told.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{told}") };
    let first = lines(&path);
    assert_eq!(happened(&first), ["acquired", "started", "exited", "released", "end"]);
    assert!(
        first.iter().all(|line| line["dropped"] == 0 && line["owner"] == owner && line["key"] == "job"),
        "{first:#?}"
    );
    let acquired = &first[0];
    assert_eq!((acquired["token"].to_string(), &acquired["covered"]), (token.to_owned(), &false.into()));
    assert_eq!((&acquired["keys"], &acquired["tokens"][0]), (&vec!["job"].into(), &acquired["token"]));
    assert_eq!(acquired["ttl_ms"].is_null(), S::KIND == "file", "{acquired}");
    assert_eq!((first[1]["command_pid"].to_string(), &first[1]["program"]), (pid.to_owned(), &"sh".into()));
    let exited = &first[2];
    assert_eq!((&exited["code"], &exited["signal"], &exited["error"]), (&3.into(), &Value::Null, &Value::Null));
    assert!(exited["ran_ms"].as_u64().is_some_and(|ran| (90..60_000).contains(&ran)), "{exited}");
    assert_eq!(first[3]["freed"], true);
    let end = ended(&first, 3);
    assert!(end["error"].is_null() && end["total_ms"].as_u64() >= exited["ran_ms"].as_u64(), "{end}");
    let told = (&end["outcome"], &end["ran_ms"], &end["waited_ms"], &end["command"]);
    assert_eq!(told, (&"ran".into(), &exited["ran_ms"], &acquired["waited_ms"], &"sh".into()));
    assert!(first.iter().all(|line| line["host"].is_string() && line["user"].is_string()), "{first:#?}");

    // The next one adds its lines; a signal is named, and so is what cannot be executed.
    for (command, code, what) in [("kill -TERM $$", 128 + 15, "TERM"), ("exec /no/such/program", 127, "")] {
        std::fs::remove_file(&path).unwrap();
        let outcome = if what.is_empty() { run().command(["./none"]).output() } else { run().shell(command).output() };
        outcome.stderr();
        let lines = lines(&path);
        assert_eq!(happened(&lines), ["acquired", "started", "exited", "released", "end"]);
        let (exited, end) = (only(&lines, "exited"), ended(&lines, code));
        assert!(exited["code"].is_null(), "{exited}");
        if what.is_empty() {
            assert_eq!((&exited["error"], &exited["signal"]), (&"No such file or directory".into(), &Value::Null));
            assert_eq!((&end["error"], &end["outcome"]), (&"could not run ./none: not found".into(), &"failed".into()));
        } else {
            assert_eq!((&exited["signal"], &exited["error"]), (&what.into(), &Value::Null));
        }
    }
}

fn a_wait_is_told_with_each_new_holder_and_so_is_its_end<S: Service>(service: &S) {
    let holder = service.hold("job");
    let path = |name: &str| journal(service, name);
    // One that does not wait, and says nothing.
    let skipped = service.run("job").args(["-n", "-q", "-E", "0", "--events"]).arg(path("skipped"));
    skipped.command(["false"]).output().code(0).quiet();
    let refused = lines(&path("skipped"));
    assert_eq!(happened(&refused), ["refused", "end"]);
    assert_eq!((&refused[0]["why"], &refused[0]["holder"]["pid"]), (&"held".into(), &holder.pid().into()));
    assert_eq!((&refused[1]["outcome"], &refused[1]["ran_ms"]), (&"held".into(), &Value::Null));
    assert!(ended(&refused, 0)["error"].as_str().is_some_and(|error| error.starts_with("did not get 'job': held by ")));
    // One whose wait runs out, and one that is told to stop.
    let late = service.run("job").args(["-q", "-w", "200ms", "--events"]).arg(path("late")).command(["true"]);
    late.output().code(75);
    assert_eq!(happened(&lines(&path("late"))), ["waiting", "refused", "end"]);
    ended(&lines(&path("late")), 75);
    let told = service.run("job").args(["-q", "--events"]).arg(path("told")).command(["true"]).spawn();
    wait_for(&path("told"), "waiting");
    told.signal(Signal::SIGTERM);
    told.wait().signal(Signal::SIGTERM);
    assert_eq!(happened(&lines(&path("told"))), ["waiting", "end"]);
    ended(&lines(&path("told")), 128 + 15);
    // One that gets it, after another one has had it.
    let next = service.queue_up("job", &["-q"]);
    let patient = service.run("job").args(["-q", "--events"]).arg(path("patient")).command(["true"]).spawn();
    let waiting = wait_for(&path("patient"), "waiting");
    assert_eq!(
        (&waiting["lock"], &waiting["held_by"], &waiting["blocked_by"]),
        (&"job".into(), &1.into(), &Value::Null)
    );
    assert_eq!((&waiting["holder"]["kind"], &waiting["holder"]["pid"]), (&"dlock".into(), &holder.pid().into()));
    assert_eq!(waiting["position"], 2);
    let pid = next.pid();
    holder.let_go().success();
    next.wait_held();
    crate::support::rendezvous::eventually("the new holder to be told", || {
        let lines = crate::cli::events::lines_so_far(&path("patient"));
        lines.iter().any(|line| line["holder"]["pid"] == pid).then_some(())
    });
    next.let_go().success();
    patient.wait().success();
    let patient = lines(&path("patient"));
    let mut seen = happened(&patient);
    // Between two holders there may be nobody for a moment.
    seen.dedup();
    assert_eq!(seen, ["waiting", "acquired", "started", "exited", "released", "end"]);
    let acquired = only(&patient, "acquired");
    assert!(acquired["waited_ms"].as_u64() >= waiting["waited_ms"].as_u64(), "{acquired}");
    ended(&patient, 0);
}

fn a_request_to_stop_is_told_with_all_that_follows<S: Service>(service: &S) {
    let path = journal(service, "events");
    let run = service.run("job").args(["-t", "4s", "--kill-after", "300ms", "--events"]).arg(&path);
    let dlock = run.shell("trap '' TERM; while :; do sleep 0.05; done").spawn();
    wait_for(&path, "started");
    let owner = status(service, "job")["holder"]["id"].as_str().expect("an id").to_owned();
    let request = ["break", "--key", "job", "--owner", &owner, "--reason", "restore first"];
    let broken = look(service, &request).output();
    broken.code(0).stderr();
    dlock.wait().code(79).stderr_is_one_line("asked it to stop: restore first; stopping sh");
    let lines = lines(&path);
    let expected = ["acquired", "started", "asked", "stopping", "stopping", "exited", "released", "end"];
    assert_eq!(happened(&lines), expected);
    let asked = only(&lines, "asked");
    assert!(asked["by"].as_str().is_some_and(|by| by.contains('@')) && asked["reason"] == "restore first", "{asked}");
    let stops: Vec<&Value> = lines.iter().filter(|line| line["event"] == "stopping").collect();
    assert_eq!((&stops[0]["signal"], &stops[1]["signal"]), (&"TERM".into(), &"KILL".into()));
    assert!(stops.iter().all(|stop| stop["cause"] == "asked"), "{stops:?}");
    assert_eq!((&only(&lines, "exited")["signal"], &only(&lines, "released")["freed"]), (&"KILL".into(), &true.into()));
    ended(&lines, 79);
    // It was heard with a renewal, where there are renewals.
    assert_eq!(lines.iter().any(|line| line["event"] == "renewed"), S::KIND != "file");
}

fn a_lock_that_is_lost_is_told<S: Service>(service: &S) {
    let (path, detour) = (journal(service, "events"), Detour::to(service));
    let run = service.scratch().dlock().run("job").backend(detour.url()).args(service.options());
    let run = run.args(["-t", "4s", "--kill-after", "500ms", "--events"]).arg(&path);
    let dlock = run.shell("exec sleep 60").spawn();
    let renewed = wait_for(&path, "renewed");
    assert_eq!(renewed["ttl_ms"], wait_for(&path, "acquired")["ttl_ms"]);
    detour.set(Mode::Silent);
    let outcome = dlock.wait();
    outcome.code(79).stderr_ends_with_line("; stopping sh");
    let lines = lines(&path);
    let mut seen = happened(&lines);
    // The guard and the keeper of the lock see its end at the same time.
    seen[3..6].sort_unstable();
    assert_eq!(seen, ["acquired", "started", "trouble", "exited", "lost", "stopping", "end"], "{lines:#?}");
    let at = |event: &str| happened(&lines).iter().position(|seen| *seen == event);
    assert!(at("stopping") < at("exited"), "{lines:#?}");
    let (stopping, lost) = (only(&lines, "stopping"), only(&lines, "lost"));
    assert_eq!((&stopping["signal"], &stopping["cause"]), (&"TERM".into(), &"lost".into()));
    assert!(lost["reason"].as_str().is_some_and(|reason| reason.starts_with("no renewal was confirmed")), "{lost}");
    assert_eq!(only(&lines, "exited")["signal"], "TERM");
    ended(&lines, 79);
}

fn what_acquire_does_is_told_and_what_runs_under_its_handle<S: Service>(service: &S) {
    let path = |name: &str| journal(service, name);
    let acquire = |name: &str| {
        look(service, &["acquire", "--key", "job", "--ttl", "10m", "-q", "-n"]).arg("--events").arg(path(name))
    };
    let handle = acquire("taken").output();
    handle.code(0);
    let taken = lines(&path("taken"));
    assert_eq!(happened(&taken), ["acquired", "end"]);
    let held = status(service, "job");
    assert_eq!((&taken[0]["owner"], &taken[0]["token"]), (&held["holder"]["id"], &held["holder"]["token"]));
    ended(&taken, 0);
    acquire("refused").output().code(75);
    let refused = lines(&path("refused"));
    assert_eq!((happened(&refused), &refused[0]["why"]), (vec!["refused", "end"], &"held".into()));
    ended(&refused, 75);
    let own = acquire("own").env("DLOCK_HANDLE", handle.stdout().trim_end()).output();
    own.code(64).stderr_is_one_line("DLOCK_HANDLE holds it");
    let own = lines(&path("own"));
    assert_eq!((happened(&own), &own[0]["why"]), (vec!["refused", "end"], &"handle".into()));
    ended(&own, 64);
    // The lock stays held.
    let run = service.scratch().dlock().args(["run", "--handle", handle.stdout().trim_end(), "--events"]);
    run.arg(path("under")).args(service.options()).command(["true"]).output().success();
    let under = lines(&path("under"));
    assert_eq!(happened(&under), ["acquired", "started", "exited", "end"]);
    assert_eq!((&under[0]["token"], &under[0]["owner"]), (&taken[0]["token"], &taken[0]["owner"]));
    ended(&under, 0);
}

/// The journal of one run that waits for a gate.
pub(super) fn gated<S: Service>(service: &S, name: &str, options: &[&str]) -> Gated {
    let run = service.run("job").args(options).arg("--events").arg(journal(service, name));
    let gated = Gated::spawn(service.scratch(), run);
    gated.wait_held();
    gated
}

/// How long dlock may take for what it must not wait for.
pub(super) const AT_ONCE: Duration = Duration::from_secs(5);
