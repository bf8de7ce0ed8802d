/*!
One look at a lock's queue, as etcd's own clients look: at the oldest entry and at those just before ours, never at all
of them. What a look makes the servers send does not grow with the number of waiters.

Keys-only listings say who is before whom, and in which mode. Values are read of the oldest keys, for what waiters are told,
and of those entries alone on which [a decision](QueueView::unread) rests. Where keys of other locks come first, a look reads on
behind them.
*/

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};

use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::{self, HOLD, entries, is_entry, mode_of, order, stem};
use crate::backend::etcd::standing::{QueueView, Rest};
use crate::backend::{Busy, Claim, Error};
use crate::clock::wall_millis;
use crate::holder::{Holder, Published};
use crate::lock::admission::{Entry, Mode};

/// How many entries one look names, unless there are more slots: a place in line beyond is not counted.
const NAMED: i64 = 100;
/// How many keys one page has while keys of other locks are skipped: more than one transaction can make, so that each page
/// leads to another revision.
const PAGE: i64 = 1000;
/// How many such pages are read at most.
const PAGES: usize = 20;
/// How many slots' values one look reads together with the names; those of more slots take another request.
const FEW: u32 = 8;
/// How many values are read by one request. etcd takes no more than 128 operations in a transaction, and an entry may have
/// two keys.
const VALUES: usize = 60;
/// How many runs around ours are looked for by one request; the innermost ones, where there are more.
const OUTER: usize = 100;
/// How many keys of one owner are read.
const OWN_KEYS: i64 = 4;
/// The revision of what is not made yet: everything is before it.
const NOT_YET: i64 = i64::MAX;

/// What one look at the queue shows, all at one revision.
#[derive(Debug)]
pub(super) struct Look {
    /// The revision of the cluster at that moment.
    pub revision: i64,
    /// Our key; its value only where it has slots.
    pub own: Option<KeyValue>,
    /// The oldest entry, with its value.
    pub first: Option<KeyValue>,
    /// What is before ours, as far as it was seen.
    pub sight: QueueView,
    /// How many keys there are below the prefix.
    pub count: u64,
    /// The keys of the entries before ours, without their values.
    before: Vec<KeyValue>,
}

/// The ranges that one look reads, in the order of [`operations`].
struct Answers {
    revision: i64,
    own: Option<KeyValue>,
    /// The oldest keys, oldest first.
    oldest: Vec<KeyValue>,
    /// Those not younger than ours, and whether there are more of them; none where they were not asked for.
    newest: Option<(Vec<KeyValue>, bool)>,
    count: u64,
    /// What else was asked for.
    others: Vec<KeyValue>,
}

/// How many keys a look lists: of slots so many that one entry more than there are slots is among them, each with two keys,
/// and next to those our own and what [`whole`] leaves out.
fn listed(mode: Mode) -> i64 {
    NAMED.max(2 * (i64::from(mode.slots().unwrap_or_default()) + 3))
}

/// Reads our own key, the oldest ones, and, where it is known when ours was made, those just before it.
fn operations(prefix: &str, own: &str, created: Option<i64>, mode: Mode) -> Vec<TxnOp> {
    let oldest_first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
    let values = mode.slots().filter(|_| created.is_some()).map_or(2, |slots| i64::from(slots.min(FEW)) + 1);
    let own_key = GetOptions::new();
    // That a slot was entered stands in its value, also where the answer to that was lost.
    let own_key = if mode.slots().is_some() { own_key } else { own_key.with_keys_only() };
    let mut operations =
        vec![TxnOp::get(own, Some(own_key)), TxnOp::get(prefix, Some(oldest_first.with_limit(values)))];
    if let Some(created) = created {
        let newest_first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend);
        let newest_first = newest_first.with_keys_only().with_max_create_revision(created).with_limit(listed(mode));
        operations.push(TxnOp::get(prefix, Some(newest_first)));
    }
    operations
}

/// The ranges that were read by a transaction, in their order.
fn gets(answer: &TxnResponse) -> Option<impl Iterator<Item = GetResponse> + use<>> {
    // The library takes for granted that each of them is there.
    if answer.0.responses.iter().any(|operation| operation.response.is_none()) {
        return None;
    }
    Some(answer.op_responses().into_iter().filter_map(|operation| match operation {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    }))
}

impl Answers {
    /// Reads the answers to [`operations`], after those to anything else in the same transaction; `lists` says whether the
    /// newest keys were asked for.
    fn read(answer: &TxnResponse, lists: bool) -> Option<Self> {
        let revision = answer.header()?.revision();
        let mut gets = gets(answer)?;
        let own = gets.next()?.take_kvs().into_iter().next();
        let mut oldest = gets.next()?;
        let count = oldest.count().try_into().ok()?;
        let mut oldest = oldest.take_kvs();
        oldest.sort_by(|one, other| order(one).cmp(&order(other)));
        let newest = if lists { Some(gets.next().map(|mut get| (get.take_kvs(), get.more()))?) } else { None };
        let others = gets.flat_map(|mut get| get.take_kvs()).collect();
        Some(Self { revision, own, oldest, newest, count, others })
    }
}

/// The `page` without the last revision in it, if there is `more`: some of what was made then may be on the next page, and
/// an entry that is seen must not hide another one.
fn whole(mut page: Vec<KeyValue>, more: bool) -> Vec<KeyValue> {
    if let Some(last) = page.last().map(KeyValue::create_revision).filter(|_| more) {
        page.retain(|kv| kv.create_revision() != last);
    }
    page
}

/// What a dlock publishes in this key, which is its own; none where it is another's value.
fn published(kv: &KeyValue, prefix: &str) -> Option<Box<Published>> {
    let Holder::Dlock(published) = Holder::read(kv.value()) else { return None };
    let key = names::key(prefix, names::lease_of(&published.id), mode_of(kv, prefix)?);
    (stem(&String::from_utf8_lossy(kv.key())) == key).then_some(published)
}

impl Look {
    /// Whether nothing is before our key, which is there.
    pub(super) fn is_first(&self) -> bool {
        self.own.is_some() && self.sight.before.is_empty() && self.sight.rest == Rest::Nothing
    }

    /// Whether nothing was before our key from the moment on at which it was made, as far as this look knows.
    pub(super) fn was_always_first(&self) -> bool {
        self.is_first() && self.own.as_ref().is_some_and(|own| own.create_revision() == self.revision)
    }

    /// Whether our key is there and ends with this lease.
    pub(super) fn is_bound_to(&self, lease: i64) -> bool {
        self.own.as_ref().is_some_and(|own| own.lease() == lease)
    }

    /// Why the lock is not ours: `awaited` is the entry whose end we wait for. All others are before a contender that has
    /// `just_joined`.
    pub(super) fn busy(&self, prefix: &str, awaited: Option<&Entry>, just_joined: bool) -> Busy {
        let position = self.sight.position(just_joined.then_some(self.count));
        Busy { holder: self.holder(prefix, awaited), beside: self.sight.beside(), position, now: wall_millis() }
    }

    /// Who is in the way.
    pub(super) fn holder(&self, prefix: &str, awaited: Option<&Entry>) -> Holder {
        let stray = |kv: &&KeyValue| mode_of(kv, prefix).is_none();
        let awaited = awaited.and_then(|entry| self.before.iter().find(|kv| kv.key() == entry.name.as_bytes()));
        if let Some(stray) = self.first.as_ref().filter(stray).or(awaited.filter(stray)) {
            let what = if stray.lease() == 0 { "without a lease" } else { "that is no lock" };
            return Holder::InTheWay(format!("the key {}, a key {what}", String::from_utf8_lossy(stray.key())));
        }
        match &self.first {
            None => Holder::Nobody,
            // Other clients publish nothing; the key at least names the lease.
            Some(first) if first.value().is_empty() => {
                Holder::Foreign(format!("key {}", String::from_utf8_lossy(first.key())).into_bytes())
            }
            Some(first) if first.key().ends_with(HOLD.as_bytes()) => Holder::read(first.value()).finished(),
            Some(first) => Holder::read(first.value()),
        }
    }
}

/// One lock's queue at the cluster.
pub(super) struct Line<'a> {
    cluster: &'a mut Cluster,
    prefix: String,
    mode: Mode,
}

impl<'a> Line<'a> {
    /// The queue of `claim`'s lock.
    pub(super) fn of(claim: &Claim, cluster: &'a mut Cluster) -> Self {
        Self { cluster, prefix: names::prefix(claim), mode: claim.mode }
    }

    /// Looks at the queue without an entry in it, as one that is not made yet; and returns what the outer run publishes
    /// that holds the lock, of these `owners`.
    pub(super) async fn glance(&mut self, owners: &[String]) -> Result<(Look, Option<Box<Published>>), Error> {
        let outer = |owner: &String| {
            let key = names::key(&self.prefix, names::lease_of(owner), Mode::Exclusive);
            // All keys that are named after this lease: no other character of a name comes before the slash.
            let end = format!("{key}/");
            TxnOp::get(key, Some(GetOptions::new().with_range(end).with_limit(OWN_KEYS)))
        };
        let outer: Vec<TxnOp> = owners.iter().rev().take(OUTER).map(outer).collect();
        let prefix = self.prefix.clone();
        // To one that wants the whole lock, the oldest entry says all.
        let lists = (self.mode != Mode::Exclusive).then_some(NOT_YET);
        let answers = self.ask(&prefix, lists, outer).await?;
        let is_held = |kv: &&KeyValue| !kv.key().ends_with(HOLD.as_bytes());
        let mut held = answers.others.iter().filter(is_held).filter_map(|kv| published(kv, &prefix));
        let outer = held.find(|published| owners.contains(&published.id));
        let mut look = self.looked(answers, NOT_YET, "").await?;
        let is_group = |first: &KeyValue| mode_of(first, &prefix).is_some_and(|mode| mode != Mode::Exclusive);
        if lists.is_none() && look.first.as_ref().is_some_and(is_group) {
            let answers = self.ask(&prefix, Some(NOT_YET), Vec::new()).await?;
            look = self.looked(answers, NOT_YET, "").await?;
        }
        look.own = None;
        Ok((look, outer))
    }

    /// Puts `key` with `value` at the end, bound to `lease`, unless it is there already; and where the entry `holds`, its
    /// second key, unless that one is there: then nothing is put. Who is before it is known only where that is nobody.
    pub(super) async fn join(&mut self, key: &str, value: String, lease: i64, holds: bool) -> Result<Look, Fault> {
        let bound = || Some(PutOptions::new().with_lease(lease));
        let (mut put, mut absent) = (Vec::new(), vec![Compare::create_revision(key, CompareOp::Equal, 0)]);
        if holds {
            let hold = format!("{key}{HOLD}");
            // One that is left of an earlier try has another place: we would wait for ourselves.
            absent.push(Compare::create_revision(hold.as_str(), CompareOp::Equal, 0));
            put.push(TxnOp::put(hold, value.as_str(), bound()));
        }
        put.push(TxnOp::put(key, value, bound()));
        let look = operations(&self.prefix, key, None, self.mode);
        put.extend(look.clone());
        let answer = self.send(Txn::new().when(absent).and_then(put).or_else(look)).await?;
        let answers = Answers::read(&answer, false).ok_or_else(|| self.cluster.malformed())?;
        let Answers { revision, own, oldest, count, .. } = answers;
        let first = oldest.into_iter().next();
        let oldest = entries(first.as_slice(), &self.prefix).pop();
        // At the revision of this very put there is no other key.
        let alone = answer.succeeded() && oldest.as_ref().is_some_and(|oldest| stem(&oldest.name) == key);
        let rest = if alone { Rest::Nothing } else { Rest::Unseen };
        let sight = QueueView { mode: self.mode, slot: None, before: Vec::new(), rest, first: oldest };
        Ok(Look { revision, own, first, sight, count, before: Vec::new() })
    }

    /// Looks at the queue with `key` in it, which was made at the revision `created`.
    pub(super) async fn look(&mut self, key: &str, created: i64) -> Result<Look, Error> {
        let answers = self.ask(key, Some(created), Vec::new()).await?;
        let mut look = self.looked(answers, created, key).await?;
        self.read_values(&mut look.sight).await?;
        Ok(look)
    }

    /// What `answers` show to a contender whose key was made at the revision `created`.
    async fn looked(&mut self, answers: Answers, created: i64, key: &str) -> Result<Look, Error> {
        let first = self.first(&answers).await?;
        let Answers { revision, own, oldest, newest, count, .. } = answers;
        let (before, more) = match newest {
            Some((page, more)) => self.nearest(page, more, (created, key), revision).await?,
            None => (first.iter().cloned().collect(), first.is_some()),
        };
        let seen = entries(&before, &self.prefix);
        let oldest_entry = entries(first.as_slice(), &self.prefix).pop();
        let is_it = |one: &Entry, other: &Entry| one.order == other.order && stem(&one.name) == stem(&other.name);
        let reaches = seen.last().zip(oldest_entry.as_ref()).is_some_and(|(last, first)| is_it(last, first));
        let rest = if more && !reaches { Rest::Unseen } else { Rest::Nothing };
        let own_slot = own.as_ref().filter(|own| own.create_revision() == created);
        let slot = own_slot.and_then(|own| published(own, &self.prefix)?.slot);
        let mut sight = QueueView { mode: self.mode, slot, before: seen, rest, first: oldest_entry };
        for kv in &oldest {
            self.learn(&mut sight, kv);
        }
        Ok(Look { revision, own, first, sight, count, before })
    }

    /// Takes note in `sight` of what a key says of its entry.
    fn learn(&self, sight: &mut QueueView, kv: &KeyValue) {
        if let Some(said) = published(kv, &self.prefix) {
            sight.learn(kv.create_revision(), &String::from_utf8_lossy(kv.key()), &said);
        }
    }

    /// Reads the values on which a decision rests: of entries that have gone meanwhile, or were made again, nothing is
    /// learnt, and whoever watches them hears of that.
    async fn read_values(&mut self, sight: &mut QueueView) -> Result<(), Error> {
        for part in sight.unread().chunks(VALUES) {
            let keys = part.iter().flat_map(|entry| {
                let own = stem(&entry.name);
                [Some(own), Some(entry.name.as_str()).filter(|&last| last != own)]
            });
            let read: Vec<TxnOp> = keys.flatten().map(|key| TxnOp::get(key, None)).collect();
            let answer = self.send(Txn::new().and_then(read)).await?;
            for mut get in gets(&answer).ok_or_else(|| self.cluster.malformed())? {
                get.take_kvs().iter().for_each(|kv| self.learn(sight, kv));
            }
        }
        Ok(())
    }

    /// The keys of `page` and of what follows it that are before ours, newest first, and whether there may be more: so many
    /// entries as a decision takes, if there are so many.
    async fn nearest(
        &mut self,
        page: Vec<KeyValue>,
        more: bool,
        ours: (i64, &str),
        revision: i64,
    ) -> Result<(Vec<KeyValue>, bool), Error> {
        let enough = self.mode.slots().map_or(1, |_| self.mode.room() + 1);
        let before = self.before(whole(page, more), ours);
        if !more || entries(&before, &self.prefix).len() >= enough {
            return Ok((before, more));
        }
        self.read_on(SortOrder::Descend, ours.0, revision, enough, |line, page| line.before(page, ours)).await
    }

    /// The keys of `page` that are entries before ours.
    fn before(&self, page: Vec<KeyValue>, (created, key): (i64, &str)) -> Vec<KeyValue> {
        let is_before = |kv: &KeyValue| is_entry(&self.prefix, kv.key()) && order(kv) < (created, key.as_bytes());
        page.into_iter().filter(is_before).collect()
    }

    /// The oldest entry, where the oldest key may be another lock's.
    async fn first(&mut self, answers: &Answers) -> Result<Option<KeyValue>, Error> {
        let oldest = match answers.oldest.first() {
            Some(oldest) if !is_entry(&self.prefix, oldest.key()) => oldest.create_revision(),
            first => return Ok(first.cloned()),
        };
        let (found, _) = self
            .read_on(SortOrder::Ascend, oldest, answers.revision, 1, |line, page| {
                page.into_iter().filter(|kv| is_entry(&line.prefix, kv.key())).collect()
            })
            .await?;
        // Of two that are one entry the contender's own key, which says that it is still there.
        let Some(first) = found.into_iter().min_by(|one, other| order(one).cmp(&order(other))) else { return Ok(None) };
        let (key, at) = (first.key().to_vec(), GetOptions::new().with_revision(answers.revision));
        let read = self.cluster.ask(|mut client| async move { client.get(key, Some(at)).await });
        Ok(read.await?.take_kvs().into_iter().next())
    }

    /// What `wanted` finds in the pages in `order`, of keys made at `from` or on the far side of it, until that is `enough`
    /// entries; and whether there are more pages. All pages are of one `revision`, so that nobody slips through between
    /// them.
    async fn read_on(
        &mut self,
        order: SortOrder,
        mut from: i64,
        revision: i64,
        enough: usize,
        wanted: impl Fn(&Self, Vec<KeyValue>) -> Vec<KeyValue>,
    ) -> Result<(Vec<KeyValue>, bool), Error> {
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let options = GetOptions::new().with_prefix().with_sort(SortTarget::Create, order);
            let options = options.with_keys_only().with_limit(PAGE).with_revision(revision);
            let options = match order {
                SortOrder::Descend => options.with_max_create_revision(from),
                _ => options.with_min_create_revision(from),
            };
            let prefix = self.prefix.clone();
            let read = self.cluster.ask(|mut client| async move { client.get(prefix, Some(options)).await });
            let mut read = read.await?;
            let (more, page) = (read.more(), read.take_kvs());
            let last = page.last().map_or(from, KeyValue::create_revision);
            found.extend(wanted(self, whole(page, more)));
            if !more || entries(&found, &self.prefix).len() >= enough {
                return Ok((found, more));
            }
            if last == from {
                break;
            }
            from = last;
        }
        Err(errors::too_many_keys(&self.prefix))
    }

    /// Asks for what [`operations`] name, and for more.
    async fn ask(&mut self, own: &str, created: Option<i64>, more: Vec<TxnOp>) -> Result<Answers, Error> {
        let mut all = operations(&self.prefix, own, created, self.mode);
        all.extend(more);
        let answer = self.send(Txn::new().and_then(all)).await?;
        Answers::read(&answer, created.is_some()).ok_or_else(|| self.cluster.malformed())
    }

    async fn send(&mut self, transaction: Txn) -> Result<TxnResponse, Fault> {
        self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await
    }
}
