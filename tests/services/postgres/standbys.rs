//! A standby that is told of every change, and takes the primary's place.

use std::time::Duration;

use crate::support::database_services::PostgresService;
use crate::support::postgres::Postgres;
use crate::support::rendezvous::{boottime, eventually};
use crate::support::service::{Gated, Service};
use crate::support::tree::Tree;

use super::assert_lost;

const NAME: &str = "dlock:job";

/// A primary and a standby that it waits for at each commit.
fn pair() -> (PostgresService, Postgres) {
    let service = PostgresService::fresh();
    // The tables, before commits have to wait.
    service.run("job").command(["true"]).output().success();
    let standby = Postgres::standby_of(&service);
    service.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    service.sql("SELECT pg_reload_conf()");
    let is_sync = || {
        let state = service.value("SELECT sync_state FROM pg_stat_replication");
        (state.as_deref() == Some("sync")).then_some(())
    };
    eventually("the standby to count", is_sync);
    (service, standby)
}

/// The URL of both servers, the first one first.
fn both(one: &Postgres, other: &Postgres) -> String {
    format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", one.port(), other.port())
}

#[test]
fn what_the_standby_has_not_got_is_no_grant_and_no_renewal() {
    let (service, standby) = pair();
    // What the server says of it is a warning, which a role may hide.
    service.sql("ALTER ROLE postgres SET client_min_messages = error");
    let mut tree = Tree::new(service.scratch());
    let dlock = service.run("job").args(["-t", "2s"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    service.wait_renewed(NAME);
    standby.freeze();
    // By what the standby has got: the primary shows nothing that waits for it.
    let ends = service.expiry(NAME);
    let died = tree.died_at();
    assert!(died < ends, "the last process died {:?} after its lease", died.saturating_sub(ends));
    assert_lost(&dlock.wait(), "lost 'job'");
    // The server says that what is cancelled while it waits is done, and that it did not wait.
    let waiter = service.run("job").args(["-t", "2s", "-w", "5s", "-q"]).command(["echo", "ran"]).spawn();
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
        WHERE application_name = 'dlock' AND wait_event = 'SyncRep'";
    let mut cancelled = 0;
    while waiter.is_running() {
        cancelled += service.value(cancel).unwrap().parse::<u32>().unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(cancelled > 0, "no request waited for the standby");
    waiter.wait().code(69).stdout_is("").stderr_is_one_line("did not get 'job'");
    standby.thaw();
    service.assert_free("job");
}

#[test]
fn a_standby_that_is_promoted_keeps_the_lock_and_its_holder_goes_on() {
    let (service, standby) = pair();
    let url = both(&service, &standby);
    let dlock = || service.scratch().dlock().run("job").backend(&url);
    let holder = Gated::spawn(service.scratch(), dlock().args(["-t", "20s"]));
    let token = holder.token();
    let readers = service.scratch().dlock().run("readers").backend(&url).args(["-t", "20s", "-s"]);
    let reader = Gated::spawn(service.scratch(), readers);
    reader.wait_held();
    service.kill();
    standby.sql("SELECT pg_promote(true, 30)");
    let promoted = boottime();
    dlock().args(["-n", "-q"]).command(["echo", "overlap"]).output().code(75).stdout_is("");
    standby.wait_renewed(NAME);
    standby.wait_renewed("dlock:readers");
    assert!(boottime() - promoted < Duration::from_secs(20));
    assert!(holder.running.is_running() && reader.running.is_running());
    holder.let_go().success();
    reader.let_go().success();
    let next = Gated::spawn(service.scratch(), dlock());
    assert!(next.token() > token);
    next.let_go().success();
}

/// Nothing but the token keeps two commands apart then, until the first one is renewed.
#[test]
fn a_holder_whose_grant_a_standby_has_not_got_is_stopped_at_its_next_renewal() {
    let service = PostgresService::fresh();
    let earlier = service.hold("job");
    let earlier_token = earlier.token();
    earlier.let_go().success();
    let standby = Postgres::standby_of(&service);
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    let is_alone = || {
        let receivers = service.value("SELECT count(*) FROM pg_stat_replication");
        (receivers.as_deref() == Some("0")).then_some(())
    };
    eventually("the standby to hear nothing more", is_alone);
    let url = both(&service, &standby);
    let dlock = || service.scratch().dlock().run("job").backend(&url);
    let holder = Gated::spawn(service.scratch(), dlock().args(["-t", "20s"]));
    holder.wait_held();
    service.kill();
    standby.sql("SELECT pg_promote(true, 30)");
    let next = Gated::spawn(service.scratch(), dlock());
    assert!(next.token() > earlier_token);
    assert_lost(&holder.running.wait(), "held by");
    next.let_go().success();
}
