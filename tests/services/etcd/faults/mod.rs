/*!
The command never outlives its lease, and what can be ridden out is: members of etcd that die, freeze, or cannot be
reached, and answers that are lost.

Where a fault begins at a known moment, the last renewal was sent before it, so by a ttl after it everything has to be
dead; what ends a lease at the server is never earlier than that. A waiter that reaches etcd all the time and the witness
find out whether two commands ever overlapped. Its own lease is long, so that all renewals are the holder's.
*/

mod answers_lost;
mod cluster;
mod dlock;
mod endpoints;
mod first_contact;
mod silence;

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::services::etcd::{assert_clean, assert_lost, assert_waited, behind, contenders, renewed, told, watchers};
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
