/*!
Checks whether an etcd cluster keeps its promises: asks each member for its state, and the cluster for a lease of the
length that runs ask for, which is given back at once.
*/

use std::time::Duration;

use etcd_client::{Client, Error as EtcdError, GetOptions, StatusResponse};
use futures_util::future::join_all;

use crate::backend::contract::probing::{
    CheckParameters, Finding, Met, Probes, Verdict, bounded, contact, counted, kind_of, met,
};
use crate::backend::error::{Error, ErrorKind};
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::session::seconds;
use crate::backend::etcd::version;
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::Address;
use crate::printable::shown;

/// The probes of one cluster.
pub(super) struct EtcdProbes {
    location: Location,
    tls: Option<Tls>,
    members: Vec<Member>,
    ttl: Duration,
}

/// One member that the URL names.
struct Member {
    address: Address,
    cluster: Cluster,
    /// The state that it reported.
    state: Option<State>,
}

/// The state that a member reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    version: String,
    /// It knows the leader of the cluster.
    has_leader: bool,
    is_learner: bool,
    /// Alarms and other errors.
    errors: Vec<String>,
}

impl State {
    fn of(status: &StatusResponse) -> Self {
        Self {
            version: status.version().to_owned(),
            has_leader: status.leader() != 0,
            is_learner: status.is_learner(),
            errors: status.errors().to_vec(),
        }
    }

    /// The findings about the member.
    fn findings(&self) -> Vec<Finding> {
        vec![self.release(), self.standing()]
    }

    fn release(&self) -> Finding {
        let text = format!("etcd {}", shown(self.version.as_bytes()));
        match version::objection(&self.version) {
            _ if self.version.is_empty() => {
                Finding::skip("version", "unknown: there is no leader", "check again once there is one")
            }
            None => Finding::ok("version", text),
            Some((true, said)) => Finding::said("version", Verdict::Fail(ErrorKind::Unusable), &said),
            Some((false, said)) => {
                let (what, remedy) = said.rsplit_once([':', ';']).unwrap_or((&said, ""));
                Finding::warn("version", what, remedy.trim())
            }
        }
    }

    fn standing(&self) -> Finding {
        let alarm = |name: &str| self.errors.iter().any(|error| error.contains(name));
        let unavailable = |text: &str, remedy: &str| Finding::fail("cluster", ErrorKind::Unavailable, text, remedy);
        match () {
            () if alarm("CORRUPT") => {
                unavailable("alarm CORRUPT: its data differ from those of the others", "replace the member")
            }
            () if alarm("NOSPACE") => unavailable(
                "alarm NOSPACE: its database is full, and it takes no writes",
                "compact and defragment it, then etcdctl alarm disarm",
            ),
            () if !self.has_leader => unavailable("it knows no leader", "is a majority of etcd running?"),
            () if self.is_learner => {
                Finding::warn("cluster", "it is a learner, which serves no locks", "promote it, or leave it out")
            }
            () => Finding::ok("cluster", "it knows its leader"),
        }
    }
}

/// The finding about the number of voting members.
fn size(voters: usize) -> Finding {
    match voters {
        1 => Finding::warn("cluster", "only one member: if it is down, no lock can be taken or renewed", "run three"),
        2 => Finding::warn("cluster", "two members: both must be there", "run three"),
        _ => {
            Finding::ok("cluster", format!("{}, of which {} may be away", counted(voters, "member"), (voters - 1) / 2))
        }
    }
}

/// The finding about a lease of `granted` seconds where `wanted` were requested.
fn lease(granted: i64, wanted: i64) -> Finding {
    if granted == wanted {
        return Finding::ok("lease", format!("{granted}s as asked for"));
    }
    let text = format!("{granted}s is granted where --ttl asks for {wanted}s");
    Finding::warn("lease", text, "ask for what is granted, or change the server's election timeout")
}

impl Member {
    async fn ask<T, F: Future<Output = Result<T, EtcdError>>>(
        &mut self,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, Error> {
        let Self { address, cluster, .. } = self;
        let asked = async {
            cluster.connect().await?;
            cluster.ask(request).await.map_err(Error::from)
        };
        bounded(&address.to_string(), asked).await
    }

    /// The error if the member refuses requests without a user; it reports its state to everybody. The rights of the
    /// user are another question: a client certificate may name one.
    async fn refusal(&mut self) -> Option<Error> {
        let options = GetOptions::new().with_serializable().with_keys_only();
        let asked = Box::pin(self.ask(|mut client| async move { client.get("a", Some(options)).await })).await;
        asked.err().filter(|error| error.kind == ErrorKind::Denied && error.to_string().contains("user name is empty"))
    }

    async fn meet(&mut self, location: &Location, tls: Option<&Tls>) -> Vec<Finding> {
        let address = self.address.clone();
        let name = format!("{}://{address}", location.scheme);
        let tls = tls.map(|tls| tls.clone().offering(b"h2"));
        let (findings, wire) = contact(&name, &address, tls.as_ref()).await;
        if wire.is_none() {
            return findings;
        }
        let state = match Box::pin(self.ask(|mut client| async move { client.status().await })).await {
            Ok(status) => Ok(State::of(&status)),
            // The member answers, but itself waits for a leader.
            Err(error) if error.to_string().contains("no leader") => Ok(State::default()),
            Err(error) => Err(error),
        };
        let is_nobody = state.is_ok() && location.login.user.is_none();
        let refusal = if is_nobody { self.refusal().await } else { None };
        let state = refusal.map_or(state, Err);
        let login = state.map(|state| {
            self.state = Some(state);
            let who = match &location.login.user {
                Some(user) => format!("user {}", shown(user.as_bytes())),
                None => "no user given".to_owned(),
            };
            Finding::ok("identity", who).at(&address)
        });
        let found = met(findings, login);
        let at = |finding: Finding| if finding.server.is_none() { finding.at(&address) } else { finding };
        found.into_iter().map(at).collect()
    }
}

impl EtcdProbes {
    /// Probes for the members at `location`; not connected yet.
    pub(super) fn new(location: &Location, tls: Option<Tls>, parameters: &CheckParameters) -> Self {
        let keys = parameters.namespace.prefix('/');
        let member = |address: &Address| {
            let one = Location { addresses: vec![address.clone()], ..location.clone() };
            let cluster = Cluster::new(one, tls.clone(), keys.clone());
            Member { address: address.clone(), cluster, state: None }
        };
        Self {
            members: location.addresses.iter().map(member).collect(),
            location: location.clone(),
            tls,
            ttl: parameters.ttl,
        }
    }

    /// The findings about the cluster's size and the lease that it grants, from the first member that can tell.
    async fn of_the_cluster(&mut self) -> Vec<Finding> {
        let serves = |state: &State| state.has_leader && !state.is_learner;
        let Some(member) = self.members.iter_mut().find(|member| member.state.as_ref().is_some_and(serves)) else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        match Box::pin(member.ask(|mut client| async move { client.member_list().await })).await {
            Ok(list) => findings.push(size(list.members().iter().filter(|member| !member.is_learner()).count())),
            Err(error) => findings.push(Finding::skip("cluster", error.to_string(), "ask with etcdctl member list")),
        }
        let wanted = seconds(self.ttl);
        let granted = member.ask(|mut client| async move {
            let granted = client.lease_grant(wanted, None).await?;
            client.lease_revoke(granted.id()).await?;
            Ok(granted.ttl())
        });
        findings.push(match Box::pin(granted).await {
            Ok(granted) => lease(granted, wanted),
            Err(error) => Finding::failed("lease", &error),
        });
        findings
    }
}

#[async_trait::async_trait(?Send)]
impl Probes for EtcdProbes {
    async fn meet(&mut self) -> Met {
        let (location, tls) = (&self.location, self.tls.as_ref());
        let found = join_all(self.members.iter_mut().map(|member| member.meet(location, tls))).await;
        let kinds: Vec<ErrorKind> = found.iter().filter_map(|findings| kind_of(findings)).collect();
        let findings = found.into_iter().flatten();
        if kinds.len() < self.members.len() {
            return (findings.map(Finding::borne).collect(), None);
        }
        (findings.collect(), Some(ErrorKind::of_several(kinds, 1)))
    }

    async fn examine(&mut self, _warnings: &[String]) -> Vec<Finding> {
        let is_one_fit = self.members.iter().filter_map(|member| member.state.as_ref()).any(|state| state.has_leader);
        let of = |member: &Member| {
            let findings = member.state.as_ref().map(State::findings).unwrap_or_default();
            let address = member.address.clone();
            findings.into_iter().map(move |finding| finding.at(&address))
        };
        // A member that is cut off is tolerated if another one serves; alarms concern the whole cluster.
        let borne = |finding: Finding| {
            let is_cut_off = finding.text.ends_with("no leader");
            if is_one_fit && is_cut_off { finding.borne() } else { finding }
        };
        let mut findings: Vec<Finding> = self.members.iter().flat_map(of).map(borne).collect();
        findings.extend(self.of_the_cluster().await);
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(version: &str, has_leader: bool, is_learner: bool, errors: &[&str]) -> State {
        let errors = errors.iter().map(|error| (*error).to_owned()).collect();
        State { version: version.to_owned(), has_leader, is_learner, errors }
    }

    #[test]
    fn what_a_member_is_worth() {
        for (state, expected) in [
            (state("3.5.13", true, false, &[]), ["ok", "ok"]),
            (state("3.4.23", true, false, &[]), ["warn", "ok"]),
            (state("3.3.1", true, true, &[]), ["fail", "warn"]),
            (state("", false, false, &[]), ["skip", "fail"]),
            (state("3.6.0", true, false, &["memberID:7 alarm:NOSPACE "]), ["ok", "fail"]),
            (state("3.6.0", true, false, &["memberID:7 alarm:CORRUPT "]), ["ok", "fail"]),
        ] {
            let findings = state.findings();
            assert_eq!(
                findings.iter().map(|finding| finding.verdict.name()).collect::<Vec<_>>(),
                expected,
                "{state:?}"
            );
            for finding in findings.iter().filter(|finding| finding.verdict.name() != "ok") {
                assert!(finding.remedy.is_some() && !finding.text.contains(" use "), "{finding:?}");
            }
        }
    }

    #[test]
    fn what_a_cluster_and_its_leases_are_worth() {
        for (voters, verdict) in [(1, "warn"), (2, "warn"), (3, "ok"), (5, "ok")] {
            assert_eq!(size(voters).verdict.name(), verdict);
        }
        assert_eq!(size(5).text, "5 members, of which 2 may be away");
        assert_eq!(lease(30, 30).verdict.name(), "ok");
        assert_eq!(lease(2, 1).text, "2s is granted where --ttl asks for 1s");
    }
}
