/*!
The connection to the lock service: which one it is, how it is reached, and with which credentials. All subcommands need
it.
*/

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::backend::Options;
use crate::backend::net::tls::TlsFiles;
use crate::backend::url::Target;
use crate::cli::Connects;
use crate::exit::Failure;
use crate::key::{Keys, Namespace};
use crate::printable::flag;
use crate::report::event::Lock;
use crate::settings::layers::{Given, Layers, OrDefault, Secret};
use crate::settings::origin::Origin;
use crate::settings::password::{Password, password};
use crate::settings::usage::{refused, usage};

/// The default prefix for every key.
const NAMESPACE: &str = "dlock";
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a flag or a variable says, as text.
fn given<T>(value: Option<&Given<T>>, text: impl Fn(&T) -> Option<String>) -> Option<String> {
    value.filter(|value| value.is_of_this_run()).and_then(|value| text(&value.value))
}

/// The settings of the connection, each with its origin; not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionValues {
    /// The URL; `None` for lock files on this host.
    pub backend: Option<Given<OsString>>,
    /// Whether a backend must be chosen.
    pub require_backend: Given<bool>,
    /// The prefix for every key on a server.
    pub namespace: Given<String>,
    /// The profile whose values in the config files are used.
    pub profile: Option<Given<String>>,
    /// How long connecting may take.
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
    /// How many replicas must confirm every grant and renewal.
    pub replicas: Given<u32>,
    /// Whether servers that could forget a fencing token are refused.
    pub strict_fencing: Given<bool>,
}

/// The connection to the lock service, checked.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The prefix for every key on a server.
    pub namespace: Namespace,
    /// Where the lock is.
    pub target: Target,
    /// The other settings of the connection.
    pub options: Options,
    /// Whether a flag, a variable or a config file names the backend.
    pub chosen: bool,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// Whether there is a password, which no other process may find in our memory.
    pub has_password: bool,
    /// The password's file, if other users may read or write it.
    pub exposed: Option<PathBuf>,
    /// The settings that come from this command line and its environment, as flags for another one: empty, or with a space in
    /// front. The URL is without its password.
    pub flags: String,
}

impl Connection {
    /// These locks at this backend, for people.
    #[must_use]
    pub(crate) fn lock(&self, key: impl Into<Keys>) -> Lock {
        Lock { key: key.into(), place: self.target.to_string(), flags: self.flags.clone() }
    }
}

impl ConnectionValues {
    /// The values of all `layers` together, with defaults for those that no layer has.
    #[must_use]
    pub(crate) fn settle<A: Connects>(layers: &Layers<A>) -> Self {
        Self {
            backend: layers.find("backend", |args| args.place().backend.clone()),
            require_backend: layers.find("require-backend", |args| args.place().require_backend).or_default(false),
            namespace: layers.find("namespace", |args| args.place().namespace.clone()).or_default(NAMESPACE.to_owned()),
            profile: layers.find("profile", |args| args.place().profile.clone()),
            connect_timeout: layers
                .find("connect-timeout", |args| args.reach().connect_timeout)
                .or_default(CONNECT_TIMEOUT),
            user: layers.find("user", |args| args.reach().user.clone()),
            secret: layers.secret(|args| args.reach().password_file.clone()),
            tls_ca: layers.find("tls-ca", |args| args.reach().tls_ca.clone()),
            tls_cert: layers.find("tls-cert", |args| args.reach().tls_cert.clone()),
            tls_key: layers.find("tls-key", |args| args.reach().tls_key.clone()),
            tls_server_name: layers.find("tls-server-name", |args| args.reach().tls_server_name.clone()),
            replicas: layers.find("replicas", |args| args.durability()?.replicas).or_default(0),
            strict_fencing: layers.find("strict-fencing", |args| args.durability()?.strict_fencing).or_default(false),
        }
    }

    /// The connection, checked. Reads the password file.
    pub(crate) fn check(&self) -> Result<Connection, Failure> {
        let namespace = Namespace::parse(&self.namespace.value)
            .map_err(|error| refused(&self.namespace.origin, format!("{}: {error}", self.namespace.origin)))?;
        let (mut target, exposed) = self.target()?;
        let has_password = target.has_password();
        let options = self.options(&target)?;
        let (chosen, connect_timeout) = (self.backend.is_some(), self.connect_timeout.value);
        let flags = self.flags(&target);
        Ok(Connection { namespace, target, options, chosen, connect_timeout, has_password, exposed, flags })
    }

    /// As flags, as a shell takes them: where the service is and who asks.
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

    /// Where the lock is, with the credentials for it, and the password's file if other users may read or write it.
    pub(crate) fn target(&self) -> Result<(Target, Option<PathBuf>), Failure> {
        let mut target = match &self.backend {
            None if self.require_backend.value => {
                let origin = &self.require_backend.origin;
                let what = "no backend was chosen: name one with --backend or DLOCK_BACKEND, which sudo and cron drop, or in a config file";
                return Err(refused(origin, format!("{origin}: {what}")));
            }
            None => Target::default_one().map_err(usage)?,
            Some(Given { value: url, origin }) => {
                let url = url.to_str();
                let wrong = |error: &str| refused(origin, format!("{origin}: {error}"));
                let url = url.ok_or_else(|| wrong("the URL is not UTF-8: percent-encode it"))?;
                Target::parse(url).map_err(|error| wrong(&error))?
            }
        };
        let password = match &self.secret {
            Some(secret) => password(secret, self.connect_timeout.value)?,
            None => Password::default(),
        };
        let user = self.user.as_ref().map(|user| user.value.clone()).filter(|user| !user.is_empty());
        target.add_credentials(user, password.text);
        Ok((target, password.exposed))
    }

    /// The settings that only some backends use. A flag for another backend is an error. A variable may be set for all
    /// backends of a user, and is an error only where ignoring it would send something in plain text.
    pub(crate) fn options(&self, target: &Target) -> Result<Options, Failure> {
        let tls = TlsFiles {
            ca: self.tls_ca.clone().map(|file| file.value),
            cert: self.tls_cert.clone().map(|file| file.value),
            key: self.tls_key.clone().map(|file| file.value),
            server_name: self.tls_server_name.clone().map(|name| name.value),
        };
        let named = [&self.tls_ca, &self.tls_cert, &self.tls_key].into_iter().flatten().any(Given::is_flag)
            || self.tls_server_name.as_ref().is_some_and(Given::is_flag);
        if !tls.is_empty() && (target.is_tls() == Some(false) || named && target.is_tls().is_none()) {
            let remedy = match target.tls_scheme() {
                Some(scheme) => format!("use {scheme}://"),
                None => "leave it out".to_owned(),
            };
            let of_files = [&self.tls_ca, &self.tls_cert, &self.tls_key].into_iter().flatten().map(|file| &file.origin);
            let mut origins = of_files.chain(self.tls_server_name.as_ref().map(|name| &name.origin));
            return Err(match origins.next() {
                Some(origin @ Origin::File { .. }) => {
                    refused(origin, format!("{origin} is given, but {target} does not use TLS: {remedy}"))
                }
                _ => usage(format!("--tls-… is given, but {target} does not use TLS: {remedy}")),
            });
        }
        let misplaced = |option: &str, place: &str| {
            Err(usage(format!("{option} is only for {place}, not for {target}: leave it out")))
        };
        if self.replicas.is_flag() && !target.has_replicas() {
            return misplaced("--replicas", "a redis server with replicas");
        }
        if self.strict_fencing.is_flag() && !target.is_redlock() {
            return misplaced("--strict-fencing", "redlock://");
        }
        Ok(Options { tls, replicas: self.replicas.value, strict_fencing: self.strict_fencing.value })
    }
}
