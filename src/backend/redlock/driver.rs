/*!
The URL syntax for several independent redis servers.
*/

use std::fmt;

use crate::backend::contract::driver::{Abilities, Breaks, Driver, Endpoint, Follows, Form, Meetings, Scheme};
use crate::backend::contract::service::{Options, Service};
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::redis::{PORT, Server, database};
use crate::backend::redlock::RedlockService;

/// The driver for a majority of independent redis servers.
pub(crate) static DRIVER: Driver = Driver {
    name: "redlock",
    forms: &[Form {
        schemes: &[Scheme::plain("redlock", PORT), Scheme::tls("redlocks", PORT)],
        short: "redlock://host,host,host",
        full: "redlock://[user[:password]@]host[:port],host[:port],host[:port][/database]",
        follows: Follows::Servers,
        read: |scheme, rest, hint| Ok(Box::new(Servers::read(scheme, rest, hint)?)),
    }],
    meant: &[],
    kill_after_share: 2,
    delay_share: Some(0),
    has_lease: true,
    abilities: Abilities {
        replicas: false,
        strict_fencing: true,
        breaks: Breaks::Taking,
        handles: true,
        meetings: Meetings::Latches,
    },
    setup: None,
};

/// One database of each of several redis servers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Servers {
    /// The servers, no two alike, without a path.
    location: Location,
    /// The number of the database on each server.
    number: u32,
}

impl Servers {
    fn read(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Self, String> {
        let location = Location::parse(scheme.name, rest, scheme.port, hint)?;
        let number = database(&location.path).map_err(|error| format!("{error}; {hint}"))?;
        if let Some(twice) = location.named_twice() {
            return Err(format!("{twice} is named twice: each server has one vote, so name each once; {hint}"));
        }
        Ok(Self { location: Location { path: String::new(), ..location }, number })
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location.with_database(self.number))
    }
}

impl Endpoint for Servers {
    fn location(&mut self) -> Option<&mut Location> {
        Some(&mut self.location)
    }

    fn open(&self, options: &Options, tls: Option<Tls>) -> Box<dyn Service> {
        let Location { scheme, login, addresses, .. } = &self.location;
        let server = |address| Server::new(scheme, address, login, self.number, tls.clone());
        Box::new(RedlockService::new(addresses.iter().map(server).collect(), options.strict_fencing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_named_once() {
        let read = |rest| Servers::read(&DRIVER.forms[0].schemes[0], rest, "");
        assert_eq!(read("a,b,a:7000/2").expect("valid").to_string(), "redlock://a:6379,b:6379,a:7000/2");
        for bad in ["a,b,a", "a,b,a:6379", "a,b/x", "a,,b"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
