//! What differs between databases: their programs, and their SQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::certificates::ClientCertificate;
use crate::support::daemon::Daemon;

use super::Server;

/// A connection of the test's own.
pub trait Session: Sized + Send {
    /// Who may do everything.
    const ADMINISTRATOR: &'static str;

    /// A connection by the server's socket as `user`; none where it does not serve.
    fn connect_as(user: &str, socket: &Path) -> Option<Self>;

    /// A connection as [`Self::ADMINISTRATOR`].
    fn connect(socket: &Path) -> Option<Self> {
        Self::connect_as(Self::ADMINISTRATOR, socket)
    }

    /// Whether the server has not closed it.
    fn is_usable(&self) -> bool;

    /// The rows of the answer to these statements, the missing values as `NULL`; or the code of the error and its text.
    fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, String>;

    /// How many rows this statement has changed, or the error.
    fn change(&mut self, sql: &str) -> Result<u64, String>;
}

/// A kind of database.
pub trait Engine: Sized + Send + Sync + 'static {
    /// A connection of the test's own.
    type Client: Session;
    /// The value of `DLOCK_BACKEND_KIND`, which is the scheme of URLs too; with an `s` behind it, that with TLS.
    const KIND: &'static str;
    /// The user that dlocks are by default, and the database in which the locks are.
    const USER: &'static str;
    const DATABASE: &'static str;
    /// The settings with which it writes down all that it is asked.
    const LOGGING: &'static [&'static str];
    /// The table of holders as dlock's statements have it.
    const HOLDER: &'static str;
    /// What its settings call certificate, key and authority, and the setting for TLS.
    const TLS_FILES: [&'static str; 3];
    const TLS: &'static str;
    /// The time by the server's clock, in UTC, and an hour after it: `:now` and `:later` in the tests' statements.
    const NOW: &'static str;
    const LATER: &'static str;
    /// For how many milliseconds a lock is held from now on, whenever the transaction began.
    const LEFT: &'static str;
    /// How ShedLock has the length of `:most` and `:least` seconds after a time `:then`.
    const AFTER: &'static str;
    /// What ShedLock sends first for a name, and its own table as its documentation has it, with times that are rounded too.
    const INSERT: &'static str;
    const TABLE: &'static str;
    const ROUNDED: &'static str;
    /// What in a transaction keeps others from changing the lock's row: by the row, and by the table in two ways.
    const OBSTACLES: [&'static str; 3];
    /// Ends such a transaction.
    const END: &'static str;
    /// What a careless administrator may have set for the user.
    const CARELESS: &'static [&'static str];
    /// Has the server take no writes.
    const READ_ONLY: &'static str;
    /// Makes the user `app`, who may not make tables; and takes all rights to change them away.
    const MAKE_APP: &'static str;
    const STRIP_APP: &'static str;
    /// Makes the user `dlock`, or takes all its rights away.
    const MAKE_DLOCK: &'static str;
    /// Gives `1` where `app` has the right `:right` to the table `:table`.
    const MAY: &'static str;
    /// Makes the user `narrow`, who may use the tables by six connections; and ends the connection `:connection`.
    const NARROW: &'static str;
    const CUT: &'static str;
    /// Makes the schema `own` for tables.
    const MAKE_OWN: &'static str;
    /// Lets dlocks into every database, also one that there is not.
    const LET_IN: &'static str;
    /// A row where there is the table `:table`. It is asked so often that looking through all tables would take too long.
    const HAS: &'static str;
    /// The connections of dlocks, and how many of them wait for a row that another transaction has locked.
    const CONNECTIONS: &'static str;
    const BLOCKED: &'static str;
    /// How many other clients are connected.
    const CLIENTS: &'static str;
    /// What tells whether tables, users, rights, settings or anything else was made or changed.
    const STATE: &'static [&'static str];

    /// Removes all tables, and what the server has written down.
    fn clear(server: &Server<Self>);

    /// Makes the data of a new server in an empty directory, which belongs to the user that servers run as.
    fn fill(data: &Path);

    /// The unix socket of the server in this directory.
    fn socket(directory: &Path, port: u16) -> PathBuf;

    /// The command that starts the server in this directory, with these settings in addition to its own.
    fn command(directory: &Path, port: u16, settings: &[String]) -> Command;

    /// What a server with [`Self::LOGGING`] has been asked, in which an attempt is `INSERT INTO` [`Self::HOLDER`].
    fn requests(server: &Server<Self>) -> String;

    /// Has a server with TLS refuse all others, before it is started and after.
    fn before_tls(_server: &Server<Self>, _clients: ClientCertificate) {}
    fn after_tls(_server: &Server<Self>, _clients: ClientCertificate) {}

    /// See [`Server::freeze`].
    fn freeze(daemon: &Daemon) {
        daemon.stop();
    }

    /// See [`Server::thaw`].
    fn thaw(daemon: &Daemon) {
        daemon.cont();
    }

    /// See [`Server::kill`].
    fn kill(daemon: &Daemon) {
        daemon.kill();
    }
}
