//! No process can be started, from the start or from some moment on.

use crate::support::exhausted::take_processes;
use crate::support::process;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::service::{FileService, Gated, RedisService, Service};

use super::{TTL, assert_no_litter, assert_refused, run};

fn prepared<S: Service>() -> S {
    let service = S::fresh();
    service.scratch().lock_dir();
    service.scratch().give_away("locks");
    service
}

fn too_few<S: Service>() {
    let service = prepared::<S>();
    let mut enough = 0;
    for processes in 1..16 {
        // In a user namespace of its own, no other processes count against the limit, and these count nowhere else.
        let limit = format!("--nproc={processes}");
        let dlock = run(&service).arg("-n").command(["echo", "ran"]).unprivileged();
        let outcome = dlock.wrapped_by(["unshare", "-r", "prlimit", &limit]).output();
        if outcome.status().code() == Some(0) {
            outcome.success().stdout_is("ran\n");
            enough += 1;
        } else {
            assert_eq!(enough, 0, "more processes are not enough: {processes}\n{outcome:?}");
            assert_refused(&outcome);
        }
        run(&service).arg("-n").unprivileged().command(["true"]).output().success();
        assert_no_litter(&service);
        if enough == 3 {
            return;
        }
    }
    panic!("that many processes are not enough for anything");
}

/// A waiter whose turn comes when no process can be started passes the lock on.
fn none_left_while_it_waits<S: Service>() {
    let service = prepared::<S>();
    let unprivileged = || run(&service).arg("-q").unprivileged();
    let holder = Gated::spawn(service.scratch(), unprivileged());
    holder.wait_held();
    let waiter = Gated::spawn(service.scratch(), unprivileged());
    service.wait_queued("job", 1);
    let guard = eventually("the guard", || process::children(waiter.pid()).first().copied());
    for pid in [guard, waiter.pid()] {
        take_processes(pid);
    }
    holder.let_go().success();
    let released = boottime();
    assert_refused(&waiter.running.wait());
    assert!(boottime() < released + TTL, "the lock was kept");
    run(&service).arg("-n").unprivileged().command(["true"]).output().success();
    assert_no_litter(&service);
}

/// A holder needs no new process to keep the lock and to release it.
fn none_left_while_it_holds<S: Service>() {
    let service = prepared::<S>();
    let holder = Gated::spawn(service.scratch(), run(&service).arg("-q").unprivileged());
    holder.wait_held();
    for pid in [holder.running.guard_pid(), holder.pid()] {
        take_processes(pid);
    }
    last_until(boottime() + TTL * 3 / 2);
    assert!(holder.running.is_running());
    holder.let_go().success();
    run(&service).arg("-n").unprivileged().command(["true"]).output().success();
}

/// A server that is given by name cannot be reached anew: that is an outage, and no bug.
#[test]
fn none_left_to_look_up_a_name() {
    let service = prepared::<RedisService>();
    let url = service.url().replace("127.0.0.1", "localhost");
    let holder = Gated::spawn(service.scratch(), run(&service).backend(url).args(["-q", "-t", "4s"]).unprivileged());
    holder.wait_held();
    take_processes(holder.pid());
    service.redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let lost = holder.running.wait();
    lost.code(79).stderr_is_one_line("lost 'job' at ");
    assert!(lost.stderr().contains("no thread could be started to look up its name"), "{lost:?}");
}

macro_rules! runs_out_on {
    ($($backend:ident: $service:ty;)*) => {
        $(mod $backend {
            use super::*;

            #[test]
            fn too_few() {
                super::too_few::<$service>();
            }

            #[test]
            fn none_left_while_it_waits() {
                super::none_left_while_it_waits::<$service>();
            }

            #[test]
            fn none_left_while_it_holds() {
                super::none_left_while_it_holds::<$service>();
            }
        })*
    };
}

runs_out_on! {
    file: FileService;
    redis: RedisService;
}
