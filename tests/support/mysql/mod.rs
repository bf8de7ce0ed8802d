//! Real MariaDB servers, a fresh one for every test that asks.

mod client;
pub mod galera;
mod template;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use client::Client;

use super::certificates::ClientCertificate;
use super::daemon::need;
use super::databases::{DATA, Engine, Server};

/// A MariaDB server with the database `locks`. Its user `dlock` needs no password and may do everything in that database; the
/// test itself is `root`.
pub type Mysql = Server<MariaDb>;

/// MariaDB.
pub struct MariaDb;

impl Engine for MariaDb {
    type Client = Client;
    const KIND: &'static str = "mysql";
    const USER: &'static str = "dlock";
    const DATABASE: &'static str = "locks";
    const LOGGING: &'static [&'static str] = &["general_log=ON", "general_log_file=general.log"];
    const HOLDER: &'static str = "`locks`.`dlock_holder`";
    const TLS_FILES: [&'static str; 3] = ["ssl-cert", "ssl-key", "ssl-ca"];
    const TLS: &'static str = "require_secure_transport=ON";
    const NOW: &'static str = "UTC_TIMESTAMP(3)";
    const LATER: &'static str = "UTC_TIMESTAMP(3) + INTERVAL 1 HOUR";
    const LEFT: &'static str = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until) DIV 1000";
    const AFTER: &'static str = "TIMESTAMPADD(MICROSECOND, :secs * 1000000, :then)";
    const INSERT: &'static str =
        "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(:name, :until, :now, :by)";
    const TABLE: &'static str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
        locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";
    const ROUNDED: &'static str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until DATETIME(3) NOT NULL, \
        locked_at DATETIME(6) NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)) CHARACTER SET latin1";
    const OBSTACLES: [&'static str; 3] =
        ["SELECT 1 FROM shedlock FOR UPDATE", "LOCK TABLES shedlock READ", "LOCK TABLES shedlock WRITE"];
    const END: &'static str = "ROLLBACK; UNLOCK TABLES";
    const CARELESS: &'static [&'static str] = &[];
    const READ_ONLY: &'static str = "read-only=ON";
    const MAKE_APP: &'static str = "CREATE USER app@'%'; GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO app@'%'";
    const STRIP_APP: &'static str = "REVOKE INSERT, UPDATE, DELETE ON locks.* FROM app@'%'";
    const MAKE_DLOCK: &'static str = "REVOKE ALL PRIVILEGES ON locks.* FROM dlock@'%'";
    const MAY: &'static str = "SELECT 1 FROM mysql.tables_priv \
        WHERE User = 'app' AND Table_name = ':table' AND FIND_IN_SET(':right', Table_priv)";
    const NARROW: &'static str =
        "CREATE USER narrow@'%' WITH MAX_USER_CONNECTIONS 6; GRANT ALL ON locks.* TO narrow@'%'";
    const CUT: &'static str = "KILL CONNECTION :connection";
    const MAKE_OWN: &'static str = "CREATE DATABASE own; GRANT ALL ON own.* TO dlock@'%'";
    const LET_IN: &'static str = "GRANT ALL ON *.* TO dlock@'%'";
    const HAS: &'static str =
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'locks' AND TABLE_NAME = ':table'";
    const CONNECTIONS: &'static str = "SELECT ID, COMMAND, LEFT(INFO, 60) FROM information_schema.PROCESSLIST \
        WHERE USER NOT IN ('root', 'system user', 'event_scheduler', 'unauthenticated user') ORDER BY ID";
    // The table of transactions is not read anew as often as this is asked.
    const BLOCKED: &'static str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
        WHERE VARIABLE_NAME = 'INNODB_ROW_LOCK_CURRENT_WAITS'";
    const CLIENTS: &'static str = "SELECT count(*) FROM information_schema.PROCESSLIST \
        WHERE ID <> CONNECTION_ID() AND USER NOT IN ('system user', 'event_scheduler')";
    const STATE: &'static [&'static str] = &[
        "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES ORDER BY 1",
        "SELECT * FROM information_schema.SCHEMATA ORDER BY 2",
        "SELECT * FROM mysql.global_priv ORDER BY 1, 2",
        "SELECT * FROM mysql.db ORDER BY 1, 2, 3",
        "SELECT * FROM mysql.tables_priv ORDER BY 1, 2, 3, 4",
        "SELECT * FROM mysql.columns_priv ORDER BY 1, 2, 3, 4, 5",
        "SELECT * FROM mysql.procs_priv ORDER BY 1, 2, 3, 4",
        "SELECT name FROM mysql.event UNION ALL SELECT name FROM mysql.func ORDER BY 1",
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'locks' \
         UNION ALL SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'locks'",
    ];

    fn clear(server: &Server<Self>) {
        // The client takes the whole line of a USE for the name, up to a semicolon.
        server.sql("DROP DATABASE locks; CREATE DATABASE locks; USE locks; DO 0");
        // The server appends to it.
        let log = server.directory().join("data/general.log");
        if log.exists() {
            fs::File::options().write(true).truncate(true).open(log).unwrap();
        }
    }

    fn fill(data: &Path) {
        template::copy_to(data);
    }

    fn socket(directory: &Path, _port: u16) -> PathBuf {
        directory.join("socket")
    }

    fn command(directory: &Path, port: u16, settings: &[String]) -> Command {
        let mut command = Command::new(need("mariadbd", "mariadb-server"));
        let place = |name: &str, file: &str| format!("--{name}={}", directory.join(file).display());
        command.args(template::SMALL).arg(place("datadir", DATA)).arg(place("socket", "socket"));
        // Each server removes what others left in the directory for what is temporary.
        command.arg(place("pid-file", "pid")).arg(format!("--tmpdir={}", directory.display()));
        command.arg(format!("--port={port}")).arg("--bind-address=127.0.0.1");
        command.args(settings.iter().map(|setting| format!("--{setting}")));
        command
    }

    fn requests(server: &Server<Self>) -> String {
        String::from_utf8_lossy(&fs::read(server.directory().join("data/general.log")).unwrap()).into_owned()
    }

    fn after_tls(server: &Server<Self>, clients: ClientCertificate) {
        if clients == ClientCertificate::Needed {
            server.sql("ALTER USER dlock@'%' REQUIRE X509");
        }
    }
}
