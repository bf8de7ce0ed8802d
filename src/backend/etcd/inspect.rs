/*!
Looks at the locks of an etcd cluster: the keys below a lock's name at one revision, and the rest of the holders'
leases. The right to read these keys is enough.
*/

use etcd_client::{
    Error as EtcdError, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, WatchOptions,
    WatchStream,
};
use futures_util::future::join_all;

use crate::backend::error::Error;
use crate::backend::etcd::breaking::{self, Changed, Mark};
use crate::backend::etcd::errors::Fault;
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::{
    HOLD, broken, entries, is_entry, met, mode_of, prefix_of, recorded, records, stem, stop,
};
use crate::backend::survey::{
    Kind, Left, Location, Meetings, Names, Party, Smallest, Snapshot, State, Successes, Survey, TIMEOUT,
};
use crate::clock::{wall_millis, within};
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::holder::{Holder, Published};
use crate::key::{Key, Namespace, encoded};
use crate::lock::admission::{Entry, Mode, holders};

/// Number of keys listed by one request.
const PAGE: i64 = 1000;
/// Maximum number of keys read for one lock: at 4 KiB of text each they stay within the client library's message limit.
const KEYS: i64 = 900;
/// Number of locks read by one request, and of keys for each of them.
const TOGETHER: usize = 12;
const FEW: i64 = 64;
/// Maximum number of leases, or of records of successes, read at a time.
const LEASES: usize = 64;

/// One entry of a lock's queue: its party, its lease, and its create revision.
struct Contender {
    party: Party,
    lease: i64,
    created: i64,
    /// A description of the key, if no client of the lock creates such a key.
    stray: Option<String>,
    /// It has entered a slot, or needs none.
    has_entered: bool,
}

/// The contender of this entry, read from its keys among `keys`.
fn contender(entry: &Entry, keys: &[KeyValue], prefix: &str) -> Option<Contender> {
    let own = stem(&entry.name);
    let find = |name: &str| keys.iter().find(|kv| kv.key() == name.as_bytes() && kv.create_revision() == entry.order);
    let (active, kept) = (find(own), find(&format!("{own}{HOLD}")));
    let kv = active.or(kept)?;
    let name = String::from_utf8_lossy(kv.key()).into_owned();
    let mode = mode_of(kv, prefix);
    let stray = mode.is_none().then(|| {
        let what = if kv.lease() == 0 { "without a lease" } else { "that is no lock" };
        format!("the key {name}, a key {what}")
    });
    let who = match kv.value() {
        // Other clients publish nothing; the key at least names the lease.
        b"" => Holder::Foreign(format!("key {name}").into_bytes()),
        value => Holder::read(value),
    };
    let who = match who {
        Holder::Dlock(said) => {
            let said = Published { mode: mode.map(Mode::name), done: said.done || active.is_none(), ..*said };
            Holder::Dlock(Box::new(said))
        }
        other => other,
    };
    let mut party = Party::new(who, name);
    party.mode = mode;
    let has_entered = !matches!(mode, Some(Mode::Slots(_))) || party.slot.is_some();
    Some(Contender { party, lease: kv.lease(), created: kv.create_revision(), stray, has_entered })
}

/// The entries of the lock whose keys are among `keys`, oldest first, and the number of those that hold it.
fn line(keys: &[KeyValue], prefix: &str) -> (Vec<Contender>, usize) {
    let mut entries = entries(keys, prefix);
    entries.reverse();
    let line: Vec<Contender> = entries.iter().filter_map(|entry| contender(entry, keys, prefix)).collect();
    let holding = holders(entries.iter().map(|entry| entry.mode));
    // Slots are entered one after another.
    let holding = line.iter().take(holding).take_while(|contender| contender.has_entered).count();
    (line, holding)
}

/// A look at the locks of one etcd cluster.
pub(super) struct EtcdSurvey {
    cluster: Cluster,
    namespace: Namespace,
    /// The revision of the last look at one lock.
    revision: i64,
    /// The watch on a lock, with the number of its connection.
    watch: Option<(u64, WatchStream)>,
    /// The reason why the last break could not be recorded.
    untraced: Option<Error>,
}

impl EtcdSurvey {
    /// A view of the locks in this namespace; not connected yet.
    pub(super) fn new(cluster: Cluster, namespace: Namespace) -> Self {
        Self { cluster, namespace, revision: 0, watch: None, untraced: None }
    }

    async fn ask<T, F: Future<Output = Result<T, EtcdError>>>(
        &mut self,
        request: impl FnOnce(etcd_client::Client) -> F,
    ) -> Result<T, Error> {
        let asked = within(TIMEOUT, self.cluster.ask(request)).await;
        Ok(asked.unwrap_or_else(|_| Err(Fault::from(self.cluster.silence())))?)
    }

    /// Reads the names of all keys that begin as the locks whose names begin with `prefix`, and keeps those that are
    /// `wanted`.
    async fn keys(&mut self, prefix: &str, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>, Error> {
        let mut start = format!("{}{}", self.namespace.prefix('/'), encoded(prefix)).into_bytes();
        let (end, mut found) = (after(&start), Vec::new());
        if start.is_empty() {
            start.push(0);
        }
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_keys_only().with_limit(PAGE);
            let from = start.clone();
            let mut read = self.ask(|mut client| async move { client.get(from, Some(options)).await }).await?;
            let (more, keys) = (read.more(), read.take_kvs());
            found.extend(keys.iter().map(KeyValue::key).filter(|key| wanted(key)).map(<[u8]>::to_vec));
            match keys.last() {
                Some(key) if more => start = [key.key(), &[0]].concat(),
                _ => return Ok(found),
            }
        }
    }

    /// Interprets the keys of the lock at `location`; `count` is the number of keys, including those that were not read.
    async fn seen(&mut self, location: Location, keys: &[KeyValue], count: i64) -> Result<Snapshot, Error> {
        let prefix = prefix_of(&location.place);
        let (mut line, holding) = line(keys, &prefix);
        let unread = u64::try_from(count).unwrap_or_default().saturating_sub(keys.len() as u64);
        let queue = line.split_off(holding);
        if let Some(first) = line.iter().chain(&queue).next()
            && let Some(stray) = first.stray.clone()
        {
            let waiting = (line.len() + queue.len() - 1) as u64 + unread;
            return Ok(Snapshot { state: State::Blocked(stray), waiting, ..Snapshot::free(location, wall_millis()) });
        }
        let mut held = Vec::with_capacity(line.len());
        for holders in line.chunks_mut(LEASES) {
            held.extend(self.with_leases(holders).await?);
        }
        if let [holder] = held.as_mut_slice()
            && holder.token.is_none()
            && holder.published().is_some()
            && self.was_first(&prefix, line[0].created).await
        {
            holder.token = crate::backend::contract::contender::token(line[0].created);
        }
        let waiting = queue.len() as u64 + unread;
        let queue = queue.into_iter().map(|contender| contender.party).collect();
        Ok(Snapshot::free(location, wall_millis()).held_by(held, 0).awaited_by(queue, waiting))
    }

    /// Reads the remaining lease and the request to stop of each of these holders.
    async fn with_leases(&mut self, holders: &mut [Contender]) -> Result<Vec<Party>, Error> {
        let leases: Vec<i64> = holders.iter().map(|holder| holder.lease).collect();
        let begins = self.namespace.prefix('/');
        let asked = self.ask(|client| async move {
            let ask = |lease: i64| {
                let (mut client, mut hearer, stop) = (client.clone(), client.clone(), stop(&begins, lease));
                async move {
                    let left = async { client.lease_time_to_live(lease, None).await.map(|answer| answer.ttl()) };
                    let request = async { hearer.get(stop, None).await.ok()?.take_kvs().into_iter().next() };
                    tokio::join!(left, request)
                }
            };
            Ok(join_all(leases.into_iter().map(ask)).await)
        });
        let with_lease = |(holder, (left, asked)): (&mut Contender, (Result<i64, EtcdError>, Option<KeyValue>))| {
            // The keys of a lease that has ended disappear in a moment.
            let left = left.ok().map(|seconds| Left::Millis(u64::try_from(seconds).unwrap_or_default() * 1000));
            let asked = asked.and_then(|kv| Ask::read(kv.value(), holder.party.who.id()?));
            Party { asked, ..holder.party.clone() }.lasting(left)
        };
        Ok(holders.iter_mut().zip(asked.await?).map(with_lease).collect())
    }

    /// Notes the outcome of a break. Returns `true` if the holder still had the lock.
    fn note(&mut self, changed: Changed) -> bool {
        let is_done = !matches!(changed, Changed::Nothing);
        self.untraced = if let Changed::Untraced(why) = changed { Some(why) } else { None };
        is_done
    }

    /// Finds the key by which `party` holds the lock `key`; `None` if it no longer holds the lock.
    async fn mark(&mut self, key: &Key, party: &Party) -> Result<Option<Mark>, Error> {
        let prefix = prefix_of(&self.namespace.join('/', key));
        let from = prefix.clone();
        let mut read = self.ask(|mut client| async move { client.get(from, Some(oldest_first(KEYS))).await }).await?;
        let keys = read.take_kvs();
        let (line, holding) = line(&keys, &prefix);
        let held = line.into_iter().take(holding).find(|held| held.party.id() == party.id());
        Ok(held.and_then(|held| {
            let key = String::from_utf8(held.party.mark).ok()?;
            Some(Mark { key, created: held.created, lease: held.lease })
        }))
    }

    /// Returns `true` if the entry created at this revision was first in line then, so that the revision is its token.
    async fn was_first(&mut self, prefix: &str, created: i64) -> bool {
        let oldest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        let options = oldest.with_keys_only().with_limit(1).with_revision(created);
        let prefix = prefix.to_owned();
        // A compacted revision cannot be read.
        let read = self.ask(|mut client| async move { Ok(client.get(prefix, Some(options)).await) }).await;
        let first = read.ok().and_then(Result::ok).and_then(|mut read| read.take_kvs().into_iter().next());
        first.is_some_and(|first| first.create_revision() == created)
    }
}

/// Options to read at most `most` keys of a lock, oldest first.
fn oldest_first(most: i64) -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(most)
}

/// The end of the range of all keys that begin with `prefix`.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // An empty prefix covers all keys.
    vec![0]
}

#[async_trait::async_trait(?Send)]
impl Survey for EtcdSurvey {
    async fn connect(&mut self) -> Result<(), Error> {
        self.cluster.connect().await
    }

    async fn look(&mut self, key: &Key) -> Result<Snapshot, Error> {
        let location = Location::of(key, self.namespace.join('/', key));
        let prefix = prefix_of(&location.place);
        let mut read = self.ask(|mut client| async move { client.get(prefix, Some(oldest_first(KEYS))).await }).await?;
        self.revision = read.header().map_or(0, etcd_client::ResponseHeader::revision);
        let count = read.count();
        self.seen(location, &read.take_kvs(), count).await
    }

    async fn last_break(&mut self, key: &Key) -> Result<Option<Ask>, Error> {
        let record = broken(&self.namespace.join('/', key));
        let mut read = self.ask(|mut client| async move { client.get(record, None).await }).await?;
        Ok(read.take_kvs().first().and_then(|kv| Ask::read_trace(kv.value(), wall_millis())))
    }

    async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error> {
        let from = records(&self.namespace.join('/', key));
        let options = GetOptions::new().with_prefix();
        let mut read = self.ask(|mut client| async move { client.get(from, Some(options)).await }).await?;
        let read = read.take_kvs();
        Ok(read.iter().filter_map(|kv| Done::read(kv.value())).max_by_key(|done| done.at))
    }

    async fn last_successes(&mut self, prefix: &str) -> Result<Successes, Error> {
        let (begins, mut found) = (self.namespace.prefix('/'), Successes::default());
        for keys in self.keys(prefix, |key| recorded(key).is_some()).await?.chunks(LEASES) {
            let read = Txn::new().and_then(keys.iter().map(|key| TxnOp::get(key.clone(), None)).collect::<Vec<_>>());
            let answer = self.ask(|mut client| async move { client.txn(read).await }).await?;
            if answer.0.responses.iter().any(|operation| operation.response.is_none()) {
                return Err(self.cluster.malformed());
            }
            let kvs = answer.op_responses().into_iter().flat_map(|read| match read {
                TxnOpResponse::Get(mut read) => read.take_kvs(),
                _ => Vec::new(),
            });
            for kv in kvs {
                let lock = recorded(kv.key()).and_then(|lock| Some(Location::read(lock.strip_prefix(&begins)?, lock)));
                if let (Some(location @ Location { key: Some(_), .. }), Some(done)) = (lock, Done::read(kv.value())) {
                    found.add(location, done);
                }
            }
        }
        Ok(found)
    }

    async fn meetings(&mut self, prefix: &str) -> Result<Meetings, Error> {
        let (begins, mut found) = (self.namespace.prefix('/'), Meetings::of(prefix));
        for key in self.keys(prefix, |key| met(key).is_some()).await? {
            let Some((lock, place, what)) = met(&key) else { continue };
            let kind = if what == "latch" { Kind::Latch } else { Kind::Barrier };
            // A name that is not a valid spelling of a key belongs to another namespace.
            if let Some(location @ Location { key: Some(_), .. }) =
                lock.strip_prefix(&begins).map(|lock| Location::read(lock, place))
            {
                found.add(kind, location);
            }
        }
        Ok(found)
    }

    async fn ask_to_stop(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let Some(mark) = self.mark(key, party).await? else { return Ok(false) };
        let (stop, trace) = (stop(&self.namespace.prefix('/'), mark.lease), broken(&self.namespace.join('/', key)));
        let changed = breaking::put(&mut self.cluster, &mark, ask, stop, trace).await?;
        Ok(self.note(changed))
    }

    async fn take_away(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let Some(mark) = self.mark(key, party).await? else { return Ok(false) };
        let changed = breaking::take(&mut self.cluster, &mark, ask, broken(&self.namespace.join('/', key))).await?;
        Ok(self.note(changed))
    }

    fn untraced(&mut self) -> Option<Error> {
        self.untraced.take()
    }

    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error> {
        let begins = self.namespace.prefix('/');
        let wanted = format!("{begins}{}", encoded(prefix));
        let end = after(wanted.as_bytes());
        // Names of locks have no control characters, which sort first.
        let mut start = if prefix.is_empty() { format!("{begins} ").into_bytes() } else { wanted.into_bytes() };
        let mut smallest = Smallest::new(most);
        let (mut last, mut total) = (None, 0);
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_keys_only().with_limit(PAGE);
            let from = start.clone();
            let mut read = self.ask(|mut client| async move { client.get(from, Some(options)).await }).await?;
            let (more, keys) = (read.more(), read.take_kvs());
            for key in &keys {
                let Some((lock, _)) = std::str::from_utf8(key.key()).ok().and_then(|key| key.rsplit_once('/')) else {
                    continue;
                };
                let location = Location::read(lock.strip_prefix(&begins).unwrap_or_default(), lock);
                if location.key.is_some() && last.as_deref() != Some(lock) {
                    (last, total) = (Some(lock.to_owned()), total + 1);
                    smallest.add(location);
                }
            }
            let is_enough = most.is_some_and(|most| total > most as u64);
            match keys.last() {
                Some(key) if more && !is_enough => start = [key.key(), &[0]].concat(),
                _ => return Ok(smallest.names(Some(total).filter(|_| !is_enough || !more))),
            }
        }
    }

    async fn look_at(&mut self, locations: &[Location]) -> Result<Vec<Snapshot>, Error> {
        let mut found = Vec::with_capacity(locations.len());
        for locations in locations.chunks(TOGETHER) {
            let get = |location: &Location| TxnOp::get(prefix_of(&location.place), Some(oldest_first(FEW)));
            let read: Vec<TxnOp> = locations.iter().map(get).collect();
            let answer = self.ask(|mut client| async move { client.txn(Txn::new().and_then(read)).await }).await?;
            if answer.0.responses.iter().any(|operation| operation.response.is_none()) {
                return Err(self.cluster.malformed());
            }
            for (location, read) in locations.iter().zip(answer.op_responses()) {
                let TxnOpResponse::Get(mut read) = read else { return Err(self.cluster.malformed()) };
                let count = read.count();
                let keys: Vec<KeyValue> = read.take_kvs();
                if !keys.iter().any(|kv| is_entry(&prefix_of(&location.place), kv.key())) {
                    continue;
                }
                let mut seen = self.seen(location.clone(), &keys, count).await?;
                // Without a namespace, any other data would look like a blocked lock.
                let is_data = self.namespace.as_str().is_empty() && matches!(seen.state, State::Blocked(_));
                seen.queue.clear();
                found.extend(Some(seen).filter(|seen| seen.state != State::Free && !is_data));
            }
        }
        Ok(found)
    }

    async fn changed(&mut self, key: &Key) {
        let link = self.cluster.links();
        if self.watch.as_ref().is_none_or(|(of, _)| *of != link) {
            let prefix = prefix_of(&self.namespace.join('/', key));
            let options = WatchOptions::new().with_prefix().with_start_revision(self.revision + 1);
            let watch = self.cluster.ask(|mut client| async move { client.watch(prefix, Some(options)).await });
            self.watch = within(TIMEOUT, watch).await.ok().and_then(Result::ok).map(|watch| (link, watch));
        }
        let Some((_, watch)) = &mut self.watch else { return std::future::pending().await };
        loop {
            match watch.message().await {
                Ok(Some(message)) if !message.canceled() && message.events().is_empty() => {}
                Ok(Some(message)) if !message.canceled() => return,
                // The next look finds the cause.
                _ => {
                    self.watch = None;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
