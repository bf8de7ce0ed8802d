//! The server that lies on purpose.

use super::*;
use crate::support::proxy::{Behaviour, Hostile};

const PING: &str = "*1\r\n$4\r\nPING\r\n";

#[test]
fn huge_bulk_announces_the_impossible_and_goes_on() {
    assert_floods(Behaviour::HugeBulk, "$9223372036854775807\r\nxxxx");
}

#[test]
fn huge_array_announces_too_much_and_goes_on() {
    assert_floods(Behaviour::HugeArray, "*2147483647\r\n:1\r\n:1\r\n");
}

#[test]
fn endless_line_has_no_end() {
    assert_floods(Behaviour::EndlessLine, "+xxxxxxxx");
}

#[test]
fn garbage_differs_between_connections_and_not_between_runs() {
    let noise = || {
        let server = Hostile::start(Behaviour::Garbage);
        [(); 2].map(|()| {
            let one = client(server.port());
            say(&one, PING);
            let mut bytes = [0; 4096];
            (&one).read_exact(&mut bytes).unwrap();
            bytes
        })
    };
    let (first, second) = (noise(), noise());
    assert_eq!(first, second);
    assert_ne!(first[0], first[1]);
}

#[test]
fn half_reply_stops_in_the_middle() {
    let (_server, one) = ask(Behaviour::HalfReply, PING);
    assert_hears(&one, "$10\r\nhello");
    assert_hears_nothing(&one);
}

#[test]
fn silence_takes_everything_and_says_nothing() {
    let (server, one) = ask(Behaviour::Silence, PING);
    eventually("the request", || (server.received() == PING.len() as u64).then_some(()));
    assert_hears_nothing(&one);
    assert_eq!((server.connections(), server.sent()), (1, 0));
}

#[test]
fn http_is_not_redis() {
    let (_server, one) = ask(Behaviour::Http, PING);
    let mut reply = String::new();
    (&one).read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{reply}");
}

#[test]
fn close_at_once_closes_at_once() {
    let server = Hostile::start(Behaviour::CloseAtOnce);
    for n in 1..=3 {
        assert_eq!(hear(&client(server.port()), &mut [0]).unwrap(), 0);
        assert_eq!(server.connections(), n);
    }
}

#[test]
fn deep_nesting_is_deep() {
    let (_server, one) = ask(Behaviour::DeepNesting, PING);
    assert_hears(&one, &("*1\r\n".repeat(100_000) + ":1\r\n"));
}

#[test]
fn wrong_types_answers_each_command_once_and_wrongly() {
    let get = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let eval = "*3\r\n$4\r\nEVAL\r\n$9\r\nreturn\r\n1\r\n$1\r\n0\r\n";
    let select = "*2\r\n$6\r\nselect\r\n$1\r\n0\r\n";
    let (server, one) = ask(Behaviour::WrongTypes, &[select, get, eval, eval, PING].concat());
    assert_hears(&one, "+OK\r\n:-7\r\n:-7\r\n$8\r\nsurprise\r\n:-7\r\n");
    // A command in two pieces is one command.
    say(&one, &get[..9]);
    eventually("the first piece", || (server.received() % 100 != 0).then_some(()));
    assert_hears_nothing(&one);
    say(&one, &get[9..]);
    assert_hears(&one, ":-7\r\n");
}

fn ask(behaviour: Behaviour, request: &str) -> (Hostile, TcpStream) {
    let server = Hostile::start(behaviour);
    let one = client(server.port());
    say(&one, request);
    (server, one)
}

#[track_caller]
fn assert_floods(behaviour: Behaviour, beginning: &str) {
    let (server, one) = ask(behaviour, PING);
    assert_hears(&one, beginning);
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..8 {
        (&one).read_exact(&mut buffer).unwrap();
    }
    assert!(server.sent() > 8 << 20);
    // It stops while it is still sending.
    drop(server);
}
