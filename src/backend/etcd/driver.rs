/*!
The URL syntax of etcd clusters.
*/

use std::fmt;

use crate::backend::contract::driver::{Abilities, Breaks, Driver, Endpoint, Follows, Form, Meetings, Scheme};
use crate::backend::contract::service::{Options, Service};
use crate::backend::etcd::EtcdService;
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;

/// The port that etcd listens on by default.
const PORT: u16 = 2379;

/// An etcd cluster.
pub(crate) static DRIVER: Driver = Driver {
    name: "etcd",
    forms: &[Form {
        schemes: &[Scheme::plain("etcd", PORT), Scheme::tls("etcds", PORT)],
        short: "etcd://host,host,host",
        full: "etcd://[user:password@]host[:port],host[:port],…",
        follows: Follows::ServersOrNothing,
        read: |scheme, rest, hint| Ok(Box::new(Members::read(scheme, rest, hint)?)),
    }],
    meant: &[("http", "etcd:// for etcd"), ("https", "etcds:// for etcd with TLS")],
    kill_after_share: 2,
    delay_share: Some(0),
    has_lease: true,
    abilities: Abilities {
        replicas: false,
        strict_fencing: false,
        breaks: Breaks::Taking,
        handles: true,
        meetings: Meetings::Both,
    },
    setup: None,
};

/// The members of one cluster, or some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Members(Location);

impl Members {
    fn read(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Self, String> {
        let location = Location::parse(scheme.name, rest, scheme.port, hint)?;
        if location.path.is_empty() {
            Ok(Self(location))
        } else {
            Err(format!("etcd has no path: use --namespace; {hint}"))
        }
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Endpoint for Members {
    fn location(&mut self) -> Option<&mut Location> {
        Some(&mut self.0)
    }

    fn open(&self, _options: &Options, tls: Option<Tls>) -> Box<dyn Service> {
        Box::new(EtcdService::new(self.0.clone(), tls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_members_and_no_path() {
        let read = |rest| Members::read(&DRIVER.forms[0].schemes[0], rest, "");
        assert_eq!(read("u:p@a,b:1/").expect("valid").to_string(), "etcd://u@a:2379,b:1");
        for bad in ["a/path", "a,b//", ""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
