//! Real PostgreSQL servers, a fresh one for every test that asks.

mod client;
pub mod neighbours;
mod template;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

pub use client::Client;

use super::certificates::ClientCertificate;
use super::daemon::Daemon;
use super::databases::{DATA, Engine, Server};
use super::process;

/// A PostgreSQL server with the database `postgres`. Every role that exists may log in without a password, until
/// [`Postgres::ask_for`] says otherwise; the test itself always may.
pub type Postgres = Server<PostgreSql>;

/// PostgreSQL.
pub struct PostgreSql;

impl Engine for PostgreSql {
    type Client = Client;
    const KIND: &'static str = "postgres";
    const USER: &'static str = "postgres";
    const DATABASE: &'static str = "postgres";
    const LOGGING: &'static [&'static str] = &["log_statement=all"];
    const HOLDER: &'static str = "\"public\".\"dlock_holder\"";
    const TLS_FILES: [&'static str; 3] = ["ssl_cert_file", "ssl_key_file", "ssl_ca_file"];
    const TLS: &'static str = "ssl=on";
    const NOW: &'static str = "timezone('utc', CURRENT_TIMESTAMP)";
    const LATER: &'static str = "timezone('utc', CURRENT_TIMESTAMP) + interval '1 h'";
    const LEFT: &'static str =
        "(extract(epoch FROM lock_until - (clock_timestamp() AT TIME ZONE 'UTC')) * 1000)::bigint";
    const AFTER: &'static str = ":then + make_interval(secs => :secs)";
    const INSERT: &'static str = "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(:name, :until, :now, :by) \
        ON CONFLICT (name) DO UPDATE SET lock_until = :until, locked_at = :now, locked_by = :by \
        WHERE shedlock.name = :name AND shedlock.lock_until <= :now";
    const TABLE: &'static str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
        locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";
    const ROUNDED: &'static str = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
        locked_at TIMESTAMP(3) NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";
    const OBSTACLES: [&'static str; 3] =
        ["SELECT 1 FROM shedlock FOR UPDATE", "LOCK TABLE shedlock IN SHARE MODE", "LOCK TABLE shedlock"];
    const END: &'static str = "ROLLBACK";
    const CARELESS: &'static [&'static str] = &[
        "ALTER ROLE postgres SET synchronous_commit = off",
        "ALTER ROLE postgres SET default_transaction_isolation = serializable",
    ];
    const READ_ONLY: &'static str = "default_transaction_read_only=on";
    const MAKE_APP: &'static str = "CREATE ROLE app LOGIN";
    const STRIP_APP: &'static str = "";
    const MAKE_DLOCK: &'static str = "CREATE ROLE dlock LOGIN";
    const MAY: &'static str = "SELECT 1 WHERE has_table_privilege('app', ':table', ':right')";
    const NARROW: &'static str =
        "CREATE ROLE narrow LOGIN CONNECTION LIMIT 6; GRANT ALL ON ALL TABLES IN SCHEMA public TO narrow";
    const CUT: &'static str = "SELECT pg_terminate_backend(:connection)";
    const MAKE_OWN: &'static str = "CREATE SCHEMA own";
    const LET_IN: &'static str = "";
    const HAS: &'static str = "SELECT 1 WHERE to_regclass(':table') IS NOT NULL";
    const CONNECTIONS: &'static str =
        "SELECT pid, state, left(query, 60) FROM pg_stat_activity WHERE application_name = 'dlock'";
    const BLOCKED: &'static str =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'dlock'";
    const CLIENTS: &'static str = "SELECT count(*) FROM pg_stat_activity \
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    // What servers have from the start has numbers below 16384.
    const STATE: &'static [&'static str] = &[
        "SELECT t::text FROM pg_authid t UNION ALL SELECT t::text FROM pg_auth_members t \
         UNION ALL SELECT t::text FROM pg_db_role_setting t UNION ALL SELECT t::text FROM pg_namespace t \
         UNION ALL SELECT t::text FROM pg_default_acl t \
         UNION ALL SELECT concat(oid, datname, datdba, datacl, datallowconn, datconnlimit) FROM pg_database \
         UNION ALL SELECT concat(name, '=', setting) FROM pg_settings ORDER BY 1",
        "SELECT 'relation', oid FROM pg_class WHERE oid >= 16384 UNION ALL SELECT 'function', oid FROM pg_proc WHERE oid >= 16384 \
         UNION ALL SELECT 'type', oid FROM pg_type WHERE oid >= 16384 \
         UNION ALL SELECT 'operator', oid FROM pg_operator WHERE oid >= 16384 \
         UNION ALL SELECT 'cast', oid FROM pg_cast WHERE oid >= 16384 \
         UNION ALL SELECT 'collation', oid FROM pg_collation WHERE oid >= 16384 \
         UNION ALL SELECT 'event', oid FROM pg_event_trigger UNION ALL SELECT 'extension', oid FROM pg_extension \
         UNION ALL SELECT 'language', oid FROM pg_language",
    ];

    fn clear(server: &Server<Self>) {
        let drop = "SELECT format('DROP TABLE IF EXISTS %s CASCADE', oid::regclass) FROM pg_class \
            WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace";
        let all: Vec<String> = server.sql(drop).into_iter().flatten().collect();
        server.sql(&all.join("; "));
    }

    fn fill(data: &Path) {
        template::copy_to(data);
    }

    fn socket(directory: &Path, port: u16) -> PathBuf {
        directory.join(format!(".s.PGSQL.{port}"))
    }

    fn command(directory: &Path, port: u16, settings: &[String]) -> Command {
        let mut command = Command::new(template::program("postgres"));
        command.arg("-D").arg(directory.join(DATA)).arg("-p").arg(port.to_string());
        let socket = format!("unix_socket_directories={}", directory.display());
        let slow = "log_min_duration_statement=500ms";
        for setting in ["listen_addresses=127.0.0.1", &socket, "shared_buffers=16MB", "jit=off", slow] {
            command.args(["-c", setting]);
        }
        for setting in settings {
            command.args(["-c", setting]);
        }
        command
    }

    fn requests(server: &Server<Self>) -> String {
        server.log()
    }

    fn before_tls(server: &Server<Self>, clients: ClientCertificate) {
        let certificate = if clients == ClientCertificate::Needed { " clientcert=verify-ca" } else { "" };
        server.write_access(&format!("hostssl all all 127.0.0.1/32 trust{certificate}"));
    }

    fn freeze(daemon: &Daemon) {
        // The first one before its children are listed, so that there are no more of them.
        daemon.stop();
        for pid in process::children(daemon.pid()) {
            process::signal(pid, Signal::SIGSTOP);
            process::wait_stopped_or_gone(pid);
        }
    }

    fn thaw(daemon: &Daemon) {
        for pid in process::children(daemon.pid()).into_iter().rev() {
            process::signal(pid, Signal::SIGCONT);
        }
        daemon.cont();
    }

    fn kill(daemon: &Daemon) {
        let first = daemon.pid();
        process::signal(first, Signal::SIGSTOP);
        process::wait_stopped(first);
        let children = process::children(first);
        daemon.kill();
        for pid in children {
            process::signal(pid, Signal::SIGKILL);
            process::wait_gone(pid);
        }
    }
}

impl Postgres {
    /// Starts a server that repeats all that `primary` does, and takes no writes until it is promoted.
    #[track_caller]
    pub fn standby_of(primary: &Self) -> Self {
        let daemon = Daemon::new("standby");
        let data = daemon.subdirectory(DATA);
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        let mut copy = Command::new(template::program("pg_basebackup"));
        copy.arg("-D").arg(&data).arg("-h").arg(primary.directory()).arg("-p").arg(primary.port().to_string());
        copy.args(["-U", "postgres", "-R", "--no-sync", "--checkpoint=fast"]).stdin(Stdio::null());
        copy.current_dir(daemon.directory());
        process::unprivileged(&mut copy);
        let output = copy.output().unwrap();
        assert!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
        let standby = Self::filled(daemon, &[]);
        standby.launch();
        standby
    }

    /// Lets clients over TCP in by this method, such as `scram-sha-256`, from the next connection on.
    #[track_caller]
    pub fn ask_for(&self, method: &str) {
        self.write_access(&format!("host all all 127.0.0.1/32 {method}"));
        let reloads = || self.log().matches("reloading configuration files").count();
        let before = reloads();
        self.sql("SELECT pg_reload_conf()");
        // It says so before it reads them, and takes no connection in between.
        super::rendezvous::eventually("the method to be known", || (reloads() > before).then_some(()));
    }

    fn write_access(&self, line: &str) {
        self.write("data/pg_hba.conf", &format!("local all all trust\n{line}\n"));
    }
}
