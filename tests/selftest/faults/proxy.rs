//! The proxy that misbehaves on command.

use super::*;
use crate::support::proxy::{Counts, Mode, Proxy};

#[test]
fn forward_passes_everything_and_counts_it() {
    let (echo, proxy) = start();
    let one = client(proxy.port());
    say(&one, "hello");
    assert_hears(&one, "hello");
    one.shutdown(Shutdown::Write).unwrap();
    assert_eq!(hear(&one, &mut [0]).unwrap(), 0);
    eventually("the connection to be over", || (proxy.counts().open == 0).then_some(()));
    let counts = Counts { accepted: 1, requests: 5, replies: 5, ..Counts::default() };
    assert_eq!((proxy.counts(), echo.heard()), (counts, 5));
}

#[test]
fn silent_swallows_both_ways_on_open_and_on_new_connections() {
    let (echo, proxy) = start();
    let old = client(proxy.port());
    say(&old, "a");
    assert_hears(&old, "a");
    proxy.set(Mode::Silent);
    let new = client(proxy.port());
    say(&old, "bb");
    say(&new, "ccc");
    eventually("the loss of five bytes", || (proxy.counts().lost_requests == 5).then_some(()));
    assert_hears_nothing(&old);
    assert_hears_nothing(&new);
    // The end of a stream is swallowed as well.
    old.shutdown(Shutdown::Write).unwrap();
    assert_hears_nothing(&old);
    assert_eq!((echo.heard(), proxy.counts().open), (1, 2));
}

#[test]
fn a_hole_in_a_stream_is_never_followed_by_a_byte() {
    let (_echo, proxy) = start();
    let (torn, whole) = (client(proxy.port()), client(proxy.port()));
    proxy.set(Mode::Silent);
    say(&torn, "lost");
    eventually("the loss", || (proxy.counts().lost_requests == 4).then_some(()));
    assert_eq!(proxy.counts().unheard, 1);
    proxy.set(Mode::Forward);
    assert_hears_nothing(&torn);
    say(&torn, "more");
    assert_reset(&torn);
    say(&whole, "fine");
    assert_hears(&whole, "fine");
}

#[test]
fn drop_replies_lets_requests_through() {
    let (echo, proxy) = start();
    let one = client(proxy.port());
    proxy.set(Mode::DropReplies);
    say(&one, "hello");
    eventually("the loss of the reply", || (proxy.counts().lost_replies == 5).then_some(()));
    assert_eq!(echo.heard(), 5);
    assert_hears_nothing(&one);
}

#[test]
fn drop_requests_lets_replies_through() {
    let (echo, proxy) = start();
    let one = client(proxy.port());
    proxy.set(Mode::Delay(A_MOMENT));
    say(&one, "a");
    eventually("the request", || (echo.heard() == 1).then_some(()));
    // The reply is under way and must still arrive; the next request must not.
    proxy.set(Mode::DropRequests);
    say(&one, "b");
    assert_hears(&one, "a");
    eventually("the loss of the request", || (proxy.counts().lost_requests == 1).then_some(()));
    assert_eq!(echo.heard(), 1);
}

#[test]
fn hold_delivers_everything_late() {
    let (echo, proxy) = start();
    let one = client(proxy.port());
    proxy.set(Mode::Hold);
    say(&one, "hello");
    assert_hears_nothing(&one);
    assert_eq!(echo.heard(), 0);
    proxy.set(Mode::Forward);
    assert_hears(&one, "hello");
}

#[test]
fn refuse_closes_and_refuses_and_comes_back_on_the_same_port() {
    let (_echo, proxy) = start();
    let one = client(proxy.port());
    say(&one, "a");
    assert_hears(&one, "a");
    for _ in 0..3 {
        proxy.set(Mode::Refuse);
        let error = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(matches!(hear(&one, &mut [0]), Ok(0) | Err(_)));
        proxy.set(Mode::Forward);
        let two = client(proxy.port());
        say(&two, "b");
        assert_hears(&two, "b");
    }
}

#[test]
fn reset_resets_open_and_new_connections() {
    let (_echo, proxy) = start();
    let old = client(proxy.port());
    say(&old, "a");
    assert_hears(&old, "a");
    proxy.set(Mode::Reset);
    assert_reset(&old);
    match TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())) {
        Ok(new) => assert_reset(&new),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert_eq!(proxy.counts().open, 0);
}

#[test]
fn drip_gives_one_byte_at_a_time() {
    let (echo, proxy) = start();
    let one = client(proxy.port());
    proxy.set(Mode::Drip(Duration::from_millis(20)));
    let start = Instant::now();
    say(&one, "hello");
    eventually("the whole request", || (echo.heard() == 5).then_some(()));
    // All that can be checked here is that none is early: a late reader finds several.
    for (n, byte) in (1..).zip(["h", "e", "l", "l", "o"]) {
        assert_hears(&one, byte);
        assert!(start.elapsed() >= Duration::from_millis(20 * n));
    }
    // What is on its way passes at once when the drip ends.
    proxy.set(Mode::Drip(Duration::from_secs(3600)));
    say(&one, "world");
    eventually("the whole request", || (echo.heard() == 10).then_some(()));
    assert_hears_nothing(&one);
    proxy.set(Mode::Forward);
    assert_hears(&one, "world");
}

#[test]
fn delay_delays_both_ways() {
    let (_echo, proxy) = start();
    let one = client(proxy.port());
    proxy.set(Mode::Delay(Duration::from_millis(60)));
    let start = Instant::now();
    say(&one, "hello");
    assert_hears(&one, "hello");
    assert!(start.elapsed() >= Duration::from_millis(120));
}

#[test]
fn cut_reply_lets_n_bytes_through_on_each_connection() {
    let (_echo, proxy) = start();
    let (one, two) = (client(proxy.port()), client(proxy.port()));
    say(&one, "whole");
    assert_hears(&one, "whole");
    proxy.set(Mode::CutReplyAfter(3));
    say(&one, "he");
    assert_hears(&one, "he");
    say(&one, "llo");
    say(&two, "world");
    assert_hears(&one, "l");
    assert_hears(&two, "wor");
    eventually("the loss of the rest", || (proxy.counts().lost_replies == 4).then_some(()));
    assert_hears_nothing(&one);
    assert_hears_nothing(&two);
}

#[test]
fn a_client_of_a_dead_server_is_reset() {
    let proxy = Proxy::to({
        // Its port is free again, and was in use a moment ago.
        let echo = Echo::start();
        echo.port
    });
    assert_reset(&client(proxy.port()));
}

#[test]
fn dropping_it_closes_everything() {
    let (_echo, proxy) = start();
    let (one, port) = (client(proxy.port()), proxy.port());
    proxy.set(Mode::Silent);
    drop(proxy);
    assert!(matches!(hear(&one, &mut [0]), Ok(0) | Err(_)));
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}

fn start() -> (Echo, Proxy) {
    let echo = Echo::start();
    let proxy = Proxy::to(echo.port);
    (echo, proxy)
}
