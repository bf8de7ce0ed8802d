//! Running the same tests on one backend of each kind, and as each kind of user.

// Each test program uses its own part of this.
#![allow(unused_imports, unused_macros)]

use super::dlock::Dlock;
use super::process;
use super::proxy::{Mode, Proxy};
use super::service::Service;

/// Makes a module of tests for each kind of backend, each test a function of a fresh [`Service`]. Those after a semicolon
/// say in words what conformance or the matrix of faults proves on every service: `tests/run` has them on `file:` and redis,
/// and `tests/run all` on the others too.
macro_rules! on_every_backend {
    ($($test:ident)* $(; $($word:ident)*)?) => {
        crate::support::backends::on_backend! { file: service::FileService { $($test)* $($($word)*)? } }
        crate::support::backends::on_every_server! { $($test)* $(; $($word)*)? }
    };
}
pub(crate) use on_every_backend;

/// Makes a module of tests for each kind of backend whose locks are leases, as [`on_every_backend`] does.
macro_rules! on_every_server {
    ($($test:ident)* $(; $($word:ident)*)?) => {
        crate::support::backends::on_backend! { redis: service::RedisService { $($test)* $($($word)*)? } }
        crate::support::backends::on_backend! { redlock: redis_services::Redlock3 { $($test)* $(; $($word)*)? } }
        crate::support::backends::on_backend! { etcd: service::EtcdService { $($test)* $(; $($word)*)? } }
        crate::support::backends::on_backend! { zookeeper: service::ZooKeeperService { $($test)* $(; $($word)*)? } }
        crate::support::backends::on_backend! { postgres: database_services::PostgresService { $($test)* $(; $($word)*)? } }
        crate::support::backends::on_backend! { mysql: database_services::MysqlService { $($test)* $(; $($word)*)? } }
    };
}
pub(crate) use on_every_server;

/// Makes a module of tests for each kind of backend that has handles without a process, as [`on_every_backend`] does.
macro_rules! on_every_backend_with_handles {
    ($($test:ident)* ; $($word:ident)*) => {
        crate::support::backends::on_backend! { redis: service::RedisService { $($test)* $($word)* } }
        crate::support::backends::on_backend! { etcd: service::EtcdService { $($test)* ; $($word)* } }
        crate::support::backends::on_backend! { redlock: redis_services::Redlock3 { $($test)* ; $($word)* } }
        crate::support::backends::on_backend! { postgres: database_services::PostgresService { $($test)* ; $($word)* } }
        crate::support::backends::on_backend! { mysql: database_services::MysqlService { $($test)* ; $($word)* } }
    };
}
pub(crate) use on_every_backend_with_handles;

/// Makes a module of tests for a backend without leases and for one with them: of what no service can break.
macro_rules! on_file_and_redis {
    ($($test:ident)*) => {
        crate::support::backends::on_backend! { words_on_file: service::FileService { $($test)* } }
        crate::support::backends::on_backend! { words_on_redis: service::RedisService { $($test)* } }
    };
}
pub(crate) use on_file_and_redis;

/// Makes a module of tests for a backend that tells a loss at the next renewal, and for one that tells it at once: of what
/// no service can break where there are leases.
macro_rules! on_redis_and_etcd {
    ($($test:ident)*) => {
        crate::support::backends::on_backend! { words_on_redis: service::RedisService { $($test)* } }
        crate::support::backends::on_backend! { words_on_etcd: service::EtcdService { $($test)* } }
    };
}
pub(crate) use on_redis_and_etcd;

/// Makes the module of tests for one backend; those after a semicolon are variants.
macro_rules! on_backend {
    ($backend:ident: $module:ident::$service:ident { $($test:ident)* $(; $($variant:ident)*)? }) => {
        mod $backend {
            use crate::support::service::Service as _;
            $(#[test]
            fn $test() {
                super::$test(&crate::support::$module::$service::fresh());
            })*
            $($(#[test]
            #[ignore = "a variant: tests/run all"]
            fn $variant() {
                super::$variant(&crate::support::$module::$service::fresh());
            })*)?
        }
    };
}
pub(crate) use on_backend;

/// Makes the module of tests for another way to a backend, which `tests/run all` runs.
macro_rules! on_variant {
    ($backend:ident: $module:ident::$service:ident { $($test:ident)* }) => {
        crate::support::backends::on_backend! { $backend: $module::$service { ; $($test)* } }
    };
}
pub(crate) use on_variant;

/// The user that runs dlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The user that runs the tests, perhaps root.
    Own,
    /// A user without privileges.
    Ordinary,
}

impl User {
    /// All kinds of user that are available here. The unprivileged one comes last: the lock directory is given away to
    /// it for good.
    pub fn all() -> &'static [Self] {
        if process::is_root() { &[Self::Own, Self::Ordinary] } else { &[Self::Ordinary] }
    }

    /// `dlock run --key KEY` on `service` by this user.
    pub fn run<S: Service>(self, service: &S, key: &str) -> Dlock {
        self.lets(service, service.run(key))
    }

    /// `dlock run --key KEY` on `service` by this user, by way of `detour`.
    pub fn run_by<S: Service>(self, service: &S, detour: &Detour, key: &str) -> Dlock {
        self.lets(service, service.scratch().dlock().run(key).backend(detour.url()).args(service.options()))
    }

    fn lets<S: Service>(self, service: &S, dlock: Dlock) -> Dlock {
        if self == Self::Own {
            return dlock;
        }
        service.scratch().lock_dir();
        service.scratch().give_away("locks");
        dlock.unprivileged()
    }
}

/// A way to a service with a [`Proxy`] in front of each server.
pub struct Detour {
    proxies: Vec<Proxy>,
    url: String,
}

impl Detour {
    pub fn to<S: Service>(service: &S) -> Self {
        let proxies: Vec<Proxy> = service.cluster().ports().into_iter().map(Proxy::to).collect();
        let place = |port: u16| format!("127.0.0.1:{port}");
        let ways = service.cluster().ports().into_iter().zip(&proxies);
        let url = ways.fold(service.url(), |url, (port, proxy)| url.replace(&place(port), &place(proxy.port())));
        Self { proxies, url }
    }

    /// The URL to give to `--backend`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sets all proxies to `mode`.
    pub fn set(&self, mode: Mode) {
        self.proxies.iter().for_each(|proxy| proxy.set(mode));
    }
}
