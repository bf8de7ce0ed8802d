/*!
How a URL names a database: by its servers, of which the primary is looked for, or by a socket; and the table of locks in it.
*/

use std::fmt;

use crate::backend::driver::{Place, Scheme};
use crate::backend::net::location::{Location, encoded};
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::Address;
use crate::backend::sql::link::{Auth, Servers};
use crate::backend::sql::table::Table;
use crate::backend::{Options, Service};

/// A database, and the table of locks in it.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    family: &'static Family,
    /// The servers; the path is the database, except where they are a socket.
    location: Location,
    /// The database, where one is named.
    name: Option<String>,
    table: Table,
    /// Whether the URL asks for TLS, where the scheme does not decide.
    secure: Option<bool>,
    /// How the server must let us prove who we are; none for any way that is sound.
    auth: Option<Auth>,
}

/// Makes the service for this table of the database at these servers, which is the role's own where none is named.
type Open = fn(Location, Option<String>, Table, Option<Tls>, Option<Auth>) -> Box<dyn Service>;

/// What the databases of one kind have in common.
#[derive(Debug)]
pub(crate) struct Family {
    /// What stands on both sides of a name.
    pub quote: char,
    /// Whether a URL must name the database.
    pub is_named: bool,
    /// Whether a URL may say how the server must let us prove who we are.
    pub has_auth: bool,
    /// The locks in a table of a database.
    pub open: Open,
    /// The statements with which an administrator makes a table, for a user where one is known.
    pub setup: fn(&Table, Option<&str>) -> String,
}

/// What may follow a `?`.
#[derive(Debug, Default)]
struct Parameters {
    db: Option<String>,
    table: Option<Table>,
    trusts_table: bool,
    secure: Option<bool>,
    auth: Option<Auth>,
}

impl Parameters {
    /// Reads `name=value&…`, of which these names are `known`. No value is repeated, which could be a part of a password.
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

    /// The table that they name, or the default one.
    fn table(&self, quote: char) -> Table {
        let table = self.table.clone().unwrap_or_else(|| Table::shedlock(quote));
        table.trusted(self.trusts_table)
    }
}

/// What to say of a parameter that is not `known`. One that no other client has could be a part of a password, and is not
/// repeated.
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

/// Whether a value of `sslmode` means TLS.
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

/// `name` without what no server could take: it ends at its first NUL.
fn without_nul(name: &str, hint: &str) -> Result<(), String> {
    if name.contains('\0') { Err(format!("the name of the database contains a NUL byte; {hint}")) } else { Ok(()) }
}

impl Family {
    /// The parameters that a URL may have, the first of which depends on its form.
    fn known(&self, first: &'static str) -> Vec<&'static str> {
        let auth = self.has_auth.then_some("auth");
        [first, "table", "trust-table"].into_iter().chain(auth).collect()
    }

    fn named(&self, name: Option<&String>, hint: &str) -> Result<(), String> {
        if self.is_named && name.is_none() { Err(format!("name the database; {hint}")) } else { Ok(()) }
    }
}

impl Database {
    /// The database, where one is named.
    #[cfg(test)]
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Reads what follows `scheme://` where servers are meant; see [`Read`](crate::backend::driver::Read).
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

    /// Reads what follows `scheme://` where a socket on this host is meant.
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

/// The URL of a table at these servers with the user whose it is to be, for a command in a shell.
#[must_use]
pub(crate) fn url(servers: &Servers, table: &Table) -> String {
    let mut location = servers.location.clone();
    location.add_credentials(Some(servers.user.clone()), None);
    let is_socket = location.addresses.iter().any(|address| matches!(address, Address::Unix(_)));
    let db = is_socket.then_some(&*servers.database);
    format!("{location}{}", Query { db, secure: None, table, auth: None }).replace('\'', "%27")
}

/// What follows the servers in a URL.
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

impl Place for Database {
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
