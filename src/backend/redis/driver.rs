/*!
The URL syntax for one redis server: its address, its socket, or the sentinels that watch it.
*/

use std::fmt;

use crate::backend::contract::driver::{Abilities, Breaks, Driver, Endpoint, Follows, Form, Meetings, Scheme};
use crate::backend::contract::service::{Options, Service};
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::redis::{RedisService, Server};

/// The port that redis listens on by default.
pub(crate) const PORT: u16 = 6379;
/// The port that sentinels listen on by default.
const SENTINEL_PORT: u16 = 26379;

/// The driver for one redis server.
pub(crate) static DRIVER: Driver = Driver {
    name: "redis",
    forms: &[
        Form {
            schemes: &[
                Scheme::plain("redis", PORT),
                Scheme::tls("rediss", PORT),
                Scheme::plain("valkey", PORT),
                Scheme::tls("valkeys", PORT),
            ],
            short: "redis://[user[:password]@]host[:port][/database]",
            full: "redis://[user[:password]@]host[:port][/database]",
            follows: Follows::ServersOrNothing,
            read: server,
        },
        Form {
            schemes: &[Scheme::local("redis+unix")],
            short: "redis+unix:///socket",
            full: "redis+unix:///path[?db=N]",
            follows: Follows::Servers,
            read: socket,
        },
        Form {
            schemes: &[
                Scheme::plain("redis+sentinel", SENTINEL_PORT),
                Scheme::plain("redis-sentinel", SENTINEL_PORT),
                Scheme::tls("rediss+sentinel", SENTINEL_PORT),
            ],
            short: "redis+sentinel://host,host/NAME",
            full: "redis+sentinel://[user[:password]@]host[:port],host[:port],…/NAME[/database]",
            follows: Follows::Servers,
            read: sentinels,
        },
    ],
    meant: &[
        ("redis+tls", "rediss://"),
        ("redis+ssl", "rediss://"),
        ("redis-ssl", "rediss://"),
        ("unix", "redis+unix://"),
        ("sentinel", "redis+sentinel://"),
    ],
    kill_after_share: 2,
    delay_share: Some(0),
    has_lease: true,
    abilities: Abilities {
        replicas: true,
        strict_fencing: false,
        breaks: Breaks::Taking,
        handles: true,
        meetings: Meetings::Both,
    },
    setup: None,
};

/// One database of one redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Database {
    /// The server, without a path.
    location: Location,
    /// The number of the database.
    number: u32,
}

/// One database of the redis server that sentinels name as the master.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watched {
    /// The sentinels, without a path.
    location: Location,
    /// The name under which they know the master.
    name: String,
    /// The number of the database.
    number: u32,
}

/// Reads the number of a database; an empty one is 0.
pub(crate) fn database(number: &str) -> Result<u32, String> {
    match number {
        "" => Ok(0),
        number => number.parse().map_err(|_| "the database must be a number".to_owned()),
    }
}

fn server(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Box<dyn Endpoint>, String> {
    Ok(Box::new(Database::server(scheme, rest, hint)?))
}

fn socket(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Box<dyn Endpoint>, String> {
    Ok(Box::new(Database::socket(scheme, rest, hint)?))
}

fn sentinels(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Box<dyn Endpoint>, String> {
    Ok(Box::new(Watched::read(scheme, rest, hint)?))
}

impl Database {
    fn server(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Self, String> {
        let location = Location::parse(scheme.name, rest, scheme.port, hint)?;
        if location.addresses.len() > 1 {
            let name = scheme.name;
            return Err(format!("{name}:// is one server; for several independent ones use redlock://; {hint}"));
        }
        let number = database(&location.path).map_err(|error| format!("{error}; {hint}"))?;
        Ok(Self { location: Location { path: String::new(), ..location }, number })
    }

    fn socket(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Self, String> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let location = Location::parse_socket(scheme.name, rest, hint)?;
        let number = match query {
            "" => "",
            _ => query.strip_prefix("db=").ok_or_else(|| format!("only ?db=N may follow; {hint}"))?,
        };
        Ok(Self { location, number: database(number)? })
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location.with_database(self.number))
    }
}

impl Endpoint for Database {
    fn location(&mut self) -> Option<&mut Location> {
        Some(&mut self.location)
    }

    fn open(&self, options: &Options, tls: Option<Tls>) -> Box<dyn Service> {
        let Location { scheme, login, addresses, .. } = &self.location;
        let server = Server::new(scheme, &addresses[0], login, self.number, tls);
        Box::new(RedisService::new(server, options.replicas))
    }
}

impl Watched {
    fn read(scheme: &'static Scheme, rest: &str, hint: &str) -> Result<Self, String> {
        let location = Location::parse(scheme.name, rest, scheme.port, hint)?;
        if let Some(twice) = location.named_twice() {
            return Err(format!("{twice} is named twice: each sentinel has one vote, so name each once; {hint}"));
        }
        let (name, number) = location.path.split_once('/').unwrap_or((&location.path, ""));
        if name.is_empty() {
            return Err(format!("the name of the master must follow the sentinels; {hint}"));
        }
        let number = database(number).map_err(|error| format!("{error}; {hint}"))?;
        Ok(Self { name: name.to_owned(), number, location: Location { path: String::new(), ..location } })
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = Location { path: self.name.clone(), ..self.location.clone() };
        f.write_str(&location.with_database(self.number))
    }
}

impl Endpoint for Watched {
    fn location(&mut self) -> Option<&mut Location> {
        Some(&mut self.location)
    }

    fn master(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn open(&self, options: &Options, tls: Option<Tls>) -> Box<dyn Service> {
        let Self { location, name, number } = self.clone();
        Box::new(RedisService::with_sentinels(location, name, number, tls, options.replicas))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the address and the database of a redis URL, and its credentials.
    fn parts(place: Result<Database, String>) -> (String, u32, Option<String>, Option<String>) {
        let Database { location, number } = place.expect("valid");
        (location.addresses[0].to_string(), number, location.login.user, location.login.password)
    }

    #[test]
    fn servers() {
        let [plain, tls, ..] = DRIVER.forms[0].schemes else { panic!("no schemes") };
        let server = |scheme, rest| parts(Database::server(scheme, rest, ""));
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(server(plain, "locks/"), ("locks:6379".to_owned(), 0, None, None));
        assert_eq!(server(plain, "localhost"), ("localhost:6379".to_owned(), 0, None, None));
        let full = "me:p%40%3A%25%2F@[::1]:7000/3";
        assert_eq!(server(plain, full), ("[::1]:7000".to_owned(), 3, text("me"), text("p@:%/")));
        assert_eq!(server(tls, ":secret@h"), ("h:6379".to_owned(), 0, None, text("secret")));
        let socket = Database::socket(&DRIVER.forms[1].schemes[0], "/run/r%20s?db=2", "");
        assert_eq!(parts(socket), ("/run/r s".to_owned(), 2, None, None));
    }

    #[test]
    fn sentinels_are_followed_by_the_name_of_the_master() {
        let read = |rest| Watched::read(&DRIVER.forms[2].schemes[0], rest, "");
        let watched = read("u:secret@h,i:1/NAME/2").expect("valid");
        let addresses: Vec<String> = watched.location.addresses.iter().map(ToString::to_string).collect();
        assert_eq!((watched.name.as_str(), watched.number), ("NAME", 2));
        assert_eq!(addresses, ["h:26379", "i:1"]);
        assert_eq!(watched.to_string(), "redis+sentinel://u@h:26379,i:1/NAME/2");
        for bad in ["h", "h/", "h//1", "h/a/b", "h/a/1/2", "h,i,h/NAME", "h,h:26379/NAME"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
