/*!
The connection to one member of the cluster, and the choice of that member.

The client library would spread requests over all endpoints, dead ones too. Here one member serves until it fails or
an answer is overdue; then all are asked at once, and the first that knows a leader is the next one.
*/

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use hyper_util::rt::TokioIo;
use tonic::transport::Endpoint;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::etcd::errors::{self, About, Fault, no_member};
use crate::backend::net::location::{Location, nested_hint};
use crate::backend::net::race::{Pace, race, random_first, round};
use crate::backend::net::tls::Tls;
use crate::backend::net::wire::{Address, Refusal, Wire};
use crate::clock::Instant;

/// How long one member is asked alone before the next one is asked as well.
const STAGGER: Duration = Duration::from_millis(100);

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
    ) -> Result<T, Fault> {
        let Some(link) = &self.link else { return Err(errors::no_connection(&self.location).into()) };
        let client = link.client.clone();
        self.unanswered = true;
        let answer = request(client).await;
        self.unanswered = false;
        answer.map_err(|error| {
            let refusal = self.link.as_ref().map(|link| link.refusal.clone()).unwrap_or_default();
            let fault = self.explain(&error, &refusal);
            if fault.is_of_the_member() {
                self.drop_link();
            }
            fault
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
        errors::nonsense(&self.location)
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
                no_member(&errors)
            }
        })
    }

    async fn open(&self, member: usize) -> Result<Link, Error> {
        let login = &self.location.login;
        // Without this the user would be left out in silence, and the locks be open to everybody.
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
        // Where there is a choice, it must not fall on a member that is frozen or cut off from the others.
        let mut version = None;
        if self.location.addresses.len() > 1 {
            let status = client.status().await.map_err(|error| self.explain(&error, &refusal))?;
            if status.leader() == 0 {
                return Err(errors::no_leader(address));
            }
            if status.is_learner() {
                return Err(errors::learner(address));
            }
            version = Some(status.version().to_owned());
        }
        Ok(Link { client, member, refusal, version })
    }

    /// What an error on a connection that the server may have refused by this `refusal` means.
    fn explain(&self, error: &etcd_client::Error, refusal: &Refusal) -> Fault {
        let about = About {
            place: &self.location,
            has_tls: self.tls.is_some(),
            has_password: self.location.login.password.is_some(),
            nested: nested_hint(),
        };
        errors::explain(error, refusal.said().as_deref(), about)
    }
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
