//! Taking a lock away: at once, from the one who is named alone, and its token stays behind those that follow.

use nix::sys::signal::Signal;

use crate::locks::breaking::{break_it, only_the_trace_is_left, owner, short};
use crate::locks::looking::status;
use crate::support::backends::on_every_server;
use crate::support::service::{Gated, RedisService, Service};

on_every_server! {
    a_frozen_holder_loses_the_lock_at_once_and_ends_by_itself
    what_is_only_kept_is_freed;
    one_of_several_holders_loses_its_slot
    nobody_else_loses_it
}

fn a_frozen_holder_loses_the_lock_at_once_and_ends_by_itself<S: Service>(service: &S) {
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "15s"]));
    let first = holder.token();
    holder.running.signal(Signal::SIGSTOP);
    let waiter = S::IN_ORDER.then(|| service.queue_up("job", &["-q"]));
    let taken = break_it(service, &owner(service), &["--now"]);
    taken.code(0).stderr_is_one_line("took 'job' away from ");
    let until = "; until it notices (at most 5s, or ";
    assert!(taken.stderr().contains(until), "{taken:?}");
    assert!(taken.stderr().ends_with("s if it is frozen), two commands can run\n"), "{taken:?}");
    let next = waiter.unwrap_or_else(|| Gated::spawn(service.scratch(), service.run("job").arg("-q")));
    assert!(next.token() > first);
    holder.running.signal(Signal::SIGCONT);
    holder.running.wait().code(79).stderr_ends_with_line(" was taken away by ");
    next.let_go().success();
    only_the_trace_is_left(service);
}

fn one_of_several_holders_loses_its_slot<S: Service>(service: &S) {
    let slots = [0; 2].map(|_| {
        let one = Gated::spawn(service.scratch(), service.run("job").args(["-t", short::<S>(), "--slots", "2"]));
        one.wait_held();
        one
    });
    let seen = status(service, "job");
    let named = seen["holders"][1].clone();
    break_it(service, named["id"].as_str().unwrap(), &["--now"]).code(0).stderr_is_one_line("took 'job' away from ");
    assert_eq!(status(service, "job")["held_by"], 1);
    for one in slots {
        if named["pid"] == one.pid() {
            one.running.wait().code(79).stderr_ends_with_line(" was taken away by ");
        } else {
            one.let_go().success();
        }
    }
}

fn nobody_else_loses_it<S: Service>(service: &S) {
    let holder = service.hold("job");
    let other = break_it(service, "0123456789abcdef0123456789abcdef", &["--now"]);
    other.code(79).stderr_is_one_line("nothing was done");
    holder.let_go().success();
    let free = break_it(service, "0123456789abcdef0123456789abcdef", &["--now"]);
    free.code(0).stderr_is_one_line("'job' is free: there is nothing to break");
}

fn what_is_only_kept_is_freed<S: Service>(service: &S) {
    service.run("job").args(["--min-hold", "1h"]).command(["true"]).output().success();
    let taken = break_it(service, &owner(service), &["--now"]);
    taken.code(0).stderr_is_one_line("took 'job' away from ");
    service.assert_free("job");
}

#[test]
fn another_programs_lock_is_taken_while_its_text_is_the_same() {
    let service = RedisService::fresh();
    service.redis.cli(&["SET", "dlock:job", "some-token"]);
    let id = owner(&service);
    service.redis.cli(&["SET", "dlock:job", "another-token"]);
    break_it(&service, &id, &["--now"]).code(79).stderr_is_one_line("nothing was done");
    let id = owner(&service);
    let taken = break_it(&service, &id, &["--now"]);
    taken
        .code(0)
        .stderr_is_one_line("took 'job' away from another program: another-token; whether it notices is not known");
    service.assert_free("job");
}
