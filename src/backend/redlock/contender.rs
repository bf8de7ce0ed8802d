/*!
What a contender at a majority of redis servers knows.
*/

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Claim;
use crate::backend::redis::Server;
use crate::backend::redlock::scripts::Try;
use crate::backend::redlock::voters::Voters;
use crate::clock::Instant;

/// How much longer than those who matter the others may take to give the lock back.
pub(super) const LAST_RELEASES: Duration = Duration::from_millis(50);

/// How long one server may take to answer: so short that a silent one costs an attempt little of its lease.
pub(super) fn patience(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// A random number between the two, or the larger one where the kernel gives none.
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
    pub claim: Claim,
    pub voters: Voters,
    /// With strict fencing.
    pub strict: bool,
    /// The number of the last attempt.
    pub number: u64,
    /// The last attempt, unless it was given back.
    pub attempt: Option<Arc<Try>>,
    /// The token of that attempt, once it is granted.
    pub token: Option<u64>,
    /// A majority was reached once.
    pub reached: bool,
    /// The servers have had the time to say who they are.
    pub introduced: bool,
    pub look_again: Instant,
}

impl RedlockContender {
    /// Contends for `claim`; with `strict`, only servers vote that keep their counters when killed.
    pub(super) fn new(claim: Claim, servers: Vec<Server>, strict: bool) -> Self {
        let mut concerns = Vec::new();
        if servers.len().is_multiple_of(2) {
            let (even, odd) = (servers.len(), servers.len() - 1);
            concerns.push(format!("{even} servers survive no more losses than {odd} would: use an odd number of them"));
        }
        Self {
            claim,
            voters: Voters::new(servers, strict, concerns),
            strict,
            number: 0,
            attempt: None,
            token: None,
            reached: false,
            introduced: false,
            look_again: Instant::now(),
        }
    }
}
