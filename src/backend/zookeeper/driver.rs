/*!
The URL syntax of ZooKeeper ensembles.
*/

use std::fmt;

use crate::backend::contract::driver::{Abilities, Breaks, Driver, Endpoint, Follows, Form, Meetings, Scheme};
use crate::backend::contract::service::{Options, Service};
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::zookeeper::ZookeeperService;

/// The driver for ZooKeeper. The leader may count a session from an earlier time than our last answer suggests. That
/// shortens a lease, including its part for `--lock-delay`, by a quarter and a tenth of that.
pub(crate) static DRIVER: Driver = Driver {
    name: "zookeeper",
    forms: &[Form {
        // The ports that ZooKeeper listens on by default.
        schemes: &[Scheme::plain("zk", 2181), Scheme::tls("zks", 2281)],
        short: "zk://host,host,host[/chroot]",
        full: "zk://[user:password@]host[:port],host[:port],…[/chroot]",
        follows: Follows::ServersOrNothing,
        read: |scheme, rest, hint| Ok(Box::new(Servers::read(scheme, rest, hint)?)),
    }],
    meant: &[("zookeeper", "zk://, or zks:// with TLS")],
    kill_after_share: 4,
    delay_share: Some(6),
    has_lease: true,
    abilities: Abilities {
        replicas: false,
        strict_fencing: false,
        breaks: Breaks::Taking,
        handles: false,
        meetings: Meetings::Both,
    },
    setup: None,
};

/// The servers of one ensemble, or some of them; the path is the chroot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Servers(Location);

impl Servers {
    fn read(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Self, String> {
        let location = Location::parse(scheme.name, rest, scheme.port, hint)?;
        let bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains(char::is_control);
        if !location.path.is_empty() && location.path.trim_end_matches('/').split('/').any(bad) {
            return Err(format!("the chroot is no path that ZooKeeper allows; {hint}"));
        }
        let path = location.path.trim_end_matches('/').to_owned();
        Ok(Self(Location { path, ..location }))
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Endpoint for Servers {
    fn location(&mut self) -> Option<&mut Location> {
        Some(&mut self.0)
    }

    fn open(&self, _options: &Options, tls: Option<Tls>) -> Box<dyn Service> {
        Box::new(ZookeeperService::new(self.0.clone(), tls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_one_that_zookeeper_allows() {
        let read = |rest| Servers::read(&DRIVER.forms[0].schemes[0], rest, "");
        assert_eq!(read("u:p@a,b:1/x/y/").expect("valid").to_string(), "zk://u@a:2181,b:1/x/y");
        for bad in ["a//", "a/x//y", "a/./x", "a/../x", "a/%01"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
