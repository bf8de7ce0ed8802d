//! The services that use a database.

use std::ops::Deref;

use crate::support::certificates::Tls;
use crate::support::cluster::Cluster;
use crate::support::databases::{Engine, Server};
use crate::support::mysql::{MariaDb, Mysql};
use crate::support::pool::Lent;
use crate::support::postgres::{PostgreSql, Postgres};
use crate::support::scratch::Scratch;
use crate::support::service::{Service, on_other_servers};

/// One database server.
pub struct DatabaseService<E: Engine> {
    // Dropped before the server that its dlocks use.
    scratch: Scratch,
    server: Lent<Server<E>>,
}

/// One PostgreSQL server.
pub type PostgresService = DatabaseService<PostgreSql>;
/// One MariaDB server.
pub type MysqlService = DatabaseService<MariaDb>;

impl<E: Engine> Service for DatabaseService<E> {
    const KIND: &'static str = E::KIND;
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self::on(Lent::by(E::KIND, Server::start))
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    fn cluster(&self) -> &dyn Cluster {
        &*self.server
    }
}

impl<E: Engine> DatabaseService<E> {
    /// The service on a server with settings of its own.
    pub fn on(server: impl Into<Lent<Server<E>>>) -> Self {
        Self { scratch: Scratch::new(), server: server.into() }
    }
}

impl<E: Engine> Deref for DatabaseService<E> {
    type Target = Server<E>;

    fn deref(&self) -> &Server<E> {
        &self.server
    }
}

/// A database server that is reached by its unix socket.
pub struct SocketService<E: Engine>(DatabaseService<E>);

impl<E: Engine> Service for SocketService<E> {
    const KIND: &'static str = E::KIND;
    const LEASE_OF_30S: &'static str = "30";

    fn fresh() -> Self {
        Self(DatabaseService::fresh())
    }

    fn scratch(&self) -> &Scratch {
        self.0.scratch()
    }

    fn cluster(&self) -> &dyn Cluster {
        self.0.cluster()
    }

    fn url(&self) -> String {
        self.0.socket_url()
    }
}

on_other_servers! {
    /// A PostgreSQL that has room for the connections of a crowd, and logs what it is asked.
    PostgresLoggedService:
        PostgresService::on(Postgres::with(&[&["max_connections=250"], PostgreSql::LOGGING].concat())), 60 contenders
}

on_other_servers! {
    /// A PostgreSQL that is reached through TLS.
    PostgresTlsService: PostgresService::on(Postgres::with_tls(Tls::default())), 25 contenders
}

on_other_servers! {
    /// A MariaDB that has room for the connections of a crowd, and logs what it is asked.
    MysqlLoggedService:
        MysqlService::on(Mysql::with(&[&["max_connections=250"], MariaDb::LOGGING].concat())), 60 contenders
}

on_other_servers! {
    /// A MariaDB that is reached through TLS.
    MysqlTlsService: MysqlService::on(Mysql::with_tls(Tls::default())), 25 contenders
}
