//! Clusters whose nodes all take writes: locks are one on all of them, and a node without a quorum grants none.

use std::thread;
use std::time::Duration;

use crate::support::databases::Session;
use crate::support::dlock::Dlock;
use crate::support::mode_witness::{Mode, ModeWitness};
use crate::support::mysql::galera::Galera;
use crate::support::rendezvous::{boottime, eventually};
use crate::support::scratch::Scratch;
use crate::support::service::Gated;
use crate::support::witness::{Witness, read_counter};

use super::assert_lost;

/// A cluster, and a directory for the dlocks that use it.
struct Nodes {
    // Dropped before the servers that its dlocks use.
    scratch: Scratch,
    galera: Galera,
}

impl Nodes {
    fn start() -> Self {
        Self { scratch: Scratch::new(), galera: Galera::start() }
    }

    /// A run for `job` that knows only this node, and takes a table that has a test's trigger.
    fn run(&self, node: usize) -> Dlock {
        self.scratch.dlock().run("job").backend(format!("{}?trust-table", self.galera.nodes[node].url()))
    }

    #[track_caller]
    fn gated(&self, node: usize, options: &[&str]) -> Gated {
        Gated::spawn(&self.scratch, self.run(node).args(["-w", "60"]).args(options))
    }

    /// Runs these contenders one after the other on each node, all nodes and lists at the same time.
    fn contend(&self, lists: usize, runs: usize, run: impl Fn(Dlock, usize) -> Dlock + Sync) {
        thread::scope(|scope| {
            for list in 0..lists {
                let run = &run;
                scope.spawn(move || {
                    for number in 0..runs {
                        let dlock = self.run(list % 2).args(["-q", "-w", "60"]);
                        run(dlock, list / 2 + number).output().success();
                    }
                });
            }
        });
    }
}

#[test]
fn contenders_on_two_nodes_exclude_each_other() {
    const LISTS: usize = 12;
    const RUNS: usize = 9;
    let nodes = Nodes::start();
    let (witness, counter) = (Witness::in_dir(nodes.scratch.root()), nodes.scratch.path("counter"));
    nodes.contend(LISTS, RUNS, |dlock, _| dlock.command(witness.counter_command(&counter)));
    assert_eq!(read_counter(&counter), (LISTS * RUNS) as u64);
    assert_eq!(witness.check().len(), LISTS * RUNS);
}

#[test]
fn readers_slots_and_writers_on_two_nodes_exclude_each_other() {
    const LISTS: usize = 12;
    const RUNS: usize = 4;
    let nodes = Nodes::start();
    let witness = ModeWitness::in_dir(nodes.scratch.root());
    let modes = [Mode::Shared, Mode::Slots(2), Mode::Exclusive];
    nodes.contend(LISTS, RUNS, |dlock, number| {
        let mode = modes[number % modes.len()];
        dlock.args(mode.options()).command(witness.command(mode, "0.01"))
    });
    assert_eq!(witness.check().len(), LISTS * RUNS);
}

#[test]
fn a_release_on_one_node_is_soon_seen_on_the_other() {
    let nodes = Nodes::start();
    let holder = nodes.gated(0, &["-t", "10m"]);
    holder.wait_held();
    let waiter = nodes.gated(1, &["-q", "-t", "10m"]);
    eventually("a waiter", || (nodes.galera.nodes[0].waiting("dlock:job") == 1).then_some(()));
    nodes.run(1).args(["-n", "-q"]).command(["true"]).output().code(75);
    holder.let_go().success();
    let released = boottime();
    waiter.wait_held();
    // Its heartbeat comes every 10 s.
    let late = boottime().saturating_sub(released);
    assert!(late < Duration::from_secs(5), "{late:?} after the release");
    waiter.let_go().success();
}

#[test]
fn a_node_without_a_quorum_grants_nothing_until_it_has_one_again() {
    let nodes = Nodes::start();
    let [left, killed] = &nodes.galera.nodes;
    let holder = nodes.gated(0, &["-q", "-t", "3s"]);
    let token = holder.token();
    killed.kill();
    left.wait_serving(false);
    let refused = nodes.run(0).arg("-n").command(["true"]).output();
    refused.code(69).stderr_is_one_line("(1047); it is not part of its cluster now, or is starting");
    assert_lost(&holder.running.wait(), "no renewal was confirmed");
    let waiter = nodes.gated(0, &["-q"]);
    left.sql("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'");
    assert!(waiter.token() > token);
    waiter.let_go().success();
}

/// Neither changes the row of the lock as the other one sees it: the row lasts for the lease of the one who leaves, which is
/// longer, before the release and, without the newcomer, not at all after it.
#[test]
fn a_reader_who_comes_on_one_node_while_the_last_one_leaves_on_the_other_keeps_the_lock() {
    let nodes = Nodes::start();
    let [here, there] = &nodes.galera.nodes;
    let leaving = nodes.gated(0, &["-s", "-t", "10m"]);
    leaving.wait_held();
    // Its release stops before the commit.
    here.sql(
        "CREATE TRIGGER pause AFTER UPDATE ON shedlock FOR EACH ROW \
         SET @paused = IF(NEW.lock_until < OLD.lock_until, GET_LOCK('pause', 60), 0)",
    );
    let mut pause = here.client();
    pause.query("DO GET_LOCK('pause', 0)").unwrap();
    leaving.open();
    let is_paused = "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'";
    eventually("a release that waits", || here.value(is_paused).map(drop));
    let newcomer = nodes.gated(1, &["-s", "-t", "30s"]);
    newcomer.wait_held();
    eventually("the newcomer on the other node", || (here.members("dlock:job").len() == 2).then_some(()));
    pause.query("DO RELEASE_LOCK('pause')").unwrap();
    leaving.running.wait().success();
    for node in 0..2 {
        nodes.run(node).args(["-n", "-q"]).command(["echo", "overlap"]).output().code(75).stdout_is("");
    }
    assert_eq!(there.members("dlock:job").len(), 1);
    newcomer.let_go().success();
}
