/*!
Checks whether a ZooKeeper ensemble keeps its promises: asks each server for its state (`srvr`, which every server
answers by default), and the ensemble for a session of the length that runs ask for, which is closed at once.
*/

use std::sync::Arc;
use std::time::Duration;

use ::zookeeper_client::{Acl, Client, Error as ZkError, Permission};
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::backend::contract::probing::{
    CheckParameters, Finding, Met, Probes, SCRATCH, Verdict, bounded, contact, counted, kind_of, met, version,
};
use crate::backend::error::{Error, ErrorKind};
use crate::backend::net::location::nested_hint;
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::{Address, Wire};
use crate::backend::zookeeper::configuration::Configuration;
use crate::backend::zookeeper::ensemble::Ensemble;
use crate::backend::zookeeper::errors::{self, About};
use crate::backend::zookeeper::names::Directory;
use crate::backend::zookeeper::opening::Opening;
use crate::clock::within;
use crate::key::{Key, Namespace};
use crate::printable::shown;

/// The command that asks a server for its state, and the maximum length of the answer in bytes.
const STATE: &[u8] = b"srvr";
const MOST: u64 = 4096;
/// The oldest supported version, and the first and last of those whose servers lose wake-ups.
const OLDEST: [u64; 2] = [3, 5];
const LOSING: [[u64; 3]; 2] = [[3, 6, 0], [3, 8, 0]];
/// The longest session that a client can ask for.
const MAX_SESSION: Duration = Duration::from_millis(i32::MAX as u64);
/// The time that a session may take to close.
const CLOSE: Duration = Duration::from_millis(500);

/// The probes of one ensemble.
pub(super) struct ZookeeperProbes {
    ensemble: Arc<Ensemble>,
    tls: Option<Tls>,
    servers: Vec<Server>,
    namespace: Namespace,
    ttl: Duration,
}

/// One server that the URL names.
struct Server {
    address: Address,
    /// Its answer, once it has given one.
    state: Option<State>,
}

/// A server's state, from its answer to `srvr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// The version; empty if it did not say.
    version: String,
    /// The mode; empty if it does not serve.
    mode: String,
    /// Set if it refused to answer.
    is_refused: bool,
}

impl State {
    /// Parses the answer to [`STATE`].
    fn read(text: &str) -> Self {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        Self {
            version: field("Zookeeper version:").split([',', '-']).next().unwrap_or_default().to_owned(),
            mode: field("Mode:").to_owned(),
            is_refused: text.contains("not in the whitelist"),
        }
    }

    fn findings(&self) -> Vec<Finding> {
        if self.is_refused {
            let remedy = "add srvr to its 4lw.commands.whitelist";
            return ["version", "cluster"].map(|probe| Finding::skip(probe, "srvr is not allowed", remedy)).to_vec();
        }
        let mut findings = Vec::new();
        if !self.version.is_empty() {
            findings.push(self.release());
        }
        findings.push(match self.mode.as_str() {
            "" => {
                let text = "it does not serve: it has no leader";
                Finding::fail("cluster", ErrorKind::Unavailable, text, "is a majority of ZooKeeper running?")
            }
            "standalone" => {
                let text = "standalone: when it is away, locks cannot be had or kept";
                Finding::warn("cluster", text, "run three servers")
            }
            mode => Finding::ok("cluster", shown(mode.as_bytes()).to_string()),
        });
        findings
    }

    fn release(&self) -> Finding {
        let numbers = version(&self.version);
        let text = format!("ZooKeeper {}", shown(self.version.as_bytes()));
        match numbers.as_slice() {
            [first, second, ..] if [*first, *second] < OLDEST => {
                Finding::fail("version", ErrorKind::Unusable, format!("{text} is too old"), "use version 3.5 or newer")
            }
            [first, second, third] if (LOSING[0]..=LOSING[1]).contains(&[*first, *second, *third]) => {
                let text = format!("{text} loses wake-ups of waiters now and then (ZOOKEEPER-4537)");
                Finding::warn("version", text, "use 3.8.1 or newer")
            }
            _ => Finding::ok("version", text),
        }
    }
}

/// Rates a session of the length `granted`, where `wanted` was asked for.
fn session(granted: Duration, wanted: Duration) -> Finding {
    let text = |length: Duration| humantime::format_duration(length).to_string();
    if granted == wanted {
        return Finding::ok("lease", format!("{} as asked for", text(granted)));
    }
    let said = format!("{} is granted where --ttl asks for {}", text(granted), text(wanted));
    Finding::warn("lease", said, "ask for what is granted, or change minSessionTimeout and maxSessionTimeout")
}

/// Rates the size of an ensemble with this configuration; `None` for a standalone server.
fn size(configuration: &Configuration) -> Option<Finding> {
    match configuration.members() {
        // A standalone server has said so itself.
        0 => None,
        count @ (1 | 2) => {
            let text = format!(
                "{}: {}",
                counted(count, "member"),
                if count == 1 { "it must be there" } else { "both must be there" }
            );
            Some(Finding::warn("cluster", text, "run three servers"))
        }
        count => {
            let text = format!("{}, of which {} may be away", counted(count, "member"), (count - 1) / 2);
            Some(Finding::ok("cluster", text))
        }
    }
}

/// Returns `true` if an entry of an access list lets everybody change something.
fn is_open(acl: &Acl) -> bool {
    let to_change = [Permission::CREATE, Permission::WRITE, Permission::DELETE, Permission::ADMIN];
    acl.scheme() == "world" && to_change.into_iter().any(|right| acl.permission().has(right))
}

async fn ask(mut wire: Wire) -> std::io::Result<State> {
    wire.write_all(STATE).await?;
    wire.flush().await?;
    let mut text = Vec::new();
    wire.take(MOST).read_to_end(&mut text).await?;
    Ok(State::read(&String::from_utf8_lossy(&text)))
}

impl Server {
    async fn meet(&mut self, ensemble: &Ensemble, tls: Option<&Tls>) -> Vec<Finding> {
        let location = ensemble.location();
        let name = format!("{}://{}", location.scheme, self.address);
        let (findings, wire) = contact(&name, &self.address, tls).await;
        let Some(wire) = wire else { return findings };
        let asked = async { ask(wire).await.map_err(|error| errors::ended(&name, &error, None)) };
        let login = bounded(&name, asked).await.map(|state| {
            self.state = Some(state);
            let who = match &location.login.user {
                Some(user) => format!("user {}", shown(user.as_bytes())),
                None => "no user: nodes that are made are open to everybody".to_owned(),
            };
            Finding::ok("identity", who)
        });
        met(findings, login).into_iter().map(|finding| finding.at(&self.address)).collect()
    }
}

impl ZookeeperProbes {
    /// Creates the probes of this ensemble; not connected yet.
    pub(super) fn new(ensemble: Ensemble, tls: Option<Tls>, parameters: &CheckParameters) -> Self {
        let addresses = ensemble.location().addresses.clone();
        let servers = addresses.into_iter().map(|address| Server { address, state: None }).collect();
        let (namespace, ttl) = (parameters.namespace.clone(), parameters.ttl.min(MAX_SESSION));
        Self { ensemble: Arc::new(ensemble), tls, servers, namespace, ttl }
    }

    /// Returns a warning if the namespace does not belong to its user alone.
    async fn claimed(&self, client: &Client) -> Option<Finding> {
        let location = self.ensemble.location();
        let any = Key::parse(SCRATCH.as_ref()).ok()?;
        let directory = Directory::named(&location.path, &self.namespace, &any).ok()?;
        let path = shown(directory.above().as_bytes()).to_string();
        match client.get_acl(directory.above()).await {
            Err(ZkError::NoNode) => {
                let text = format!("{path} is not there: whoever takes the first lock owns it");
                Some(Finding::warn("identity", text, "take a lock there as this user, and it stays"))
            }
            Ok((acls, _)) if acls.iter().any(is_open) => {
                let text = format!("{path} is open to everybody");
                Some(Finding::warn("identity", text, "use setAcl in zkCli.sh, or another --namespace or chroot"))
            }
            _ => None,
        }
    }

    /// Opens a session, and returns the findings about it.
    async fn of_a_session(&self) -> Result<Vec<Finding>, Error> {
        let location = self.ensemble.location();
        let mut opening = Opening::begin(&self.ensemble, self.ttl).await?;
        let client = opening.opened().await?.map_err(|error| {
            let about = About {
                place: location,
                has_user: location.login.user.is_some(),
                directory: None,
                nested: nested_hint(),
            };
            errors::explain(&error, opening.tunnel.reason(), about)
        })?;
        let mut findings = Vec::new();
        if let Ok((text, _)) = client.get_config().await
            && let Some(configuration) = Configuration::read(&text)
        {
            findings.extend(size(&configuration));
        }
        findings.push(session(client.session_timeout(), self.ttl));
        if location.login.user.is_some() {
            findings.extend(self.claimed(&client).await);
        }
        // The session is closed when the last handle of the client is gone.
        let mut state = client.state_watcher();
        drop(client);
        let _ = within(CLOSE, state.changed()).await;
        Ok(findings)
    }
}

#[async_trait::async_trait(?Send)]
impl Probes for ZookeeperProbes {
    async fn meet(&mut self) -> Met {
        let (ensemble, tls) = (&self.ensemble, self.tls.as_ref());
        let found = join_all(self.servers.iter_mut().map(|server| server.meet(ensemble, tls))).await;
        let kinds: Vec<ErrorKind> = found.iter().filter_map(|findings| kind_of(findings)).collect();
        let findings = found.into_iter().flatten();
        if kinds.len() < self.servers.len() {
            return (findings.map(Finding::borne).collect(), None);
        }
        (findings.collect(), Some(ErrorKind::of_several(kinds, 1)))
    }

    async fn examine(&mut self, warnings: &[String]) -> Vec<Finding> {
        let serves = |state: &State| state.is_refused || !state.mode.is_empty();
        let is_one_fit = self.servers.iter().filter_map(|server| server.state.as_ref()).any(serves);
        let mut findings = Vec::new();
        for Server { address, state } in &self.servers {
            let told = state.as_ref().map(State::findings).unwrap_or_default();
            let borne = |finding: Finding| if is_one_fit { finding.borne() } else { finding };
            findings.extend(told.into_iter().map(|finding| borne(finding).at(address)));
        }
        if is_one_fit {
            let name = self.ensemble.location().to_string();
            match bounded(&name, self.of_a_session()).await {
                Ok(told) => findings.extend(told),
                Err(error) => findings.push(Finding::failed("lease", &error)),
            }
        }
        findings.extend(warnings.iter().map(|warning| Finding::said("cluster", Verdict::Warn, warning)));
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_itself() {
        let said = |version: &str, mode: &str| {
            let version = format!("Zookeeper version: {version}, built on 2022-02-25 08:49 UTC\n");
            State::read(&format!("{version}Latency min/avg/max: 0/0.0/0\nMode: {mode}\nNode count: 5\n"))
        };
        let silent = "This ZooKeeper instance is not currently serving requests\n";
        for (state, expected) in [
            (said("3.8.4-9316c2a7a97e1666d8f4593f34dd6fc36ecc436c", "follower"), &["ok", "ok"][..]),
            (said("3.8.0-${mvngit.commit.id}", "standalone"), &["warn", "warn"]),
            (said("3.7.1", "leader"), &["warn", "ok"]),
            (said("3.4.14", "leader"), &["fail", "ok"]),
            (State::read(silent), &["fail"]),
            (State::read("srvr is not executed because it is not in the whitelist.\n"), &["skip", "skip"]),
        ] {
            let names: Vec<&str> = state.findings().iter().map(|finding| finding.verdict.name()).collect();
            assert_eq!(names, expected, "{state:?}");
        }
    }

    #[test]
    fn what_an_ensemble_and_its_sessions_are_worth() {
        let of = |members: u32| {
            let lines: Vec<String> = (1..=members).map(|id| format!("server.{id}=h{id}:1:2")).collect();
            size(&Configuration::read(lines.join("\n").as_bytes()).expect("members"))
                .map(|finding| finding.verdict.name())
        };
        assert_eq!([0, 1, 2, 3].map(of), [None, Some("warn"), Some("warn"), Some("ok")]);
        let seconds = Duration::from_secs;
        assert_eq!(session(seconds(30), seconds(30)).text, "30s as asked for");
        assert_eq!(session(seconds(4), seconds(30)).text, "4s is granted where --ttl asks for 30s");
    }
}
