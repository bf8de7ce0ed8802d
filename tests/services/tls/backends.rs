//! What every backend with TLS is to its tests.

use crate::cli::secrets::SECRET;
use crate::support::certificates::{Certificates, Tls};
use crate::support::etcd::{Etcd, EtcdOptions};
use crate::support::mysql::Mysql;
use crate::support::postgres::Postgres;
use crate::support::servers::Redis;
use crate::support::zookeeper::{Acl, Kind, ZooKeeper, ZooKeeperOptions};

use super::USER;

/// A backend with TLS and passwords.
pub trait Secure: Sized {
    /// The scheme that means TLS.
    const TLS: &'static str;
    /// The scheme that means plain text.
    const PLAIN: &'static str;
    /// What follows the servers in a URL.
    const DATABASE: &'static str = "";
    /// The first byte that a client sends where it wants TLS: of a handshake, or of what comes before it. None where the server
    /// speaks first.
    const ASKS: Option<u8> = Some(0x16);
    /// What is said of a server that does not speak its language.
    const NO_TLS: &'static str = "it does not speak TLS on this port";
    /// What is said of a server that wants a certificate from a client that shows none.
    const NO_CERTIFICATE: &'static str = "refused the TLS connection";
    /// The exit code where it wants TLS and is not asked for it.
    const REFUSES_PLAIN: i32 = 69;
    /// The user that dlocks are where nothing names one; none for the one that runs the tests.
    const ME: Option<&'static str> = None;
    /// A lease within which its servers can be restarted, in seconds.
    const LEASE: u64 = 4;

    /// A service whose servers speak TLS, or plain text without it.
    fn start(tls: Option<Tls>) -> Self;
    /// Where its servers listen for clients, all on 127.0.0.1.
    fn ports(&self) -> Vec<u16>;
    /// What clients of each server with TLS need, which is the same for all. Fails the test without.
    fn certificates(&self) -> Vec<&Certificates>;
    /// Kills the servers and starts them again, with their data and with the certificates that are there now.
    fn restart(&self);
    /// Lets only [`USER`] use it from now on, with [`SECRET`].
    fn guard(&self);
    /// Whether nothing is locked, or ever was.
    fn is_untouched(&self) -> bool;
}

/// Redis: one server, or several that know nothing of each other. What they hold survives a restart.
pub struct SecureRedis<const N: usize>(Vec<Redis>);

impl<const N: usize> Secure for SecureRedis<N> {
    const TLS: &'static str = if N == 1 { "rediss" } else { "redlocks" };
    const PLAIN: &'static str = if N == 1 { "redis" } else { "redlock" };

    fn start(tls: Option<Tls>) -> Self {
        let persistent = ["--appendonly", "yes", "--appendfsync", "always"];
        let redis = |_| tls.map_or_else(|| Redis::with(persistent), |tls| Redis::with_tls(tls, persistent));
        Self((0..N).map(redis).collect())
    }

    fn ports(&self) -> Vec<u16> {
        self.0.iter().map(|redis| if redis.is_tls() { redis.tls_port() } else { redis.port() }).collect()
    }

    fn certificates(&self) -> Vec<&Certificates> {
        self.0.iter().map(Redis::certificates).collect()
    }

    fn restart(&self) {
        self.0.iter().for_each(Redis::restart);
    }

    fn guard(&self) {
        for redis in &self.0 {
            redis.cli(&["ACL", "SETUSER", USER, "on", &format!(">{SECRET}"), "~*", "&*", "+@all"]);
            redis.cli(&["ACL", "SETUSER", "default", "off"]);
        }
    }

    fn is_untouched(&self) -> bool {
        self.0.iter().all(|redis| redis.keys().is_empty())
    }
}

/// An etcd.
pub struct SecureEtcd(Etcd);

impl Secure for SecureEtcd {
    const TLS: &'static str = "etcds";
    const PLAIN: &'static str = "etcd";

    fn start(tls: Option<Tls>) -> Self {
        Self(Etcd::with(EtcdOptions { tls, ..EtcdOptions::single() }))
    }

    fn ports(&self) -> Vec<u16> {
        self.0.members().iter().map(crate::support::etcd::Member::port).collect()
    }

    fn certificates(&self) -> Vec<&Certificates> {
        vec![self.0.certificates()]
    }

    fn restart(&self) {
        self.0.restart();
    }

    fn guard(&self) {
        self.0.guard(USER, SECRET, "dlock/");
    }

    fn is_untouched(&self) -> bool {
        self.0.keys("").is_empty() && self.0.leases().is_empty()
    }
}

/// A ZooKeeper.
pub struct SecureZooKeeper(ZooKeeper);

impl Secure for SecureZooKeeper {
    const TLS: &'static str = "zks";
    const PLAIN: &'static str = "zk";
    const LEASE: u64 = 16;

    fn start(tls: Option<Tls>) -> Self {
        Self(ZooKeeper::with(ZooKeeperOptions { tls, ..ZooKeeperOptions::single() }))
    }

    fn ports(&self) -> Vec<u16> {
        let tls = self.0.is_tls();
        self.0.servers().iter().map(|server| if tls { server.secure_port() } else { server.port() }).collect()
    }

    fn certificates(&self) -> Vec<&Certificates> {
        vec![self.0.certificates()]
    }

    fn restart(&self) {
        self.0.restart();
    }

    fn guard(&self) {
        let mut client = self.0.client();
        client.add_auth(USER, SECRET).unwrap();
        client.create("/dlock", "", Kind::Persistent, Acl::Mine).unwrap();
    }

    fn is_untouched(&self) -> bool {
        self.0.tree().is_empty()
    }
}

/// A PostgreSQL, with a role for the user that runs the tests.
pub struct SecurePostgres(Postgres);

impl Secure for SecurePostgres {
    const TLS: &'static str = "postgress";
    const PLAIN: &'static str = "postgres";
    const DATABASE: &'static str = "/postgres";
    const ASKS: Option<u8> = Some(0);
    const REFUSES_PLAIN: i32 = 77;

    fn start(tls: Option<Tls>) -> Self {
        let postgres = tls.map_or_else(Postgres::start, Postgres::with_tls);
        postgres.sql(&format!("CREATE ROLE \"{}\" LOGIN SUPERUSER", user()));
        Self(postgres)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn certificates(&self) -> Vec<&Certificates> {
        vec![self.0.certificates()]
    }

    fn restart(&self) {
        self.0.restart();
    }

    fn guard(&self) {
        self.0.sql(&format!("CREATE ROLE {USER} LOGIN SUPERUSER PASSWORD '{}'", SECRET.replace('\'', "''")));
        self.0.ask_for("scram-sha-256");
    }

    fn is_untouched(&self) -> bool {
        !self.0.has("shedlock")
    }
}

/// A MariaDB, with a user for the one that runs the tests: but root needs no password there.
pub struct SecureMysql(Mysql);

impl Secure for SecureMysql {
    const TLS: &'static str = "mysqls";
    const PLAIN: &'static str = "mysql";
    const DATABASE: &'static str = "/locks";
    const ASKS: Option<u8> = None;
    const NO_TLS: &'static str = "is a MySQL or MariaDB server running there?";
    const NO_CERTIFICATE: &'static str = "refused the credentials";
    const ME: Option<&'static str> = Some("dlock");
    const LEASE: u64 = 8;
    const REFUSES_PLAIN: i32 = 77;

    fn start(tls: Option<Tls>) -> Self {
        let mysql = tls.map_or_else(Mysql::start, Mysql::with_tls);
        let user = user();
        mysql.sql(&format!("CREATE USER '{user}'@'%'; GRANT ALL ON locks.* TO '{user}'@'%'"));
        Self(mysql)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn certificates(&self) -> Vec<&Certificates> {
        vec![self.0.certificates()]
    }

    fn restart(&self) {
        self.0.restart();
    }

    fn guard(&self) {
        let secret = SECRET.replace('\\', "\\\\").replace('\'', "''");
        self.0.sql(&format!("CREATE USER {USER}@'%' IDENTIFIED BY '{secret}'; GRANT ALL ON locks.* TO {USER}@'%'"));
        self.0.sql("DROP USER dlock@'%'");
    }

    fn is_untouched(&self) -> bool {
        !self.0.has("shedlock")
    }
}

/// The name of the user that runs the tests, who dlock is where no user is named.
fn user() -> String {
    nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().expect("a user with a name").name
}
