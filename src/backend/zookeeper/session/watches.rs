/*!
The waits of a session: in the queue, for what can let us in; while the lock is ours, for the end of our nodes.
*/

use std::collections::HashSet;
use std::time::Duration;

use ::zookeeper_client::{Error as ZkError, EventType, OneshotWatcher};

use crate::backend::zookeeper::line::Awaited;
use crate::backend::zookeeper::nodes::{EACH, Placed, absent};
use crate::backend::zookeeper::own::OwnWatch;
use crate::backend::zookeeper::session::{HEARTBEATS, Session};
use crate::backend::zookeeper::texts;
use crate::clock::{Instant, before};
use crate::lock::news::news_every;

/// The longest time that a waiter waits for an answer.
const OVERDUE: Duration = Duration::from_secs(2);

impl Session {
    /// Resolves when the awaited event has come, when our nodes are gone, and now and then to keep the news fresh.
    pub(in crate::backend::zookeeper) async fn wait(&mut self) -> Result<(), ZkError> {
        let Some(awaited) = self.awaited.clone() else { return Ok(()) };
        let (limit, free_at) = (OVERDUE.min(self.length / 3), self.free_at);
        let is_free = || free_at.is_some_and(|at| Instant::now() >= at);
        let begun = Instant::now();
        let mut news_at = begun + news_every(self.length, self.entries);
        // If an outage has swallowed the event, the lock stays free no longer than a lease.
        let mut look_at = begun + self.length;
        loop {
            let Some(watcher) = self.watch(&awaited).await? else { return Ok(()) };
            let mut changed = std::pin::pin!(watcher.changed());
            loop {
                let heartbeat = Instant::now() + self.length / HEARTBEATS;
                match before(free_at.map_or(heartbeat, |at| at.min(heartbeat)), &mut changed).await {
                    // The watch is used up, and the awaited event may be still to come.
                    Ok(event) if is_change(event.event_type) => break,
                    Ok(_) => return Ok(()),
                    Err(_) if is_free() => return Ok(()),
                    // The queue may have grown since: many early waiters must not all list it at once.
                    Err(_) if Instant::now() >= news_at => {
                        let counted = before(Instant::now() + limit, self.count_entries()).await;
                        self.entries = counted.unwrap_or(Err(ZkError::Timeout))?;
                        news_at = begun + news_every(self.length, self.entries);
                        if Instant::now() >= news_at {
                            return Ok(());
                        }
                    }
                    Err(_) => {}
                }
                let looks = Instant::now() >= look_at;
                let Placed::At(triple) = self.placed.clone() else { return Ok(()) };
                let look =
                    async { if looks { self.has_come(&awaited).await } else { self.is_gone(&triple.last).await } };
                match before(Instant::now() + limit, look).await {
                    Ok(Ok(true)) => return Ok(()),
                    Ok(Ok(false)) if looks => look_at = Instant::now() + self.length,
                    Ok(Ok(false)) => {}
                    Ok(Err(error)) => return Err(error),
                    Err(_) => return Err(ZkError::Timeout),
                }
            }
        }
    }

    /// Resolves when something has happened to our nodes, when we were asked to stop, or when the session has ended;
    /// never if that cannot be watched.
    pub(in crate::backend::zookeeper) async fn disturbed(&mut self) {
        let Placed::At(triple) = self.placed.clone() else { return std::future::pending().await };
        let mut state = self.client.state_watcher();
        let paths = triple.all().map(|name| self.directory.node(name));
        let known = self.stop_request.as_ref().map(|(_, stat)| stat.version);
        // Nobody waits for these answers, so they are not noted as overdue either.
        let (client, own_watch) = (self.client.clone(), &mut self.own_watch);
        let event = async {
            let watch = match own_watch {
                Some(watch) => watch,
                None => match OwnWatch::set(&client, &paths, known).await {
                    Ok(watch) => own_watch.insert(watch),
                    Err(ZkError::NoNode) => return,
                    Err(_) => return std::future::pending().await,
                },
            };
            watch.event().await;
            *own_watch = None;
        };
        let ended = async {
            while !state.state().is_terminated() {
                state.changed().await;
            }
        };
        tokio::select! {
            () = event => {}
            () = ended => {}
        }
    }

    /// Returns the approximate number of contenders: foreign ones have fewer nodes. Costs less than listing them.
    async fn count_entries(&mut self) -> Result<u64, ZkError> {
        let directory = self.directory.path().to_owned();
        let stat = self.stat_at(&directory).await?;
        Ok(stat.map_or(0, |stat| u64::try_from(stat.num_children / EACH).unwrap_or_default()))
    }

    /// Watches for the awaited event. Returns `None` if it has come already.
    async fn watch(&mut self, awaited: &Awaited) -> Result<Option<OneshotWatcher>, ZkError> {
        let (client, path) = (self.client.clone(), self.watched(awaited));
        let sent = self.traffic.begin();
        match awaited {
            Awaited::Gone(_) | Awaited::Turn(_) => {
                // Unlike one on its existence, a watch on its data is not set if there is no node.
                let answer = client.get_and_watch_data(&path).await;
                self.traffic.end(sent, false, &answer);
                let read = absent(answer)?.filter(|(data, ..)| !has_entered(awaited, data));
                Ok(read.map(|(_, _, watcher)| watcher))
            }
            // For a hold, a node without children: this watch fires when it is deleted, but not when it is written to.
            Awaited::Any(_) | Awaited::MinimumHold(_) => {
                let answer = client.get_and_watch_children(&path).await;
                self.traffic.end(sent, false, &answer);
                let listed = absent(answer)?.filter(|(children, ..)| !has_gone(awaited, children));
                Ok(listed.map(|(_, _, watcher)| watcher))
            }
        }
    }

    /// Returns `true` if the awaited event has come, without setting a watch.
    async fn has_come(&mut self, awaited: &Awaited) -> Result<bool, ZkError> {
        let (client, path) = (self.client.clone(), self.watched(awaited));
        match awaited {
            Awaited::Gone(_) | Awaited::MinimumHold(_) => Ok(self.stat_at(&path).await?.is_none()),
            Awaited::Turn(node) => {
                let read = self.read(node).await?;
                Ok(read.is_none_or(|(data, _)| has_entered(awaited, &data)))
            }
            Awaited::Any(_) => {
                let sent = self.traffic.begin();
                let answer = client.get_children(&path).await;
                self.traffic.end(sent, false, &answer);
                Ok(absent(answer)?.is_none_or(|(children, _)| has_gone(awaited, &children)))
            }
        }
    }

    /// Returns `true` if a node in the lock's directory does not exist.
    async fn is_gone(&mut self, name: &str) -> Result<bool, ZkError> {
        Ok(self.stat(name).await?.is_none())
    }

    /// Returns the path of the node that shows the awaited event.
    fn watched(&self, awaited: &Awaited) -> String {
        match awaited {
            Awaited::Gone(node) | Awaited::Turn(node) => self.directory.node(node),
            Awaited::Any(_) => self.directory.path().to_owned(),
            Awaited::MinimumHold(owner) => self.directory.hold(owner),
        }
    }
}

/// Returns `true` if an event only says that something has changed.
fn is_change(event: EventType) -> bool {
    matches!(event, EventType::NodeDataChanged | EventType::NodeChildrenChanged)
}

/// Returns `true` if we wait for a contender to enter a slot, and its node's `data` say that it has.
fn has_entered(awaited: &Awaited, data: &[u8]) -> bool {
    matches!(awaited, Awaited::Turn(_)) && texts::slot(data).is_some()
}

/// Returns `true` if we wait for the end of one of several nodes, and one is not among these `children`.
fn has_gone(awaited: &Awaited, children: &[String]) -> bool {
    let Awaited::Any(nodes) = awaited else { return false };
    let there: HashSet<&String> = children.iter().collect();
    nodes.iter().any(|node| !there.contains(node))
}
