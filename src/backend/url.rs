/*!
Which backend: a URL or a bare name, read into a [`Target`], shown without its password, and opened.
*/

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use super::etcd::{self, EtcdService};
use super::file::FileService;
use super::location::{Location, encoded};
use super::redis::{self, RedisService, Server};
use super::redlock::RedlockService;
use super::tls::Tls;
use super::wire::Address;
use super::zookeeper::{self, ZookeeperService};
use super::{Options, Service};

/// Where the locks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Lock files on this host.
    File {
        /// The directory; none for the default one.
        directory: Option<PathBuf>,
        /// Whether a remote file system is trusted (`?remote=trust`).
        remote: bool,
    },
    /// One redis server.
    Redis {
        /// The server.
        location: Location,
        /// The number of the database.
        database: u32,
    },
    /// The redis server that sentinels name.
    Sentinel {
        /// The sentinels.
        location: Location,
        /// What the master is called there.
        name: String,
        /// The number of the database.
        database: u32,
    },
    /// A majority of independent redis servers.
    Redlock {
        /// The servers.
        location: Location,
        /// The number of the database on each.
        database: u32,
    },
    /// An etcd cluster.
    Etcd(Location),
    /// A ZooKeeper ensemble; the path is the chroot.
    Zookeeper(Location),
}

/// The schemes of URLs, and what each means: whether it is TLS, and the port that its servers listen on by default.
const SCHEMES: &[(&str, Scheme, bool, u16)] = &[
    ("redis", Scheme::Redis, false, redis::DEFAULT_PORT),
    ("rediss", Scheme::Redis, true, redis::DEFAULT_PORT),
    ("valkey", Scheme::Redis, false, redis::DEFAULT_PORT),
    ("valkeys", Scheme::Redis, true, redis::DEFAULT_PORT),
    ("redis+unix", Scheme::RedisSocket, false, 0),
    ("redis+sentinel", Scheme::Sentinel, false, redis::SENTINEL_PORT),
    ("redis-sentinel", Scheme::Sentinel, false, redis::SENTINEL_PORT),
    ("rediss+sentinel", Scheme::Sentinel, true, redis::SENTINEL_PORT),
    ("redlock", Scheme::Redlock, false, redis::DEFAULT_PORT),
    ("redlocks", Scheme::Redlock, true, redis::DEFAULT_PORT),
    ("etcd", Scheme::Etcd, false, etcd::DEFAULT_PORT),
    ("etcds", Scheme::Etcd, true, etcd::DEFAULT_PORT),
    ("zk", Scheme::Zookeeper, false, zookeeper::DEFAULT_PORT),
    ("zks", Scheme::Zookeeper, true, zookeeper::DEFAULT_TLS_PORT),
];

/// What a scheme names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Redis,
    RedisSocket,
    Sentinel,
    Redlock,
    Etcd,
    Zookeeper,
}

impl Target {
    /// Reads a backend URL. The error says what to do and holds no part of the URL that could be a password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) => (scheme, Some(rest)),
            None => (text, None),
        };
        if scheme == "file" {
            return parse_file(rest.unwrap_or_default());
        }
        let known = SCHEMES.iter().find(|(name, ..)| *name == scheme);
        match (known, rest) {
            (Some(&(scheme, kind @ (Scheme::Redis | Scheme::Etcd | Scheme::Zookeeper), _, port)), None) => {
                Self::of(kind, Location::local(scheme, port), "")
            }
            (Some(&(scheme, kind, _, port)), Some(rest)) if rest.starts_with("//") => {
                parse_servers(scheme, kind, port, &rest[2..])
            }
            (Some((scheme, ..)), _) => Err(format!("could not read the backend URL: use {scheme}://…")),
            // Only what is certainly a scheme may be repeated: anything else could be a password.
            (None, Some(rest))
                if rest.starts_with("//") && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
            {
                Err(match meant(scheme) {
                    Some(meant) => format!("unknown backend {scheme}://: use {meant}"),
                    None => format!("unknown backend {scheme}://: use file: or {}", names()),
                })
            }
            _ => Err("a backend is a URL such as file:, file:///dir or redis://host: add the scheme".to_owned()),
        }
    }

    /// The target of a kind, where `query` follows the path of a socket.
    fn of(kind: Scheme, location: Location, query: &str) -> Result<Self, String> {
        match kind {
            Scheme::Redis => {
                let database = database(&location.path)?;
                Ok(Self::Redis { location: Location { path: String::new(), ..location }, database })
            }
            Scheme::RedisSocket => {
                let number = match query {
                    "" => "",
                    _ => query.strip_prefix("db=").ok_or_else(|| format!("only ?db=N may follow; {}", hint(kind)))?,
                };
                Ok(Self::Redis { location, database: database(number)? })
            }
            Scheme::Sentinel => {
                let (name, number) = location.path.split_once('/').unwrap_or((&location.path, ""));
                if name.is_empty() {
                    return Err("the name of the master must follow the sentinels".to_owned());
                }
                let (name, database) = (name.to_owned(), database(number)?);
                Ok(Self::Sentinel { location: Location { path: String::new(), ..location }, name, database })
            }
            Scheme::Redlock => {
                let database = database(&location.path)?;
                if let Some(twice) = redundant(&location.addresses) {
                    return Err(format!("{twice} is named twice: each server has one vote, so name each once"));
                }
                Ok(Self::Redlock { location: Location { path: String::new(), ..location }, database })
            }
            Scheme::Etcd if location.path.is_empty() => Ok(Self::Etcd(location)),
            Scheme::Etcd => Err("etcd has no path: use --namespace".to_owned()),
            Scheme::Zookeeper => {
                let bad =
                    |part: &str| part.is_empty() || part == "." || part == ".." || part.contains(char::is_control);
                if !location.path.is_empty() && location.path.trim_end_matches('/').split('/').any(bad) {
                    return Err("the chroot is no path that ZooKeeper allows".to_owned());
                }
                let path = location.path.trim_end_matches('/').to_owned();
                Ok(Self::Zookeeper(Location { path, ..location }))
            }
        }
    }

    /// The backend's name for `DLOCK_BACKEND_KIND`.
    #[must_use]
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Redis { .. } | Self::Sentinel { .. } => "redis",
            Self::Redlock { .. } => "redlock",
            Self::Etcd(_) => "etcd",
            Self::Zookeeper(_) => "zookeeper",
        }
    }

    /// Whether locks there end by themselves when they are not renewed.
    #[must_use]
    pub(crate) fn has_lease(&self) -> bool {
        !matches!(self, Self::File { .. })
    }

    /// Which part of a lease may at most be between SIGTERM and SIGKILL: one of so many.
    #[must_use]
    pub(crate) fn kill_after_share(&self) -> u32 {
        // A ZooKeeper session may be older at the leader than the last answer to us.
        if matches!(self, Self::Zookeeper(_)) { 4 } else { 2 }
    }

    /// Uses these credentials where the URL gives none.
    pub(crate) fn add_credentials(&mut self, user: Option<String>, password: Option<String>) {
        match self {
            Self::File { .. } => {}
            Self::Redis { location, .. }
            | Self::Sentinel { location, .. }
            | Self::Redlock { location, .. }
            | Self::Etcd(location)
            | Self::Zookeeper(location) => location.add_credentials(user, password),
        }
    }

    /// Whether what travels to the servers is encrypted; none where nothing leaves this host.
    #[must_use]
    pub(crate) fn is_tls(&self) -> Option<bool> {
        let scheme = self.location()?.scheme;
        SCHEMES
            .iter()
            .find(|(name, kind, ..)| *name == scheme && *kind != Scheme::RedisSocket)
            .map(|&(_, _, tls, _)| tls)
    }

    /// Whether `--replicas` means anything there.
    #[must_use]
    pub(crate) fn has_replicas(&self) -> bool {
        matches!(self, Self::Redis { .. } | Self::Sentinel { .. })
    }

    /// Whether a majority of independent servers keeps the locks.
    #[must_use]
    pub(crate) fn is_redlock(&self) -> bool {
        matches!(self, Self::Redlock { .. })
    }

    fn location(&self) -> Option<&Location> {
        match self {
            Self::File { .. } => None,
            Self::Redis { location, .. }
            | Self::Sentinel { location, .. }
            | Self::Redlock { location, .. }
            | Self::Etcd(location)
            | Self::Zookeeper(location) => Some(location),
        }
    }

    /// Opens the service; nothing is sent yet. The error names the option to mend.
    pub(crate) fn open(&self, options: &Options) -> Result<Box<dyn Service>, String> {
        let tls = match self.is_tls() {
            Some(true) => Some(Tls::load(&options.tls)?),
            _ => None,
        };
        Ok(match self {
            Self::File { directory, remote } => Box::new(FileService::new(directory.clone(), *remote)),
            Self::Redis { location, database } => {
                let server = Server::new(location.scheme, &location.addresses[0], &location.login, *database, tls);
                Box::new(RedisService::new(server, options.replicas))
            }
            Self::Sentinel { location, name, database } => {
                Box::new(RedisService::with_sentinels(location.clone(), name.clone(), *database, tls, options.replicas))
            }
            Self::Redlock { location, database } => {
                let server = |address| Server::new(location.scheme, address, &location.login, *database, tls.clone());
                let servers = location.addresses.iter().map(server).collect();
                Box::new(RedlockService::new(servers, options.strict_fencing))
            }
            Self::Etcd(location) => Box::new(EtcdService::new(location.clone(), tls)),
            Self::Zookeeper(location) => Box::new(ZookeeperService::new(location.clone(), tls)),
        })
    }
}

/// The URL without its password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { directory, remote } => {
                f.write_str("file:")?;
                if let Some(directory) = directory {
                    write!(f, "//{}", encoded(directory.as_os_str().as_bytes(), "?"))?;
                }
                f.write_str(if *remote { "?remote=trust" } else { "" })
            }
            Self::Redis { location, database } | Self::Redlock { location, database } => {
                f.write_str(&location.with_database(*database))
            }
            Self::Etcd(location) | Self::Zookeeper(location) => location.fmt(f),
            Self::Sentinel { location, name, database } => {
                let location = Location { path: name.clone(), ..location.clone() };
                f.write_str(&location.with_database(*database))
            }
        }
    }
}

/// The schemes that a user may choose from.
fn names() -> String {
    let names: Vec<String> = SCHEMES.iter().map(|(name, ..)| format!("{name}://")).collect();
    names.join(" ")
}

/// What somebody probably means who writes a scheme of other clients.
fn meant(scheme: &str) -> Option<&'static str> {
    match scheme {
        "http" => Some("etcd:// for etcd"),
        "https" => Some("etcds:// for etcd with TLS"),
        "zookeeper" => Some("zk://, or zks:// with TLS"),
        "redis+tls" | "redis+ssl" | "redis-ssl" => Some("rediss://"),
        "unix" => Some("redis+unix://"),
        "sentinel" => Some("redis+sentinel://"),
        _ => None,
    }
}

/// How a URL of this kind is written.
fn hint(kind: Scheme) -> String {
    let form = match kind {
        Scheme::Redis => "redis://[user[:password]@]host[:port][/database]",
        Scheme::RedisSocket => "redis+unix:///path[?db=N]",
        Scheme::Sentinel => "redis+sentinel://[user[:password]@]host[:port],host[:port],…/NAME[/database]",
        Scheme::Redlock => "redlock://[user[:password]@]host[:port],host[:port],host[:port][/database]",
        Scheme::Etcd => "etcd://[user:password@]host[:port],host[:port],…",
        Scheme::Zookeeper => "zk://[user:password@]host[:port],host[:port],…[/chroot]",
    };
    format!("use {form}, with @ : / % in a password as %40 %3A %2F %25")
}

fn parse_servers(scheme: &'static str, kind: Scheme, port: u16, rest: &str) -> Result<Target, String> {
    let hint = hint(kind);
    if kind == Scheme::RedisSocket {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        return Target::of(kind, Location::parse_socket(scheme, rest, &hint)?, query);
    }
    let location = Location::parse(scheme, rest, port, &hint)?;
    if kind == Scheme::Redis && location.addresses.len() > 1 {
        return Err(format!("{scheme}:// is one server; for several independent ones use redlock://; {hint}"));
    }
    Target::of(kind, location, "").map_err(|error| format!("{error}; {hint}"))
}

/// The first address that occurs a second time.
fn redundant(addresses: &[Address]) -> Option<&Address> {
    addresses.iter().enumerate().find(|(index, address)| addresses[..*index].contains(address)).map(|(_, twice)| twice)
}

fn database(number: &str) -> Result<u32, String> {
    match number {
        "" => Ok(0),
        number => number.parse().map_err(|_| "the database must be a number".to_owned()),
    }
}

/// `text` with the password of its user part removed, whatever else is wrong with it: for the command's environment.
#[must_use]
pub(crate) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| *scheme != "file") else {
        return text.to_owned();
    };
    // A password with a bare `/` or `@` is wrong and still a secret: the last `@` is where it ends.
    let Some((credentials, place)) = rest.rsplit_once('@') else { return text.to_owned() };
    match credentials.split_once(':') {
        Some(("", _)) => format!("{scheme}://{place}"),
        Some((user, _)) => format!("{scheme}://{user}@{place}"),
        None => text.to_owned(),
    }
}

fn parse_file(rest: &str) -> Result<Target, String> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let remote = match query {
        "" => false,
        "remote=trust" => true,
        _ => return Err("file: knows only ?remote=trust: remove the rest, or write a ? in a path as %3F".to_owned()),
    };
    let path = match path.strip_prefix("//") {
        Some(path) => path.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(path),
        None => path,
    };
    if path.is_empty() {
        return if rest.starts_with("//") {
            Err("file:// needs a directory: use file:///dir, or file: for the default one".to_owned())
        } else {
            Ok(Target::File { directory: None, remote })
        };
    }
    if !path.starts_with('/') {
        return Err("the directory of file: must be absolute: use file:///dir".to_owned());
    }
    let bytes: Vec<u8> = percent_decode_str(path).collect();
    if bytes.contains(&0) {
        return Err("the directory of file: must not contain a NUL byte".to_owned());
    }
    Ok(Target::File { directory: Some(PathBuf::from(OsString::from_vec(bytes))), remote })
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    /// Host, port and database of a redis URL, and its credentials.
    fn redis(text: &str) -> (String, u32, Option<String>, Option<String>) {
        match Target::parse(text) {
            Ok(Target::Redis { location, database }) => {
                (location.addresses[0].to_string(), database, location.login.user, location.login.password)
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn files() {
        for (text, directory, remote) in [
            ("file", None, false),
            ("file:", None, false),
            ("file:?remote=trust", None, true),
            ("file:///var/lock", Some("/var/lock"), false),
            ("file://localhost/x", Some("/x"), false),
            ("file:/x%20y?remote=trust", Some("/x y"), true),
        ] {
            assert_eq!(
                Target::parse(text),
                Ok(Target::File { directory: directory.map(PathBuf::from), remote }),
                "{text}"
            );
        }
        for bad in ["file://", "file:x", "file://host/x", "file:///x?remote=maybe", "file:///%00"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn redis_servers() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(redis("redis://locks/"), ("locks:6379".to_owned(), 0, None, None));
        assert_eq!(redis("redis"), ("localhost:6379".to_owned(), 0, None, None));
        let full = "redis://me:p%40%3A%25%2F@[::1]:7000/3";
        assert_eq!(redis(full), ("[::1]:7000".to_owned(), 3, text("me"), text("p@:%/")));
        assert_eq!(Target::parse(full).expect("valid").to_string(), "redis://me@[::1]:7000/3");
        assert_eq!(redis("rediss://:secret@h"), ("h:6379".to_owned(), 0, None, text("secret")));
        assert_eq!(redis("redis+unix:///run/r%20s?db=2"), ("/run/r s".to_owned(), 2, None, None));
    }

    #[test]
    fn what_is_wrong_is_refused_without_telling_the_password() {
        for bad in [
            "",
            "locks:6379",
            "secret@locks",
            "redis:",
            "redis://",
            "redis://:secret@",
            "redis://:secret@h:0",
            "redis://:secret@h:99999",
            "redis://:secret@h:port",
            "redis://u:se/cret@h",
            "redis://:secret@h/x",
            "redis://:secret@h/1/2",
            "redis://:secret@h?x=1",
            "mysql://:secret@h",
            "secret:x",
        ] {
            let error = Target::parse(bad).expect_err(bad);
            assert!(
                !error.contains("secret") && !error.contains("se/cret") && !error.contains("cret@"),
                "{bad}: {error}"
            );
        }
        assert!(!format!("{:?}", Target::parse("redis://:secret@h")).contains("secret"));
    }

    #[test]
    fn a_password_with_a_bare_slash_is_not_taken_for_a_path() {
        for bad in [
            "redis+sentinel://u:12/secret@h",
            "zk://u:12/secret@h",
            "redlock://:7,secret,secret/x@h",
            "redis+unix://:@/secret@/run/r",
        ] {
            let error = Target::parse(bad).expect_err(bad);
            assert!(error.contains("%2F") && !error.contains("secret"), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_printed_means_the_same() {
        for text in [
            "redis+unix:///run/r?db=2",
            "redis://a%40b%3A@h:7000/3",
            "redis+sentinel://h:26379/a%3Fb/2",
            "zk://h:2181/a%25b%40",
            "file:///a%25b%3Fc?remote=trust",
            "file:///%FF",
        ] {
            assert_eq!(Target::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn passwords_are_removed_from_any_text() {
        for (text, expected) in [
            ("redis://u:secret@h/1", "redis://u@h/1"),
            ("redis://:se/cr@et@h", "redis://h"),
            ("redis://u@h", "redis://u@h"),
            ("file:///a:b@c", "file:///a:b@c"),
        ] {
            assert_eq!(without_password(text), expected);
        }
    }
}
