/*!
Checks whether a majority of redis servers keeps its promises: asks all servers at once, each like a single one.
*/

use futures_util::future::join_all;

use crate::backend::contract::probing::{Finding, Met, Probes, Verdict, bounded, contact, counted, length, met};
use crate::backend::error::ErrorKind;
use crate::backend::redis::Server;
use crate::backend::redis::connection::{Connection, Outstanding};
use crate::backend::redis::facts::{CHECK, Demand, Facts};
use crate::backend::redis::probes::{ask, forget, identity, users};
use crate::backend::redis::raw::request;
use crate::backend::redis::rights::{MAJORITY, Rights};
use crate::backend::redlock::quorum::majority;
use crate::clock::{Instant, wall_millis};
use crate::key::{Key, Namespace};

/// The maximum difference between the clocks of two servers that is not reported, in milliseconds.
const FAR: u64 = 1000;

/// The probes of several servers that vote.
#[derive(Debug)]
pub(super) struct RedlockProbes {
    voters: Vec<Voter>,
    strict: bool,
    namespace: Namespace,
}

/// One server, and the connection to it.
#[derive(Debug)]
struct Voter {
    server: Server,
    connection: Connection,
    is_met: bool,
}

/// The facts that one server reported, and the lead of its clock over this host's in milliseconds.
struct ServerFacts {
    name: String,
    facts: Facts,
    ahead: Option<i128>,
}

impl Voter {
    async fn meet(&mut self) -> Vec<Finding> {
        let (server, connection) = (&self.server, &mut self.connection);
        let (findings, wire) = contact(&server.to_string(), server.address(), server.tls()).await;
        if wire.is_none() {
            return findings;
        }
        let login = async {
            connection.connect().await?;
            let (_, users) = connection.ask_also(&request(&["TIME"]), &[users()], Outstanding::Request).await?;
            Ok(identity(server, users.first()).at(server.address()))
        };
        let login = bounded(&server.to_string(), login).await;
        self.is_met = login.is_ok();
        let found = met(findings, login);
        let at = |finding: Finding| if finding.server.is_none() { finding.at(server.address()) } else { finding };
        found.into_iter().map(at).collect()
    }

    async fn examine(&mut self, demand: Demand) -> (Option<ServerFacts>, Vec<Finding>) {
        let (name, address) = (self.server.to_string(), self.server.address().to_string());
        let asked = bounded(&name, ask(&mut self.connection, demand)).await;
        let here = i128::from(wall_millis());
        match asked {
            Ok((facts, findings)) => {
                let ahead = facts.now.map(|now| i128::from(now) - here);
                let findings = findings.into_iter().map(|finding| finding.at(&address)).collect();
                (Some(ServerFacts { name: address, facts, ahead }), findings)
            }
            Err(error) => (None, vec![Finding::failed("role", &error).borne().at(&address)]),
        }
    }
}

impl RedlockProbes {
    /// Returns probes for these servers; not connected yet.
    pub(super) fn new(servers: &[Server], strict: bool, namespace: Namespace) -> Self {
        let voter = |server: &Server| {
            let rights = Rights::for_all_locks(&namespace, MAJORITY).and(CHECK);
            let server = server.clone().needing(rights);
            Voter { connection: Connection::new(server.clone()), server, is_met: false }
        };
        Self { voters: servers.iter().map(voter).collect(), strict, namespace }
    }
}

/// Returns the findings on all servers together.
fn together(told: &[ServerFacts], servers: usize) -> Vec<Finding> {
    let twins = told.iter().enumerate().find_map(|(at, one)| {
        let id = one.facts.run_id()?;
        told[..at].iter().find(|other| other.facts.run_id() == Some(id)).map(|other| (&other.name, &one.name))
    });
    let mut findings = vec![match twins {
        Some((one, other)) => {
            let text = format!("{one} and {other} are one server, which would vote twice");
            Finding::fail("servers", ErrorKind::Unusable, text, "name each server once")
        }
        None if told.iter().any(|one| one.facts.run_id().is_none()) => {
            let text = "two names of one server would not be noticed: INFO is not allowed";
            Finding::skip("servers", text, format!("allow it for this user ({CHECK})"))
        }
        None if servers == 1 => Finding::warn(
            "servers",
            "one: while it is down, no lock can be taken",
            "name three or five that do not depend on each other",
        ),
        None if servers.is_multiple_of(2) => {
            let lost = servers - majority(servers);
            let text = format!("{} outlive no more losses than {}: {lost}", counted(servers, "server"), servers - 1);
            Finding::warn("servers", text, "add one, or leave one out")
        }
        None => {
            let text = format!("{}, of which {} may be away", servers, servers - majority(servers));
            Finding::ok("servers", text)
        }
    }];
    let ahead = || told.iter().filter_map(|one| one.ahead);
    if let (Some(least), Some(most)) = (ahead().min(), ahead().max()) {
        let apart = u64::try_from(most - least).unwrap_or(u64::MAX);
        if apart > FAR {
            let text =
                format!("the clocks of the servers are {} apart", length(std::time::Duration::from_millis(apart)));
            let remedy = "synchronize them: tokens are numbered by them, leases are not";
            findings.push(Finding::warn("clock", text, remedy));
        }
    }
    findings
}

#[async_trait::async_trait(?Send)]
impl Probes for RedlockProbes {
    async fn meet(&mut self) -> Met {
        let found = join_all(self.voters.iter_mut().map(Voter::meet)).await;
        let away: Vec<ErrorKind> =
            found.iter().filter_map(|findings| crate::backend::contract::probing::kind_of(findings)).collect();
        let (all, needed) = (self.voters.len(), majority(self.voters.len()));
        let findings = found.into_iter().flatten();
        if all - away.len() >= needed {
            return (findings.map(Finding::borne).collect(), None);
        }
        let kind = ErrorKind::of_voters(away.iter().copied(), all - needed + 1);
        let text = format!("{} of {all} can be used, and a majority is {needed}", all - away.len());
        let last = Finding::new("servers", Verdict::Fail(kind), text);
        (findings.chain([last]).collect(), Some(kind))
    }

    async fn examine(&mut self, _warnings: &[String]) -> Vec<Finding> {
        let servers = self.voters.len();
        let demand = Demand { replicas: 0, strict: self.strict, votes: true };
        let begun = Instant::now();
        let asked = self.voters.iter_mut().filter(|voter| voter.is_met).map(|voter| voter.examine(demand));
        let (told, findings): (Vec<Option<ServerFacts>>, Vec<Vec<Finding>>) = join_all(asked).await.into_iter().unzip();
        let mut told: Vec<ServerFacts> = told.into_iter().flatten().collect();
        if Instant::now().since(begun).as_millis() > u128::from(FAR) / 2 {
            // The clocks were not read at one moment.
            for one in &mut told {
                one.ahead = None;
            }
        }
        let mut findings: Vec<Finding> = findings.into_iter().flatten().collect();
        findings.extend(together(&told, servers));
        findings
    }

    async fn clean(&mut self, key: &Key) {
        let forget = forget(&self.namespace, key);
        let cleaning = self.voters.iter_mut().filter(|voter| voter.is_met).map(|voter| async {
            if voter.connection.connect().await.is_ok() {
                let _ = voter.connection.ask(&forget, Outstanding::Request).await;
            }
        });
        join_all(cleaning).await;
    }
}

#[cfg(test)]
mod tests {
    use ::redis::Value;

    use super::*;
    use crate::backend::redis::facts::facts;

    fn told(name: &str, id: &str, ahead: i128) -> ServerFacts {
        let info = Value::BulkString(format!("run_id:{id}\r\n").into_bytes());
        ServerFacts { name: name.to_owned(), facts: facts(&Value::Nil, &[Value::Nil, info]), ahead: Some(ahead) }
    }

    #[test]
    fn what_servers_are_worth_together() {
        for (ids, ahead, expected) in [
            (&["a", "b", "c"][..], 0, &["3, of which 1 may be away"][..]),
            (&["a"], 0, &["one: while it is down, no lock can be taken"]),
            (&["a", "b"], 0, &["2 servers outlive no more losses than 1: 0"]),
            (&["a", "b", "c", "d"], 0, &["4 servers outlive no more losses than 3: 1"]),
            (&["a", "b", "a"], 0, &["s0 and s2 are one server, which would vote twice"]),
            (&["a", "", "c"], 0, &["two names of one server would not be noticed: INFO is not allowed"]),
            (&["a", "b", "c"], 600, &["3, of which 1 may be away", "the clocks of the servers are 1200ms apart"]),
        ] {
            let all: Vec<ServerFacts> =
                ids.iter().enumerate().map(|(at, id)| told(&format!("s{at}"), id, ahead * at as i128)).collect();
            let texts: Vec<String> = together(&all, ids.len()).into_iter().map(|finding| finding.text).collect();
            assert_eq!(texts, expected, "{ids:?}");
        }
    }
}
