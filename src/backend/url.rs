/*!
Which backend: a URL or a bare name, read into a [`Target`], shown without its password, and opened.
*/

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use super::Backend;
use super::file::FileBackend;
use super::redis::{DEFAULT_PORT, RedisBackend, Server};

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
    Redis(Server),
}

impl Target {
    /// Reads a backend URL. The error says what to do and holds no part of the URL that could be a password.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) => (scheme, Some(rest)),
            None => (text, None),
        };
        match (scheme, rest) {
            ("file", rest) => parse_file(rest.unwrap_or_default()),
            ("redis", None) => Ok(Self::Redis(Server {
                host: "localhost".to_owned(),
                port: DEFAULT_PORT,
                database: 0,
                user: None,
                password: None,
            })),
            ("redis", Some(_)) => parse_redis(text).map(Self::Redis),
            // Only what is certainly a scheme may be repeated: anything else could be a password.
            (scheme, Some(rest))
                if rest.starts_with("//") && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
            {
                Err(format!("unknown backend {scheme}://: use file: or redis://host"))
            }
            _ => Err("a backend is a URL such as file:, file:///dir or redis://host: add the scheme".to_owned()),
        }
    }

    /// The backend's name for `DLOCK_BACKEND_KIND`.
    #[must_use]
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Redis(_) => "redis",
        }
    }

    /// Whether locks there end by themselves when they are not renewed.
    #[must_use]
    pub(crate) fn has_lease(&self) -> bool {
        !matches!(self, Self::File { .. })
    }

    /// Uses these credentials where the URL gives none.
    pub(crate) fn add_credentials(&mut self, user: Option<String>, password: Option<String>) {
        match self {
            Self::File { .. } => {}
            Self::Redis(server) => {
                server.user = server.user.take().or(user);
                server.password = server.password.take().or(password);
            }
        }
    }

    /// Opens the backend; nothing is sent yet.
    #[must_use]
    pub(crate) fn open(&self) -> Box<dyn Backend> {
        match self {
            Self::File { directory, remote } => Box::new(FileBackend::new(directory.clone(), *remote)),
            Self::Redis(server) => Box::new(RedisBackend::new(server.clone())),
        }
    }
}

/// The URL without its password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { directory: None, .. } => f.write_str("file:"),
            Self::File { directory: Some(directory), .. } => write!(f, "file://{}", directory.display()),
            Self::Redis(server) => server.fmt(f),
        }
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

fn parse_redis(text: &str) -> Result<Server, String> {
    let hint = "use redis://[user[:password]@]host[:port][/database], with @ : / % in a password as %40 %3A %2F %25";
    let url = url::Url::parse(text).map_err(|error| format!("could not read the backend URL: {error}; {hint}"))?;
    let host = match url.host() {
        Some(url::Host::Ipv6(address)) => address.to_string(),
        Some(host) if !host.to_string().is_empty() => {
            percent_decode_str(&host.to_string()).decode_utf8_lossy().into_owned()
        }
        _ => return Err(format!("the backend URL names no host; {hint}")),
    };
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("redis:// takes no ? and no #; {hint}"));
    }
    let port = url.port().unwrap_or(DEFAULT_PORT);
    if port == 0 {
        return Err(format!("port 0 is no port; {hint}"));
    }
    let database = match url.path().trim_start_matches('/') {
        "" => 0,
        number => number.parse().map_err(|_| format!("the database must be a number; {hint}"))?,
    };
    let decode = |text: &str, what: &str| match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok((!text.is_empty()).then(|| text.into_owned())),
        Err(_) => Err(format!("the {what} in the backend URL is not UTF-8; {hint}")),
    };
    Ok(Server {
        host,
        port,
        database,
        user: decode(url.username(), "user")?,
        password: decode(url.password().unwrap_or_default(), "password")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis(text: &str) -> Server {
        match Target::parse(text) {
            Ok(Target::Redis(server)) => server,
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
        let plain = redis("redis://locks/");
        assert_eq!((plain.host.as_str(), plain.port, plain.database), ("locks", 6379, 0));
        assert_eq!(redis("redis").host, "localhost");
        let full = redis("redis://me:p%40%3A%25%2F@[::1]:7000/3");
        assert_eq!((full.host.as_str(), full.port, full.database), ("::1", 7000, 3));
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("me"), Some("p@:%/")));
        assert_eq!(full.to_string(), "redis://me@[::1]:7000/3");
        assert_eq!(redis("redis://:secret@h").user, None);
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
