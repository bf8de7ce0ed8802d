//! Behind a pooler. In transaction mode it gives each transaction another connection to the server: notifications get lost, and
//! nothing may be set for a session, which others use next.

use std::process::Command;
use std::time::Duration;

use crate::support::daemon::{Daemon, Port, need};
use crate::support::database_services::PostgresService;
use crate::support::postgres::Postgres;
use crate::support::rendezvous::boottime;
use crate::support::service::{Gated, Service};
use crate::support::witness::{Witness, read_counter};

/// A pooler.
pub struct Pooler {
    port: Port,
    _daemon: Daemon,
}

impl Pooler {
    #[track_caller]
    pub fn before(postgres: &Postgres, mode: &str) -> Self {
        let (port, daemon) = (Port::reserve(), Daemon::new("pgbouncer"));
        daemon.write(
            "pooler.ini",
            &format!(
                "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {}\nauth_type = any\npool_mode = {mode}\nmax_client_conn = 200\ndefault_pool_size = 8\n\
                 unix_socket_dir =\nignore_startup_parameters =\n",
                postgres.port(),
                port.number()
            ),
        );
        let mut command = Command::new(need("pgbouncer", "pgbouncer"));
        command.arg(daemon.directory().join("pooler.ini"));
        daemon.launch(command);
        daemon.wait_ready(|| std::net::TcpStream::connect(("127.0.0.1", port.number())).ok());
        Self { port, _daemon: daemon }
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port.number())
    }
}

/// Counts with many contenders at once.
#[track_caller]
fn take_turns(service: &PostgresService, pooler: &Pooler) {
    const CONTENDERS: usize = 15;
    let (witness, counter) = (Witness::in_dir(service.scratch().root()), service.scratch().path("counter"));
    let run = || service.scratch().dlock().run("counter").backend(pooler.url()).arg("-q");
    let contenders: Vec<_> =
        (0..CONTENDERS).map(|_| run().command(witness.counter_command(&counter)).spawn()).collect();
    for contender in contenders {
        contender.wait().success();
    }
    witness.check();
    assert_eq!(read_counter(&counter), CONTENDERS as u64);
    service.assert_free("counter");
}

#[test]
fn locks_hold_behind_a_pooler_and_are_handed_over_soon() {
    let service = PostgresService::on(Postgres::with(&["log_statement=all"]));
    let pooler = Pooler::before(&service, "transaction");
    let run = || service.scratch().dlock().run("job").backend(pooler.url()).arg("-q");
    take_turns(&service, &pooler);
    let holder = Gated::spawn(service.scratch(), run());
    holder.wait_held();
    let waiter = Gated::spawn(service.scratch(), run());
    service.wait_queued("job", 1);
    let released = boottime();
    holder.let_go().success();
    waiter.wait_held();
    let after = boottime().saturating_sub(released);
    assert!(after < Duration::from_millis(800), "handed over after {after:?}");
    waiter.let_go().success();
    let log = service.log();
    assert!(
        log.contains("INSERT INTO \"public\".\"dlock_queue\"") && !log.contains("LISTEN"),
        "it would listen for others"
    );
    service.assert_free("job");
}

/// Each of the pooler's clients has a connection of its own for as long as it stays.
#[test]
fn locks_hold_behind_a_pooler_of_sessions() {
    let service = PostgresService::fresh();
    take_turns(&service, &Pooler::before(&service, "session"));
}
