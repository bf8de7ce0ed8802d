/*!
Clocks that run at a different rate, by as much as chronyd slews one. A server whose clock is fast ends a lease early; a
dlock whose clock is slow takes its lease for younger than it is. The command must be dead before the lease ends.
*/

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::clock::{ClockShim, SLEW};
use crate::support::dlock::{Outcome, Running};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_services::Redlock3;
use crate::support::redis_sets::RedisGroup;
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::scene::KEY;
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::tree::Tree;
use crate::support::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// How long before the end of its lease a stubborn tree may be dead at most. Where the answer to the last renewal is lost
/// in the silence, dlock counts from the one before, a third of the lease earlier.
const EARLY: Duration = Duration::from_secs(4);

/// A stubborn tree that holds `job`.
struct Holder {
    scratch: Scratch,
    tree: Tree,
    running: Running,
}

/// Returns once the whole tree runs.
fn hold(url: &str, ttl: &str, clock: Option<&ClockShim>) -> Holder {
    let scratch = Scratch::new();
    let mut tree = Tree::new(&scratch);
    let dlock = scratch.dlock().run("job").backend(url).args(["-t", ttl]).shell(tree.work());
    let dlock = if let Some(clock) = clock { dlock.clock(clock) } else { dlock };
    let running = dlock.lifeline(tree.end()).spawn();
    tree.wait_grown();
    Holder { scratch, tree, running }
}

impl Holder {
    /// Waits until the tree is gone, checks that the lock is still its own then, and waits until the lock is free.
    #[track_caller]
    fn dies_before(&self, lease_ends: impl Fn() -> bool) {
        let died = self.tree.died_at();
        let ended = lease_ends();
        assert!(!ended, "the lease had ended when the last process died");
        eventually("the end of the lease", || lease_ends().then_some(()));
        let early = boottime() - died;
        assert!(early < EARLY, "far too early: {early:?}");
    }

    fn ends(self) -> Outcome {
        let outcome = self.running.wait();
        drop(self.scratch);
        outcome
    }
}

mod redis {
    use super::*;

    fn server() -> (Redis, Proxy) {
        let redis = Redis::with_clock([""; 0]);
        redis.clock().drift(SLEW);
        let proxy = Proxy::to(redis.port());
        (redis, proxy)
    }

    fn falls_silent(client: Option<&ClockShim>) {
        let (redis, proxy) = server();
        let holder = hold(&format!("redis://127.0.0.1:{}", proxy.port()), "6s", client);
        redis.monitor().wait_renewed(KEY);
        proxy.set(Mode::Silent);
        holder.dies_before(|| redis.get(KEY).is_none());
        holder.ends().code(79).stderr_is_one_line("not answer");
    }

    #[test]
    fn a_server_that_is_fast_ends_no_lease_before_its_command() {
        falls_silent(None);
    }

    /// More than the margin covers: only a clock that is not slewed helps here.
    #[test]
    fn a_client_that_is_slewed_the_other_way_is_not_late() {
        let clock = ClockShim::new();
        clock.slew(-SLEW);
        falls_silent(Some(&clock));
    }

    /// What was slewed before dlock started says nothing about the clock's present rate.
    #[test]
    fn a_client_whose_clock_is_ahead_and_slow_is_not_late() {
        let clock = ClockShim::new();
        clock.slew(100 * SLEW);
        last_until(boottime() + Duration::from_secs(1));
        clock.slew(-SLEW);
        falls_silent(Some(&clock));
    }

    /// Then the guard's alarm, which is slow as well, has to do it.
    #[test]
    fn a_guard_that_is_slewed_is_not_late_for_a_dlock_that_is_frozen() {
        let (redis, _proxy) = server();
        let clock = ClockShim::new();
        clock.slew(-SLEW);
        let holder = hold(&redis.url(), "6s", Some(&clock));
        redis.monitor().wait_renewed(KEY);
        process::signal(holder.running.pid(), Signal::SIGSTOP);
        holder.dies_before(|| redis.get(KEY).is_none());
        process::signal(holder.running.pid(), Signal::SIGCONT);
        holder.ends().code(79).stderr_is_one_line("dlock itself was stopped");
    }
}

#[test]
fn a_majority_that_is_fast_ends_no_lease_of_redlock_before_its_command() {
    let service = Redlock3::on(RedisGroup::with_clocks(3, [""; 0]));
    service.servers.iter().for_each(|redis| redis.clock().drift(SLEW));
    let proxies: Vec<Proxy> = service.servers.iter().map(|redis| Proxy::to(redis.port())).collect();
    let urls: Vec<String> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
    let holder = hold(&format!("redlock://{}", urls.join(",")), "6s", None);
    service.servers[0].monitor().wait_renewed(KEY);
    for proxy in &proxies {
        proxy.set(Mode::Silent);
    }
    holder.dies_before(|| service.servers.iter().filter(|redis| redis.get(KEY).is_some()).count() < 2);
    holder.ends().code(79).stderr_is_one_line("not answer");
}

#[test]
fn a_zookeeper_that_is_fast_ends_no_session_before_its_command() {
    let zookeeper = ZooKeeper::with(ZooKeeperOptions { clocks: true, ..ZooKeeperOptions::single() });
    let server = zookeeper.server(0);
    server.clock().drift(SLEW);
    let proxy = Proxy::to(server.port());
    let holder = hold(&format!("zk://127.0.0.1:{}", proxy.port()), "6s", None);
    let mut names = zookeeper.children("/dlock/job").unwrap();
    // Renewals are written to the first of the two.
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    let node = format!("/dlock/job/{}", names[0]);
    let version = || zookeeper.get(&node).unwrap().version;
    let first = version();
    eventually("renewals", || (version() >= first + 3).then_some(()));
    proxy.set(Mode::Silent);
    holder.dies_before(|| zookeeper.get(&node).is_none());
    holder.ends().code(79).stderr_is_one_line("not answer");
}
