/*!
The first contact with a server, within `-w` and `-n`: how long it may take, and which failures are retried.
*/

use std::time::Duration;

use crate::support::dlock::Dlock;
use crate::support::proxy::{Behaviour, Hostile};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;

fn run(scratch: &Scratch, url: &str, options: &[&str]) -> Dlock {
    scratch.dlock().run("job").backend(url).args(options).command(["echo", "ran"])
}

/// A cron job that starts while the server restarts.
#[test]
fn a_server_that_restarts_at_the_first_contact_is_waited_for() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    redis.kill();
    let waiting = run(&scratch, &redis.url(), &["-w", "60"]).spawn();
    waiting.wait_stderr("waiting for 'job': could not reach redis://");
    redis.restart();
    waiting.wait().code(0).stdout_is("ran\n").stderr_is_one_line("waiting for 'job': ");
    assert_eq!(redis.get("dlock:job"), None);
}

/// The request has arrived, or has not: that is resolved with the same owner.
#[test]
fn an_outage_between_the_first_request_and_its_answer_is_ridden_out() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    redis.stop();
    let waiting = run(&scratch, &redis.url(), &["-w", "60", "--ttl", "3s"]).spawn();
    waiting.wait_stderr("did not answer within 1s");
    redis.cont();
    waiting.wait().code(0).stdout_is("ran\n").stderr_is_one_line("waiting for 'job': ");
    assert_eq!(redis.get("dlock:job"), None);
}

/// A run inside of another one looks once before it waits.
#[test]
fn a_nested_run_waits_for_its_server_too() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    redis.kill();
    let inner = format!(r#""$DLOCK" run -k job -b {} -w 60 -- echo ran"#, redis.url());
    let dlock = *crate::support::dlock::DLOCK;
    let outer = scratch.dlock().run("outer").backend(scratch.file_url()).env("DLOCK", dlock).shell(inner).spawn();
    outer.wait_stderr("waiting for 'job': could not reach redis://");
    redis.restart();
    outer.wait().code(0).stdout_is("ran\n").stderr_is_one_line("waiting for 'job': ");
}

#[test]
fn a_wait_bounds_the_first_contact_and_so_does_none() {
    let (scratch, server) = (Scratch::new(), Hostile::start(Behaviour::Silence));
    // Logging in is part of connecting, which may take 5 s.
    let url = format!("redis://:x@127.0.0.1:{}", server.port());
    for (options, least, most, said) in [
        (&["-w", "1"][..], 1000, 3500, "did not get 'job' within 1s: "),
        (&["-w", "0.05"], 900, 3500, "did not get 'job' within 50ms: "),
        (&["-n"], 1900, 4500, "did not answer within 2s"),
        (&["-n", "--connect-timeout", "0.3"], 250, 2500, "did not answer within 300ms"),
    ] {
        let outcome = run(&scratch, &url, options).output();
        outcome.code(69).stdout_is("").stderr_ends_with_line(said);
        let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
        assert!(outcome.elapsed() >= least && outcome.elapsed() < most, "{options:?}: {outcome:?}");
    }
}

#[test]
fn what_no_waiting_mends_is_refused_at_once() {
    let (scratch, redis) = (Scratch::new(), Redis::with(["--requirepass", "right"]));
    let redlock = "redlock://one.invalid,two.invalid,three.invalid".to_owned();
    for (url, code, said) in [
        ("redis://no-such-host.invalid".to_owned(), 69, "could not resolve the name of redis://no-such-host.invalid"),
        ("etcd://no-such-host.invalid".to_owned(), 69, "could not resolve the name of "),
        ("zk://no-such-host.invalid".to_owned(), 69, "could not resolve the name of "),
        (redlock, 69, "could not resolve the name"),
        (redis.url_for("", "wrong", 0), 77, "refused the credentials"),
    ] {
        let outcome = run(&scratch, &url, &["-w", "60"]).output();
        outcome.code(code).stdout_is("").stderr_is_one_line(said);
        assert!(outcome.elapsed() < Duration::from_secs(20), "{outcome:?}");
    }
}
