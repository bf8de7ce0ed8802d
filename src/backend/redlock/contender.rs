/*!
The state of a contender at a majority of redis servers.
*/

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;

use crate::backend::contract::claim::Claim;
use crate::backend::redis::Server;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::listener::Listener;
use crate::backend::redlock::scripts::Try;
use crate::backend::redlock::voters::Voters;
use crate::clock::Instant;

/// The time for the remaining servers to release the lock once the outcome is known.
pub(super) const LAST_RELEASES: Duration = Duration::from_millis(50);

/// The minimum time between two looks at a lock in milliseconds, whatever the servers answer.
pub(super) const BETWEEN_LOOKS: u64 = 10;

/// Returns the time limit for one server's answer: short, so that a silent one costs an attempt little of its lease.
pub(super) fn timeout(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// Returns a random number from `from` to `to`, or `to` if the kernel provides no random bytes.
pub(super) fn random(from: u64, to: u64) -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => from + u64::from_ne_bytes(bytes) % (to - from + 1),
        Err(_) => to,
    }
}

/// One claim at a majority of redis servers.
#[derive(Debug)]
pub(super) struct RedlockContender {
    /// The claim that it contends for.
    pub claim: Claim,
    /// The tasks that look after the servers.
    pub voters: Voters,
    /// `true` if fencing is strict: servers that could lose their counters are refused.
    pub strict: bool,
    /// The number of the last attempt.
    pub number: u64,
    /// The last attempt, until it is given back.
    pub attempt: Option<Arc<Try>>,
    /// The token of that attempt, once it is granted.
    pub token: Option<u64>,
    /// The last attempt that failed and may have told servers to keep others out.
    pub announced: Option<Arc<Try>>,
    /// The slot to ask for next: the held one, or one that may be free; `None` if none is known.
    pub slot: Option<u32>,
    /// `true` once a majority has been reached.
    pub reached: bool,
    /// `true` once the servers have had the time to identify themselves.
    pub introduced: bool,
    /// The time of a waiter's next look.
    pub look_again: Instant,
    /// The listeners for break requests, one for each server, from the first renewal on.
    listeners: Vec<Option<Listener>>,
}

impl RedlockContender {
    /// Returns a contender for `claim` at these servers. With `strict`, servers that could lose their counters when
    /// killed are refused.
    pub(super) fn new(claim: Claim, servers: Vec<Server>, strict: bool) -> Self {
        let mut warnings = Vec::new();
        if servers.len().is_multiple_of(2) {
            let (even, odd) = (servers.len(), servers.len() - 1);
            warnings.push(format!("{even} servers survive no more losses than {odd} would: use an odd number of them"));
        }
        Self {
            claim,
            voters: Voters::new(servers, strict, warnings),
            strict,
            number: 0,
            attempt: None,
            token: None,
            announced: None,
            slot: None,
            reached: false,
            introduced: false,
            look_again: Instant::now(),
            listeners: Vec::new(),
        }
    }

    /// Resolves when one of the servers has a message for this holder, which makes a renewal worthwhile.
    pub(super) async fn heard(&mut self) {
        let list = Keys::of(&self.claim).listener(self.claim.owner.as_str());
        let servers = self.voters.servers();
        self.listeners.resize_with(servers.len(), || None);
        let listening = self.listeners.iter_mut().zip(servers);
        let listening: Vec<_> =
            listening.map(|(listener, server)| Box::pin(Listener::hear(listener, server, list.clone()))).collect();
        select_all(listening).await;
    }

    /// Returns the slot to ask for, if the claim wants one: the known one, or else a random one.
    pub(super) fn slot_to_ask_for(&self) -> Option<u32> {
        let last = self.claim.mode.slots()?.saturating_sub(1);
        self.slot.or_else(|| u32::try_from(random(0, last.into())).ok())
    }
}
