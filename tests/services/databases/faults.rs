//! Servers that fall silent, restart or lose their clock, and transactions of others that are in the way.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::database_services::DatabaseService;
use crate::support::databases::{Engine, Server, Session};
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{eventually, last_until};
use crate::support::service::{Gated, Service};
use crate::support::tree::Tree;

use super::{assert_lost, on_databases};

on_databases! {
    a_deadline_counts_from_when_the_renewal_was_sent
    a_grant_survives_the_death_of_the_server_whatever_the_role_has_set
    a_transaction_on_the_row_for_half_a_lease_is_ridden_out_and_one_for_longer_is_not
    a_transaction_on_the_row_is_waited_for_by_whoever_waits_for_the_lock
    a_clock_that_is_put_back_does_not_lengthen_the_lease_of_a_dead_holder
}

const TTL: Duration = Duration::from_secs(2);
const NAME: &str = "dlock:job";

/// A deadline measured from the answer would be as late as the answer.
fn a_deadline_counts_from_when_the_renewal_was_sent<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let (port, proxy) = (service.port(), Proxy::to(service.port()));
    let url = service.url().replace(&port.to_string(), &proxy.port().to_string());
    let mut tree = Tree::new(service.scratch());
    // With no part of the lease reserved for SIGTERM, a renewal may take 740 ms; the margin is 450 ms.
    let dlock = service.scratch().dlock().run("job").backend(url).args(["-t", "4s", "--kill-after", "0"]);
    let dlock = dlock.shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    proxy.set(Mode::DelayReplies(Duration::from_millis(650)));
    let answered = proxy.counts().replies;
    service.wait_renewed(NAME);
    eventually("a late answer", || (proxy.counts().replies > answered).then_some(()));
    proxy.set(Mode::Silent);
    let ends = service.expiry(NAME);
    let died = tree.died_at();
    assert!(died < ends, "the last process died {:?} after its lease", died.saturating_sub(ends));
    assert_lost(&dlock.wait(), "not answer");
}

/// Whatever the server or the role has by default, a grant that was answered is on the disk; and a restart that is shorter than
/// the lease goes unnoticed.
fn a_grant_survives_the_death_of_the_server_whatever_the_role_has_set<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.run("job").command(["true"]).output().success();
    for careless in E::CARELESS {
        service.sql(careless);
    }
    for _ in 0..3 {
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "12s"]));
        holder.wait_held();
        let owner = service.locked_by(NAME);
        service.restart();
        assert_eq!(service.locked_by(NAME), owner, "the grant is gone");
        service.assert_held("job");
        service.wait_renewed(NAME);
        assert!(holder.running.is_running());
        holder.let_go().success();
        service.assert_free("job");
    }
}

fn a_transaction_on_the_row_for_half_a_lease_is_ridden_out_and_one_for_longer_is_not<E: Engine>() {
    thread::scope(|scope| {
        for obstacle in E::OBSTACLES {
            scope.spawn(|| is_ridden_out::<E>(obstacle));
        }
    });
}

fn is_ridden_out<E: Engine>(obstacle: &str) {
    let service = DatabaseService::<E>::fresh();
    let mut tree = Tree::new(service.scratch());
    let dlock = service.run("job").args(["-t", "4s"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    service.wait_renewed(NAME);
    let mut other = service.client();
    let hold = |other: &mut E::Client| {
        other.query(&format!("BEGIN; {obstacle}")).unwrap();
        Server::<E>::expiry_by(other, NAME)
    };
    let ends = hold(&mut other);
    last_until(ends.saturating_sub(TTL));
    other.query(E::END).unwrap();
    service.wait_renewed(NAME);
    assert!(tree.is_alive() && !tree.was_termed(), "{obstacle}");
    let ends = hold(&mut other);
    let died = tree.died_at();
    assert!(died < ends, "{obstacle}: the last process died {:?} after its lease", died.saturating_sub(ends));
    dlock.wait().code(79).stderr_is_one_line("lost 'job'");
}

fn a_transaction_on_the_row_is_waited_for_by_whoever_waits_for_the_lock<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.run("job").command(["true"]).output().success();
    let mut other = service.client();
    other.query("BEGIN").unwrap();
    other.query("SELECT name FROM shedlock FOR UPDATE").unwrap();
    let busy = "another transaction keeps the row or the table locked";
    service.run("job").arg("-n").command(["true"]).output().code(69).stderr_is_one_line(busy);
    let waiting = service.run("job").command(["echo", "ran"]).spawn();
    waiting.wait_stderr(busy);
    other.query("ROLLBACK").unwrap();
    waiting.wait().code(0).stdout_is("ran\n").stderr_is_one_line(busy);
}

fn a_clock_that_is_put_back_does_not_lengthen_the_lease_of_a_dead_holder<E: Engine>() {
    let service = DatabaseService::<E>::on(Server::with_clock());
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "2s"]));
    holder.wait_held();
    process::signal(holder.pid(), Signal::SIGKILL);
    service.clock().step(-3600);
    let waiter = Gated::spawn(service.scratch(), service.run("job").args(["-q", "-w", "20"]));
    waiter.wait_held();
    waiter.let_go().success();
}
