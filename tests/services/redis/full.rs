/*!
A server that has as many clients as it allows: with a password too, this is an outage and no refused password.
*/

use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::servers::{Client, Redis};
use crate::support::service::Gated;

const PASSWORD: &str = "open sesame";

/// Asks over this connection, which the server must not refuse.
fn ask(client: &mut Client, request: &[&str]) -> String {
    let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
    client.call(&words).unwrap().text()
}

/// How many wait for the lock in this database.
fn queued(redis: &Redis, db: u32) -> String {
    let mut client = redis.client();
    ask(&mut client, &["SELECT", &db.to_string()]);
    ask(&mut client, &["ZCARD", "{dlock:k}\u{1}queue"])
}

/// How many connections the server has refused because it is full.
fn refused(client: &mut Client) -> u64 {
    let stats = ask(client, &["INFO", "stats"]);
    let count = stats.lines().find_map(|line| line.trim().strip_prefix("rejected_connections:"));
    count.expect("redis counts them").parse().unwrap()
}

#[test]
fn a_full_server_with_a_password_is_an_outage_that_a_waiter_rides_out() {
    let (scratch, redis) = (Scratch::new(), Redis::with(["--requirepass", PASSWORD]));
    let run = |db| scratch.dlock().run("k").backend(redis.url_for("", PASSWORD, db)).args(["-q", "-t", "10s"]);
    for db in [0, 3] {
        let holder = Gated::spawn(&scratch, run(db));
        holder.wait_held();
        let waiter = Gated::spawn(&scratch, run(db).args(["-w", "60s"]));
        eventually("the waiter to be in the queue", || (queued(&redis, db) == "1").then_some(()));
        let mut admin = redis.client();
        let before = refused(&mut admin);
        // Whoever is connected stays; then nobody but this one is, and nobody else gets in.
        ask(&mut admin, &["CONFIG", "SET", "maxclients", "1"]);
        ask(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        eventually("three connections to be refused", || (refused(&mut admin) >= before + 3).then_some(()));
        ask(&mut admin, &["CONFIG", "SET", "maxclients", "10000"]);
        drop(admin);
        assert!(!waiter.has_held() && waiter.running.is_running());
        holder.let_go().success();
        waiter.wait_held();
        waiter.let_go().success();
    }
}

#[test]
fn a_full_server_is_69_and_says_so() {
    let scratch = Scratch::new();
    for (redis, password) in [(Redis::with(["--requirepass", PASSWORD]), PASSWORD), (Redis::start(), "")] {
        let mut admin = redis.client();
        ask(&mut admin, &["CONFIG", "SET", "maxclients", "1"]);
        // It hangs up at once: its last words must not depend on who is faster.
        for _ in 0..10 {
            let url = redis.url_for("", password, 0);
            let outcome = scratch.dlock().run("k").backend(url).arg("-n").command(["echo", "ran"]).output();
            outcome.code(69).stdout_is("").stderr_is_one_line("max number of clients reached");
        }
        ask(&mut admin, &["CONFIG", "SET", "maxclients", "10000"]);
    }
}
