/*!
The state of a contender at a majority of redis servers.
*/

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::backend::contract::claim::Claim;
use crate::backend::redis::Server;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::listener::Listener;
use crate::backend::redlock::quorum::majority;
use crate::backend::redlock::scripts::Try;
use crate::backend::redlock::voters::Voters;
use crate::clock::{Instant, before};

/// The time for the remaining servers to release the lock once the outcome is known.
pub(super) const LAST_RELEASES: Duration = Duration::from_millis(50);

/// The minimum time between two looks at a lock in milliseconds, whatever the servers answer.
pub(super) const BETWEEN_LOOKS: u64 = 10;

/// The maximum time until the look of a waiter that only a minority has told of a release, in milliseconds.
const MINORITY_PAUSE: u64 = 50;

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

/// Listens on this list at each server, and resolves once for each that has a message.
fn listen<'a>(
    listeners: &'a mut Vec<Option<Listener>>,
    servers: &'a [Server],
    list: &str,
) -> FuturesUnordered<impl Future<Output = ()> + use<'a>> {
    listeners.resize_with(servers.len(), || None);
    listeners
        .iter_mut()
        .zip(servers)
        .map(|(listener, server)| Listener::hear(listener, server, list.to_owned()))
        .collect()
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
    /// The time at which the last attempt was sent.
    pub looked: Instant,
    /// A waiter's listeners for releases, one for each server, from its first wait on.
    pub release_listeners: Vec<Option<Listener>>,
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
            looked: Instant::now(),
            release_listeners: Vec::new(),
        }
    }

    /// Resolves when one of the servers has a message for this holder, which makes a renewal worthwhile.
    pub(super) async fn notified(&mut self) {
        let list = Keys::of(&self.claim).listener(self.claim.owner.as_str());
        listen(&mut self.listeners, self.voters.servers(), &list).next().await;
    }

    /// Resolves when a majority of the servers has told this waiter of a release, or a moment after fewer have: each
    /// server tells the one that has listened longest there.
    pub(super) async fn told_of_release(&mut self) {
        let list = Keys::of(&self.claim).released();
        let servers = self.voters.servers();
        let mut listening = listen(&mut self.release_listeners, servers, &list);
        listening.next().await;
        let limit = Instant::now() + Duration::from_millis(random(BETWEEN_LOOKS, MINORITY_PAUSE));
        for _ in 1..majority(servers.len()) {
            if before(limit, listening.next()).await.is_err() {
                return;
            }
        }
    }

    /// Returns the slot to ask for, if the claim wants one: the known one, or else a random one.
    pub(super) fn slot_to_ask_for(&self) -> Option<u32> {
        let last = self.claim.mode.slots()?.saturating_sub(1);
        self.slot.or_else(|| u32::try_from(random(0, last.into())).ok())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::backend::contract::contender::{Attempt, Contender, Queue, Used};
    use crate::backend::net::location::Location;
    use crate::backend::redlock::driver::DRIVER;
    use crate::clock::sleep_until;
    use crate::support::redis_services::Redlock3;
    use crate::support::service::Service as Servers;

    const HOUR: Duration = Duration::from_secs(3600);
    /// Far more than the servers need.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn contender(service: &Redlock3) -> RedlockContender {
        let scheme = &DRIVER.forms[0].schemes[0];
        let url = service.url();
        let place = url.strip_prefix("redlock://").expect("a URL");
        let Location { addresses, login, .. } = Location::parse(scheme.name, place, scheme.port, "").expect("a place");
        let servers = addresses.iter().map(|address| Server::new(scheme.name, address, &login, 0, None)).collect();
        let claim = Claim { ttl: HOUR, ..Claim::example("dlock", "wait").expect("names") };
        RedlockContender::new(claim, servers, false)
    }

    /// A waiter that has looked, and does not look again by itself.
    async fn waiter(service: &Redlock3) -> RedlockContender {
        let mut waiter = contender(service);
        assert!(matches!(waiter.attempt(Queue::Join).await, Ok(Attempt::Busy(_))));
        waiter.look_again = Instant::now() + HOUR;
        waiter
    }

    /// The number of clients that listen at each server.
    fn listening(service: &Redlock3) -> Vec<usize> {
        let count = |clients: String| clients.lines().filter(|line| line.contains(" cmd=blpop ")).count();
        service.servers.iter().map(|redis| count(redis.cli(&["CLIENT", "LIST"]))).collect()
    }

    /// The counters of the servers that have told somebody something.
    fn told(service: &Redlock3) -> Vec<String> {
        let stats = service.servers.iter().map(|redis| redis.cli(&["INFO", "commandstats"]));
        stats.filter(|stats| stats.contains("cmdstat_lpush:")).collect()
    }

    async fn until_listening(service: &Redlock3, number: usize) {
        while listening(service).iter().any(|count| *count != number) {
            sleep_until(Instant::now() + Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn a_release_is_told_to_the_waiter_that_has_listened_longest_and_to_nobody_else() {
        let service = Redlock3::fresh();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let scenario = async {
            for redis in service.servers.iter() {
                redis.cli(&["CONFIG", "RESETSTAT"]);
            }
            let mut holder = contender(&service);
            assert!(matches!(holder.attempt(Queue::Join).await, Ok(Attempt::Held(_))));
            let (mut first, mut second) = (waiter(&service).await, waiter(&service).await);
            let mut later = Box::pin(second.changed());
            {
                let mut sooner = pin!(first.changed());
                tokio::select! {
                    _ = &mut sooner => panic!("nobody has released it"),
                    () = until_listening(&service, 1) => {}
                }
                tokio::select! {
                    _ = &mut sooner => panic!("nobody has released it"),
                    _ = &mut later => panic!("nobody has released it"),
                    () = until_listening(&service, 2) => {}
                }
                // An attempt that fails gives back the votes that it got, and releases nothing.
                assert_eq!(service.servers[0].cli(&["DEL", "dlock:wait"]), "1");
                assert!(matches!(contender(&service).attempt(Queue::Pass).await, Ok(Attempt::Busy(_))));
                assert_eq!(told(&service), Vec::<String>::new());
                holder.release(Used::No).await.expect("released");
                tokio::select! {
                    biased;
                    _ = &mut later => panic!("another one has listened longer"),
                    _ = &mut sooner => {}
                }
            }
            assert!(matches!(first.attempt(Queue::Join).await, Ok(Attempt::Held(_))));
            // The holder does not hear what is meant for the other one.
            until_listening(&service, 1).await;
            first.release(Used::Yes).await.expect("released");
            later.as_mut().await.expect("told");
            drop(later);
            // What a minority says is worth a look.
            second.look_again = Instant::now() + HOUR;
            service.servers[1].cli(&["LPUSH", &Keys::of(&second.claim).released(), "1"]);
            second.changed().await.expect("told");
            second.release(Used::No).await.expect("nothing");
            until_listening(&service, 0).await;
        };
        runtime.block_on(before(Instant::now() + PATIENCE, scenario)).expect("everybody is told in time");
    }
}
