/*!
Checks whether one redis server, or the master that sentinels name, keeps its promises.
*/

use ::redis::{Cmd, Value};
use futures_util::future::join_all;

use crate::backend::contract::probing::{self, Finding, Met, Probes, bounded, contact, kind_of, met};
use crate::backend::error::{Error, ErrorKind};
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::redis::connection::{Connection, Outstanding, Server};
use crate::backend::redis::facts::{CHECK, Demand, Facts, facts, questions};
use crate::backend::redis::keys::Keys;
use crate::backend::redis::raw::request;
use crate::backend::redis::rights::{Rights, SINGLE};
use crate::backend::redis::sentinel::Master;
use crate::clock::wall_millis;
use crate::key::{Key, Namespace};

/// The sentinels through which the server is found.
#[derive(Debug)]
pub(super) struct Watchers {
    /// Their addresses.
    location: Location,
    /// The name under which they know the master.
    name: String,
    /// The TLS settings; `None` if TLS is not used.
    tls: Option<Tls>,
}

impl Watchers {
    /// Returns the sentinels at `location`, which know the master as `name`.
    pub(super) fn new(location: &Location, name: &str, tls: Option<&Tls>) -> Self {
        Self { location: location.clone(), name: name.to_owned(), tls: tls.cloned() }
    }
}

/// The probes of one server.
#[derive(Debug)]
pub(super) struct RedisProbes {
    /// The connection to the server.
    way: Master,
    /// The sentinels, if there are any.
    watchers: Option<Watchers>,
    demand: Demand,
    namespace: Namespace,
}

impl RedisProbes {
    /// Returns the rights that a user needs for locks and for all probes, for error messages.
    pub(super) fn rights(namespace: &Namespace) -> Rights {
        Rights::for_all_locks(namespace, SINGLE).and(CHECK)
    }

    /// Returns probes that use this connection, which is not made yet.
    pub(super) fn by(way: Master, watchers: Option<Watchers>, replicas: u32, namespace: Namespace) -> Self {
        Self { way, watchers, demand: Demand { replicas, ..Demand::default() }, namespace }
    }

    /// Reaches the server that the URL names, and logs in.
    async fn meet_server(&mut self) -> Vec<Finding> {
        let server = self.way.server().clone();
        let (findings, wire) = contact(&server.to_string(), server.address(), server.tls()).await;
        if wire.is_none() {
            return findings;
        }
        drop(wire);
        let login = async {
            self.way.connect().await?;
            // A request that every user may make: a login without a password has sent nothing yet.
            let (_, users) = self.way.ask_master(&request(&["TIME"]), &[users()]).await?;
            Ok(identity(&server, users.first()))
        };
        met(findings, bounded(&server.to_string(), login).await)
    }

    /// Reaches the sentinels, and the master that a majority of them name.
    async fn meet_master(&mut self, watchers: &Watchers) -> Vec<Finding> {
        let Watchers { location, name, tls } = watchers;
        let one = |address| async move { contact(&format!("sentinel {address}"), address, tls.as_ref()).await.0 };
        let reached = join_all(location.addresses.iter().map(one)).await;
        let is_away = |findings: &Vec<Finding>| findings.iter().any(|finding| finding.verdict.name() == "fail");
        let is_majority = reached.iter().filter(|findings| !is_away(findings)).count() > location.addresses.len() / 2;
        let mut findings: Vec<Finding> =
            reached.into_iter().flatten().map(|finding| if is_majority { finding.borne() } else { finding }).collect();
        let login = async {
            self.way.connect().await?;
            let (_, users) = self.way.ask_master(&request(&["TIME"]), &[users()]).await?;
            Ok(users.into_iter().next())
        };
        match bounded(&location.to_string(), login).await {
            Ok(users) => {
                let server = self.way.server();
                findings.push(Finding::ok("master", format!("{server} is called {name}")));
                findings.push(identity(server, users.as_ref()));
            }
            Err(error) if error.kind == ErrorKind::Denied => findings.push(Finding::failed("identity", &error)),
            Err(error) => findings.push(Finding::failed("master", &error)),
        }
        findings
    }
}

/// Returns the request for the users that the server knows.
pub(in crate::backend) fn users() -> Cmd {
    request(&["ACL", "USERS"])
}

/// Returns the finding on our identity at this server; `users` is its answer to [`users()`], if there is one.
pub(in crate::backend) fn identity(server: &Server, users: Option<&Value>) -> Finding {
    let login = server.login();
    let known = if let Some(Value::Array(users)) = users { users.len() } else { 0 };
    match (&login.user, &login.password) {
        (Some(user), _) => Finding::ok("identity", format!("user {user}")),
        (None, Some(_)) => Finding::ok("identity", "user default"),
        (None, None) if known > 1 => {
            let text = format!("no user given, and the server knows {known}");
            Finding::warn("identity", text, "use --user and --password-file")
        }
        (None, None) => Finding::ok("identity", "no password is given, and none is needed"),
    }
}

#[async_trait::async_trait(?Send)]
impl Probes for RedisProbes {
    async fn meet(&mut self) -> Met {
        let findings = match self.watchers.take() {
            Some(watchers) => self.meet_master(&watchers).await,
            None => self.meet_server().await,
        };
        let kind = kind_of(&findings);
        (findings, kind)
    }

    async fn examine(&mut self, _warnings: &[String]) -> Vec<Finding> {
        let name = self.way.server().to_string();
        self.way.need(&Self::rights(&self.namespace));
        let asked = async {
            self.way.connect().await?;
            let (time, also) = questions();
            let sent = wall_millis();
            let (time, also) = self.way.ask_master(&time, &also).await?;
            let here = sent.midpoint(wall_millis());
            let (_, allowed) = self.way.ask_master(&request(&["TIME"]), &optional(&self.namespace)).await?;
            let user = self.way.server().login().user.as_deref().unwrap_or("default");
            let lacking = lacking(&allowed, user);
            Ok((facts(&time, &also), here, lacking))
        };
        match bounded(&name, asked).await {
            Ok((facts, here, lacking)) => [lacking, told(&facts, here, self.demand)].concat(),
            Err(error) => vec![Finding::failed("role", &error)],
        }
    }

    async fn clean(&mut self, key: &Key) {
        if self.way.connect().await.is_ok() {
            let _ = self.way.ask(&forget(&self.namespace, key), Outstanding::Request).await;
        }
    }
}

/// The optional commands, and the effect of lacking the right to each.
const OPTIONAL: [(&str, &str); 3] = [
    ("+multi +exec +hmget", "dlock status, list and break are refused"),
    ("+scan", "dlock list is refused"),
    ("+blpop", "a run that has to wait is refused, and a holder learns of a break at its next renewal"),
];

/// Returns requests that use these commands and change nothing.
fn optional(namespace: &Namespace) -> [Cmd; 3] {
    let keys = Keys::at(format!("{}check", namespace.prefix(':')));
    [
        request(&["HMGET", &keys.details(), "check"]),
        request(&["SCAN", "0", "COUNT", "1"]),
        request(&["BLPOP", &keys.listener("check"), "0.001"]),
    ]
}

/// Returns a warning for each of these commands that was refused, by the answers to [`optional`].
fn lacking(answers: &[Value], user: &str) -> Vec<Finding> {
    let is_refused = |answer: &Value| matches!(answer, Value::ServerError(error) if error.code() == "NOPERM");
    // A missing right to keys is reported when a lock is tried.
    let is_of_keys = |answer: &Value| matches!(answer, Value::ServerError(error) if error.details().is_some_and(|said| said.contains("keys")));
    let lacking = OPTIONAL.iter().zip(answers).filter(|(_, answer)| is_refused(answer) && !is_of_keys(answer));
    let warn = |((right, without), _): (&(&str, &str), &Value)| {
        Finding::warn(
            "identity",
            format!("user {user} lacks {right}: {without}"),
            format!("ACL SETUSER {user} {right}"),
        )
    };
    lacking.map(warn).collect()
}

/// Returns the request to delete the counter of a lock that will not be used again.
pub(in crate::backend) fn forget(namespace: &Namespace, key: &Key) -> Cmd {
    request(&["DEL", &Keys::at(namespace.join(':', key)).fence()])
}

/// Returns the findings on a server that reported these facts at the time `here` by this host's clock.
fn told(facts: &Facts, here: u64, demand: Demand) -> Vec<Finding> {
    let mut findings = facts.findings(demand);
    findings.extend(facts.now.map(|now| probing::clock(now, here)));
    findings
}

/// Asks one server on its own connection for its facts, and returns them with the findings.
pub(in crate::backend) async fn ask(
    connection: &mut Connection,
    demand: Demand,
) -> Result<(Facts, Vec<Finding>), Error> {
    let (time, also) = questions();
    let sent = wall_millis();
    let (time, also) = connection.ask_also(&time, &also, Outstanding::Request).await?;
    let facts = facts(&time, &also);
    let findings = told(&facts, sent.midpoint(wall_millis()), demand);
    Ok((facts, findings))
}
