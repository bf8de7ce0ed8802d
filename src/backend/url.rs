/*!
The backend of the locks: a URL or a bare name is parsed into a [`Target`], shown without its password, and opened.
*/

use std::fmt;

use crate::backend::driver::{Driver, Follows, Place, Scheme};
use crate::backend::net::tls::Tls;
use crate::backend::registry::{DEFAULT, choice, meant, schemes};
use crate::backend::{Options, Service};

/// The backend of the locks, as its URL names it.
pub(crate) struct Target {
    driver: &'static Driver,
    scheme: &'static Scheme,
    place: Box<dyn Place>,
}

impl Target {
    /// The backend when the user chooses none. Fails as [`Self::parse`] does, which never happens.
    pub(crate) fn default_one() -> Result<Self, String> {
        Self::parse(DEFAULT)
    }

    /// Parses a backend URL. The error says what to do, and contains no part of the URL that could be a password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let Some((driver, form, scheme)) = schemes().find(|(.., scheme)| scheme.name == name) else {
            return Err(unknown(name, rest));
        };
        let servers = rest.and_then(|rest| rest.strip_prefix("//"));
        let rest = match (form.follows, rest, servers) {
            (Follows::Anything, rest, _) => rest.unwrap_or_default(),
            (Follows::ServersOrNothing, None, _) => "localhost",
            (_, _, Some(servers)) => servers,
            _ => return Err(format!("could not read the backend URL: use {name}://…")),
        };
        Ok(Self { driver, scheme, place: (form.read)(scheme, rest, &form.hint())? })
    }

    /// The backend's name for `DLOCK_BACKEND_KIND`.
    #[must_use]
    pub(crate) fn kind(&self) -> &'static str {
        self.driver.name
    }

    /// Whether locks there expire when they are not renewed.
    #[must_use]
    pub(crate) fn has_lease(&self) -> bool {
        self.driver.has_lease
    }

    /// The longest time between SIGTERM and SIGKILL, as a divisor of the lease.
    #[must_use]
    pub(crate) fn kill_after_share(&self) -> u32 {
        self.driver.kill_after_share
    }

    /// How many times as long as `--lock-delay` the rest of a lease must be; none where the option means nothing.
    #[must_use]
    pub(crate) fn delay_share(&self) -> Option<u32> {
        self.driver.delay_share
    }

    /// Uses these credentials where the URL gives none.
    pub(crate) fn add_credentials(&mut self, user: Option<String>, password: Option<String>) {
        if let Some(location) = self.place.location() {
            location.add_credentials(user, password);
        }
    }

    /// Whether a password is known.
    #[must_use]
    pub(crate) fn has_password(&mut self) -> bool {
        self.place.location().is_some_and(|location| location.login.password.is_some())
    }

    /// Whether the connection to the servers is encrypted; `None` where nothing leaves this host.
    #[must_use]
    pub(crate) fn is_tls(&self) -> Option<bool> {
        self.scheme.tls
    }

    /// Whether `--replicas` applies to it.
    #[must_use]
    pub(crate) fn has_replicas(&self) -> bool {
        self.driver.abilities.replicas
    }

    /// Whether `--strict-fencing` applies to it: a majority of independent servers keeps the locks.
    #[must_use]
    pub(crate) fn is_redlock(&self) -> bool {
        self.driver.abilities.strict_fencing
    }

    /// Whether all keys there are the same lock.
    #[must_use]
    pub(crate) fn is_one_lock(&self) -> bool {
        self.place.is_one_lock()
    }

    /// Opens the service; nothing is sent yet. The error names the option to correct.
    pub(crate) fn open(&self, options: &Options) -> Result<Box<dyn Service>, String> {
        let tls = match self.is_tls() {
            Some(true) => Some(Tls::load(&options.tls)?),
            _ => None,
        };
        Ok(self.place.open(options, tls))
    }
}

/// The URL without its password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

/// Without the password too.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({:?})", self.place)
    }
}

/// The error for an unknown scheme. It repeats only what is certainly a scheme: anything else could be a password.
fn unknown(scheme: &str, rest: Option<&str>) -> String {
    let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme || !rest.is_some_and(|rest| rest.starts_with("//")) {
        return "a backend is a URL such as file:, file:///dir or redis://host: add the scheme".to_owned();
    }
    match meant(scheme).or_else(|| not_built(scheme)) {
        Some(meant) => format!("unknown backend {scheme}://: use {meant}"),
        None => format!("unknown backend {scheme}://: use {}", choice()),
    }
}

/// What there is to use instead of a service that has no backend.
fn not_built(scheme: &str) -> Option<&'static str> {
    match scheme {
        "postgres" | "postgresql" | "mysql" | "mariadb" => {
            Some("redis://, etcd:// or zk://, because there is no backend for databases yet")
        }
        "k8s" | "kubernetes" | "kube" => {
            Some("an etcd:// of your own, redis:// or zk://, because there is no backend for the Kubernetes API")
        }
        "consul" => Some("redis://, etcd:// or zk://, because there is no backend for Consul"),
        _ => None,
    }
}

/// The password in a backend URL as it is written there, whatever else is wrong with it.
#[must_use]
pub(crate) fn password_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://").filter(|(scheme, _)| *scheme != "file")?;
    // A password with a bare `/` or `@` is wrong and still a secret: the last `@` is where it ends.
    let (credentials, _) = rest.rsplit_once('@')?;
    credentials.split_once(':').map(|(_, password)| password).filter(|password| !password.is_empty())
}

/// `text` without the password of its user part, whether it is a valid URL or not: for the command's environment.
#[must_use]
pub(crate) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| *scheme != "file") else {
        return text.to_owned();
    };
    // A password with a raw `/` or `@` is invalid and still a secret: it ends at the last `@`.
    let Some((credentials, place)) = rest.rsplit_once('@') else { return text.to_owned() };
    match credentials.split_once(':') {
        Some(("", _)) => format!("{scheme}://{place}"),
        Some((user, _)) => format!("{scheme}://{user}@{place}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_alone_is_this_host() {
        for (text, expected) in [
            ("file", "file:"),
            ("file:", "file:"),
            ("redis", "redis://localhost:6379"),
            ("valkeys", "valkeys://localhost:6379"),
            ("etcd", "etcd://localhost:2379"),
            ("zks", "zks://localhost:2281"),
        ] {
            assert_eq!(Target::parse(text).expect(text).to_string(), expected);
        }
        for bad in ["redis+unix", "redis+sentinel", "redlock", "redlock:", "etcd:", "zk:x"] {
            let error = Target::parse(bad).expect_err(bad);
            let scheme = bad.split(':').next().unwrap_or_default();
            assert_eq!(error, format!("could not read the backend URL: use {scheme}://…"));
        }
        assert_eq!(Target::default_one().expect("valid").to_string(), "file:");
    }

    #[test]
    fn what_other_clients_call_it_is_told() {
        for (text, expected) in [
            ("http://h", "unknown backend http://: use etcd:// for etcd"),
            ("https://h", "unknown backend https://: use etcds:// for etcd with TLS"),
            ("zookeeper://h", "unknown backend zookeeper://: use zk://, or zks:// with TLS"),
            ("redis+ssl://h", "unknown backend redis+ssl://: use rediss://"),
            ("unix:///s", "unknown backend unix://: use redis+unix://"),
            ("sentinel://h", "unknown backend sentinel://: use redis+sentinel://"),
        ] {
            assert_eq!(Target::parse(text).expect_err(text), expected);
        }
        for (text, expected) in [
            ("postgres://h", "there is no backend for databases yet"),
            ("mysql://h", "there is no backend for databases yet"),
            ("k8s://h", "there is no backend for the Kubernetes API"),
            ("consul://h", "there is no backend for Consul"),
            ("pigeon://h", "unknown backend pigeon://: use file: or redis:// "),
        ] {
            let error = Target::parse(text).expect_err("unknown");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_backend_decides_what_is_said_of_it() {
        for (text, kind, has_lease, share, tls, replicas, redlock) in [
            ("file:", "file", false, 2, None, false, false),
            ("redis://h", "redis", true, 2, Some(false), true, false),
            ("valkeys://h", "redis", true, 2, Some(true), true, false),
            ("redis+unix:///s", "redis", true, 2, None, true, false),
            ("rediss+sentinel://h/n", "redis", true, 2, Some(true), true, false),
            ("redlock://a,b,c", "redlock", true, 2, Some(false), false, true),
            ("etcds://h", "etcd", true, 2, Some(true), false, false),
            ("zk://h", "zookeeper", true, 4, Some(false), false, false),
        ] {
            let target = Target::parse(text).expect(text);
            let said = (target.kind(), target.has_lease(), target.kill_after_share(), target.is_tls());
            assert_eq!(said, (kind, has_lease, share, tls), "{text}");
            assert_eq!((target.has_replicas(), target.is_redlock()), (replicas, redlock), "{text}");
        }
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
    fn credentials_stand_once_before_the_first_server() {
        for bad in [
            "redlock://u:secret@a,u:secret@b,u:secret@c",
            "redlock://a,b,u:secret@c",
            "redis+sentinel://:secret@a,b@c/NAME",
            "etcd://u:secret@a,u:secret@b",
            "zk://u:sec,ret@a",
            "redis://u:sec@ret@a",
            "redis+unix://u:sec,ret@/run/r",
        ] {
            let error = Target::parse(bad).expect_err(bad);
            assert!(error.starts_with("credentials stand once, before the first server: "), "{bad}: {error}");
            assert!(error.contains("%40 and %2C") && !error.contains("sec"), "{bad}: {error}");
        }
        for good in ["redlock://u:sec%2Cr%40et@a:6379,b:6379,c:6379", "etcd://u:secret@a:2379,b:2379"] {
            let (login, servers) = good.split_once('@').expect("credentials");
            let user = login.rsplit_once(':').expect("a password").0;
            assert_eq!(Target::parse(good).expect(good).to_string(), format!("{user}@{servers}"));
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
    fn the_password_is_found_as_it_is_written() {
        for (text, expected) in [
            ("redis://u:secret@h/1", Some("secret")),
            ("redis://:se/cr@et@h", Some("se/cr@et")),
            ("redlock://u:%40x@a,b,c", Some("%40x")),
            ("redis://u:@h", None),
            ("redis://u@h", None),
            ("file:///a:b@c", None),
            ("redis", None),
        ] {
            assert_eq!(password_in(text), expected, "{text}");
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
