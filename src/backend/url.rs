/*!
The backend of the locks: a URL or a bare name is parsed into a [`Target`], shown without its password, and opened.
*/

mod abilities;

use std::fmt;

use crate::backend::contract::driver::{Driver, Endpoint, Follows, Scheme};
use crate::backend::contract::service::{Options, Service};
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::registry::{DEFAULT, choice, meant, schemes};

/// Schemes that are less similar than this are not suggested for each other.
const LEAST_LIKENESS: f64 = 0.9;

/// The backend of the locks, as given by its URL.
pub(crate) struct Target {
    driver: &'static Driver,
    scheme: &'static Scheme,
    place: Box<dyn Endpoint>,
}

impl Target {
    /// Returns the backend if the user chooses none. Fails as [`Self::parse`] does, which never happens.
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
            _ => {
                let rest = form.short.split_once("://").map_or(form.short, |(_, rest)| rest);
                return Err(format!("could not read the backend URL: use {name}://{rest}"));
            }
        };
        Ok(Self { driver, scheme, place: (form.read)(scheme, rest, &form.hint())? })
    }

    /// Returns the backend's name for `DLOCK_BACKEND_KIND`.
    #[must_use]
    pub(crate) fn kind(&self) -> &'static str {
        self.driver.name
    }

    /// Returns `true` if locks there expire unless they are renewed.
    #[must_use]
    pub(crate) fn has_lease(&self) -> bool {
        self.driver.has_lease
    }

    /// Returns the backend's equivalent scheme with TLS; `None` if nothing leaves this host.
    #[must_use]
    pub(crate) fn tls_scheme(&self) -> Option<&'static str> {
        self.is_tls()?;
        let secure = self.driver.forms.iter().flat_map(|form| form.schemes).filter(|scheme| scheme.tls == Some(true));
        let likeness = |scheme: &&Scheme| strsim::jaro_winkler(scheme.name, self.scheme.name);
        let alike = secure.max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
        alike.map(|scheme| scheme.name)
    }

    /// Returns what an administrator may have to run there before the first use; `None` if there is nothing to run.
    #[must_use]
    pub(crate) fn setup(&self) -> Option<String> {
        self.place.setup()
    }

    /// Returns the longest time between SIGTERM and SIGKILL, as a divisor of the lease.
    #[must_use]
    pub(crate) fn kill_after_share(&self) -> u32 {
        self.driver.kill_after_share
    }

    /// Returns the minimum rest of a lease as a multiple of `--lock-delay`; `None` if the option has no meaning.
    #[must_use]
    pub(crate) fn delay_share(&self) -> Option<u32> {
        self.driver.delay_share
    }

    /// Uses these credentials if the URL gives none.
    pub(crate) fn add_credentials(&mut self, user: Option<String>, password: Option<String>) {
        if let Some(location) = self.place.location() {
            location.add_credentials(user, password);
        }
    }

    /// Returns `true` if a password is known.
    #[must_use]
    pub(crate) fn has_password(&mut self) -> bool {
        self.place.location().is_some_and(|location| location.login.password.is_some())
    }

    /// Returns `true` if there are servers, which get credentials.
    #[must_use]
    pub(crate) fn has_servers(&mut self) -> bool {
        self.place.location().is_some()
    }

    /// Returns `true` if data for `other` reaches only servers named here, and in plain text only if it does here.
    #[must_use]
    pub(crate) fn covers(&mut self, other: &mut Self) -> bool {
        let is_alike = self.kind() == other.kind() && self.place.master() == other.place.master();
        let stays_secret = self.is_tls() != Some(true) || other.is_tls() == Some(true);
        let named = self.place.location().map(|location| location.addresses.clone()).unwrap_or_default();
        let is_named = |location: &mut Location| location.addresses.iter().all(|address| named.contains(address));
        is_alike && stays_secret && other.place.location().is_some_and(is_named)
    }

    /// Returns `true` if the connection to the servers is encrypted; `None` if nothing leaves this host.
    #[must_use]
    pub(crate) fn is_tls(&self) -> Option<bool> {
        self.place.is_tls().or(self.scheme.tls)
    }

    /// Returns `true` if all keys there are the same lock.
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

/// Shows the URL without its password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

/// Shows no password either.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({:?})", self.place)
    }
}

/// Returns the error for an unknown scheme. It repeats only what is surely a scheme: other text could be a password.
fn unknown(scheme: &str, rest: Option<&str>) -> String {
    let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme || !rest.is_some_and(|rest| rest.starts_with("//")) {
        return match scheme {
            "jdbc" => "a backend is no JDBC URL: leave out jdbc:, and write the user before the host".to_owned(),
            _ => "it is not a URL such as file:, file:///dir or redis://host: add the scheme".to_owned(),
        };
    }
    match meant(scheme).or_else(|| not_built(scheme)) {
        Some(meant) => format!("unknown backend {scheme}://: use {meant}"),
        None => match alike(scheme) {
            Some(alike) => format!("unknown backend {scheme}://: did you mean {alike}://?"),
            None => format!("unknown backend {scheme}://: use {}", choice()),
        },
    }
}

/// Returns the scheme with the most similar spelling, if it is similar enough.
fn alike(scheme: &str) -> Option<&'static str> {
    let likeness = |known: &str| strsim::jaro_winkler(&scheme.to_ascii_lowercase(), known);
    let known = schemes().map(|(.., known)| (likeness(known.name), known.name));
    let best = known.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness >= LEAST_LIKENESS).map(|(_, known)| known)
}

/// Returns what to use instead of a service that has no backend.
fn not_built(scheme: &str) -> Option<&'static str> {
    match scheme {
        "k8s" | "kubernetes" | "kube" => {
            Some("an etcd:// of your own, redis:// or zk://, because there is no backend for the Kubernetes API")
        }
        "consul" => Some("redis://, etcd:// or zk://, because there is no backend for Consul"),
        _ => None,
    }
}

/// Returns the password in a backend URL as it is written there, whatever else is wrong with the URL.
#[must_use]
pub(crate) fn password_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://").filter(|(scheme, _)| *scheme != "file")?;
    // A password with a bare `/` or `@` is invalid and still a secret: it ends at the last `@`.
    let (credentials, _) = rest.rsplit_once('@')?;
    credentials.split_once(':').map(|(_, password)| password).filter(|password| !password.is_empty())
}

/// Returns `text`, valid URL or not, without the password of its user part, for the command's environment.
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
mod tests;
