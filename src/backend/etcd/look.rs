/*!
One look at a lock's queue, as etcd's own clients look: at the oldest entry and at those just before ours, never at all
of them. The amount of data that the servers send for a look does not grow with the number of waiters.

Keys-only listings give the order of the entries and their modes. Values are read only of the oldest keys, for messages
to waiters, and of those entries on which [a decision](QueueView::unread) depends. If keys of other locks come first, a
look reads on behind them.
*/

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Busy;
use crate::backend::error::Error;
use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::link::Cluster;
use crate::backend::etcd::names::{self, HOLD, entries, is_entry, mode_of, order, stem};
use crate::backend::etcd::standing::{QueueView, Rest};
use crate::clock::wall_millis;
use crate::holder::{Holder, Published};
use crate::lock::admission::{Entry, Mode};

/// Number of keys listed by one look, unless more slots need more; a place in line beyond that is not counted.
const NAMED: i64 = 100;
/// Number of keys on one page while keys of other locks are skipped: more than one transaction can create, so that each
/// page reaches another revision.
const PAGE: i64 = 1000;
/// Maximum number of such pages.
const PAGES: usize = 20;
/// Number of slots whose values one look reads together with the names; the values of more slots take another request.
const FEW: u32 = 8;
/// Number of entries whose values are read by one request. etcd accepts at most 128 operations in a transaction, and an
/// entry may have two keys.
const VALUES: usize = 60;
/// Maximum number of outer runs that one request looks for; if there are more, only the innermost ones.
const OUTER: usize = 100;
/// Maximum number of keys read for one owner.
const OWN_KEYS: i64 = 4;
/// The revision of an entry that does not exist yet: everything is before it.
const NOT_YET: i64 = i64::MAX;

/// The result of one look at the queue, all at one revision.
#[derive(Debug)]
pub(super) struct Look {
    /// The revision of the cluster at the time of the look.
    pub revision: i64,
    /// Our key; with its value only if the lock has slots.
    pub own: Option<KeyValue>,
    /// The oldest entry, with its value.
    pub first: Option<KeyValue>,
    /// The entries before ours, as far as they were seen.
    pub view: QueueView,
    /// Number of keys below the prefix.
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
    /// The newest keys not newer than ours, and `true` if there are more of them; `None` if they were not requested.
    newest: Option<(Vec<KeyValue>, bool)>,
    count: u64,
    /// The results of all other requested ranges.
    others: Vec<KeyValue>,
}

/// Number of keys that a look lists. For slots, there is room for one entry more than there are slots, our own entry,
/// and those that [`whole`] leaves out, each with two keys.
fn listed(mode: Mode) -> i64 {
    NAMED.max(2 * (i64::from(mode.slots().unwrap_or_default()) + 3))
}

/// What a look may show, in etcd's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consistency {
    /// The latest state: the member asks the leader first.
    Linearizable,
    /// The state that the member knows, from which only the newest changes may be missing.
    Serializable,
}

impl Consistency {
    fn applied_to(self, options: GetOptions) -> GetOptions {
        if self == Self::Serializable { options.with_serializable() } else { options }
    }
}

/// Operations to read our own key, the oldest keys, and, if our key's create revision is known, those just before it.
fn operations(prefix: &str, own: &str, created: Option<i64>, mode: Mode, read: Consistency) -> Vec<TxnOp> {
    let options = || read.applied_to(GetOptions::new());
    let oldest_first = options().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
    let values = mode.slots().filter(|_| created.is_some()).map_or(2, |slots| i64::from(slots.min(FEW)) + 1);
    let own_key = options();
    // The value says which slot we have entered, even if the answer to that write was lost.
    let own_key = if mode.slots().is_some() { own_key } else { own_key.with_keys_only() };
    let mut operations =
        vec![TxnOp::get(own, Some(own_key)), TxnOp::get(prefix, Some(oldest_first.with_limit(values)))];
    if let Some(created) = created {
        let newest_first = options().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend);
        let newest_first = newest_first.with_keys_only().with_max_create_revision(created).with_limit(listed(mode));
        operations.push(TxnOp::get(prefix, Some(newest_first)));
    }
    operations
}

/// The ranges that a transaction has read, in their order; `None` if the answer is malformed.
fn gets(answer: &TxnResponse) -> Option<impl Iterator<Item = GetResponse> + use<>> {
    // The library assumes that all responses are present.
    if answer.0.responses.iter().any(|operation| operation.response.is_none()) {
        return None;
    }
    Some(answer.op_responses().into_iter().filter_map(|operation| match operation {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    }))
}

impl Answers {
    /// Returns `true` if they are no older than this revision. A member may report an event a moment before its reads
    /// show it; after a lost link, or behind a proxy, it is another member that has answered.
    fn is_at_least(&self, revision: i64) -> bool {
        self.revision >= revision
    }

    /// Reads the answers to [`operations`] and to any ranges after them in the same transaction; `lists` is `true` if
    /// the newest keys were requested.
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

/// The `page` without its last revision, if there is `more`: other keys created at that revision may be on the next
/// page, and an entry that is seen must not hide another one.
fn whole(mut page: Vec<KeyValue>, more: bool) -> Vec<KeyValue> {
    if let Some(last) = page.last().map(KeyValue::create_revision).filter(|_| more) {
        page.retain(|kv| kv.create_revision() != last);
    }
    page
}

/// The value that dlock publishes in this key; `None` unless the key belongs to the owner in the value.
fn published(kv: &KeyValue, prefix: &str) -> Option<Box<Published>> {
    let Holder::Dlock(published) = Holder::read(kv.value()) else { return None };
    let key = names::key(prefix, names::lease_of(&published.id), mode_of(kv, prefix)?);
    (stem(&String::from_utf8_lossy(kv.key())) == key).then_some(published)
}

impl Look {
    /// Returns `true` if our key exists and nothing is before it.
    pub(super) fn is_first(&self) -> bool {
        self.own.is_some() && self.view.before.is_empty() && self.view.rest == Rest::Nothing
    }

    /// Returns `true` if nothing has been before our key since its creation, as far as this look can tell.
    pub(super) fn was_always_first(&self) -> bool {
        self.is_first() && self.own.as_ref().is_some_and(|own| own.create_revision() == self.revision)
    }

    /// Returns `true` if our key exists and is bound to this lease.
    pub(super) fn is_bound_to(&self, lease: i64) -> bool {
        self.own.as_ref().is_some_and(|own| own.lease() == lease)
    }

    /// Describes why we do not hold the lock. `awaited` is the entry whose end we wait for. All other entries are
    /// before a contender that has `just_joined`.
    pub(super) fn busy(&self, prefix: &str, awaited: Option<&Entry>, just_joined: bool) -> Busy {
        let position = self.view.position(just_joined.then_some(self.count));
        Busy { holder: self.holder(prefix, awaited), beside: self.view.beside(), position, now: wall_millis() }
    }

    /// The holder, or the stray key that blocks the lock.
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
pub(super) struct LockQueue<'a> {
    cluster: &'a mut Cluster,
    prefix: String,
    mode: Mode,
}

impl<'a> LockQueue<'a> {
    /// The queue of `claim`'s lock.
    pub(super) fn of(claim: &Claim, cluster: &'a mut Cluster) -> Self {
        Self { cluster, prefix: names::prefix(claim), mode: claim.mode }
    }

    /// Looks at the queue before our entry is made. Also returns the value published by the outer run that holds the
    /// lock, if one of these `owners` does.
    pub(super) async fn peek(&mut self, owners: &[String]) -> Result<(Look, Option<Box<Published>>), Error> {
        let outer = |owner: &String| {
            let key = names::key(&self.prefix, names::lease_of(owner), Mode::Exclusive);
            // The range of all keys named after this lease: hexadecimal digits sort after the slash, the dot before it.
            let end = format!("{key}/");
            TxnOp::get(key, Some(GetOptions::new().with_range(end).with_limit(OWN_KEYS)))
        };
        let outer: Vec<TxnOp> = owners.iter().rev().take(OUTER).map(outer).collect();
        let prefix = self.prefix.clone();
        // For an exclusive contender, the oldest entry is enough.
        let lists = (self.mode != Mode::Exclusive).then_some(NOT_YET);
        let answers = self.ask(&prefix, lists, outer, Consistency::Linearizable).await?;
        let is_held = |kv: &&KeyValue| !kv.key().ends_with(HOLD.as_bytes());
        let mut held = answers.others.iter().filter(is_held).filter_map(|kv| published(kv, &prefix));
        let outer = held.find(|published| owners.contains(&published.id));
        let mut look = self.looked(answers, NOT_YET, "").await?;
        let is_group = |first: &KeyValue| mode_of(first, &prefix).is_some_and(|mode| mode != Mode::Exclusive);
        if lists.is_none() && look.first.as_ref().is_some_and(is_group) {
            let answers = self.ask(&prefix, Some(NOT_YET), Vec::new(), Consistency::Linearizable).await?;
            look = self.looked(answers, NOT_YET, "").await?;
        }
        look.own = None;
        Ok((look, outer))
    }

    /// Appends `key` with `value`, bound to `lease`, and if the entry `holds`, its second key too. Puts nothing if one
    /// of them exists. The result does not list the entries before ours; it only shows whether there are none.
    pub(super) async fn join(&mut self, key: &str, value: String, lease: i64, holds: bool) -> Result<Look, Fault> {
        let bound = || Some(PutOptions::new().with_lease(lease));
        let (mut put, mut absent) = (Vec::new(), vec![Compare::create_revision(key, CompareOp::Equal, 0)]);
        if holds {
            let hold = format!("{key}{HOLD}");
            // A key left by an earlier attempt has another place: we would wait for ourselves.
            absent.push(Compare::create_revision(hold.as_str(), CompareOp::Equal, 0));
            put.push(TxnOp::put(hold, value.as_str(), bound()));
        }
        put.push(TxnOp::put(key, value, bound()));
        let look = operations(&self.prefix, key, None, self.mode, Consistency::Linearizable);
        put.extend(look.clone());
        let answer = self.send(Txn::new().when(absent).and_then(put).or_else(look)).await?;
        let answers = Answers::read(&answer, false).ok_or_else(|| self.cluster.malformed())?;
        let Answers { revision, own, oldest, count, .. } = answers;
        let first = oldest.into_iter().next();
        let oldest = entries(first.as_slice(), &self.prefix).pop();
        // No other entry is created at the revision of this put.
        let alone = answer.succeeded() && oldest.as_ref().is_some_and(|oldest| stem(&oldest.name) == key);
        let rest = if alone { Rest::Nothing } else { Rest::Unseen };
        let view = QueueView { mode: self.mode, slot: None, before: Vec::new(), rest, first: oldest };
        Ok(Look { revision, own, first, view, count, before: Vec::new() })
    }

    /// Looks at the queue that contains `key`, created at the revision `created`. If a member has `told` us of a
    /// revision since the lease was last extended, any state from that revision on will do, and the member need not ask
    /// its leader: entries before ours only ever end, and our key lasts as long as the lease.
    pub(super) async fn look(&mut self, key: &str, created: i64, told: Option<i64>) -> Result<Look, Error> {
        let mut answers = None;
        if let Some(told) = told {
            let known = self.ask(key, Some(created), Vec::new(), Consistency::Serializable).await?;
            answers = Some(known).filter(|known| known.is_at_least(told));
        }
        let answers = match answers {
            Some(answers) => answers,
            None => self.ask(key, Some(created), Vec::new(), Consistency::Linearizable).await?,
        };
        let mut look = self.looked(answers, created, key).await?;
        self.read_values(&mut look.view).await?;
        Ok(look)
    }

    /// Interprets `answers` for a contender whose key was created at the revision `created`.
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
        let mut view = QueueView { mode: self.mode, slot, before: seen, rest, first: oldest_entry };
        for kv in &oldest {
            self.learn(&mut view, kv);
        }
        Ok(Look { revision, own, first, view, count, before })
    }

    /// Adds to `view` the state that a key's value publishes about its entry.
    fn learn(&self, view: &mut QueueView, kv: &KeyValue) {
        if let Some(said) = published(kv, &self.prefix) {
            view.learn(kv.create_revision(), &String::from_utf8_lossy(kv.key()), &said);
        }
    }

    /// Reads the values on which a decision rests. An entry that has ended meanwhile, or was made again, yields
    /// nothing, and the watch on it reports the change.
    async fn read_values(&mut self, view: &mut QueueView) -> Result<(), Error> {
        for part in view.unread().chunks(VALUES) {
            let keys = part.iter().flat_map(|entry| {
                let own = stem(&entry.name);
                [Some(own), Some(entry.name.as_str()).filter(|&last| last != own)]
            });
            let read: Vec<TxnOp> = keys.flatten().map(|key| TxnOp::get(key, None)).collect();
            let answer = self.send(Txn::new().and_then(read)).await?;
            for mut get in gets(&answer).ok_or_else(|| self.cluster.malformed())? {
                get.take_kvs().iter().for_each(|kv| self.learn(view, kv));
            }
        }
        Ok(())
    }

    /// The keys of `page` and of the pages after it that are before ours, newest first, and `true` if there may be
    /// more: as many entries as a decision needs, if there are that many.
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

    /// Finds the oldest entry, even if the oldest key belongs to another lock.
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
        // Of the two keys of one entry, take the contender's own key, which shows that the contender still exists.
        let Some(first) = found.into_iter().min_by(|one, other| order(one).cmp(&order(other))) else { return Ok(None) };
        let (key, at) = (first.key().to_vec(), GetOptions::new().with_revision(answers.revision));
        let read = self.cluster.ask(|mut client| async move { client.get(key, Some(at)).await });
        Ok(read.await?.take_kvs().into_iter().next())
    }

    /// Reads pages of keys in `order`, from the create revision `from` on, until `wanted` has selected `enough`
    /// entries. Returns the selected keys, and `true` if there are more pages. All pages are read at one `revision`, so
    /// that no entry is missed between them.
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

    /// Sends [`operations`] and `more` in one transaction.
    async fn ask(
        &mut self,
        own: &str,
        created: Option<i64>,
        more: Vec<TxnOp>,
        read: Consistency,
    ) -> Result<Answers, Error> {
        let mut all = operations(&self.prefix, own, created, self.mode, read);
        all.extend(more);
        let answer = self.send(Txn::new().and_then(all)).await?;
        Answers::read(&answer, created.is_some()).ok_or_else(|| self.cluster.malformed())
    }

    async fn send(&mut self, transaction: Txn) -> Result<TxnResponse, Fault> {
        self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_behind_what_we_were_told_is_not_believed() {
        let known =
            |revision| Answers { revision, own: None, oldest: Vec::new(), newest: None, count: 0, others: Vec::new() };
        for (revision, expected) in [(6, false), (7, true), (8, true)] {
            assert_eq!(known(revision).is_at_least(7), expected, "{revision}");
        }
    }

    #[test]
    fn only_a_look_at_what_we_were_told_of_spares_the_leader() {
        for (read, expected) in [(Consistency::Linearizable, false), (Consistency::Serializable, true)] {
            for mode in [Mode::Exclusive, Mode::read("slots2").expect("a mode")] {
                let all = operations("dlock/a/", "dlock/a/6f", Some(3), mode, read);
                // The member asks its leader if any read of the transaction is linearizable.
                assert!(
                    all.iter().all(|operation| format!("{operation:?}").contains("serializable: true") == expected)
                );
            }
        }
    }
}
