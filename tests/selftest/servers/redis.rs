//! redis servers, and what the test sees of them.

use std::sync::mpsc;
use std::thread;

use crate::support::process::{self, State};
use crate::support::servers::{Client, Redis, Reply};

#[test]
fn a_redis_answers_as_an_unprivileged_user_on_loopback_only() {
    let redis = Redis::start();
    assert_eq!(redis.cli(&["PING"]), "PONG");
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
    assert_eq!(redis.cli(&["CONFIG", "GET", "bind"]), "bind\n127.0.0.1");
    let uid = process::status(redis.pid(), "Uid").unwrap();
    let root = uid.split_whitespace().any(|id| id == "0");
    assert!(!root, "redis runs with user ids {uid}");
}

#[test]
fn keys_and_values_may_be_binary() {
    let redis = Redis::start();
    assert_eq!(redis.call(&[b"SET", b"a\r\n\0b", b"\xff\0"]), Reply::Status("OK".into()));
    assert_eq!(redis.call(&[b"GET", b"a\r\n\0b"]), Reply::Bulk(b"\xff\0".to_vec()));
    assert_eq!(redis.keys(), ["a\r\n\0b"]);
    assert_eq!(redis.get("none"), None);
    assert_eq!(redis.pttl("none"), -2);
    assert_eq!(redis.pttl("a\r\n\0b"), -1);
    redis.cli(&["SET", "short", "x", "PX", "60000"]);
    assert!((1..=60000).contains(&redis.pttl("short")));
    assert!(matches!(redis.call(&[b"NONSENSE"]), Reply::Error(_)));
    let nested = redis.call(&[b"EVAL", b"return {1, {false, 'x'}}", b"0"]);
    let inner = Reply::Array(vec![Reply::Nil, Reply::Bulk(b"x".to_vec())]);
    assert_eq!(nested, Reply::Array(vec![Reply::Int(1), inner]));
}

#[test]
fn a_stopped_redis_accepts_and_is_silent_until_it_goes_on() {
    let redis = Redis::start();
    redis.stop();
    assert_eq!(process::state(redis.pid()), State::Stopped);
    let port = redis.port();
    let (connected, accepted) = mpsc::channel();
    let ping = thread::spawn(move || {
        let mut client = Client::connect(port).unwrap();
        connected.send(()).unwrap();
        client.call(&[b"PING"]).unwrap()
    });
    accepted.recv().unwrap();
    redis.cont();
    assert_eq!(ping.join().unwrap(), Reply::Status("PONG".into()));
}

#[test]
fn a_killed_redis_refuses_and_restarts_empty_on_its_port() {
    let redis = Redis::start();
    let (port, first) = (redis.port(), redis.pid());
    redis.cli(&["SET", "k", "v"]);
    redis.stop();
    redis.kill();
    assert_eq!(process::state(first), State::Gone);
    assert!(Client::connect(port).is_err());
    // Also from a thread that ends: the server must not die with it.
    thread::scope(|scope| scope.spawn(|| redis.restart()).join().unwrap());
    assert_eq!(redis.get("k"), None);
    assert_eq!(redis.port(), port);
    assert_ne!(redis.pid(), first);
    let last = redis.pid();
    drop(redis);
    assert_eq!(process::state(last), State::Gone);
}

#[test]
fn a_redis_that_persists_restarts_with_its_data() {
    let redis = Redis::with(["--appendonly", "yes", "--appendfsync", "always"]);
    redis.cli(&["SET", "k", "v"]);
    redis.restart();
    assert_eq!(redis.get("k").as_deref(), Some("v"));
}

#[test]
fn a_redis_with_a_password_lets_the_test_in() {
    let redis = Redis::with(["--requirepass", "se:cret"]);
    assert_eq!(redis.cli(&["PING"]), "PONG");
    let reply = Client::connect(redis.port()).unwrap().call(&[b"PING"]).unwrap();
    assert!(matches!(reply, Reply::Error(error) if error.starts_with("NOAUTH")));
    let port = redis.port();
    assert_eq!(redis.url_for("", "se:cret", 3), format!("redis://:se%3Acret@127.0.0.1:{port}/3"));
    assert_eq!(redis.url_for("ann", "pw", 0), format!("redis://ann:pw@127.0.0.1:{port}/0"));
    assert_eq!(redis.url_for("", "", 1), format!("redis://127.0.0.1:{port}/1"));
}

#[test]
#[should_panic(expected = "redis-server ended at once")]
fn a_redis_that_cannot_start_says_why() {
    Redis::with(["--nonsense", "yes"]);
}

#[test]
fn a_monitor_tells_others_from_the_test_and_from_scripts() {
    let redis = Redis::start();
    let monitor = redis.monitor();
    redis.cli(&["SET", "ours", "1"]);
    let mut other = Client::connect(redis.port()).unwrap();
    other.call(&[b"EVAL", b"return redis.call('GET', KEYS[1])", b"1", b"a\"\\\x01\n"]).unwrap();
    other.call(&[b"SELECT", b"2"]).unwrap();
    other.call(&[b"PING"]).unwrap();
    let eval = ["EVAL", "return redis.call('GET', KEYS[1])", "1", "a\"\\\u{1}\n"].map(String::from).to_vec();
    let select = ["SELECT", "2"].map(String::from).to_vec();
    assert_eq!(monitor.client_commands(), [eval, select, vec!["PING".into()]]);
    let all = monitor.all();
    assert!(all.iter().any(|seen| seen.source == "lua" && seen.words == ["GET", "a\"\\\u{1}\n"]), "{all:?}");
    assert!(all.iter().any(|seen| seen.db == 2 && seen.words == ["PING"]), "{all:?}");
    assert_eq!(monitor.wait_until("a PING", |seen| seen.iter().any(|words| words[0] == "PING")).len(), 3);
    assert_eq!(redis.clients().len(), 1, "{:?}", redis.clients());
}
