/*!
ZooKeeper's own promises and faults.

A lock is as alive as its session, which only the leader can end, and a connection may go to a server that has lost it.
So what is measured is the leader's own account, the end of the node that stands for the lock, against the end of the
last process of a stubborn tree.
*/

mod access;
mod clusters;
mod ensemble;
mod hostile;
mod lost_answers;
mod sessions;
mod slots;
mod spelling;
mod together;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::certificates::{ClientCertificate, Identity, Tls};
use crate::support::dlock::{Dlock, Outcome};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{boottime, eventually, last_until};
use crate::support::scene::assert_in_time;
use crate::support::scratch::Scratch;
use crate::support::service::{Gated, Service, ZooKeeperService};
use crate::support::tree::Tree;
use crate::support::zookeeper::{Acl, Client, Kind, Node, ZooKeeper, ZooKeeperOptions};
use crate::support::zookeeper_proxy::{
    CREATE2, DELETE, Fate, GET_CHILDREN, GET_DATA, MULTI, PING, SET_DATA, ZooKeeperProxy, framed,
};

/// Where the lock `job` is.
const LOCK: &str = "/dlock/job";

/// How long a test's own requests may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The nodes of the lock `job`, with their names, in the order of their sequence numbers.
fn nodes(zookeeper: &ZooKeeper) -> Vec<(String, Node)> {
    let mut names = zookeeper.children(LOCK).unwrap_or_default();
    names.sort_by_key(|name| sequence(name));
    names.into_iter().filter_map(|name| zookeeper.get(&format!("{LOCK}/{name}")).map(|node| (name, node))).collect()
}

/// The last ten digits of a node's name.
fn sequence(name: &str) -> i64 {
    name[name.len() - 10..].parse().unwrap_or_else(|_| panic!("{name} has no sequence number"))
}

/// Whoever made a node, by what it says: the owner's id.
fn owner(node: &Node) -> String {
    let published: serde_json::Value = serde_json::from_str(&node.data).unwrap();
    published["id"].as_str().unwrap().to_owned()
}

/// `dlock run --key job` by this URL, which leads to the servers of `service`.
fn run_at(service: &ZooKeeperService, url: &str, options: &[&str]) -> Dlock {
    service.scratch().dlock().run("job").backend(url).args(options)
}

/// Waits behind others at `url`, and returns once it has found its place and said so.
fn queue_up_at(service: &ZooKeeperService, url: &str, options: &[&str]) -> Gated {
    let waiter = Gated::spawn(service.scratch(), run_at(service, url, options));
    waiter.running.wait_stderr("waiting for 'job'");
    waiter
}

/// Lets it go, and checks that it has said nothing but whom it waits for.
fn ends_well(waiter: Gated) {
    let outcome = waiter.let_go();
    outcome.code(0);
    assert!(outcome.stderr().lines().all(|line| line.starts_with("dlock: waiting for 'job': ")), "{outcome:?}");
}
