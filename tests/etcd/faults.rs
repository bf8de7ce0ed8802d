/*!
The command never outlives its lease, and what can be ridden out is: members of etcd that die, freeze, or cannot be
reached, and answers that are lost.

Where a fault begins at a known moment, the last renewal was sent before it, so by a ttl after it everything has to be
dead; what ends a lease at the server is never earlier than that. A waiter that reaches etcd all the time and the witness
find out whether two commands ever overlapped. Its own lease is long, so that all renewals are the holder's.
*/

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::etcd::{assert_clean, assert_lost, assert_waited, behind, contenders, renewed, watchers};
use crate::support::daemon::Port;
use crate::support::dlock::{Dlock, Running};
use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::scene::{assert_in_time, assert_taken_over};
use crate::support::scratch::Scratch;
use crate::support::service::{EtcdService, Gated, Service};
use crate::support::tree::Tree;
use crate::support::witness::Witness;

/// Runs all of these at the same time, which they mostly wait; a failure names the one it is in.
fn at_once(cases: &[(&str, fn())]) {
    thread::scope(|scope| {
        for (name, case) in cases {
            thread::Builder::new().name((*name).to_owned()).spawn_scoped(scope, case).unwrap();
        }
    });
}

/// The lease of the holder here, unless a test says otherwise.
const TTL: Duration = Duration::from_secs(1);

/// A stubborn [`Tree`] that holds the lock `job` under the witness.
struct Scene<'a> {
    service: &'a EtcdService,
    tree: Tree,
    holder: Running,
    witness: Witness,
}

impl<'a> Scene<'a> {
    /// Returns when all of the tree runs. `url` leads to the service, perhaps by a detour.
    #[track_caller]
    fn start(service: &'a EtcdService, url: &str, options: &[&str]) -> Self {
        let scratch = service.scratch();
        let mut tree = Tree::new(scratch);
        let witness = Witness::in_dir(scratch.root());
        let ttl: &[&str] = if options.contains(&"-t") { &[] } else { &["-t", "1s"] };
        let dlock = scratch.dlock().run("job").backend(url).args(ttl).args(options);
        let holder = dlock.command(witness.command(&tree.work())).lifeline(tree.end()).spawn();
        tree.wait_grown();
        Self { service, tree, holder, witness }
    }

    /// Another one, which waits for the lock.
    #[track_caller]
    fn wait_behind(&self) -> Running {
        let waiter = self.service.run("job").args(["-t", "60s"]).command(self.witness.command("true")).spawn();
        self.service.wait_queued("job", 1);
        waiter
    }

    /// Waits for the end of the tree, which must come within `ttl` of `last`, the time of the last renewal.
    #[track_caller]
    fn assert_dies_within(&self, ttl: Duration, last: Duration) {
        assert_in_time(self.tree.died_at(), last + ttl);
    }

    /// The holder has ended because of the loss and says `why`; the waiter has its turn; nothing stays.
    #[track_caller]
    fn lost_to(self, waiter: Running, why: &str) {
        assert_lost(&self.holder.wait(), why);
        assert_taken_over(&self.witness, waiter);
        assert_clean(self.service);
    }
}

/// Three members that find a new leader within half a lease of 2 s.
fn cluster() -> Etcd {
    Etcd::with(EtcdOptions { heartbeat: 30, election: 300, ..EtcdOptions::cluster() })
}

/// One etcd behind several proxies: as many endpoints, of which each can break alone.
struct Endpoints {
    service: EtcdService,
    proxies: Vec<Proxy>,
}

impl Endpoints {
    fn of_one_server() -> Self {
        let service = EtcdService::fresh();
        let proxies = (0..3).map(|_| Proxy::to(service.etcd.member(0).port())).collect();
        Self { service, proxies }
    }

    fn of_a_cluster() -> Self {
        let service = EtcdService::on(cluster());
        let proxies = service.etcd.members().iter().map(|member| Proxy::to(member.port())).collect();
        Self { service, proxies }
    }

    fn url(&self) -> String {
        let hosts: Vec<String> = self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        format!("etcd://{}", hosts.join(","))
    }

    fn dlock(&self) -> Dlock {
        self.service.scratch().dlock().run("job").backend(self.url())
    }

    /// The endpoint that serves the only client.
    #[track_caller]
    fn in_use(&self) -> usize {
        eventually("one connection", || {
            let open: Vec<usize> = (0..3).filter(|&index| self.proxies[index].counts().open > 0).collect();
            if let [one] = open[..] { Some(one) } else { None }
        })
    }
}

mod silence {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_in_time_is_survived_by_no_command() {
        at_once(&[
            ("frozen", a_server_that_is_frozen_for_three_ttl_is_survived_by_no_command),
            ("killed", a_server_that_is_killed_for_good_is_survived_by_no_command),
            ("late", a_deadline_counts_from_when_the_renewal_was_sent),
            ("far away", a_server_that_is_far_away_serves),
        ]);
    }

    fn a_server_that_is_frozen_for_three_ttl_is_survived_by_no_command() {
        let service = EtcdService::fresh();
        let scene = Scene::start(&service, &service.url(), &[]);
        let waiter = scene.wait_behind();
        renewed(&service.etcd);
        service.etcd.stop();
        let stopped = boottime();
        scene.assert_dies_within(TTL, stopped);
        last_until(stopped + 3 * TTL);
        service.etcd.cont();
        scene.lost_to(waiter, "does not answer");
    }

    fn a_server_that_is_killed_for_good_is_survived_by_no_command() {
        let service = EtcdService::fresh();
        let scene = Scene::start(&service, &service.url(), &[]);
        renewed(&service.etcd);
        service.etcd.kill();
        scene.assert_dies_within(TTL, boottime());
        assert_lost(&scene.holder.wait(), "refused");
    }

    /// Of renewals whose answers are lost or too slow, etcd knows that the lease was extended, and nobody here.
    #[test]
    fn a_way_that_fails_is_survived_by_no_command() {
        let silent = [Mode::Silent, Mode::DropReplies, Mode::DropRequests, Mode::Drip(Duration::from_millis(50))];
        thread::scope(|scope| {
            for mode in silent {
                scope.spawn(move || lost_behind(mode, "does not answer"));
            }
            // How it is called depends on what the reset came upon.
            scope.spawn(|| lost_behind(Mode::Reset, "no renewal was confirmed"));
            scope.spawn(|| lost_behind(Mode::Refuse, "refused"));
        });
    }

    /// The holder reaches the server through the fault, the waiter past it.
    fn lost_behind(mode: Mode, why: &str) {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        let scene = Scene::start(&service, &behind(&proxy), &[]);
        let waiter = scene.wait_behind();
        renewed(&service.etcd);
        proxy.set(mode);
        let asked = proxy.counts().accepted;
        scene.assert_dies_within(TTL, boottime());
        if !matches!(mode, Mode::Refuse) {
            assert!(proxy.counts().accepted > asked, "no renewal was retried on a new connection");
        }
        scene.lost_to(waiter, why);
    }

    /// A deadline that counted from the answer would be late by as much as the answer.
    fn a_deadline_counts_from_when_the_renewal_was_sent() {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        let scene = Scene::start(&service, &behind(&proxy), &["-t", "2s", "--kill-after", "0"]);
        let waiter = scene.wait_behind();
        renewed(&service.etcd);
        proxy.set(Mode::DelayReplies(Duration::from_millis(250)));
        let answered = proxy.counts().replies;
        let last = renewed(&service.etcd);
        // Its second half is what counts: with the first, only the lease is known to live.
        let both = 2 * 60;
        eventually("late answers", || (proxy.counts().replies >= answered + both).then_some(()));
        proxy.set(Mode::Silent);
        scene.assert_dies_within(2 * TTL, last);
        scene.lost_to(waiter, "does not answer");
    }

    fn a_server_that_is_far_away_serves() {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        proxy.set(Mode::Delay(Duration::from_millis(60)));
        let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "2s"]);
        let holder = Gated::spawn(service.scratch(), dlock);
        holder.wait_held();
        for _ in 0..4 {
            renewed(&service.etcd);
        }
        holder.let_go().success();
        assert_clean(&service);
    }
}

/// Each request is carried out, and nobody hears of it.
mod answers_lost {
    use super::*;

    #[test]
    fn what_was_done_and_not_heard_of_is_resolved() {
        at_once(&[
            ("grant", || acquire_loses("LeaseGrant", Mode::DropReplies)),
            // Time enough to lose the answer after the next one.
            ("put", || acquire_loses("Txn", Mode::DelayReplies(Duration::from_millis(200)))),
            ("renewal", a_renewal_whose_answer_is_lost_is_tried_again_unnoticed),
            ("release", a_release_whose_answer_is_lost_is_done_all_the_same),
            ("leaving", leaving_the_queue_leaves_nothing_when_the_answer_is_lost),
        ]);
    }

    /// The answer to `request` is lost, and those that follow it; those before it pass by `mode`.
    fn acquire_loses(request: &str, mode: Mode) {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        let requests = service.etcd.count_requests();
        proxy.set(mode);
        // With a lease that would outlast this test by far.
        let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "10m"]);
        let dlock = dlock.command(["echo", "ran"]).spawn();
        eventually("the request", || requests.so_far().contains_key(request).then_some(()));
        proxy.set(Mode::DropReplies);
        let outcome = dlock.wait();
        outcome.code(69).stdout_is("").stderr_is_one_line("did not get job: ");
        assert!(outcome.elapsed() < Duration::from_secs(8), "{outcome:?}");
        eventually("all to be taken back", || service.litter(&[]).is_empty().then_some(()));
    }

    fn a_renewal_whose_answer_is_lost_is_tried_again_unnoticed() {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "2s"]);
        let holder = Gated::spawn(service.scratch(), dlock);
        holder.wait_held();
        proxy.set(Mode::DropReplies);
        renewed(&service.etcd);
        let lost = boottime();
        eventually("a lost answer", || (proxy.counts().lost_replies > 0).then_some(()));
        proxy.set(Mode::Forward);
        last_until(lost + 2 * TTL);
        holder.let_go().success();
        assert_clean(&service);
    }

    fn a_release_whose_answer_is_lost_is_done_all_the_same() {
        let service = EtcdService::fresh();
        let proxy = Proxy::to(service.etcd.member(0).port());
        let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "10m"]);
        let dlock = dlock.shell("echo held; read -r _; exit 5").stdin(Stdio::piped());
        let mut holder = dlock.spawn();
        holder.wait_stdout("held");
        proxy.set(Mode::DropReplies);
        drop(holder.take_stdin());
        let outcome = holder.wait();
        outcome.code(5).stderr_is_one_line("could not release job");
        eventually("all to be taken back", || service.litter(&[]).is_empty().then_some(()));
    }

    fn leaving_the_queue_leaves_nothing_when_the_answer_is_lost() {
        let service = EtcdService::fresh();
        let holder = service.hold("job");
        let proxy = Proxy::to(service.etcd.member(0).port());
        let dlock = service.scratch().dlock().run("job").backend(behind(&proxy)).args(["-t", "10m", "-q"]);
        let waiter = Gated::spawn(service.scratch(), dlock);
        service.wait_queued("job", 1);
        proxy.set(Mode::DropReplies);
        waiter.running.signal(Signal::SIGTERM);
        waiter.running.wait().signal(Signal::SIGTERM).quiet();
        eventually("the place to be given up", || (contenders(&service).len() == 1).then_some(()));
        eventually("its lease to be given up", || (service.etcd.leases().len() == 1).then_some(()));
        holder.let_go().success();
        assert_clean(&service);
    }
}

/// One of several endpoints.
mod endpoints {
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
}

/// Members of a cluster of three.
mod cluster {
    use super::*;

    #[test]
    fn members_that_fail_are_not_noticed_and_majorities_that_fail_are_survived_by_no_command() {
        at_once(&[
            ("leader", a_leader_that_freezes_or_is_killed_is_not_noticed),
            ("in use", a_member_in_use_that_freezes_or_is_killed_is_not_noticed),
            ("majority with leader", || majority_freezes(true)),
            // It may go on to extend leases for a while, and knows nothing of what the others decide.
            ("majority without leader", || majority_freezes(false)),
        ]);
    }

    fn a_leader_that_freezes_or_is_killed_is_not_noticed() {
        let service = EtcdService::on(cluster());
        unnoticed(&service, &service.url(), || service.etcd.leader());
    }

    fn a_member_in_use_that_freezes_or_is_killed_is_not_noticed() {
        let endpoints = Endpoints::of_a_cluster();
        unnoticed(&endpoints.service, &endpoints.url(), || endpoints.in_use());
    }

    /// Held while `which` member freezes and comes back, and another one is killed for good.
    fn unnoticed(service: &EtcdService, url: &str, which: impl Fn() -> usize) {
        let dlock = service.scratch().dlock().run("job").backend(url).args(["-t", "2s"]);
        let holder = Gated::spawn(service.scratch(), dlock);
        holder.wait_held();
        renewed(&service.etcd);
        let frozen = which();
        service.etcd.member(frozen).stop();
        // Long enough for two renewals. A leader of this version that stands still for longer than the lease revokes it
        // when it comes back, although it was renewed.
        last_until(boottime() + 3 * TTL / 2);
        assert!(process::is_alive(holder.running.command_pid()));
        service.etcd.member(frozen).cont();
        service.etcd.leader();
        renewed(&service.etcd);
        service.etcd.member(which()).kill();
        last_until(boottime() + 2 * TTL);
        let waiter = service.queue_up("job", &["-t", "60s"]);
        holder.let_go().success();
        waiter.wait_held();
        assert_waited(&waiter.let_go());
        assert_clean(service);
    }

    /// It would keep a watch open that nothing comes through any more, until the next sign of life.
    #[test]
    fn a_member_that_is_cut_off_from_the_others_is_left_by_those_who_wait() {
        let endpoints = Endpoints::of_a_cluster();
        let service = &endpoints.service;
        let holder = service.hold("job");
        let waiter = Gated::spawn(service.scratch(), endpoints.dlock().args(["-t", "3m", "-q"]));
        service.wait_queued("job", 1);
        let place = contenders(service).remove(1);
        let member = endpoints.in_use();
        eventually("its watch", || (service.etcd.metric("etcd_debugging_mvcc_watcher_total") == 1).then_some(()));
        let others: Vec<usize> = (0..3).filter(|&other| other != member).collect();
        for &other in &others {
            service.etcd.member(other).stop();
        }
        eventually("it to look elsewhere", || {
            others.iter().any(|&other| endpoints.proxies[other].counts().accepted > 0).then_some(())
        });
        for &other in &others {
            service.etcd.member(other).cont();
        }
        service.etcd.leader();
        holder.let_go().success();
        waiter.wait_held();
        // It kept its place.
        assert_eq!(contenders(service)[0].create_revision, place.create_revision);
        waiter.let_go().success();
        assert_clean(service);
    }

    fn majority_freezes(with_leader: bool) {
        let service = EtcdService::on(cluster());
        let scene = Scene::start(&service, &service.url(), &["-t", "2s"]);
        let waiter = scene.wait_behind();
        let leader = service.etcd.leader();
        let spared = if with_leader { (leader + 1) % 3 } else { leader };
        renewed(&service.etcd);
        for member in (0..3).filter(|&member| member != spared) {
            service.etcd.member(member).stop();
        }
        let stopped = boottime();
        scene.assert_dies_within(2 * TTL, stopped);
        // What exactly it says depends on which member it asked last.
        let outcome = scene.holder.wait();
        assert_lost(&outcome, "no renewal was confirmed for");
        service.etcd.cont();
        assert_taken_over(&scene.witness, waiter);
        assert_clean(&service);
    }
}

/// dlock itself is killed or stopped.
mod dlock {
    use super::*;

    #[test]
    fn killed_or_stopped_it_leaves_no_command_and_nothing_for_longer_than_a_lease() {
        at_once(&[
            ("killed", killed_while_it_holds_it_leaves_no_command_and_nothing_for_longer_than_a_lease),
            ("stopped", stopped_for_longer_than_the_lease_it_leaves_no_command),
        ]);
    }

    fn killed_while_it_holds_it_leaves_no_command_and_nothing_for_longer_than_a_lease() {
        let service = EtcdService::fresh();
        let scene = Scene::start(&service, &service.url(), &[]);
        let waiter = scene.wait_behind();
        let key = contenders(&service).remove(0).key;
        let watch = service.etcd.watch(&key);
        renewed(&service.etcd);
        scene.holder.signal(Signal::SIGKILL);
        scene.assert_dies_within(TTL, boottime());
        let ended = watch.wait_deleted(&key).at;
        assert_in_time(scene.tree.died_at(), ended);
        scene.holder.wait().signal(Signal::SIGKILL).stderr_is_one_line("dlock itself was killed");
        assert_taken_over(&scene.witness, waiter);
        assert_clean(&service);
    }

    fn stopped_for_longer_than_the_lease_it_leaves_no_command() {
        let service = EtcdService::fresh();
        let scene = Scene::start(&service, &service.url(), &[]);
        let waiter = scene.wait_behind();
        renewed(&service.etcd);
        scene.holder.signal(Signal::SIGSTOP);
        let stopped = boottime();
        scene.assert_dies_within(TTL, stopped);
        assert_taken_over(&scene.witness, waiter);
        scene.holder.signal(Signal::SIGCONT);
        assert_lost(&scene.holder.wait(), "dlock itself was stopped");
        assert_clean(&service);
    }
}

/// Nobody there, or nobody that can help.
mod first_contact {
    use super::*;

    #[test]
    fn a_server_that_is_not_there_is_69_with_the_reason() {
        let (scratch, [a, b, c]) = (Scratch::new(), [Port::reserve(), Port::reserve(), Port::reserve()]);
        let one = format!("etcd://127.0.0.1:{}", a.number());
        let three = format!("{one},127.0.0.1:{},127.0.0.1:{}", b.number(), c.number());
        for url in [one, three] {
            let outcome = scratch.dlock().run("job").backend(&url).command(["echo", "ran"]).output();
            outcome.code(69).stdout_is("").stderr_is_one_line("refused");
            assert!(outcome.elapsed() < Duration::from_secs(2), "{outcome:?}");
        }
    }

    #[test]
    fn servers_that_are_frozen_are_69_in_bounded_time() {
        let (one, three) = (EtcdService::fresh(), EtcdService::on(Etcd::cluster()));
        one.etcd.stop();
        three.etcd.stop();
        let start = |service: &EtcdService| {
            let dlock = service.run("job").args(["-t", "3s", "--connect-timeout", "1s"]);
            dlock.command(["echo", "ran"]).spawn()
        };
        for running in [start(&one), start(&three)] {
            let outcome = running.wait();
            outcome.code(69).stdout_is("").stderr_is_one_line("did not");
            assert!(outcome.elapsed() < Duration::from_secs(5), "{outcome:?}");
        }
        // What was sent meanwhile must not grant anything for long.
        one.etcd.cont();
        eventually("the end of what was asked for", || one.litter(&[]).is_empty().then_some(()));
    }

    /// The member that is asked knows that it cannot help, and says so at once.
    #[test]
    fn a_cluster_without_a_majority_is_69_with_the_reason() {
        let service = EtcdService::on(Etcd::cluster());
        let alive = service.etcd.leader();
        for member in (0..3).filter(|&member| member != alive) {
            service.etcd.member(member).kill();
        }
        let outcome = service.run("job").args(["-t", "3s"]).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("did not get job");
        assert!(outcome.elapsed() < Duration::from_secs(7), "{outcome:?}");
    }

    #[test]
    fn an_outage_while_it_waits_is_ridden_out() {
        let service = EtcdService::fresh();
        let holder = service.hold("job");
        let waiter = service.queue_up("job", &["-t", "60s", "-q"]);
        let place = contenders(&service).remove(1);
        // An outage before it knows of its place is one of the first contact.
        let watched = || service.etcd.metric("etcd_debugging_mvcc_watcher_total") == 1;
        eventually("the waiter", || watched().then_some(()));
        service.etcd.restart();
        // It comes back to the same place.
        eventually("the waiter again", || watched().then_some(()));
        assert_eq!(contenders(&service)[1], place);
        holder.let_go().success();
        waiter.wait_held();
        waiter.let_go().success();
        assert_clean(&service);
    }
}
