//! The caller, which prints the handle: what ends it before that ends everything.

use nix::sys::signal::Signal;

use crate::locks::kept::{Ward, acquire, by, kept, nothing_is_left, status};
use crate::support::backends::on_file_and_redis;
use crate::support::process;
use crate::support::rendezvous::eventually;
use crate::support::service::{RedisService, Service};

on_file_and_redis! {
    a_signal_during_the_wait_leaves_nothing_behind
    a_wait_ends_with_the_process_that_it_is_for
    a_lock_that_is_held_is_refused_as_always
}

/// The keeper of a caller that waits.
fn keeper(caller: i32) -> i32 {
    let children = process::children(caller);
    assert_eq!(children.len(), 1);
    children[0]
}

fn a_signal_during_the_wait_leaves_nothing_behind<S: Service>(service: &S) {
    let holder = service.hold("job");
    let ward = Ward::idle();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let waiter = acquire(service, ward.pid()).spawn();
        waiter.wait_stderr("waiting for 'job'");
        let keeper = keeper(waiter.pid());
        waiter.signal(signal);
        let outcome = waiter.wait();
        outcome.signal(signal).stdout_is("");
        outcome.stderr();
        process::wait_gone(keeper);
        // Null where there is no queue.
        eventually("the queue to be empty", || (status(service)["waiting"].as_u64().unwrap_or(0) == 0).then_some(()));
    }
    holder.let_go().success();
    nothing_is_left(service);
}

fn a_wait_ends_with_the_process_that_it_is_for<S: Service>(service: &S) {
    let holder = service.hold("job");
    let ward = Ward::idle();
    let waiter = acquire(service, ward.pid()).spawn();
    waiter.wait_stderr("waiting for 'job'");
    let pid = ward.pid();
    ward.kill();
    let outcome = waiter.wait();
    outcome
        .code(64)
        .stdout_is("")
        .stderr_ends_with_line(&format!("--while-pid {pid}: there is no such process, or it has ended"));
    holder.let_go().success();
    nothing_is_left(service);
}

fn a_lock_that_is_held_is_refused_as_always<S: Service>(service: &S) {
    let holder = service.hold("job");
    let ward = Ward::idle();
    let refused = acquire(service, ward.pid()).arg("-n").output();
    refused.code(75).stdout_is("").stderr_is_one_line("did not get 'job': held by ");
    acquire(service, ward.pid()).args(["-n", "-E", "3", "-q"]).output().code(3).stdout_is("").quiet();
    let shell = acquire(service, ward.pid()).args(["-n", "-q", "--shell"]).output();
    shell
        .code(75)
        .stdout_is("unset DLOCK_HANDLE DLOCK_HANDLE_SHELL DLOCK_KEY DLOCK_TOKEN DLOCK_OWNER; (exit 75)\n")
        .quiet();
    // The keeper that waits gets it.
    let waiter = acquire(service, ward.pid()).args(["-q", "--json"]).spawn();
    if S::IN_ORDER {
        service.wait_queued("job", 1);
    }
    holder.let_go().success();
    let kept = kept(&waiter.wait());
    by(service, "release", &kept.handle).output().success();
    nothing_is_left(service);
}

/// A handle that nobody can read is worth nothing.
#[test]
fn a_handle_that_cannot_be_printed_gives_the_lock_back() {
    let service = RedisService::fresh();
    let ward = Ward::idle();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let outcome = acquire(&service, ward.pid()).stdout(full).output();
    outcome.code(74).stderr_is_one_line("");
    eventually("the lock to be free", || (status(&service)["state"] == "free").then_some(()));
    nothing_is_left(&service);
}

/// Nobody reads the pipe: the caller ends by signals all the same, and what was read too late is no lock.
#[test]
fn a_handle_that_is_not_read_in_time_is_a_failure() {
    let service = RedisService::fresh();
    let ward = Ward::idle();
    let full = || {
        let (reader, mut writer) = std::io::pipe().unwrap();
        nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
        while std::io::Write::write(&mut writer, &[b'x'; 4096]).is_ok() {}
        nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
        (reader, writer)
    };
    let (mut reader, writer) = full();
    let late = acquire(&service, ward.pid()).stdout(writer).spawn();
    eventually("the lock to be held", || (status(&service)["state"] == "held").then_some(()));
    eventually("the lease to end", || (status(&service)["state"] == "free").then_some(()));
    let reading = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    late.wait().code(69).stderr_is_one_line("nobody read it before 'job' could be lost");
    reading.join().unwrap().unwrap();
    let (reader, writer) = full();
    let told = acquire(&service, ward.pid()).stdout(writer).spawn();
    eventually("the lock to be held", || (status(&service)["state"] == "held").then_some(()));
    told.signal(Signal::SIGTERM);
    told.wait().signal(Signal::SIGTERM);
    drop(reader);
    eventually("the lock to be free", || (status(&service)["state"] == "free").then_some(()));
    ward.kill();
}

/// A keeper that is killed before it has the lock is not waited for.
#[test]
fn a_keeper_that_is_killed_during_the_wait_ends_the_caller() {
    let service = RedisService::fresh();
    let holder = service.hold("job");
    let ward = Ward::idle();
    let waiter = acquire(&service, ward.pid()).spawn();
    waiter.wait_stderr("waiting for 'job'");
    process::signal(keeper(waiter.pid()), Signal::SIGKILL);
    let outcome = waiter.wait();
    outcome.code(70).stdout_is("");
    outcome.stderr_ends_with_line(
        "the process that was to keep 'job' was killed: if it held the lock, that will expire on its own",
    );
    holder.let_go().success();
}

/// As in a script: by `eval`, and with the shell itself as the process.
#[test]
fn a_script_keeps_the_lock_while_it_runs() {
    let service = RedisService::fresh();
    let script = format!(
        r#"s=$({0} acquire -k job -b {1} --while-pid $$ --shell) || exit; eval "$s"; echo "$DLOCK_TOKEN"; {0} run -n -q -k job -b {1} -- true; echo $?"#,
        *crate::support::dlock::DLOCK,
        service.url()
    );
    let output =
        std::process::Command::new("sh").args(["-c", &script]).env("DLOCK_CONFIG", "/dev/null").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].parse::<u64>().is_ok_and(|token| token > 0) && lines[1] == "64", "{output:?}");
    eventually("the lock to be free", || (status(&service)["state"] == "free").then_some(()));
}

/// `timeout -k` kills the script, which ignores SIGTERM, and nothing else.
#[test]
fn a_script_that_is_killed_by_timeout_leaves_the_lock_free() {
    let service = RedisService::fresh();
    let script = format!(
        "trap '' TERM; {} acquire -k job -b {} --while-pid $$ >/dev/null || exit; while :; do sleep 0.05; done",
        *crate::support::dlock::DLOCK,
        service.url()
    );
    let mut timeout = std::process::Command::new("timeout");
    timeout.args(["-k", "1", "2", "bash", "-c", &script]).env("DLOCK_CONFIG", "/dev/null");
    let mut timeout = timeout.spawn().unwrap();
    eventually("the lock to be held", || (status(&service)["state"] == "held").then_some(()));
    timeout.wait().unwrap();
    eventually("the lock to be free", || (status(&service)["state"] == "free").then_some(()));
    nothing_is_left(&service);
}
