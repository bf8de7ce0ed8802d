/*!
What a session waits for: the end of the node before ours while it is in the queue, and of its own while it holds.
*/

use std::time::Duration;

use ::zookeeper_client::{Error as ZkError, EventType, OneshotWatcher};

use crate::backend::zookeeper::nodes::{Placed, absent};
use crate::backend::zookeeper::own::OwnWatch;
use crate::backend::zookeeper::session::{HEARTBEATS, Session};
use crate::clock::{Instant, before};
use crate::lock::news::news_every;

/// How long a waiter waits for an answer at most.
const OVERDUE: Duration = Duration::from_secs(2);

impl Session {
    /// Resolves when the node before ours is gone, when ours are, and now and then so that the news are fresh.
    pub(in crate::backend::zookeeper) async fn wait(&mut self) -> Result<(), ZkError> {
        if let Some(over) = self.free_at {
            self.wait_out(over).await;
            return Ok(());
        }
        let Some(predecessor) = self.predecessor.clone() else { return Ok(()) };
        let limit = OVERDUE.min(self.length / 3);
        let begun = Instant::now();
        let mut news_at = begun + news_every(self.length, self.entries);
        // Where an outage has swallowed the event, the lock is free no longer than a lease.
        let mut look_at = begun + self.length;
        loop {
            let Some(watcher) = self.watch(&predecessor).await? else { return Ok(()) };
            let mut changed = std::pin::pin!(watcher.changed());
            loop {
                match before(Instant::now() + self.length / HEARTBEATS, &mut changed).await {
                    // It was written to, and the watch is used up.
                    Ok(event) if event.event_type == EventType::NodeDataChanged => break,
                    Ok(_) => return Ok(()),
                    // The queue may have grown since: many who came early must not all list it at once.
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
                let Placed::At(pair) = self.placed.clone() else { return Ok(()) };
                let node = if looks { &predecessor } else { &pair.kazoo };
                match before(Instant::now() + limit, self.stat(node)).await {
                    Ok(Ok(Some(_))) if looks => look_at = Instant::now() + self.length,
                    Ok(Ok(Some(_))) => {}
                    Ok(Ok(None)) => return Ok(()),
                    Ok(Err(error)) => return Err(error),
                    Err(_) => return Err(ZkError::Timeout),
                }
            }
        }
    }

    /// Resolves when something has happened to our nodes or the session has ended; never when that cannot be heard.
    pub(in crate::backend::zookeeper) async fn disturbed(&mut self) {
        let Placed::At(pair) = self.placed.clone() else { return std::future::pending().await };
        let mut state = self.client.state_watcher();
        let paths = [&pair.curator, &pair.kazoo].map(|name| self.directory.node(name));
        // What the server owes here is not waited for, so it is not noted as overdue either.
        let (client, own_watch) = (self.client.clone(), &mut self.own_watch);
        let event = async {
            let watch = match own_watch {
                Some(watch) => watch,
                None => match OwnWatch::set(&client, &paths[0], &paths[1]).await {
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

    /// How many entries the queue has now, as a look counts them. Costs less than listing them.
    async fn count_entries(&mut self) -> Result<u64, ZkError> {
        let directory = self.directory.path().to_owned();
        let stat = self.stat_at(&directory).await?;
        Ok(stat.map_or(0, |stat| u64::try_from(stat.num_children / 2).unwrap_or_default()))
    }

    async fn watch(&mut self, name: &str) -> Result<Option<OneshotWatcher>, ZkError> {
        let client = self.client.clone();
        let path = self.directory.node(name);
        let sent = self.traffic.begin();
        // Unlike one on its existence, a watch on its data is not set where there is none.
        let answer = client.get_and_watch_data(&path).await;
        self.traffic.end(sent, false, &answer);
        Ok(absent(answer)?.map(|(_, _, watcher)| watcher))
    }
}
