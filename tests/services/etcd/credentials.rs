//! Names and passwords.

use super::*;

const PASSWORD: &str = "pass of the tests";

/// An etcd that lets `someone` at the keys below `prefix`.
fn guarded(prefix: &str, options: EtcdOptions) -> EtcdService {
    let service = EtcdService::on(Etcd::with(options));
    service.etcd.guard("someone", PASSWORD, prefix);
    service
}

/// 77 in one line that has all of `parts` and no password.
#[track_caller]
fn assert_refused(service: &EtcdService, user: Option<&str>, password: Option<&str>, parts: &[&str]) {
    let mut dlock = service.run("job").args(user.map(|user| format!("--user={user}")));
    if let Some(password) = password {
        dlock = dlock.env("DLOCK_PASSWORD", password);
    }
    let outcome = dlock.command(["echo", "ran"]).output();
    outcome.code(77).stdout_is("").stderr_is_one_line("did not get 'job': ");
    let line = outcome.stderr();
    assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    assert!(password.is_none_or(|password| !line.contains(password)), "{line}");
    assert!(outcome.elapsed() < Duration::from_secs(3), "{outcome:?}");
}

#[test]
fn what_is_wrong_with_the_credentials_is_said_and_is_77() {
    let service = guarded("dlock/", EtcdOptions::single());
    let hint = "--password-file";
    assert_refused(&service, Some("someone"), Some("secret guess"), &["invalid user ID or password", hint]);
    assert_refused(&service, Some("nobody"), Some(PASSWORD), &["invalid user ID or password", hint]);
    assert_refused(&service, None, None, &["no password was given", hint]);
    assert_refused(&service, Some("someone"), None, &["needs a password too", hint]);
    let right = || service.run("job").arg("--user=someone").env("DLOCK_PASSWORD", PASSWORD);
    right().command(["true"]).output().success();
    // Another namespace is not theirs.
    let elsewhere = right().args(["--namespace", "elsewhere"]).command(["echo", "ran"]).output();
    elsewhere.code(77).stdout_is("").stderr_is_one_line("may not read and write the keys below elsewhere/");
    assert!(!elsewhere.stderr().contains("credentials"), "{elsewhere:?}");
    let remedy = "etcdctl role grant-permission ROLE --prefix=true readwrite elsewhere/";
    assert!(elsewhere.stderr().contains(remedy), "{elsewhere:?}");
    assert_clean(&service);
}

#[test]
fn a_server_that_knows_no_users_says_so() {
    let service = EtcdService::fresh();
    let parts = ["authentication is not enabled", "leave out the user and password"];
    assert_refused(&service, Some("someone"), Some(PASSWORD), &parts);
    assert_clean(&service);
}

/// What the server gave for the password is good for a short time only.
#[test]
fn a_proof_that_expires_while_it_is_held_or_waited_for_is_asked_for_again() {
    let args = ["--auth-token-ttl", "1"].map(str::to_owned).into();
    let service = guarded("dlock/job/", EtcdOptions { args, ..EtcdOptions::single() });
    let spawn = |options: &[&str]| {
        let dlock = service.run("job").arg("--user=someone").args(options);
        Gated::spawn(service.scratch(), dlock.env("DLOCK_PASSWORD", PASSWORD))
    };
    // Renewed so rarely that it is always too late.
    let holder = spawn(&["-t", "4s"]);
    holder.wait_held();
    let waiter = spawn(&["-t", "4s", "-q"]);
    service.wait_queued("job", 1);
    let place = contenders(&service).remove(1);
    let requests = service.etcd.count_requests();
    // Two of each.
    eventually("renewals", || (requests.so_far().get("LeaseKeepAlive") >= Some(&4)).then_some(()));
    assert_eq!(contenders(&service)[1], place);
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
    assert_clean(&service);
}

#[test]
fn a_cluster_through_tls_refuses_wrong_passwords_too() {
    let service = guarded("dlock/", EtcdOptions { tls: Some(Tls::default()), ..EtcdOptions::single() });
    assert_refused(&service, Some("someone"), Some("secret guess"), &["invalid user ID or password"]);
    let right = service.run("job").arg("--user=someone").env("DLOCK_PASSWORD", PASSWORD);
    right.command(["true"]).output().success();
}
