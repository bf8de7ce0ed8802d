//! One of several endpoints.

use super::*;

/// A port on which every attempt to connect just never ends: those that may wait to be accepted do already.
struct BlackHole {
    listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl BlackHole {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: a system call with integers, on a descriptor that is open.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let address = listener.local_addr().unwrap();
        let moment = Duration::from_millis(50);
        let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, moment).ok()).collect();
        Self { listener, _waiting: waiting }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }
}

#[test]
fn one_that_fails_is_not_noticed() {
    at_once(&[
        ("at the start", one_that_is_dead_frozen_or_out_of_reach_does_not_delay_the_start),
        ("silent", || rides_out(Mode::Silent)),
        ("refusing", || rides_out(Mode::Refuse)),
        ("resetting", || rides_out(Mode::Reset)),
        ("losing answers", || rides_out(Mode::DropReplies)),
        ("losing requests", || rides_out(Mode::DropRequests)),
        ("silent in a wait", || goes_on_waiting(Mode::Silent)),
        ("refusing in a wait", || goes_on_waiting(Mode::Refuse)),
    ]);
}

fn one_that_is_dead_frozen_or_out_of_reach_does_not_delay_the_start() {
    let service = EtcdService::fresh();
    let good = Proxy::to(service.etcd.member(0).port());
    let (dead, silent, hole) = (Port::reserve(), Proxy::to(service.etcd.member(0).port()), BlackHole::new());
    silent.set(Mode::Silent);
    for bad in [dead.number(), silent.port(), hole.port()] {
        let url =
            format!("etcd://127.0.0.1:{bad},127.0.0.1:{},127.0.0.1:{}", good.port(), service.etcd.member(0).port());
        // It begins with any of them.
        for _ in 0..6 {
            let outcome = service.scratch().dlock().run("job").backend(&url).command(["true"]).output();
            outcome.success();
            assert!(outcome.elapsed() < Duration::from_secs(1), "{outcome:?}");
        }
    }
    // All but one.
    let bad: Vec<String> =
        [dead.number(), silent.port(), hole.port()].iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let url = format!("etcd://{},127.0.0.1:{}", bad.join(","), good.port());
    for _ in 0..3 {
        let outcome = service.scratch().dlock().run("job").backend(&url).command(["true"]).output();
        outcome.success();
        assert!(outcome.elapsed() < Duration::from_secs(2), "{outcome:?}");
    }
    assert_clean(&service);
}

fn rides_out(mode: Mode) {
    let endpoints = Endpoints::of_one_server();
    let service = &endpoints.service;
    let holder = Gated::spawn(service.scratch(), endpoints.dlock().args(["-t", "4s"]));
    holder.wait_held();
    renewed(&service.etcd);
    let in_use = endpoints.in_use();
    endpoints.proxies[in_use].set(mode);
    let failed = boottime();
    last_until(failed + 2 * TTL);
    // The next one too.
    let next =
        endpoints.proxies.iter().enumerate().position(|(index, proxy)| index != in_use && proxy.counts().open > 0);
    endpoints.proxies[next.expect("another endpoint serves")].set(mode);
    renewed(&service.etcd);
    holder.let_go().success();
    assert_clean(service);
}

fn goes_on_waiting(mode: Mode) {
    let endpoints = Endpoints::of_one_server();
    let service = &endpoints.service;
    let holder = service.hold("job");
    let waiter = Gated::spawn(service.scratch(), endpoints.dlock().args(["-t", "6s", "-q"]));
    service.wait_queued("job", 1);
    let place = contenders(service).remove(1);
    // An outage before it knows of its place is one of the first contact.
    eventually("the waiter's watch", || (watchers(&service.etcd) >= 1).then_some(()));
    let in_use = endpoints.in_use();
    endpoints.proxies[in_use].set(mode);
    let others = || (0..3).filter(|&index| index != in_use).any(|index| endpoints.proxies[index].counts().open > 0);
    eventually("another endpoint", || others().then_some(()));
    holder.let_go().success();
    waiter.wait_held();
    // It kept its place.
    assert_eq!(contenders(service)[0].create_revision, place.create_revision);
    waiter.let_go().success();
    assert_clean(service);
}
