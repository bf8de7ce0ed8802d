/*!
Checks whether a database keeps its promises. The dialect has the statements, and evaluates the answers.
*/

use std::marker::PhantomData;

use crate::backend::contract::probing::{Finding, Met, Probes, Verdict, bounded, certificate, contact, kind_of, met};
use crate::backend::error::{Error, ErrorKind};
use crate::backend::net::location::Location;
use crate::backend::net::tls::Noted;
use crate::backend::net::wire::Address;
use crate::backend::sql::answers::{Look, Row, of};
use crate::backend::sql::connection::{Connection, Outstanding, Unasked};
use crate::backend::sql::dialect::Dialect;
use crate::backend::sql::link::{Said, Servers};
use crate::backend::sql::table::Tables;
use crate::backend::sql::told::ServerReport;
use crate::backend::sql::{errors, name};
use crate::clock::wall_millis;
use crate::key::{Key, Namespace};
use crate::printable::shown;

/// Warnings about which the probes have findings of their own.
const KNOWN: [&str; 2] = ["fsync", "innodb_flush_log_at_trx_commit"];
/// Finds the rows of checks that could not be removed; removes the row of a check.
const LEFT: &str =
    "SELECT 'left', name FROM {lock} WHERE LEFT(name, {length}) = {begins} AND lock_until < {ended} LIMIT 1;\n";
const REMOVE: &str = "DELETE FROM {lock} WHERE name = {name} AND lock_until <= {ended};\n\
    DELETE FROM {holder} WHERE name = {name} AND NOT EXISTS (SELECT 1 FROM {lock} s WHERE s.name = {name});\n";
/// Needs every right that latches and barriers need, and does nothing.
const RIGHTS: &str = "INSERT INTO {record} SELECT r.* FROM {record} r WHERE r.name = '';\n\
    UPDATE {record} SET version = version WHERE name = '';\nDELETE FROM {record} WHERE name = '';\n";

/// The probes of one database.
#[derive(Debug)]
pub(super) struct SqlProbes<D: Dialect> {
    servers: Servers,
    ways: Vec<Access<D>>,
    namespace: Namespace,
    dialect: PhantomData<D>,
}

/// One of the servers, and the connection to it.
#[derive(Debug)]
struct Access<D: Dialect> {
    address: Address,
    connection: Connection<D::Link>,
    noted: Noted,
    is_primary: bool,
}

impl<D: Dialect> Access<D> {
    async fn meet(&mut self, servers: &Servers) -> Vec<Finding> {
        let name = servers.one(&self.address);
        // Both protocols begin in plain text.
        let (mut findings, wire) = contact(&name, &self.address, None).await;
        if wire.is_none() {
            return findings;
        }
        drop(wire);
        let login = bounded(&name, self.connection.connect()).await.map(drop);
        self.is_primary = login.is_ok();
        findings.extend(self.noted.ends().map(|ends| certificate(ends, wall_millis() / 1000)));
        let standby = errors::standby(&name).to_string();
        let found = match login {
            Ok(()) => {
                findings.push(identity(servers));
                findings.push(Finding::ok("role", "it takes writes"));
                findings
            }
            Err(error) if error.to_string() == standby => {
                let text = "it is a standby, or read-only";
                let remedy = "name the primary, or all of its servers";
                findings.push(Finding::fail("role", ErrorKind::Unavailable, text, remedy));
                findings
            }
            Err(error) if servers.tls.is_some() && self.noted.ends().is_none() && error.kind != ErrorKind::Denied => {
                findings.push(Finding::failed("tls", &error));
                findings
            }
            Err(error) => met(findings, Err(error)),
        };
        found.into_iter().map(|finding| finding.at(&self.address)).collect()
    }
}

fn identity(servers: &Servers) -> Finding {
    let (user, database) = (shown(servers.user.as_bytes()).to_string(), shown(servers.database.as_bytes()).to_string());
    let how = if servers.location.login.password.is_some() { "" } else { ", without a password" };
    Finding::ok("identity", format!("user {user} in the database {database}{how}"))
}

impl<D: Dialect> SqlProbes<D> {
    /// Creates the probes of these servers, which are not connected yet.
    pub(super) fn new(connection: &Connection<D::Link>, namespace: Namespace) -> Self {
        let (servers, table) = (connection.servers().clone(), connection.table().clone());
        let way = |address: &Address| {
            let noted = Noted::default();
            let location = Location { addresses: vec![address.clone()], ..servers.location.clone() };
            let tls = servers.tls.as_ref().map(|tls| tls.noting(noted.clone()));
            let connection = Connection::new(Servers { location, tls, ..servers.clone() }, table.clone());
            Access { address: address.clone(), connection, noted, is_primary: false }
        };
        let ways = servers.location.addresses.iter().map(way).collect();
        Self { servers, ways, namespace, dialect: PhantomData }
    }

    fn primary(&mut self) -> Option<&mut Access<D>> {
        self.ways.iter_mut().find(|way| way.is_primary)
    }

    /// Sends these statements, which use these tables, to the primary as their own transaction, placeholders filled.
    async fn ask(
        &mut self,
        text: &str,
        tables: Tables,
        value: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Row>, Error> {
        let Some(way) = self.primary() else { return Ok(Vec::new()) };
        let name = way.connection.name();
        let asked = async {
            let is_new = way.connection.connect().await?;
            if is_new && !D::LOOKS.greeting.is_empty() {
                way.connection.ask(D::LOOKS.greeting, Tables::NONE, Outstanding::Request).await?;
            }
            let mut tries = 0..2;
            loop {
                let request = D::LOOKS.change(text, way.connection.table(), &value);
                match way.connection.ask(&request, tables, Outstanding::Request).await {
                    Err(Unasked::Elsewhere(_)) if tries.next().is_some() => {}
                    answered => return Ok(answered?),
                }
            }
        };
        bounded(&name, asked).await
    }

    /// Returns findings about the tables.
    async fn tables(&mut self) -> Vec<Finding> {
        let Some(way) = self.primary() else { return Vec::new() };
        let name = way.connection.name();
        let found = bounded(&name, async { Ok(way.connection.look_into().await?.cloned()) }).await;
        match found {
            Ok(found) => found.unwrap_or_default().findings(way.connection.table()),
            Err(error) => vec![Finding::failed("table", &error)],
        }
    }

    /// Returns a finding if latches and barriers lack their table, or this role lacks a right there.
    async fn records(&mut self) -> Option<Finding> {
        let way = self.primary()?;
        let name = way.connection.name();
        let request = D::LOOKS.change(RIGHTS, way.connection.table(), |_| None);
        let table = way.connection.table().record_bare();
        let asked = async {
            match way.connection.ask(&request, Tables::RECORD, Outstanding::Request).await {
                Ok(_) => Ok(None),
                Err(Unasked::Said(said, _)) if said.is_missing_table() => {
                    let text = format!("the table {table} for latches and barriers is missing");
                    let remedy =
                        format!("the first one makes it, or have an administrator run: dlock generate {}", D::GENERATE);
                    Ok(Some(Finding::skip("table", text, remedy)))
                }
                Err(error) => Err(error.into()),
            }
        };
        bounded(&name, asked).await.unwrap_or_else(|error| {
            let text = format!("no latch or barrier can be used: {error}");
            let remedy = format!("dlock generate {} prints what they need", D::GENERATE);
            Some(Finding::warn("table", text, remedy))
        })
    }

    /// Returns the finding about a pooler between us and the server, which may swallow notifications.
    fn pooler(&mut self, process: Option<i32>) -> Option<Finding> {
        let process = process?;
        let look = Look { process: Some(process), ..Look::default() };
        let is_poll_only = self.primary()?.connection.is_poll_only(&look);
        if !is_poll_only {
            return Some(Finding::ok("pooler", "none, or one that keeps sessions"));
        }
        let text =
            "a pooler gives each transaction another connection: waiters look 4 times a second instead of being woken";
        Some(Finding::warn("pooler", text, "name the server itself, or set pool_mode = session"))
    }
}

#[async_trait::async_trait(?Send)]
impl<D: Dialect> Probes for SqlProbes<D> {
    async fn meet(&mut self) -> Met {
        let servers = &self.servers;
        let found = futures_util::future::join_all(self.ways.iter_mut().map(|way| way.meet(servers))).await;
        let kinds: Vec<ErrorKind> = found.iter().filter_map(|findings| kind_of(findings)).collect();
        let findings = found.into_iter().flatten();
        if self.primary().is_none() {
            return (findings.collect(), Some(ErrorKind::of_several(kinds, 1)));
        }
        // One of several may be a standby, which takes over.
        let borne = |finding: Finding| {
            let is_standby = finding.probe == "role" && finding.verdict != Verdict::Ok;
            if is_standby { Finding { remedy: None, verdict: Verdict::Ok, ..finding } } else { finding.borne() }
        };
        (findings.map(borne).collect(), None)
    }

    async fn examine(&mut self, warnings: &[String]) -> Vec<Finding> {
        let sent = wall_millis();
        let answer = self.ask(D::LOOKS.probe, Tables::NONE, |_| None).await;
        let here = sent.midpoint(wall_millis());
        let mut findings = match answer.map(|rows| (D::LOOKS.told)(&rows, here)) {
            Ok(Some(ServerReport { mut findings, process })) => {
                findings.extend(self.pooler(process));
                findings
            }
            Ok(None) => {
                vec![Finding::skip("version", "the server's answer makes no sense", "is it one of the supported ones?")]
            }
            Err(error) => vec![Finding::skip("version", error.to_string(), "look at the server's log")],
        };
        findings.extend(self.tables().await);
        findings.extend(self.records().await);
        let is_news = |warning: &&String| !KNOWN.iter().any(|known| warning.contains(known));
        findings.extend(warnings.iter().filter(is_news).map(|warning| Finding::said("table", Verdict::Warn, warning)));
        findings
    }

    async fn scratch(&mut self, fresh: Key) -> Key {
        let begins = name::beginning(&self.namespace, crate::backend::contract::probing::SCRATCH);
        let rows = self.ask(LEFT, Tables::LOCK, |place| match place {
            "begins" => Some((D::LOOKS.literal)(&begins)),
            "length" => Some(begins.chars().count().to_string()),
            "ended" => Some(D::LOOKS.now.to_owned()),
            _ => None,
        });
        let rows = rows.await.unwrap_or_default();
        let left =
            of(&rows, "left").and_then(|row| name::location(&self.namespace, row.get(1).copied().flatten()?)?.key);
        left.and_then(|key| Key::parse(key.as_ref()).ok()).unwrap_or(fresh)
    }

    async fn clean(&mut self, key: &Key) {
        let row = (D::LOOKS.literal)(&name::row(&self.namespace, key));
        // A role without the right to delete leaves the row to the next check.
        let _ = self
            .ask(REMOVE, Tables::LOCKS, |place| match place {
                "name" => Some(row.clone()),
                "ended" => Some(D::LOOKS.now.to_owned()),
                _ => None,
            })
            .await;
    }
}
