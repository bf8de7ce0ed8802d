/*!
The servers and credentials in a URL: `scheme://[user[:password]@]host[:port],…[/path]`.

Never shown with its password, and no error repeats a part that could be one. A printed URL means the same when it is
parsed again.
*/

use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;

use percent_encoding::percent_decode_str;

use crate::backend::net::wire::Address;
use crate::variables::HELD;

/// The credentials for a server.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    /// The user, if the server knows several.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// Omits the password, which must not reach a log through debug output either.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({:?})", self.user)
    }
}

/// The text to append to hints about credentials: inside another dlock run, why those from the environment are missing.
#[must_use]
pub(crate) fn nested_hint() -> &'static str {
    if std::env::var_os(HELD).is_some() {
        "; inside another dlock run use --password-file: a password in DLOCK_PASSWORD or in the URL is not passed on"
    } else {
        ""
    }
}

/// The servers of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The URL's scheme, without the colon.
    pub scheme: &'static str,
    /// The credentials for the servers.
    pub login: Login,
    /// The servers, at least one, in the user's order.
    pub addresses: Vec<Address>,
    /// The decoded path after the servers, without its leading slash.
    pub path: String,
}

impl Location {
    /// Reads the part after `scheme://`. The error ends in `hint`.
    pub(crate) fn parse(scheme: &'static str, rest: &str, port: u16, hint: &str) -> Result<Self, String> {
        if rest.contains(['?', '#']) {
            return Err(format!("{scheme}:// takes no ? and no # here: write %3F and %23; {hint}"));
        }
        let (login, authority, path) = split(rest, hint)?;
        // `etcd://a,etcd://b`: the first slash does not begin a path.
        if authority.ends_with(':') && path.starts_with('/') {
            return Err(format!("the scheme stands once, before the first server; {hint}"));
        }
        let addresses: Vec<Address> =
            authority.split(',').map(|place| address(place, port, hint)).collect::<Result<_, _>>()?;
        let path = decoded(path, "path", hint)?;
        Ok(Self { scheme, login, addresses, path })
    }

    /// Reads the part after `scheme://` for a socket on this host: the path is the socket's. The error ends in `hint`.
    pub(crate) fn parse_socket(scheme: &'static str, rest: &str, hint: &str) -> Result<Self, String> {
        let (login, authority, path) = split(rest, hint)?;
        if !authority.is_empty() || path.is_empty() {
            return Err(format!("{scheme}:// needs the path of a socket; {hint}"));
        }
        let path = decoded(path, "path", hint)?;
        if path.contains('\0') {
            return Err(format!("the path in the backend URL contains a NUL byte; {hint}"));
        }
        Ok(Self { scheme, login, addresses: vec![Address::Unix(format!("/{path}").into())], path: String::new() })
    }

    /// The first address that occurs a second time.
    pub(crate) fn named_twice(&self) -> Option<&Address> {
        let addresses = &self.addresses;
        let is_known = |index: usize| addresses[..index].contains(&addresses[index]);
        (0..addresses.len()).find(|&index| is_known(index)).map(|index| &addresses[index])
    }

    /// Adds the user and the password that the URL does not give.
    pub(crate) fn add_credentials(&mut self, user: Option<String>, password: Option<String>) {
        self.login.user = self.login.user.take().or(user);
        self.login.password = self.login.password.take().or(password);
    }
}

/// Splits off the credentials, the servers and the path. Only the credentials are checked.
fn split<'a>(rest: &'a str, hint: &str) -> Result<(Login, &'a str, &'a str), String> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // A password with a bare slash would be taken for a path, and shown.
    if !authority.is_empty() && path.contains('@') {
        return Err(format!("an @ follows a slash: write a slash before it as %2F, or the @ as %40; {hint}"));
    }
    let (login, servers) = match authority.rsplit_once('@') {
        None => (Login::default(), authority),
        Some((credentials, servers)) => {
            // `u:p@a,u:p@b` would be taken for long credentials and the only server `b`.
            if credentials.contains(['@', ',']) {
                let mend = "write @ and , in them as %40 and %2C";
                return Err(format!("credentials stand once, before the first server: {mend}; {hint}"));
            }
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            let present = |text: String| (!text.is_empty()).then_some(text);
            let user = decoded(user, "user", hint)?;
            // Protocols that end a name with a NUL would log in as another user.
            if user.contains('\0') {
                return Err(format!("the user in the backend URL contains a NUL byte; {hint}"));
            }
            let login = Login { user: present(user), password: present(decoded(password, "password", hint)?) };
            (login, servers)
        }
    };
    Ok((login, servers, path))
}

fn decoded(text: &str, what: &str, hint: &str) -> Result<String, String> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(format!("the {what} in the backend URL is not UTF-8; {hint}")),
    }
}

fn address(place: &str, default_port: u16, hint: &str) -> Result<Address, String> {
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    if host.is_empty() {
        return Err(format!("the backend URL names no host; {hint}"));
    }
    // The parser would take it for an IPv4 address in one number.
    if host.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("a server in the backend URL is only a number, not a host; {hint}"));
    }
    let host = match url::Host::parse(host) {
        Ok(url::Host::Ipv6(address)) => address.to_string(),
        Ok(host) => host.to_string(),
        Err(error) => return Err(format!("could not read a host in the backend URL: {error}; {hint}")),
    };
    let port = match port {
        None => default_port,
        Some(port) => match port.parse() {
            Ok(0) => return Err(format!("port 0 is no port; {hint}")),
            Ok(port) => port,
            Err(_) => return Err(format!("a port in the backend URL is not a number below 65536; {hint}")),
        },
    };
    Ok(Address::Tcp(host, port))
}

/// `bytes` as part of a URL: control characters, `%`, characters that are `reserved` in that part, and bytes that are
/// not UTF-8 are percent-encoded.
pub(crate) fn encoded(bytes: &[u8], reserved: &str) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || character == '%' || reserved.contains(character) {
                encode(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(character);
            }
        }
        encode(&mut text, chunk.invalid());
    }
    text
}

fn encode(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

impl Location {
    /// The URL of the database with this number at these servers.
    #[must_use]
    pub(crate) fn with_database(&self, database: u32) -> String {
        match (database, self.addresses.first()) {
            (0, _) => self.to_string(),
            (_, Some(Address::Unix(_))) => format!("{self}?db={database}"),
            _ => format!("{self}/{database}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.login.user {
            write!(f, "{}@", encoded(user.as_bytes(), "/?#@:,"))?;
        }
        for (index, address) in self.addresses.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match address {
                Address::Tcp(..) => address.fmt(f)?,
                Address::Unix(path) => f.write_str(&encoded(path.as_os_str().as_bytes(), "?@"))?,
            }
        }
        if !self.path.is_empty() {
            write!(f, "/{}", encoded(self.path.as_bytes(), "?#@"))?;
        }
        Ok(())
    }
}
