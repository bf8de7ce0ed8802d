/*!
The connection to the lock service: its URL, the options for reaching it, and the credentials. All subcommands need it.
*/

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::backend::contract::service::Options;
use crate::backend::net::tls::{Pem, TlsFiles};
use crate::backend::url::Target;
use crate::cli::{Connects, Zone};
use crate::exit::Failure;
use crate::key::{Keys, Namespace};
use crate::printable::flag;
use crate::report::event::{Event, Lock};
use crate::settings::layers::{Given, Layers, Secret};
use crate::settings::origin::Origin;
use crate::settings::password::{Password, password};
use crate::settings::reach::Configured;
use crate::settings::run::{WaitLimit, wait_limit};
use crate::settings::source::{Limits, read_whole};
use crate::settings::unknown;
use crate::settings::usage::{refused, usage};
use crate::variables::BACKEND;

/// Default time for a program that has a FIFO open to write to it. The program may have to ask its user.
const WRITING: Duration = Duration::from_secs(120);

/// Returns `value` as text if it comes from a flag or a variable.
fn given<T>(value: Option<&Given<T>>, text: impl Fn(&T) -> Option<String>) -> Option<String> {
    value.filter(|value| value.is_of_this_run()).and_then(|value| text(&value.value))
}

/// The settings of the connection, each with its origin; not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionValues {
    /// The URL; `None` for lock files on this host.
    pub backend: Option<Given<OsString>>,
    /// The backends that variables and config files name, whichever is used.
    pub configured: Configured,
    /// Longest time to wait for the lock; `None` for no limit, and where no lock is taken.
    pub wait: Option<Duration>,
    /// Set if a backend must be chosen.
    pub require_backend: Option<Given<bool>>,
    /// The prefix for every key on a server.
    pub namespace: Given<String>,
    /// The time zone in which people are shown times.
    pub time: Given<Zone>,
    /// The profile whose values in the config files are used.
    pub profile: Option<Given<String>>,
    /// Time limit for connecting.
    pub connect_timeout: Given<Duration>,
    /// The user name, if the URL has none.
    pub user: Option<Given<String>>,
    /// The password or the file that holds it, if the URL has none.
    pub secret: Option<Given<Secret>>,
    /// The authorities to trust.
    pub tls_ca: Option<Given<PathBuf>>,
    /// The client certificate.
    pub tls_cert: Option<Given<PathBuf>>,
    /// The private key of the client certificate.
    pub tls_key: Option<Given<PathBuf>>,
    /// The name that the server's certificate must be for.
    pub tls_server_name: Option<Given<String>>,
    /// Number of replicas that must confirm each grant and renewal.
    pub replicas: Option<Given<u32>>,
    /// Set if servers that could forget a fencing token are refused.
    pub strict_fencing: Option<Given<bool>>,
}

/// The connection to the lock service, checked.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The prefix for every key on a server.
    pub namespace: Namespace,
    /// The place of the lock.
    pub target: Target,
    /// The other settings of the connection.
    pub options: Options,
    /// `true` if a flag, a variable or a config file names the backend.
    pub chosen: bool,
    /// `true` if people are shown times in this host's time zone.
    pub has_local_times: bool,
    /// Time limit for connecting.
    pub connect_timeout: Duration,
    /// `true` if there is a password, which other processes must not find in our memory.
    pub has_password: bool,
    /// The password's file, if other users may read or write it.
    pub exposed: Option<PathBuf>,
    /// The report that a config file's password is for other servers, and not used; `None` if that is not so.
    pub withheld: Option<Event>,
    /// The settings from this command line and its environment, as flags for another command line: empty, or with a
    /// leading space. The URL is without its password.
    pub flags: String,
}

/// The place of a lock.
pub(crate) struct Reached {
    /// The prefix for every key on a server.
    pub namespace: Namespace,
    /// The backend, with no credentials other than those in its URL.
    pub target: Target,
    /// The report that a password is not used; `None` if there is no such password.
    pub withheld: Option<Event>,
}

impl Connection {
    /// Returns these locks at this backend, for people.
    #[must_use]
    pub(crate) fn lock(&self, key: impl Into<Keys>) -> Lock {
        Lock { key: key.into(), place: self.target.to_string(), flags: self.flags.clone() }
    }
}

impl ConnectionValues {
    /// Returns the values of all `layers` together, with defaults for those that no layer has.
    #[must_use]
    pub(crate) fn settle<A: Connects>(layers: &Layers<A>) -> Self {
        Self {
            backend: layers.find("backend", |args| args.place().backend.clone()),
            configured: Configured::of(layers),
            wait: match wait_limit(layers).value {
                WaitLimit::None => Some(Duration::ZERO),
                WaitLimit::For(wait) => Some(wait),
                WaitLimit::Endless => None,
            },
            require_backend: layers.on("require-backend", |args| args.place().require_backend),
            // Missing in subcommands with a handle, which has its own.
            namespace: layers
                .find("namespace", |args| args.place().namespace.clone())
                .unwrap_or_else(|| Given::default(String::new())),
            time: layers.find("time", |args| args.place().time).unwrap_or_else(|| Given::default(Zone::default())),
            profile: layers.find("profile", |args| args.place().profile.clone()),
            connect_timeout: layers.get("connect-timeout", |args| args.reach().connect_timeout),
            user: layers.find("user", |args| args.reach().user.clone()),
            secret: layers.secret(|args| args.reach().password_file.clone()),
            tls_ca: layers.find("tls-ca", |args| args.reach().tls_ca.clone()),
            tls_cert: layers.find("tls-cert", |args| args.reach().tls_cert.clone()),
            tls_key: layers.find("tls-key", |args| args.reach().tls_key.clone()),
            tls_server_name: layers.find("tls-server-name", |args| args.reach().tls_server_name.clone()),
            replicas: layers.find("replicas", |args| args.durability()?.replicas),
            strict_fencing: layers.on("strict-fencing", |args| args.durability()?.strict_fencing),
        }
    }

    /// Checks the values and reads the password file.
    pub(crate) fn check(&self) -> Result<Connection, Failure> {
        let Reached { namespace, mut target, withheld } = self.reached()?;
        let password = match &self.secret {
            Some(secret) if withheld.is_none() => password(secret, self.limits())?,
            _ => Password::default(),
        };
        // If a config file's password is for other servers, so is its user name.
        let is_usable = |user: &&Given<String>| withheld.is_none() || user.is_of_this_run();
        let user = self.user.as_ref().filter(is_usable).map(|user| user.value.clone()).filter(|user| !user.is_empty());
        target.add_credentials(user, password.text);
        let has_password = target.has_password();
        let tls = if target.is_tls() == Some(true) { self.tls_files()? } else { TlsFiles::default() };
        let replicas = self.replicas.as_ref().map_or(0, |replicas| replicas.value);
        let options = Options { tls, replicas, strict_fencing: self.strict_fencing.is_some() };
        let flags = self.flags(&target);
        Ok(Connection {
            namespace,
            target,
            options,
            chosen: self.backend.is_some(),
            has_local_times: self.time.value == Zone::Local,
            connect_timeout: self.connect_timeout.value,
            has_password,
            exposed: password.exposed,
            withheld,
            flags,
        })
    }

    /// Returns the place of the service, the credentials and the TLS files as flags, quoted for a shell.
    fn flags(&self, target: &Target) -> String {
        let text = |name: &String| Some(name.clone());
        let path = |path: &PathBuf| path.to_str().map(str::to_owned);
        let secret = |secret: &Secret| match secret {
            Secret::File(file) => path(file),
            Secret::Text(_) => None,
        };
        [
            ("--backend", given(self.backend.as_ref(), |_| Some(target.to_string()))),
            ("--namespace", given(Some(&self.namespace), text)),
            ("--profile", given(self.profile.as_ref(), text)),
            ("--user", given(self.user.as_ref(), text)),
            ("--password-file", given(self.secret.as_ref(), secret)),
            ("--tls-ca", given(self.tls_ca.as_ref(), path)),
            ("--tls-cert", given(self.tls_cert.as_ref(), path)),
            ("--tls-key", given(self.tls_key.as_ref(), path)),
            ("--tls-server-name", given(self.tls_server_name.as_ref(), text)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some(flag(name, &value?)))
        .collect()
    }

    /// Returns the time limits for reading pipes: that of connecting, and that of the wait for the lock.
    fn limits(&self) -> Limits {
        let opening = self.connect_timeout.value;
        let writing = match (self.wait, &self.connect_timeout.origin) {
            (Some(wait), _) => wait.max(opening),
            (None, Origin::Default) => WRITING,
            (None, _) => opening,
        };
        Limits { opening, writing }
    }

    /// Returns the place of the lock. Makes all checks that need none of the files that settings name.
    pub(crate) fn reached(&self) -> Result<Reached, Failure> {
        let namespace = Namespace::parse(&self.namespace.value)
            .map_err(|error| refused(&self.namespace.origin, format!("{}: {error}", self.namespace.origin)))?;
        let mut target = match (&self.backend, &self.require_backend) {
            (None, Some(Given { origin, .. })) => {
                let what = "no backend was chosen: name one with --backend or DLOCK_BACKEND (sudo and cron drop variables), or in a config file";
                return Err(refused(origin, format!("{origin}: {what}{}", unknown::hint(BACKEND))));
            }
            (None, None) => Target::default_one().map_err(usage)?,
            (Some(Given { value: url, origin }), _) => {
                let url = url.to_str();
                let wrong = |error: &str| refused(origin, format!("{origin}: {error}"));
                let url = url.ok_or_else(|| wrong("the URL is not UTF-8: percent-encode it"))?;
                Target::parse(url).map_err(|error| wrong(&error))?
            }
        };
        let withheld = match &self.secret {
            Some(secret) if !target.has_password() => {
                self.configured.withhold(secret, self.backend.as_ref(), &mut target)?
            }
            _ => None,
        };
        self.allow(&target)?;
        Ok(Reached { namespace, target, withheld })
    }

    /// Checks the settings that only some backends use. A flag for another backend is an error. A variable may be set
    /// for all backends of a user, and is an error only if ignoring it would send something in plain text.
    fn allow(&self, target: &Target) -> Result<(), Failure> {
        let of_files = || [&self.tls_ca, &self.tls_cert, &self.tls_key].into_iter().flatten();
        let is_given = of_files().next().is_some() || self.tls_server_name.is_some();
        let named = of_files().any(Given::is_flag) || self.tls_server_name.as_ref().is_some_and(Given::is_flag);
        if is_given && (target.is_tls() == Some(false) || named && target.is_tls().is_none()) {
            let remedy = match target.tls_scheme() {
                Some(scheme) => format!("use {scheme}://"),
                None => "leave it out".to_owned(),
            };
            let mut origins =
                of_files().map(|file| &file.origin).chain(self.tls_server_name.as_ref().map(|name| &name.origin));
            return Err(match origins.next() {
                Some(origin @ Origin::File { .. }) => {
                    refused(origin, format!("{origin} is given, but {target} does not use TLS: {remedy}"))
                }
                _ => usage(format!("--tls-* options are given, but {target} does not use TLS: {remedy}")),
            });
        }
        let misplaced = |option: &str, place: &str| {
            Err(usage(format!("{option} is only for {place}, not for {target}: leave it out")))
        };
        if self.replicas.as_ref().is_some_and(Given::is_flag) && !target.has_replicas() {
            return misplaced("--replicas", "a redis server with replicas");
        }
        if self.strict_fencing.as_ref().is_some_and(Given::is_flag) && !target.is_redlock() {
            return misplaced("--strict-fencing", "redlock://");
        }
        Ok(())
    }

    /// Reads the files for TLS: they may be pipes, which can be read only once.
    fn tls_files(&self) -> Result<TlsFiles, Failure> {
        let read = |option: &str, file: &Option<Given<PathBuf>>| {
            let Some(Given { value: path, origin }) = file else { return Ok(None) };
            let bytes = read_whole(path, self.limits()).map_err(|reason| {
                let remedy = "name a readable PEM file";
                refused(origin, format!("{option}: could not read {}: {reason}; {remedy}", path.display()))
            })?;
            Ok(Some(Pem { path: path.clone(), bytes }))
        };
        Ok(TlsFiles {
            ca: read("--tls-ca", &self.tls_ca)?,
            cert: read("--tls-cert", &self.tls_cert)?,
            key: read("--tls-key", &self.tls_key)?,
            server_name: self.tls_server_name.clone().map(|name| name.value),
        })
    }
}
