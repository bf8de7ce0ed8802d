/*!
The connection to one member of the cluster, and the choice of that member.

The client library would spread requests over all endpoints, dead ones too. Here one member serves until it fails or an
answer is overdue; then all are asked at once, and the first that knows a leader is the next one.

All members of a URL must be of one cluster, or two holders would each have their own lock: once the first connection is
made, the others are asked for their cluster, and no member of another one is used later.
*/

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, ResponseHeader, StatusResponse};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper_util::rt::TokioIo;
use tonic::transport::Endpoint;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::etcd::errors::{self, About, Fault, no_member};
use crate::backend::net::location::{Location, nested_hint};
use crate::backend::net::race::{Pace, race, random_first, round};
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::{Address, Refusal, Wire};
use crate::clock::{Instant, before};

/// Time for which one member is tried alone before the next one is tried as well.
const STAGGER: Duration = Duration::from_millis(100);

/// Upper bound on the time, during the first contact, for all other members to say which cluster they belong to.
const MAX_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection to one member.
pub(super) struct Link {
    client: Client,
    /// The index of the member's address in the location.
    member: usize,
    refusal: Refusal,
    /// A request was answered: etcd is there.
    has_answered: bool,
    /// The member's version, if it was asked.
    version: Option<String>,
    /// The id of the member's cluster, if it was asked.
    cluster: Option<u64>,
}

/// Access to the cluster, by at most one connection.
pub(super) struct Cluster {
    location: Location,
    tls: Option<Tls>,
    /// The key prefix of all locks in the namespace.
    keys: String,
    link: Option<Link>,
    /// A request was sent and not answered: the member may be frozen or cut off.
    unanswered: bool,
    /// The member to ask first.
    first: usize,
    /// Number of connections made so far.
    links: u64,
    /// The cluster, and the member that reported it; `None` before the first connection, or with only one member.
    known: Option<Membership>,
}

/// A member and the cluster that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Membership {
    /// The index of the member's address in the location.
    member: usize,
    /// The cluster's id.
    cluster: u64,
}

impl Cluster {
    /// The cluster at `location`; not connected yet. Errors about rights name `keys`.
    pub(super) fn new(location: Location, tls: Option<Tls>, keys: String) -> Self {
        let first = random_first(location.addresses.len());
        let tls = tls.map(|tls| tls.offering(b"h2"));
        Self { location, tls, keys, link: None, unanswered: false, first, links: 0, known: None }
    }

    /// Ensures that there is a connection to a member that answers.
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        if self.unanswered {
            self.drop_link();
        }
        if self.link.is_none() {
            let begun = Instant::now();
            let link = self.race().await?;
            if self.known.is_none() {
                self.known = self.one_cluster(&link, begun).await?;
            }
            self.first = link.member;
            self.link = Some(link);
            self.links += 1;
        }
        Ok(())
    }

    /// Drops the connection to the member, and tries that member last next time.
    pub(super) fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            self.first = (link.member + 1) % self.location.addresses.len();
        }
        self.unanswered = false;
    }

    /// Sends the request made by `request`. Keeps track of a missing answer, even if this future is dropped.
    pub(super) async fn ask<T, F: Future<Output = Result<T, etcd_client::Error>>>(
        &mut self,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, Fault> {
        let Some(link) = &mut self.link else { return Err(errors::no_connection(&self.location).into()) };
        let client = link.client.clone();
        self.unanswered = true;
        let answer = request(client).await;
        self.unanswered = false;
        link.has_answered |= answer.is_ok();
        answer.map_err(|error| {
            let refusal = self.link.as_ref().map(|link| link.refusal.clone()).unwrap_or_default();
            let fault = self.explain(&error, &refusal);
            if fault.is_of_the_member() {
                self.drop_link();
            }
            fault
        })
    }

    /// The client, for requests whose answer nobody waits for.
    pub(super) fn client(&self) -> Option<Client> {
        self.link.as_ref().map(|link| link.client.clone())
    }

    /// The number of the current connection: a different number means a new one, perhaps to another member.
    pub(super) fn links(&self) -> u64 {
        self.links
    }

    /// The version of the connected member, if it was asked before it was chosen.
    pub(super) fn version(&self) -> Option<&str> {
        self.link.as_ref()?.version.as_deref()
    }

    /// The error for a connected member that does not answer.
    pub(super) fn silence(&self) -> Error {
        match self.link.as_ref().and_then(|link| self.location.addresses.get(link.member)) {
            Some(member) => errors::silence(member),
            None => errors::silence(&self.location),
        }
    }

    /// The error for a malformed reply.
    pub(super) fn malformed(&self) -> Error {
        errors::malformed(&self.location)
    }

    /// The error for a revision that cannot be a fencing token.
    pub(super) fn no_token(&self, revision: i64) -> Error {
        errors::no_token(&self.location, revision)
    }

    /// Fails if an answer is about another lease than the one that was `asked` for.
    pub(super) fn same_lease(&self, asked: i64, answered: i64) -> Result<(), Error> {
        if asked == answered { Ok(()) } else { Err(errors::other_lease(&self.location, answered)) }
    }

    /// Connects to the first member that answers and knows a leader.
    async fn race(&mut self) -> Result<Link, Error> {
        let members = self.location.addresses.len();
        let begun = Instant::now();
        let first = self.first;
        // Whatever stops this attempt, the next one begins with another member.
        self.first = (first + 1) % members;
        let this = &*self;
        let pace = Pace::Steady { begun, pause: STAGGER };
        // All members judge our credentials alike.
        let decisive = |error: &Error| error.kind == ErrorKind::Denied;
        let opened = race(round(members, first), pace, |member| this.open(member), decisive).await;
        opened.map_err(|mut errors| match errors.pop() {
            Some(denied) if decisive(&denied) => denied,
            last => {
                errors.extend(last);
                no_member(&errors)
            }
        })
    }

    /// Asks all members but the first one, that of `link`, which cluster they belong to, and fails if one belongs to
    /// another. Does not wait long: a member that has not answered is checked before a later connection to it is used.
    async fn one_cluster(&self, link: &Link, begun: Instant) -> Result<Option<Membership>, Error> {
        let Some(known) = link.cluster.map(|cluster| Membership { member: link.member, cluster }) else {
            return Ok(None);
        };
        let others = round(self.location.addresses.len(), link.member).skip(1);
        let mut asked: FuturesUnordered<_> =
            others.map(|member| async move { (member, self.cluster_of(member).await) }).collect();
        let now = Instant::now();
        let deadline = now + (now.since(begun) + STAGGER).min(MAX_TIMEOUT);
        while let Ok(Some((member, cluster))) = before(deadline, asked.next()).await {
            if let Some(cluster) = cluster {
                self.same_cluster(known, Membership { member, cluster })?;
            }
        }
        Ok(Some(known))
    }

    /// Fails if two members belong to different clusters.
    fn same_cluster(&self, one: Membership, other: Membership) -> Result<(), Error> {
        let name = |membership: Membership| &self.location.addresses[membership.member];
        if one.cluster == other.cluster { Ok(()) } else { Err(errors::two_clusters(name(one), name(other))) }
    }

    /// Asks a member for the id of its cluster; `None` if it does not answer. Needs no credentials.
    async fn cluster_of(&self, member: usize) -> Option<u64> {
        let address = &self.location.addresses[member];
        let wire = Wire::dial(address, address, self.tls.as_ref()).await.ok()?;
        let channel = channel(address, wire, self.tls.is_some()).await.ok()?;
        let mut client = Client::from_channel(Channel::Tonic(channel), None).await.ok()?;
        cluster_in(&client.status().await.ok()?)
    }

    async fn open(&self, member: usize) -> Result<Link, Error> {
        let login = &self.location.login;
        // The library would silently ignore the user, and an open server would serve the locks to everybody.
        if login.user.is_some() && login.password.is_none() {
            return Err(errors::no_password(&self.location, nested_hint()));
        }
        let address = &self.location.addresses[member];
        let name = format!("{}://{address}", self.location.scheme);
        let wire = Wire::dial(&name, address, self.tls.as_ref()).await?;
        let refusal = wire.refusal();
        let channel = channel(address, wire, self.tls.is_some()).await;
        let channel = channel.map_err(|error| errors::unusable(address, &error, refusal.said().as_deref(), &name))?;
        let mut options = ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true);
        if let (Some(user), Some(password)) = (&self.location.login.user, &self.location.login.password) {
            options = options.with_user(user, password);
        }
        let client = Client::from_channel(Channel::Tonic(channel), Some(options)).await;
        let mut client = client.map_err(|error| self.explain(&error, &refusal))?;
        // If there is a choice, it must not fall on a member that is frozen or cut off from the others.
        let (mut version, mut cluster) = (None, None);
        if self.location.addresses.len() > 1 {
            let status = client.status().await.map_err(|error| self.explain(&error, &refusal))?;
            if status.leader() == 0 {
                return Err(errors::no_leader(address));
            }
            if status.is_learner() {
                return Err(errors::learner(address));
            }
            version = Some(status.version().to_owned());
            cluster = cluster_in(&status);
            if let (Some(known), Some(cluster)) = (self.known, cluster) {
                self.same_cluster(known, Membership { member, cluster })?;
            }
        }
        Ok(Link { client, member, refusal, has_answered: false, version, cluster })
    }

    /// Translates an error on a connection; `refusal` holds the server's reason if it refused our certificate.
    fn explain(&self, error: &etcd_client::Error, refusal: &Refusal) -> Fault {
        let about = About {
            place: &self.location,
            keys: &self.keys,
            has_answered: self.link.as_ref().is_some_and(|link| link.has_answered),
            has_tls: self.tls.is_some(),
            has_password: self.location.login.password.is_some(),
            nested: nested_hint(),
        };
        errors::explain(error, refusal.said().as_deref(), about)
    }
}

/// The cluster id in a member's answer; `None` if there is none.
fn cluster_in(status: &StatusResponse) -> Option<u64> {
    status.header().map(ResponseHeader::cluster_id).filter(|&cluster| cluster != 0)
}

/// A channel over this one connection, which may already be `encrypted`; the channel breaks when the connection does.
async fn channel(
    address: &Address,
    wire: Wire,
    encrypted: bool,
) -> Result<tonic::transport::Channel, tonic::transport::Error> {
    // The library treats the connection as plain, but tells the server its actual scheme.
    let scheme = if encrypted { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let endpoint = match format!("{scheme}://{address}").parse() {
        Ok(origin) => endpoint.origin(origin),
        Err(_) => endpoint,
    };
    let once = Arc::new(Mutex::new(Some(wire)));
    let connector = tower::service_fn(move |_| {
        let wire = once.lock().ok().and_then(|mut wire| wire.take());
        std::future::ready(wire.map(TokioIo::new).ok_or(std::io::ErrorKind::NotConnected).map_err(std::io::Error::from))
    });
    endpoint.connect_with_connector(connector).await
}
