/*!
The connection to one member of the cluster, and the choice of that member.

The client library would spread requests over all endpoints, dead ones too. Here one member serves until it fails or
an answer is overdue; then all are asked at once, and the first that knows a leader is the next one.
*/

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use hyper_util::rt::TokioIo;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::backend::error::{Error, ErrorKind, reasons};
use crate::backend::net::location::{Location, nested_hint};
use crate::backend::net::race::{Pace, race, random_first, round};
use crate::backend::net::tls::{Tls, refused};
use crate::backend::net::wire::{Address, Refusal, Wire};
use crate::clock::Instant;

/// How long one member is asked alone before the next one is asked as well.
const STAGGER: Duration = Duration::from_millis(100);

/// What the service says of a lease that there is not.
pub(super) const NO_LEASE: &str = "lease not found";
/// What it says when a lease is asked for by the id of one that there is.
pub(super) const LEASE_KNOWN: &str = "lease already exists";

/// A connection to one member.
pub(super) struct Link {
    client: Client,
    /// Which of the location's addresses it is.
    member: usize,
    refusal: Refusal,
    /// Its version, where it was asked.
    version: Option<String>,
}

/// The way to the cluster: the connection there is, or the lack of one.
pub(super) struct Cluster {
    location: Location,
    tls: Option<Tls>,
    link: Option<Link>,
    /// A request was sent and its answer has not come: the member may be frozen or cut off.
    unanswered: bool,
    /// The member to ask first.
    first: usize,
    /// How many connections there have been.
    links: u64,
}

impl Cluster {
    pub(super) fn new(location: Location, tls: Option<Tls>) -> Self {
        let first = random_first(location.addresses.len());
        Self { location, tls: tls.map(|tls| tls.offering(b"h2")), link: None, unanswered: false, first, links: 0 }
    }

    /// Makes sure that there is a connection to a member that answers.
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        if self.unanswered {
            self.drop_link();
        }
        if self.link.is_none() {
            let link = self.race().await?;
            self.first = link.member;
            self.link = Some(link);
            self.links += 1;
        }
        Ok(())
    }

    /// Lets go of the member, and asks it last next time.
    pub(super) fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            self.first = (link.member + 1) % self.location.addresses.len();
        }
        self.unanswered = false;
    }

    /// Sends what `request` makes of the client, and notes whether an answer came: also when this future is dropped.
    pub(super) async fn ask<T, F: Future<Output = Result<T, etcd_client::Error>>>(
        &mut self,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, Error> {
        let Some(link) = &self.link else {
            return Err(Error::unavailable(format!("there is no connection to {}", self.location)));
        };
        let client = link.client.clone();
        self.unanswered = true;
        let answer = request(client).await;
        self.unanswered = false;
        answer.map_err(|error| {
            let refusal = self.link.as_ref().map(|link| link.refusal.clone()).unwrap_or_default();
            let explained = self.explain(&error, &refusal);
            // Another member may do better, unless the answer is about us or what is ours.
            if explained.may_pass() && !is_about_lease(&error) {
                self.drop_link();
            }
            explained
        })
    }

    /// The client to send something with whose answer nobody waits for.
    pub(super) fn client(&self) -> Option<Client> {
        self.link.as_ref().map(|link| link.client.clone())
    }

    /// Which connection this is: another number means another one, perhaps to another member.
    pub(super) fn links(&self) -> u64 {
        self.links
    }

    /// The version of the member that serves us, where it was asked before it was chosen.
    pub(super) fn version(&self) -> Option<&str> {
        self.link.as_ref()?.version.as_deref()
    }

    /// An answer that no etcd gives.
    pub(super) fn nonsense(&self) -> Error {
        Error::unavailable(format!("{} gave an answer that makes no sense; is it etcd?", self.location))
    }

    /// The first member that answers and knows a leader.
    async fn race(&mut self) -> Result<Link, Error> {
        let members = self.location.addresses.len();
        let begun = Instant::now();
        let first = self.first;
        // Whatever stops this attempt, the next one begins elsewhere.
        self.first = (first + 1) % members;
        let this = &*self;
        let pace = Pace::Steady { begun, pause: STAGGER };
        // Every member says the same of our credentials.
        let decisive = |error: &Error| error.kind == ErrorKind::Denied;
        let opened = race(round(members, first), pace, |member| this.open(member), decisive).await;
        opened.map_err(|mut errors| match errors.pop() {
            Some(denied) if decisive(&denied) => denied,
            last => {
                errors.extend(last);
                Error::new(ErrorKind::of_several(errors.iter().map(|error| error.kind), 1), reasons(&errors))
            }
        })
    }

    async fn open(&self, member: usize) -> Result<Link, Error> {
        let login = &self.location.login;
        // Without this the user would be left out in silence, and the locks be open to everybody.
        if login.user.is_some() && login.password.is_none() {
            let place = &self.location;
            let message =
                format!("{place} needs a password too: give both --user and --password-file{}", nested_hint());
            return Err(Error::new(ErrorKind::Denied, message));
        }
        let address = &self.location.addresses[member];
        let name = format!("{}://{address}", self.location.scheme);
        let wire = Wire::dial(&name, address, self.tls.as_ref()).await?;
        let refusal = wire.refusal();
        let channel = channel(address, wire, self.tls.is_some()).await.map_err(|error| match refusal.said() {
            Some(said) => refused(&name, &said),
            None => Error::unavailable(format!("could not use {address}: {}", in_full(&error.to_string(), &error))),
        })?;
        let mut options = ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true);
        if let (Some(user), Some(password)) = (&self.location.login.user, &self.location.login.password) {
            options = options.with_user(user, password);
        }
        let client = Client::from_channel(Channel::Tonic(channel), Some(options)).await;
        let mut client = client.map_err(|error| self.explain(&error, &refusal))?;
        // Where there is a choice, it must not fall on a member that is frozen or cut off from the others.
        let mut version = None;
        if self.location.addresses.len() > 1 {
            let status = client.status().await.map_err(|error| self.explain(&error, &refusal))?;
            if status.leader() == 0 {
                return Err(Error::unavailable(format!("{address} knows no leader: is a majority of etcd running?")));
            }
            if status.is_learner() {
                return Err(Error::unavailable(format!("{address} is a learner, which serves no locks")));
            }
            version = Some(status.version().to_owned());
        }
        Ok(Link { client, member, refusal, version })
    }

    /// What to ask oneself when the answer is none of etcd's.
    fn doubt(&self) -> &'static str {
        if self.tls.is_some() {
            "is etcd running there?"
        } else {
            "is etcd running there, or one with TLS, for which the scheme is etcds://?"
        }
    }

    fn explain(&self, error: &etcd_client::Error, refusal: &Refusal) -> Error {
        let place = &self.location;
        if let Some(said) = refusal.said() {
            return refused(place, &said);
        }
        let etcd_client::Error::GRpcStatus(status) = error else {
            let text = crate::holder::shown(in_full(&error.to_string(), error).as_bytes()).to_string();
            return Error::unavailable(format!("{place} did not do as asked: {text}; {}", self.doubt()));
        };
        let text = crate::holder::shown(in_full(status.message(), status).as_bytes()).to_string();
        let says = |words: &str| status.message().contains(words);
        let denied = matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
            || says("authentication")
            || says("user name is empty")
            || says("user name not found")
            || says("password");
        if denied {
            let nested = nested_hint();
            let hint = format!(
                "give the user and password (etcd://user:password@host, or --user and --password-file){nested}"
            );
            let text = if says("permission denied") {
                format!("{text}; let the user's role read and write the keys of --namespace")
            } else if says("authentication is not enabled") {
                format!("{text}; leave out the user and password")
            } else if self.location.login.password.is_none() {
                format!("no password was given ({text}); {hint}")
            } else {
                format!("{text}; {hint}")
            };
            return Error::new(ErrorKind::Denied, format!("{place} refused the credentials: {text}"));
        }
        let hint = match status.code() {
            _ if says("space exceeded") => "its database is full: compact and defragment it, then disarm the alarm",
            _ if says("no leader") => "is a majority of etcd running?",
            Code::ResourceExhausted => "it is overloaded, or somebody's value is too large",
            Code::Unimplemented => "is it an etcd with API version 3?",
            _ => self.doubt(),
        };
        Error::unavailable(format!("{place} did not do as asked: {text}; {hint}"))
    }
}

/// What an error says, and its first cause: that a connection broke is called no more than a transport error.
fn in_full(text: &str, error: &dyn std::error::Error) -> String {
    let cause = std::iter::successors(error.source(), |error| error.source()).last().map(ToString::to_string);
    cause.filter(|cause| !text.contains(cause)).map_or_else(|| text.to_owned(), |cause| format!("{text}: {cause}"))
}

/// Whether this is a sound answer: that there is no such lease, or that there is one already.
fn is_about_lease(error: &etcd_client::Error) -> bool {
    let text = match error {
        etcd_client::Error::GRpcStatus(status) => status.message(),
        etcd_client::Error::LeaseKeepAliveError(text) => text,
        _ => return false,
    };
    text.contains(NO_LEASE) || text.contains(LEASE_KNOWN)
}

/// A channel over this one connection, `encrypted` already or not; when that breaks, so does the channel.
async fn channel(
    address: &Address,
    wire: Wire,
    encrypted: bool,
) -> Result<tonic::transport::Channel, tonic::transport::Error> {
    // To the library the connection is always plain; what it tells the server of it is true.
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
