//! Many waiters on a server with few connections, who must not take them away from applications.

use crate::support::database_services::DatabaseService;
use crate::support::databases::{Engine, Server};
use crate::support::rendezvous::eventually;
use crate::support::service::{Gated, Service};
use crate::support::witness::{Witness, read_counter};

use super::on_databases;

on_databases! {
    waiters_leave_half_of_the_connections_to_others_and_all_are_served
    a_user_with_few_connections_serves_all_its_waiters_and_its_holder
    a_hand_over_wakes_one_waiter
}

fn waiters_leave_half_of_the_connections_to_others_and_all_are_served<E: Engine>() {
    /// How many connections the server has.
    const MOST: usize = 20;
    /// How many wait.
    const WAITERS: usize = 40;
    /// How many waiters stay connected however full the server is.
    const FIRST: usize = 4;
    let service = DatabaseService::<E>::on(Server::with(&["max_connections=20"]));
    let (witness, counter) = (Witness::in_dir(service.scratch().root()), service.scratch().path("counter"));
    let holder = service.hold("job");
    let contend = |_| service.run("job").args(["-q", "-w", "300"]).command(witness.counter_command(&counter)).spawn();
    let mut waiters = Vec::new();
    while waiters.len() < WAITERS {
        waiters.extend((0..8).map(contend));
        service.wait_queued("job", waiters.len());
    }
    // The holder, the first waiters, and those that come to look.
    eventually("the others to hang up", || (service.connections().len() <= MOST / 2).then_some(()));
    service.stay_within(MOST / 2 + FIRST);
    holder.let_go().success();
    for waiter in waiters {
        waiter.wait().success();
    }
    assert_eq!(read_counter(&counter), WAITERS as u64);
    witness.check();
}

/// The limit is the user's, and the server has connections left: the holder finds one after its own was cut.
fn a_user_with_few_connections_serves_all_its_waiters_and_its_holder<E: Engine>() {
    const WAITERS: usize = 20;
    const MOST: usize = 6;
    let service = DatabaseService::<E>::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql(E::NARROW);
    let run = || service.scratch().dlock().run("job").backend(service.url_for("narrow", ""));
    let holder = Gated::spawn(service.scratch(), run().args(["-q", "-t", "6s"]));
    holder.wait_held();
    let first = eventually("only the holder to be connected", || match &service.connections()[..] {
        [first] => first.split(' ').next().map(str::to_owned),
        _ => None,
    });
    let (witness, counter) = (Witness::in_dir(service.scratch().root()), service.scratch().path("counter"));
    let contend = |_| run().args(["-q", "-w", "300"]).command(witness.counter_command(&counter)).spawn();
    let waiters: Vec<_> = (0..WAITERS).map(contend).collect();
    let connected = || service.connections().len();
    eventually("the user's connections to be used up", || (connected() >= MOST - 2).then_some(()));
    eventually("room for the holder", || (connected() < MOST).then_some(()));
    service.sql(&E::CUT.replace(":connection", &first));
    service.wait_renewed("dlock:job");
    holder.let_go().success();
    for waiter in waiters {
        waiter.wait().success();
    }
    assert_eq!(read_counter(&counter), WAITERS as u64);
    witness.check();
}

/// By the server's own log of what it was asked.
fn a_hand_over_wakes_one_waiter<E: Engine>() {
    const WAITERS: usize = 6;
    let service = DatabaseService::<E>::on(Server::with(E::LOGGING));
    // A long lease, so that no heartbeat comes in between.
    let options = ["-q", "-t", "10m"];
    let mut holder = Gated::spawn(service.scratch(), service.run("job").args(options));
    holder.wait_held();
    let waiters = [(); WAITERS].map(|()| service.queue_up("job", &options));
    let attempts = || E::requests(&service).matches(&format!("INSERT INTO {}", E::HOLDER)).count();
    let before = attempts();
    for waiter in waiters {
        holder.let_go().success();
        waiter.wait_held();
        holder = waiter;
    }
    holder.let_go().success();
    let made = attempts() - before;
    assert!(made <= 2 * WAITERS, "{made} attempts for {WAITERS} hand-overs");
}
