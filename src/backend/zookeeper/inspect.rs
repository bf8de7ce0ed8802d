/*!
Looks at the locks of a ZooKeeper ensemble, in a session that creates no nodes: reads the names in a lock's directory,
the first node of each contender, and the minimum holds next to it. [`seen`](crate::backend::zookeeper::seen) interprets
them.
*/

use std::sync::Arc;
use std::time::Duration;

use ::zookeeper_client::{Client, Error as ZkError, OneshotWatcher, Stat};
use futures_util::future::join_all;

use crate::backend::error::Error;
use crate::backend::net::location::nested_hint;
use crate::backend::survey::{
    Kind, Location, MOST, Meetings, Names, Party, Smallest, Snapshot, State, Successes, Survey, TIMEOUT,
};
use crate::backend::zookeeper::breaking::{Change, Changed, all_of, heeded, make, nodes};
use crate::backend::zookeeper::ensemble::Ensemble;
use crate::backend::zookeeper::errors::{self, About};
use crate::backend::zookeeper::hold::Hold;
use crate::backend::zookeeper::line::contenders;
use crate::backend::zookeeper::membership;
use crate::backend::zookeeper::names::{Directory, key_of, met, sequence};
use crate::backend::zookeeper::nodes::absent;
use crate::backend::zookeeper::opening::Opening;
use crate::backend::zookeeper::records::counts_until;
use crate::backend::zookeeper::seen::Found;
use crate::backend::zookeeper::session::{BROKEN, is_of_periods, is_record};
use crate::backend::zookeeper::tunnel::Tunnel;
use crate::clock::{Instant, before, wall_millis, within};
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::key::{Key, Namespace};
use crate::printable::MAX_SHOWN;

/// The session length, after which a server drops a session that was not closed.
const SESSION: Duration = Duration::from_secs(10);
/// The time that a session may take to close.
const CLOSE: Duration = Duration::from_millis(200);
/// The number of requests sent together; a server may answer each of them with a megabyte.
const TOGETHER: usize = 16;

/// An open session and its tunnel.
struct Link {
    client: Client,
    tunnel: Tunnel,
}

/// A look at the locks of one ensemble.
pub(super) struct ZookeeperSurvey {
    ensemble: Arc<Ensemble>,
    namespace: Namespace,
    opening: Option<Opening>,
    link: Option<Link>,
    /// Reports the next change of the directory that was looked at last.
    watch: Option<OneshotWatcher>,
    /// The reason why the last break was not recorded.
    untraced: Option<Error>,
}

impl ZookeeperSurvey {
    /// Creates a survey of the locks in this namespace; not connected yet.
    pub(super) fn new(ensemble: Ensemble, namespace: Namespace) -> Self {
        Self { ensemble: Arc::new(ensemble), namespace, opening: None, link: None, watch: None, untraced: None }
    }

    fn explain(&self, error: &ZkError, directory: Option<&str>, reason: Option<String>) -> Error {
        let place = self.ensemble.location();
        let has_user = place.login.user.is_some();
        errors::explain(error, reason, About { place, has_user, directory, nested: nested_hint() })
    }

    /// Sends the request that `request` makes. After a transient error or a timeout the next one needs a new session.
    async fn ask<T, F: Future<Output = Result<T, ZkError>>>(
        &mut self,
        directory: &str,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, Error> {
        let Some(link) = &self.link else { return Err(errors::vanished(self.ensemble.location())) };
        let answer = within(TIMEOUT, request(link.client.clone())).await;
        let reason = link.tunnel.reason();
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let told = self.explain(&error, Some(directory), reason);
                if told.is_transient() {
                    self.link = None;
                }
                Err(told)
            }
            Err(_) => {
                self.link = None;
                let reason = reason.unwrap_or_else(|| "it does not answer".to_owned());
                Err(Error::unavailable(format!("{}: {reason}", self.ensemble.location())))
            }
        }
    }

    fn directory(&self, key: &Key) -> Result<Directory, Error> {
        let location = self.ensemble.location();
        let directory = Directory::named(&location.path, &self.namespace, key);
        directory.map_err(|reason| errors::invalid_name(location, &reason))
    }

    /// Reads the nodes at these paths, and cuts long data; `None` stands for a missing node.
    async fn read(&mut self, directory: &str, paths: Vec<String>) -> Result<Vec<Option<(Vec<u8>, Stat)>>, Error> {
        let mut read = Vec::with_capacity(paths.len());
        for paths in paths.chunks(TOGETHER) {
            // No more than this is shown of data that others have written.
            let shown = |(data, stat): (Vec<u8>, Stat)| (data[..data.len().min(MAX_SHOWN)].to_vec(), stat);
            read.extend(self.read_whole(directory, paths).await?.into_iter().map(|found| found.map(shown)));
        }
        Ok(read)
    }

    /// Reads these few nodes at once; `None` stands for a missing node.
    async fn read_whole(&mut self, directory: &str, paths: &[String]) -> Result<Vec<Option<(Vec<u8>, Stat)>>, Error> {
        let asked = self.ask(directory, |client| async move {
            let answers = join_all(paths.iter().map(|path| client.get_data(path))).await;
            answers.into_iter().map(absent).collect::<Result<Vec<_>, _>>()
        });
        asked.await
    }

    /// Reads the first nodes and the minimum holds of the lock in this directory, given their names.
    async fn find(&mut self, directory: &Directory, children: &[String], holds: &[String]) -> Result<Found, Error> {
        let contenders = contenders(children);
        let first = contenders.iter().take(2 * MOST).map(|(_, rival)| directory.node(&rival.first)).collect();
        let nodes = self.read(directory.path(), first).await?;
        let held = holds.iter().take(MOST).map(|name| directory.hold(name)).collect();
        let held = self.read(directory.path(), held).await?;
        let holds = held.into_iter().flatten().filter_map(|(data, stat)| Hold::read(&data, &stat)).collect();
        Ok(Found { contenders, nodes, holds })
    }

    /// Adds the requests to stop that were made to the holders.
    async fn hear(&mut self, directory: &Directory, children: &[String], seen: &mut Snapshot) -> Result<(), Error> {
        let node = |party: &Party| heeded(&nodes(directory, children, party.who.id()?)).cloned();
        let (at, paths): (Vec<usize>, Vec<String>) =
            seen.holders.iter().enumerate().filter_map(|(at, party)| Some((at, node(party)?))).unzip();
        for (at, read) in at.into_iter().zip(self.read(directory.path(), paths).await?) {
            let holder = &mut seen.holders[at];
            holder.asked = read.and_then(|(data, _)| Ask::read(&data, holder.who.id()?));
        }
        Ok(())
    }

    /// Makes this change to the nodes of a holder. Returns `false` if one of them was gone.
    async fn steer(&mut self, directory: &Directory, change: Change<'_>, ask: &Ask) -> Result<bool, Error> {
        let made = self.ask(directory.path(), |client| make(client, directory, change, ask)).await?;
        self.untraced = match &made {
            Changed::Untraced(why) => Some(self.explain(why, Some(&directory.beside()), None)),
            Changed::Nothing | Changed::Done => None,
        };
        Ok(!matches!(made, Changed::Nothing))
    }

    /// Returns the names of the nodes in each of these directories; a missing directory has none.
    async fn list(&mut self, paths: &[String]) -> Result<Vec<Vec<String>>, Error> {
        let mut lists = Vec::with_capacity(paths.len());
        for paths in paths.chunks(TOGETHER) {
            let first = paths.first().cloned().unwrap_or_default();
            let asked = self.ask(&first, |client| async move {
                let answers = join_all(paths.iter().map(|path| client.get_children(path))).await;
                let names = |answer| Ok(absent(answer)?.map(|(names, _)| names).unwrap_or_default());
                answers.into_iter().map(names).collect()
            });
            let answers: Vec<Vec<String>> = asked.await?;
            lists.extend(answers);
        }
        Ok(lists)
    }

    /// Returns the keys in the namespace that begin with `prefix` and have a directory of which `key_of` reads the
    /// name. Some may come twice.
    async fn keys(&mut self, prefix: &str, key_of: impl Fn(&str) -> Option<Key>) -> Result<Vec<Key>, Error> {
        let Ok(any) = Key::parse("x".as_ref()) else { return Ok(Vec::new()) };
        let above = self.directory(&any)?.above().to_owned();
        let all = self.list(&[above]).await?;
        let keys = all.iter().flatten().filter_map(|name| key_of(name));
        Ok(keys.filter(|key| key.as_str().starts_with(prefix)).collect())
    }

    /// Returns `true` if one of these nodes of a latch still counts, by this host's clock.
    async fn is_in_use(&mut self, latch: &str, nodes: &[String]) -> Result<bool, Error> {
        for nodes in nodes.chunks(TOGETHER) {
            let paths: Vec<String> = nodes.iter().map(|node| format!("{latch}/{node}")).collect();
            let read = self.read_whole(latch, &paths).await?;
            let counts =
                |(data, stat): &(Vec<u8>, Stat)| counts_until(data, stat).is_some_and(|end| end > wall_millis());
            if read.iter().flatten().any(counts) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lists the nodes in the lock's own directory, and the minimum holds in the one next to it.
    async fn both(&mut self, directory: &Directory) -> Result<[Vec<String>; 2], Error> {
        let lists = self.list(&[directory.path().to_owned(), directory.beside()]).await?;
        let [children, mut holds] = <[Vec<String>; 2]>::try_from(lists).unwrap_or_default();
        holds.retain(|name| !is_record(name));
        Ok([children, holds])
    }
}

#[async_trait::async_trait(?Send)]
impl Survey for ZookeeperSurvey {
    async fn connect(&mut self) -> Result<(), Error> {
        if self.link.as_ref().is_some_and(|link| !link.client.state().is_terminated()) {
            return Ok(());
        }
        (self.link, self.watch) = (None, None);
        let begun = Instant::now();
        let opening = match self.opening.take() {
            Some(opening) => opening,
            None => Opening::begin(&self.ensemble, SESSION).await?,
        };
        // It stays in `self.opening` if this future is dropped.
        let opened = self.opening.insert(opening).opened().await;
        let Some(Opening { tunnel, .. }) = self.opening.take() else {
            return Err(errors::vanished(self.ensemble.location()));
        };
        let client = opened?.map_err(|error| self.explain(&error, None, tunnel.reason()))?;
        let link = Link { client, tunnel };
        membership::one_ensemble(&self.ensemble, &link.client, Instant::now().since(begun)).await?;
        self.link = Some(link);
        Ok(())
    }

    async fn look(&mut self, key: &Key) -> Result<Snapshot, Error> {
        let directory = self.directory(key)?;
        let path = directory.path().to_owned();
        let watched = self.ask(directory.path(), |client| async move {
            let (_, watch) = client.check_and_watch_stat(&path).await?;
            match absent(client.get_and_watch_children(&path).await)? {
                Some((_, _, watch)) => Ok(watch),
                None => Ok(watch),
            }
        });
        self.watch = Some(watched.await?);
        let [children, holds] = self.both(&directory).await?;
        let found = self.find(&directory, &children, &holds).await?;
        let mut seen = found.seen(Location::of(key, directory.path()), wall_millis());
        self.hear(&directory, &children, &mut seen).await?;
        Ok(seen)
    }

    async fn last_break(&mut self, key: &Key) -> Result<Option<Ask>, Error> {
        let directory = self.directory(key)?;
        let path = directory.hold(BROKEN);
        let read = self.ask(directory.path(), |client| async move { absent(client.get_data(&path).await) });
        Ok(read.await?.and_then(|(data, _)| Ask::read_trace(&data, wall_millis())))
    }

    async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error> {
        let directory = self.directory(key)?;
        let [names] = <[Vec<String>; 1]>::try_from(self.list(&[directory.beside()]).await?).unwrap_or_default();
        let paths = names.iter().filter(|name| is_of_periods(name)).map(|name| directory.hold(name)).collect();
        let read = self.read(directory.path(), paths).await?;
        // The servers' clock dates it.
        let dated =
            |(data, stat): (Vec<u8>, Stat)| Some(Done { at: stat.mtime.try_into().ok()?, ..Done::read(&data)? });
        Ok(read.into_iter().flatten().filter_map(dated).max_by_key(|done| done.at))
    }

    async fn last_successes(&mut self, prefix: &str) -> Result<Successes, Error> {
        let mut found = Successes::default();
        for key in self.keys(prefix, key_of).await? {
            // Without a namespace, directories of others may have names that no lock can have.
            let Ok(directory) = self.directory(&key) else { continue };
            if let Some(done) = self.last_success(&key).await? {
                found.add(Location::of(&key, directory.path()), done);
            }
        }
        Ok(found)
    }

    async fn meetings(&mut self, prefix: &str) -> Result<Meetings, Error> {
        let mut found = Meetings::of(prefix);
        for (kind, what) in [(Kind::Latch, "latch"), (Kind::Barrier, "meet")] {
            for key in self.keys(prefix, |name| met(name, what)).await? {
                let Ok(directory) = self.directory(&key) else { continue };
                let path = directory.meeting(what);
                let nodes = self.list(std::slice::from_ref(&path)).await?.concat();
                // The parties of a barrier are nodes of their sessions.
                let is_in_use =
                    if kind == Kind::Latch { self.is_in_use(&path, &nodes).await? } else { !nodes.is_empty() };
                if is_in_use {
                    found.add(kind, Location::of(&key, path));
                }
            }
        }
        Ok(found)
    }

    async fn ask_to_stop(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let directory = self.directory(key)?;
        let [children, _] = self.both(&directory).await?;
        let nodes = nodes(&directory, &children, &party.id());
        let Some(path) = heeded(&nodes) else { return Ok(false) };
        self.steer(&directory, Change::Ask(path), ask).await
    }

    async fn take_away(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let directory = self.directory(key)?;
        let [children, holds] = self.both(&directory).await?;
        let paths = all_of(&directory, &children, &holds, party);
        if paths.is_empty() {
            return Ok(false);
        }
        self.steer(&directory, Change::Take(&paths), ask).await
    }

    fn untraced(&mut self) -> Option<Error> {
        self.untraced.take()
    }

    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error> {
        let mut smallest = Smallest::new(None);
        for key in self.keys(prefix, key_of).await? {
            if let Ok(directory) = self.directory(&key) {
                smallest.add(Location::of(&key, directory.path()));
            }
        }
        // Finding out which of them are locks takes requests for each one.
        let (mut held, mut total) = (Smallest::new(most), 0);
        for locations in smallest.names(None).found.chunks(TOGETHER) {
            let beside = |location: &Location| {
                Key::parse(location.name().as_ref()).ok().and_then(|key| self.directory(&key).ok())
            };
            let next: Vec<String> = locations.iter().filter_map(beside).map(|directory| directory.beside()).collect();
            let own: Vec<String> = locations.iter().map(|location| location.place.clone()).collect();
            let (children, holds) = (self.list(&own).await?, self.list(&next).await?);
            for ((location, children), holds) in locations.iter().zip(children).zip(holds) {
                if holds.iter().any(|name| !is_record(name)) || children.iter().any(|name| sequence(name).is_some()) {
                    held.add(location.clone());
                    total += 1;
                }
            }
            if most.is_some_and(|most| total > most as u64) {
                return Ok(held.names(None));
            }
        }
        Ok(held.names(Some(total)))
    }

    async fn look_at(&mut self, locations: &[Location]) -> Result<Vec<Snapshot>, Error> {
        let mut found = Vec::with_capacity(locations.len());
        for location in locations {
            let Ok(key) = Key::parse(location.name().as_ref()) else { continue };
            let directory = self.directory(&key)?;
            let [children, holds] = self.both(&directory).await?;
            let mut seen = self.find(&directory, &children, &holds).await?.seen(location.clone(), wall_millis());
            seen.queue.clear();
            found.extend(Some(seen).filter(|seen| seen.state != State::Free));
        }
        Ok(found)
    }

    async fn changed(&mut self, _key: &Key) {
        match self.watch.take() {
            Some(watch) => drop(watch.changed().await),
            None => std::future::pending().await,
        }
    }

    async fn close(&mut self) {
        self.watch = None;
        let Some(Link { client, tunnel }) = self.link.take() else { return };
        let mut state = client.state_watcher();
        drop(client);
        let closed = async {
            while !state.peek_state().is_terminated() {
                state.changed().await;
            }
        };
        let _ = before(Instant::now() + CLOSE, closed).await;
        drop(tunnel);
    }
}
