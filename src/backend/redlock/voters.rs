/*!
All voters together: sends requests to them, receives their answers, and tracks the state of each server.
*/

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::backend::contract::contender::Released;
use crate::backend::error::Error;
use crate::backend::redis::Server;
use crate::backend::redlock::errors::{self, Failures};
use crate::backend::redlock::requests::{Answer, Dispatch, Event, Request};
use crate::backend::redlock::voter;
use crate::clock::{Instant, before};

/// The voters, one for each server.
#[derive(Debug)]
pub(super) struct Voters {
    servers: Vec<Server>,
    /// `true` if servers that could lose their counters when killed are refused.
    strict: bool,
    peers: Vec<Peer>,
    events: Option<UnboundedReceiver<Event>>,
    /// The number of the latest round.
    round: u64,
    warnings: Vec<String>,
}

/// The state of one server.
#[derive(Debug)]
struct Peer {
    requests: UnboundedSender<Dispatch>,
    run_id: Option<String>,
    acquaintance: Acquaintance,
    /// `true` if a vote of the present attempt was given back there.
    freed: bool,
    /// `true` if there was a warning that the server fails for a reason that does not pass.
    is_given_up: bool,
}

/// The acquaintance with a server, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Acquaintance {
    /// It has not answered yet.
    Stranger,
    /// It has answered once.
    Seen,
    /// It has identified itself and named the settings that make locks unsafe.
    Introduced,
}

impl Voters {
    /// Returns one voter for each of the `servers`; not started yet. With `strict`, servers that could lose their
    /// counters when killed are refused.
    pub(super) fn new(servers: Vec<Server>, strict: bool, warnings: Vec<String>) -> Self {
        Self { servers, strict, peers: Vec::new(), events: None, round: 0, warnings }
    }

    /// Returns the servers.
    pub(super) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the number of servers.
    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Starts a voter for each server, unless that was done before.
    pub(super) fn start(&mut self) {
        if self.events.is_some() {
            return;
        }
        let (sender, events) = unbounded_channel();
        let start = |(index, server): (usize, &Server)| Peer {
            requests: voter::start(index, server.clone(), self.strict, sender.clone()),
            run_id: None,
            acquaintance: Acquaintance::Stranger,
            freed: false,
            is_given_up: false,
        };
        self.peers = self.servers.iter().enumerate().map(start).collect();
        self.events = Some(events);
    }

    /// Sends the request to the servers for which `which` is true. Returns the number of its round, which its answers
    /// carry.
    pub(super) fn tell(&mut self, which: impl Fn(usize) -> bool, request: &Request, timeout: Duration) -> u64 {
        self.round += 1;
        self.tell_in(self.round, which, request, timeout);
        self.round
    }

    /// Sends the request to all servers. Returns the number of its round, which its answers carry.
    pub(super) fn tell_all(&mut self, request: &Request, timeout: Duration) -> u64 {
        self.tell(|_| true, request, timeout)
    }

    /// Sends the request to the servers for which `which` is true, in a `round` that has begun: its answers carry that
    /// number.
    pub(super) fn tell_in(&self, round: u64, which: impl Fn(usize) -> bool, request: &Request, timeout: Duration) {
        for (index, peer) in self.peers.iter().enumerate() {
            if which(index) {
                // Cannot fail: the task lives as long as this end of its channel.
                let _ = peer.requests.send(Dispatch { round, request: request.clone(), timeout });
            }
        }
    }

    /// Receives the next answer to any request, and updates the state of its server.
    async fn hear(&mut self) -> Result<Event, Error> {
        let event = match &mut self.events {
            Some(events) => events.recv().await,
            None => None,
        };
        let event = event.ok_or_else(errors::nobody_there)?;
        let peer = &mut self.peers[event.voter];
        if !matches!(event.answer, Answer::Failed(_)) {
            peer.acquaintance = peer.acquaintance.max(Acquaintance::Seen);
        }
        match &event.answer {
            Answer::Acquired(_, Some(introduction)) => {
                peer.run_id.clone_from(&introduction.run_id);
                if std::mem::replace(&mut peer.acquaintance, Acquaintance::Introduced) != Acquaintance::Introduced {
                    let server = &self.servers[event.voter];
                    let warnings = introduction.warnings.iter().map(|warning| format!("{server}: {warning}"));
                    self.warnings.extend(warnings);
                }
            }
            Answer::Released(Released::Freed | Released::Kept) => peer.freed = true,
            Answer::Failed(failure) if !failure.kind.is_transient() && !peer.is_given_up => {
                peer.is_given_up = true;
                self.warnings.push(format!("one server less: {}", failure.reason));
            }
            _ => {}
        }
        Ok(event)
    }

    /// Receives the next answer of this `round`; `None` if `limit` comes first.
    pub(super) async fn hear_of(&mut self, round: u64, limit: Option<Instant>) -> Result<Option<Event>, Error> {
        loop {
            let event = match limit {
                Some(limit) => match before(limit, self.hear()).await {
                    Ok(event) => event?,
                    Err(_) => return Ok(None),
                },
                None => self.hear().await?,
            };
            if event.round == round {
                return Ok(Some(event));
            }
        }
    }

    /// Returns the number of the earlier server that is the same one under another name, if any.
    pub(super) fn twin(&self, index: usize) -> Option<usize> {
        let id = self.peers[index].run_id.as_ref()?;
        self.peers[..index].iter().position(|other| other.run_id.as_ref() == Some(id))
    }

    /// Returns the error in the list of servers, if one is known by now: two names for one server, or a server that
    /// must not vote.
    pub(super) fn bad_topology(&self, failures: &Failures) -> Option<Error> {
        let twins = (0..self.peers.len()).find_map(|index| self.twin(index).map(|twin| (twin, index)));
        if let Some((one, other)) = twins {
            let (one, other) = (&self.servers[one], &self.servers[other]);
            return Some(errors::twins(one, other));
        }
        failures.values().find(|failure| failure.unfit).map(errors::bad_topology)
    }

    /// Returns `true` if a server has answered, but has not identified itself.
    pub(super) fn is_unintroduced(&self, index: usize) -> bool {
        self.peers[index].acquaintance == Acquaintance::Seen
    }

    /// Returns `true` if a vote of the present attempt was given back there.
    pub(super) fn has_freed(&self, index: usize) -> bool {
        self.peers[index].freed
    }

    /// Forgets which servers gave back a vote, because another attempt begins.
    pub(super) fn forget_freed(&mut self) {
        for peer in &mut self.peers {
            peer.freed = false;
        }
    }

    /// Takes the findings since the last call that could make locks unsafe, for one warning each.
    pub(super) fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}
