/*!
`--lock-delay`: a lock whose holder vanished stays taken for longer than its command can run, and one that is released is
free at once.
*/

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::{on_backend, on_every_server, on_redis_and_etcd};
use crate::support::process;
use crate::support::rendezvous::{Lifeline, boottime};
use crate::support::scratch::Scratch;
use crate::support::service::{Gated, Service};

on_every_server! {
    the_command_is_gone_when_its_lease_ends_and_the_next_one_comes_later
}

on_redis_and_etcd! {
    a_release_frees_the_lock_at_once
    the_command_counts_on_its_lease_alone
}

on_backend! { only_zookeeper: service::ZooKeeperService {
    a_server_that_grants_too_little_is_refused_with_the_numbers
} }

/// The lease and the delay in seconds. On ZooKeeper one must be six times as long as the other.
fn lease<S: Service>() -> [u64; 2] {
    if S::KIND == "zookeeper" { [12, 2] } else { [2, 4] }
}

/// How much later than that the next one may come, in addition to what the service needs to notice it.
const SOON: Duration = Duration::from_secs(5);

fn the_command_is_gone_when_its_lease_ends_and_the_next_one_comes_later<S: Service>(service: &S) {
    let [ttl, delay] = lease::<S>();
    let since = boottime();
    let (lifeline, end) = Lifeline::pair();
    let run = service.run("job").args(["-q", "--ttl", &ttl.to_string(), "--lock-delay", &delay.to_string()]);
    let holder = Gated::spawn(service.scratch(), run.lifeline(end));
    holder.wait_held();
    let held = boottime();
    // Nothing is renewed any more, and nothing released: the guard alone ends the command.
    holder.running.signal(Signal::SIGSTOP);
    let gone = lifeline.closed_at();
    assert!(gone - held < Duration::from_secs(ttl), "gone only after {:?}", gone - held);
    service.assert_held("job");
    process::signal(holder.pid(), Signal::SIGKILL);
    service.run("job").arg("-q").command(["true"]).output().success();
    let (passed, least) = (boottime() - since, Duration::from_secs(ttl + delay));
    assert!(passed >= least, "free after {passed:?}");
    assert!(passed < least + SOON + S::EXPIRY_GRANULARITY, "free only after {passed:?}");
}

fn a_release_frees_the_lock_at_once<S: Service>(service: &S) {
    for (command, code) in [("true", 0), ("false", 1), ("/nonexistent", 127)] {
        let outcome = service.run("job").args(["-q", "--ttl", "1h", "--lock-delay", "1m"]).command([command]).output();
        // ZooKeeper has no sessions that long.
        if S::KIND == "zookeeper" {
            outcome.code(69).stderr_is_one_line("grants a lease of 1m, of which --lock-delay 1m leaves 0s");
        } else {
            let _ = outcome.code(code).stderr();
        }
        service.assert_free("job");
    }
    service.run("job").args(["--lock-delay", "5s"]).command(["true"]).output().success();
    service.assert_free("job");
    service.assert_tidy(&["job"]);
}

fn the_command_counts_on_its_lease_alone<S: Service>(service: &S) {
    let run = service.run("job").args(["--lock-delay", "5s"]);
    run.shell("printf %s $DLOCK_LEASE_TTL").output().success().stdout_is(S::LEASE_OF_30S);
    // Nested, it is the same lock with the same lease.
    let inner =
        format!("{} run -k job -b '{}' -- printenv DLOCK_LEASE_TTL", *crate::support::dlock::DLOCK, service.url());
    let outer = service.run("job").args(["--lock-delay", "5s"]).shell(inner).output();
    outer.success().stdout_is(&format!("{}\n", S::LEASE_OF_30S));
}

fn a_server_that_grants_too_little_is_refused_with_the_numbers<S: Service>(service: &S) {
    let run = service.run("job").args(["--ttl", "54s", "--lock-delay", "9s"]).command(["echo", "ran"]).output();
    run.code(69)
        .stdout_is("")
        .stderr_is_one_line("grants a lease of 1m, of which --lock-delay 9s leaves 51s, and at least 54s");
    service.assert_free("job");
    let run = service.run("job").args(["--ttl", "6s", "--lock-delay", "2s"]).command(["echo", "ran"]).output();
    run.code(64).stdout_is("").stderr_is_one_line("--lock-delay may be at most 1s with a --ttl of 6s");
}

#[test]
fn a_lock_file_has_no_lease_to_be_longer() {
    let scratch = Scratch::new();
    let run = || scratch.dlock().run("job").backend(scratch.file_url());
    for (run, origin) in [
        (run().args(["--lock-delay", "5s"]), "--lock-delay"),
        (run().env("DLOCK_LOCK_DELAY", "5s"), "DLOCK_LOCK_DELAY"),
    ] {
        let said = format!("{origin} is only for locks with a lease, not for file:");
        run.command(["echo", "ran"]).output().code(64).stdout_is("").stderr_is_one_line(&said);
    }
    // Who sets the variable for all backends can turn it off for this one.
    let off = run().env("DLOCK_LOCK_DELAY", "5s").args(["--lock-delay", "0"]);
    off.command(["true"]).output().success();
}
