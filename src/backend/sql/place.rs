/*!
The URL syntax of databases: servers, of which the primary is looked for, or a socket; and the table of locks.
*/

use std::fmt;

use crate::backend::contract::driver::{Endpoint, Scheme};
use crate::backend::contract::service::{Options, Service};
use crate::backend::net::location::{Location, encoded};
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::Address;
use crate::backend::sql::link::{Auth, Servers};
use crate::backend::sql::table::Table;

/// A database, and the table of locks in it.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    family: &'static Family,
    /// The servers; the path is the database, unless they are a socket.
    location: Location,
    /// The database, if one is named.
    name: Option<String>,
    table: Table,
    /// `true` if the URL asks for TLS; `None` if it does not say, or the scheme decides.
    secure: Option<bool>,
    /// The authentication method that the server must use; `None` for any sound one.
    auth: Option<Auth>,
}

/// Makes the service for this table of the database at these servers; without a name, it is the role's own database.
type Open = fn(Location, Option<String>, Table, Option<Tls>, Option<Auth>) -> Box<dyn Service>;

/// The properties that databases of one kind share.
#[derive(Debug)]
pub(crate) struct Family {
    /// The quote character on both sides of a name.
    pub quote: char,
    /// `true` if a URL must name the database.
    pub is_named: bool,
    /// `true` if a URL may name the authentication method.
    pub has_auth: bool,
    /// Makes the service for a table of a database.
    pub open: Open,
    /// Returns the statements with which an administrator makes a table, for a user if one is known.
    pub setup: fn(&Table, Option<&str>) -> String,
}

/// The parameters after a `?`.
#[derive(Debug, Default)]
struct Parameters {
    db: Option<String>,
    table: Option<Table>,
    trusts_table: bool,
    secure: Option<bool>,
    auth: Option<Auth>,
}

impl Parameters {
    /// Reads `name=value&…`, with these `known` names. Errors repeat no value, which could be a part of a password.
    fn read(quote: char, query: &str, known: &[&str], hint: &str) -> Result<Self, String> {
        let mut parameters = Self::default();
        if query.contains('@') {
            return Err(format!("an @ follows a ?: write a ? before it as %3F, or the @ as %40; {hint}"));
        }
        let mut seen = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                return Err(format!("{}; {hint}", unknown(name, known)));
            }
            if seen.contains(&name) {
                return Err(format!("{name} is given twice; {hint}"));
            }
            seen.push(name);
            match name {
                "table" => {
                    parameters.table = Some(Table::parse(value, quote).map_err(|error| format!("{error}; {hint}"))?);
                }
                "db" => {
                    let value = percent_encoding::percent_decode_str(value).decode_utf8();
                    let value = value.map_err(|_| format!("the name of the database is not UTF-8; {hint}"))?;
                    parameters.db = Some(value.into_owned()).filter(|name| !name.is_empty());
                }
                "trust-table" if value.is_empty() => parameters.trusts_table = true,
                "trust-table" => return Err(format!("trust-table has no value; {hint}")),
                "auth" => parameters.auth = Some(Auth::read(value).map_err(|error| format!("{error}; {hint}"))?),
                _ => parameters.secure = Some(secure(value).map_err(|error| format!("{error}; {hint}"))?),
            }
        }
        Ok(parameters)
    }

    /// Returns the table that they name, or the default one.
    fn table(&self, quote: char) -> Table {
        let table = self.table.clone().unwrap_or_else(|| Table::shedlock(quote));
        table.trusted(self.trusts_table)
    }
}

/// Returns the message about a parameter that is not `known`. A name that no other client has could be a part of a
/// password, and is not repeated.
fn unknown(name: &str, known: &[&str]) -> String {
    let instead = match name {
        "connect_timeout" | "connectTimeout" => "--connect-timeout",
        "sslrootcert" | "ssl-ca" => "--tls-ca",
        "sslcert" | "ssl-cert" => "--tls-cert",
        "sslkey" | "ssl-key" => "--tls-key",
        "user" => "--user",
        "password" => "--password-file",
        "ssl" | "ssl-mode" | "sslMode" | "tls" | "useSSL" => "sslmode=require",
        _ => {
            let known = known.join(", ");
            let (first, last) = known.rsplit_once(", ").unwrap_or(("", &known));
            return format!("only {first} and {last} may follow the ?: leave out the rest");
        }
    };
    format!("for {name} use {instead}")
}

/// Returns `true` if this value of `sslmode` means TLS.
fn secure(value: &str) -> Result<bool, String> {
    match value {
        "disable" => Ok(false),
        "require" | "verify-ca" | "verify-full" => Ok(true),
        "prefer" | "allow" => {
            Err("sslmode=prefer and allow can be talked out of TLS: use require (which verifies here) or disable"
                .to_owned())
        }
        _ => Err("sslmode is disable or require; verify-ca and verify-full mean the same as require here".to_owned()),
    }
}

/// Fails if `name` contains a NUL byte, at which it would end.
fn without_nul(name: &str, hint: &str) -> Result<(), String> {
    if name.contains('\0') { Err(format!("the name of the database contains a NUL byte; {hint}")) } else { Ok(()) }
}

impl Family {
    /// Returns the parameters that a URL may have, the first of which depends on its form.
    fn known(&self, first: &'static str) -> Vec<&'static str> {
        let auth = self.has_auth.then_some("auth");
        [first, "table", "trust-table"].into_iter().chain(auth).collect()
    }

    fn named(&self, name: Option<&String>, hint: &str) -> Result<(), String> {
        if self.is_named && name.is_none() { Err(format!("name the database; {hint}")) } else { Ok(()) }
    }
}

impl Database {
    /// Returns the database, if one is named.
    #[cfg(test)]
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Reads the text after `scheme://` if servers are meant; see [`Read`](crate::backend::contract::driver::Read).
    pub(crate) fn servers(
        family: &'static Family,
        scheme: &'static Scheme,
        rest: &str,
        hint: &str,
    ) -> Result<Self, String> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = Parameters::read(family.quote, query, &family.known("sslmode"), hint)?;
        let (table, Parameters { secure, auth, .. }) = (parameters.table(family.quote), parameters);
        let location = Location::parse(scheme.name, rest, scheme.port, hint)?;
        if let Some(twice) = location.named_twice() {
            return Err(format!("{twice} is named twice; {hint}"));
        }
        if secure == Some(false) && scheme.tls == Some(true) {
            return Err(format!("{}:// means TLS, and sslmode=disable does not; {hint}", scheme.name));
        }
        without_nul(&location.path, hint)?;
        let name = Some(location.path.clone()).filter(|name| !name.is_empty());
        family.named(name.as_ref(), hint)?;
        Ok(Self { family, location, name, table, secure: secure.filter(|_| scheme.tls == Some(false)), auth })
    }

    /// Reads the text after `scheme://` if a socket on this host is meant.
    pub(crate) fn socket(
        family: &'static Family,
        scheme: &'static Scheme,
        rest: &str,
        hint: &str,
    ) -> Result<Self, String> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = Parameters::read(family.quote, query, &family.known("db"), hint)?;
        let (table, Parameters { db, auth, .. }) = (parameters.table(family.quote), parameters);
        without_nul(db.as_deref().unwrap_or_default(), hint)?;
        let location = Location::parse_socket(scheme.name, rest, hint)?;
        family.named(db.as_ref(), hint)?;
        Ok(Self { family, location, name: db, table, secure: None, auth })
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let db = self.name.as_deref().filter(|_| self.location.path.is_empty());
        write!(f, "{}{}", self.location, Query { db, secure: self.secure, table: &self.table, auth: self.auth })
    }
}

/// Returns the URL of a table at these servers, with the user that is to use it, for a command in a shell.
#[must_use]
pub(crate) fn url(servers: &Servers, table: &Table) -> String {
    let mut location = servers.location.clone();
    location.add_credentials(Some(servers.user.clone()), None);
    let is_socket = location.addresses.iter().any(|address| matches!(address, Address::Unix(_)));
    let db = is_socket.then_some(&*servers.database);
    format!("{location}{}", Query { db, secure: None, table, auth: None }).replace('\'', "%27")
}

/// The part of a URL that follows the servers.
struct Query<'a> {
    db: Option<&'a str>,
    secure: Option<bool>,
    table: &'a Table,
    auth: Option<Auth>,
}

impl fmt::Display for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let db = self.db.map(|name| format!("db={}", encoded(name.as_bytes(), "&@")));
        let secure = self.secure.map(|secure| format!("sslmode={}", if secure { "require" } else { "disable" }));
        let table = self.table.parameter().map(|table| format!("table={table}"));
        let trust = self.table.is_trusted().then(|| "trust-table".to_owned());
        let auth = self.auth.map(|Auth::Scram| "auth=scram".to_owned());
        let parameters: Vec<String> = [db, secure, table, trust, auth].into_iter().flatten().collect();
        if parameters.is_empty() { Ok(()) } else { write!(f, "?{}", parameters.join("&")) }
    }
}

impl Endpoint for Database {
    fn location(&mut self) -> Option<&mut Location> {
        Some(&mut self.location)
    }

    fn is_tls(&self) -> Option<bool> {
        self.secure
    }

    fn setup(&self) -> Option<String> {
        Some((self.family.setup)(&self.table, self.location.login.user.as_deref()))
    }

    fn open(&self, _options: &Options, tls: Option<Tls>) -> Box<dyn Service> {
        (self.family.open)(self.location.clone(), self.name.clone(), self.table.clone(), tls, self.auth)
    }
}
