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
use crate::key::Namespace;
use crate::settings::layers::{Given, Layers, OrDefault};
use crate::settings::password::password;
use crate::settings::usage::{named, usage};

/// The default prefix for every key.
const NAMESPACE: &str = "dlock";
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of the connection, each with its origin; not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionValues {
    /// The URL; `None` for lock files on this host.
    pub backend: Option<Given<OsString>>,
    /// Whether a backend must be chosen.
    pub require_backend: Given<bool>,
    /// The prefix for every key on a server.
    pub namespace: Given<String>,
    /// How long connecting may take.
    pub connect_timeout: Given<Duration>,
    /// The user name, if the URL has none.
    pub user: Option<Given<String>>,
    /// The file with the password, if the URL has none.
    pub password_file: Option<Given<PathBuf>>,
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
    /// Whether a flag or a variable names the backend.
    pub chosen: bool,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// Whether there is a password, which no other process may find in our memory.
    pub has_password: bool,
    /// The password's file, if other users may read or write it.
    pub exposed: Option<PathBuf>,
}

impl ConnectionValues {
    /// The values of all `layers` together, with defaults for those that no layer has.
    #[must_use]
    pub(crate) fn settle<A: Connects>(layers: &Layers<A>) -> Self {
        Self {
            backend: layers.find("backend", |args| args.place().backend.clone()),
            require_backend: layers.find("require-backend", |args| args.place().require_backend).or_default(false),
            namespace: layers.find("namespace", |args| args.place().namespace.clone()).or_default(NAMESPACE.to_owned()),
            connect_timeout: layers
                .find("connect-timeout", |args| args.reach().connect_timeout)
                .or_default(CONNECT_TIMEOUT),
            user: layers.find("user", |args| args.reach().user.clone()),
            password_file: layers.find("password-file", |args| args.reach().password_file.clone()),
            tls_ca: layers.find("tls-ca", |args| args.reach().tls_ca.clone()),
            tls_cert: layers.find("tls-cert", |args| args.reach().tls_cert.clone()),
            tls_key: layers.find("tls-key", |args| args.reach().tls_key.clone()),
            tls_server_name: layers.find("tls-server-name", |args| args.reach().tls_server_name.clone()),
            replicas: layers.find("replicas", |args| args.reach().replicas).or_default(0),
            strict_fencing: layers.find("strict-fencing", |args| args.reach().strict_fencing).or_default(false),
        }
    }

    /// The connection, checked. Reads the password file.
    pub(crate) fn check(&self) -> Result<Connection, Failure> {
        let namespace = Namespace::parse(&self.namespace.value)
            .map_err(|error| usage(format!("{}: {error}", self.namespace.origin)))?;
        let (mut target, exposed) = self.target()?;
        let has_password = target.has_password();
        let options = self.options(&target)?;
        let (chosen, connect_timeout) = (self.backend.is_some(), self.connect_timeout.value);
        Ok(Connection { namespace, target, options, chosen, connect_timeout, has_password, exposed })
    }

    /// Where the lock is, with the credentials for it, and the password's file if other users may read or write it.
    pub(crate) fn target(&self) -> Result<(Target, Option<PathBuf>), Failure> {
        let mut target = match &self.backend {
            None if self.require_backend.value => {
                let origin = self.require_backend.origin;
                let what = "no backend was chosen: name one with --backend or DLOCK_BACKEND, which sudo and cron drop";
                return Err(usage(format!("{origin}: {what}")));
            }
            None => Target::default_one().map_err(usage)?,
            Some(Given { value: url, origin }) => {
                let url = url.to_str();
                let url = url.ok_or_else(|| usage(format!("{origin}: the URL is not UTF-8: percent-encode it")))?;
                Target::parse(url).map_err(|error| usage(format!("{origin}: {error}")))?
            }
        };
        let file = self.password_file.as_ref();
        let path = file.map(|file| file.value.as_path());
        let password = password(path, self.connect_timeout.value).map_err(|failure| match file {
            Some(file) => named(failure, "--password-file", file.origin),
            None => failure,
        })?;
        let user = self.user.as_ref().map(|user| user.value.clone()).filter(|user| !user.is_empty());
        target.add_credentials(user, password.text);
        Ok((target, path.filter(|_| password.is_exposed).map(PathBuf::from)))
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
            let remedy = if target.is_tls().is_none() {
                "leave it out"
            } else {
                "use the scheme for TLS, such as rediss:// or etcds://"
            };
            return Err(usage(format!("--tls-… is given, but {target} does not use TLS: {remedy}")));
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
