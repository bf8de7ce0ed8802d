//! Running commands under a lock that is held by its handle.

use std::time::Duration;

use crate::locks::breaking::{break_it, owner};
use crate::locks::handles::{by, nothing_is_left, run_by, status, taken, wait_free};
use crate::support::process;
use crate::support::redis_services::Redlock3;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::service::{Gated, Service};

pub(super) fn a_command_runs_under_a_handle_and_the_lock_stays_held<S: Service>(service: &S) {
    let handle = taken(service, "job", "30s");
    let seen = status(service, "job");
    let script = "echo $DLOCK_KEY $DLOCK_TOKEN $DLOCK_TOKENS $DLOCK_OWNER $DLOCK_LEASE_TTL; exit 3";
    let outcome = run_by(service, &handle).shell(script).output();
    let (token, owner) = (seen["holder"]["token"].as_u64(), seen["holder"]["id"].as_str().unwrap().to_owned());
    let printed = outcome.code(3).quiet().stdout();
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!((words[0], words[3], words[4]), ("job", owner.as_str(), "30"), "{printed}");
    // Redlock publishes no token.
    assert!(words[1] == words[2] && token.is_none_or(|token| token.to_string() == words[1]), "{printed} {seen}");
    service.assert_held("job");
    let said = run_by(service, &handle).arg("-v").command(["true"]).output();
    said.code(0).stderr_ends_with_line("'job' stays held by its handle for 30s");
    assert!(said.stderr().contains("renewed 'job', ttl 30s"), "{said:?}");
    // By the variable, which says nothing where a key is named.
    let run = service.scratch().dlock().arg("run").args(service.options()).env("DLOCK_HANDLE", &handle);
    run.shell("echo $DLOCK_KEY").output().success().stdout_is("job\n");
    service.run("other").env("DLOCK_HANDLE", &handle).shell("echo $DLOCK_KEY").output().success().stdout_is("other\n");
    // A run inside, by the key, goes on under it.
    let inner = format!(
        "exec {} run --key job --backend '{}' {} -- echo inside",
        *crate::support::dlock::DLOCK,
        service.url(),
        service.options().iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    );
    run_by(service, &handle).shell(inner).output().success().stdout_is("inside\n");
    // Several at once do not exclude each other: they are one holder.
    let first = Gated::spawn(service.scratch(), run_by(service, &handle));
    first.wait_held();
    run_by(service, &handle).shell("echo ran").output().success().stdout_is("ran\n");
    first.let_go().success();
    by(service, "release", &handle).output().success();
    service.assert_free("job");
    nothing_is_left(service, &["job", "other"]);
}

pub(super) fn a_command_whose_lock_is_gone_is_not_started<S: Service>(service: &S) {
    let handle = taken(service, "job", "1s");
    wait_free(service, "job");
    let gone = run_by(service, &handle).command(["echo", "ran"]).output();
    gone.code(79).stdout_is("").stderr_is_one_line("lost 'job': ");
    let holder = service.hold("job");
    let theirs = run_by(service, &handle).command(["echo", "ran"]).output();
    theirs.code(79).stdout_is("").stderr_is_one_line("lost 'job': ");
    holder.let_go().success();
    nothing_is_left(service, &["job"]);
}

pub(super) fn a_command_whose_lock_is_taken_away_is_stopped<S: Service>(service: &S) {
    let handle = taken(service, "job", "3s");
    let running = Gated::spawn(service.scratch(), run_by(service, &handle));
    running.wait_held();
    let command = running.running.command_pid();
    let broken = break_it(service, &owner(service), &["--now"]);
    broken.code(0).stderr_is_one_line("took 'job' away from ");
    let outcome = running.running.wait();
    assert!(outcome.code(79).stderr().contains("lost 'job' at "), "{outcome:?}");
    assert!(!process::is_alive(command));
    service.assert_free("job");
}

pub(super) fn a_command_is_kept_alive_beyond_the_lease<S: Service>(service: &S) {
    let handle = taken(service, "job", "2s");
    let running = Gated::spawn(service.scratch(), run_by(service, &handle));
    running.wait_held();
    last_until(boottime() + Duration::from_secs(5));
    service.assert_held("job");
    running.let_go().success();
    // Renewed at the end once more, and not released.
    service.assert_held("job");
    by(service, "renew", &handle).output().success();
    wait_free(service, "job");
}

/// A vote that a server has lost is never made again: another holder may have had it meanwhile.
#[test]
fn a_server_that_has_lost_its_vote_does_not_get_it_back() {
    let service = Redlock3::fresh();
    let handle = taken(&service, "job", "30s");
    let lost = &service.servers[1];
    eventually("every server to have the lock", || {
        service.servers.iter().all(|redis| redis.get("dlock:job").is_some()).then_some(())
    });
    lost.restart_empty();
    for _ in 0..2 {
        by(&service, "renew", &handle).output().success();
    }
    let running = Gated::spawn(service.scratch(), run_by(&service, &handle).args(["--kill-after", "1s"]));
    running.wait_held();
    assert_eq!(lost.get("dlock:job"), None);
    running.let_go().success();
    assert_eq!(lost.get("dlock:job"), None);
    by(&service, "release", &handle).output().success();
    nothing_is_left(&service, &["job"]);
}
