/*!
One look at a lock's queue, as etcd's own clients look: at the oldest entry and at those just before ours, never at all
of them. What a look makes the servers send does not grow with the number of waiters.

A lock's keys are `NS/KEY/<lease id>`. A contender with a minimum hold has a second one, with [`HOLD`] appended, made at the
same revision: both are one entry, which ends with the last of them. A key with one more `/` belongs to another lock, whose
namespace begins with this lock's name (`dlock` and `dlock/a`): it is no entry of this queue. Where such keys come first, a
look reads on behind them.
*/

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};

use crate::backend::etcd::errors::{self, Fault};
use crate::backend::etcd::link::Cluster;
use crate::backend::{Claim, Error};
use crate::holder::Holder;

/// How many entries one look names: a place in line beyond is not counted.
const NAMED: i64 = 100;
/// How many keys one page has while keys of other locks are skipped: more than one transaction can make, so that each page
/// leads to another revision.
const PAGE: i64 = 1000;
/// How many such pages are read at most.
const PAGES: usize = 20;

/// What is appended to a contender's key for the one that stays for its minimum hold.
pub(super) const HOLD: &str = ".hold";

/// The prefix of every key of the lock.
pub(super) fn prefix(claim: &Claim) -> String {
    format!("{}/", claim.namespace.join('/', &claim.key))
}

/// What the keys of all locks of the claim's namespace begin with; without a namespace, those of its own lock.
pub(super) fn namespace(claim: &Claim) -> String {
    let own = prefix(claim);
    match own.strip_suffix(&format!("{}/", claim.key.encoded())) {
        Some(namespace) if !namespace.is_empty() => namespace.to_owned(),
        _ => own,
    }
}

/// What one look at the queue shows, all at one revision.
#[derive(Debug)]
pub(super) struct Look {
    /// The revision of the cluster at that moment.
    pub revision: i64,
    /// Our key, without its value.
    pub own: Option<KeyValue>,
    /// The oldest entry, with its value.
    pub first: Option<KeyValue>,
    /// The entries before ours, newest first, without their values; the newest of them at least.
    pub before: Vec<KeyValue>,
    /// Whether these are all that are before ours.
    pub complete: bool,
    /// How many keys there are below the prefix.
    pub count: u64,
}

/// The ranges that one look reads, in the order of [`operations`].
struct Answers {
    revision: i64,
    own: Option<KeyValue>,
    first: Option<KeyValue>,
    /// Those not younger than ours, and whether there are more of them.
    newest: (Vec<KeyValue>, bool),
    count: u64,
}

/// Reads our own key, the oldest one, and, where it is known when ours was made, those just before it.
fn operations(prefix: &str, own: &str, created: Option<i64>) -> Vec<TxnOp> {
    let oldest_first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
    let mut operations = vec![
        TxnOp::get(own, Some(GetOptions::new().with_keys_only())),
        TxnOp::get(prefix, Some(oldest_first.with_limit(2))),
    ];
    if let Some(created) = created {
        let newest_first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend);
        let newest_first = newest_first.with_keys_only().with_max_create_revision(created).with_limit(NAMED);
        operations.push(TxnOp::get(prefix, Some(newest_first)));
    }
    operations
}

impl Answers {
    /// Reads the answers to [`operations`], after those to anything else in the same transaction.
    fn read(answer: &TxnResponse) -> Option<Self> {
        // The library takes for granted that each of them is there.
        if answer.0.responses.iter().any(|operation| operation.response.is_none()) {
            return None;
        }
        let revision = answer.header()?.revision();
        let mut gets = answer.op_responses().into_iter().filter_map(|operation| match operation {
            TxnOpResponse::Get(get) => Some(get),
            _ => None,
        });
        let one = |mut get: GetResponse| get.take_kvs().into_iter().next();
        let own = one(gets.next()?);
        let mut first = gets.next()?;
        let count = first.count().try_into().ok()?;
        let newest = gets.next().map(|mut get| (get.take_kvs(), get.more())).unwrap_or_default();
        Some(Self { revision, own, first: oldest(first.take_kvs()), newest, count })
    }
}

/// The oldest of these keys; of two that are one entry the contender's own, which says that it is still there.
fn oldest(mut keys: Vec<KeyValue>) -> Option<KeyValue> {
    keys.sort_by(|one, other| order(one).cmp(&order(other)));
    keys.into_iter().next()
}

/// What both keys of one contender have in common.
fn stem(key: &[u8]) -> &[u8] {
    key.strip_suffix(HOLD.as_bytes()).unwrap_or(key)
}

/// Whether a key is an entry of the queue with this prefix, and not another lock's.
fn is_entry(prefix: &str, key: &[u8]) -> bool {
    key.strip_prefix(prefix.as_bytes()).is_some_and(|name| !name.contains(&b'/'))
}

/// Whether a key is what a client of the lock makes: named after a lease in hexadecimal.
fn is_lock(kv: &KeyValue, prefix: &str) -> bool {
    let name = stem(kv.key().strip_prefix(prefix.as_bytes()).unwrap_or_default());
    kv.lease() != 0 && !name.is_empty() && name.iter().all(u8::is_ascii_hexdigit)
}

/// The order of the queue. No two entries are made at the same revision, unless on purpose; then the name decides,
/// for all clients alike.
fn order(kv: &KeyValue) -> (i64, &[u8]) {
    (kv.create_revision(), kv.key())
}

impl Look {
    /// Whether the lock is ours: our key is there, and none is before it.
    pub(super) fn is_ours(&self) -> bool {
        self.own.is_some() && self.before.is_empty() && self.complete
    }

    /// Whether our key is there and ends with this lease.
    pub(super) fn is_bound_to(&self, lease: i64) -> bool {
        self.own.as_ref().is_some_and(|own| own.lease() == lease)
    }

    /// Who is in the way.
    pub(super) fn holder(&self, prefix: &str) -> Holder {
        let stray = |kv: &&KeyValue| !is_lock(kv, prefix);
        if let Some(stray) = self.first.as_ref().filter(stray).or(self.before.first().filter(stray)) {
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

    /// How many are before us, as far as it can be told without reading them all: beyond [`NAMED`] only by a contender
    /// that has `just_joined`, because all others are before it.
    pub(super) fn position(&self, just_joined: bool) -> Option<u64> {
        match (self.complete, just_joined) {
            (true, _) => {
                let is_first = |(index, kv): &(usize, &KeyValue)| {
                    self.before[..*index].iter().all(|other| stem(other.key()) != stem(kv.key()))
                };
                self.before.iter().enumerate().filter(is_first).count().try_into().ok()
            }
            (false, true) => Some(self.count.saturating_sub(1)),
            (false, false) => None,
        }
    }
}

/// One lock's queue at the cluster.
pub(super) struct Line<'a> {
    cluster: &'a mut Cluster,
    prefix: String,
}

impl<'a> Line<'a> {
    /// The queue of `claim`'s lock.
    pub(super) fn of(claim: &Claim, cluster: &'a mut Cluster) -> Self {
        Self { cluster, prefix: prefix(claim) }
    }

    /// Whether there is anybody, and who: no entry is ours.
    pub(super) async fn glance(&mut self) -> Result<Look, Error> {
        let own = self.prefix.clone();
        let answers = self.ask(Txn::new().and_then(operations(&self.prefix, &own, None))).await?;
        let first = self.first(&answers).await?;
        Ok(Look {
            revision: answers.revision,
            own: None,
            first,
            before: Vec::new(),
            complete: false,
            count: answers.count,
        })
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
        put.extend(operations(&self.prefix, key, None));
        let transaction = Txn::new().when(absent).and_then(put).or_else(operations(&self.prefix, key, None));
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        let Answers { revision, own, first, count, .. } =
            Answers::read(&answer).ok_or_else(|| self.cluster.nonsense())?;
        // At the revision of this very put there is no other key.
        let alone = first.as_ref().is_some_and(|first| stem(first.key()) == key.as_bytes());
        Ok(Look { revision, own, first, before: Vec::new(), complete: answer.succeeded() && alone, count })
    }

    /// Looks at the queue with `key` in it, which was made at the revision `created`.
    pub(super) async fn look(&mut self, key: &str, created: i64) -> Result<Look, Error> {
        let answers = self.ask(Txn::new().and_then(operations(&self.prefix, key, Some(created)))).await?;
        let first = self.first(&answers).await?;
        let Answers { revision, own, newest: (newest, more), count, .. } = answers;
        let (mut before, mut complete) = (self.before(newest, key, created), !more);
        if before.is_empty() && more {
            let found =
                self.read_on(SortOrder::Descend, created, revision, |line, page| line.before(page, key, created));
            before = found.await?;
            complete = before.is_empty();
        }
        Ok(Look { revision, own, first, before, complete, count })
    }

    /// The entries of `page` that are before `key`, newest first.
    fn before(&self, page: Vec<KeyValue>, key: &str, created: i64) -> Vec<KeyValue> {
        let is_before = |kv: &KeyValue| is_entry(&self.prefix, kv.key()) && order(kv) < (created, key.as_bytes());
        let mut before: Vec<KeyValue> = page.into_iter().filter(is_before).collect();
        before.sort_by(|one, other| order(other).cmp(&order(one)));
        before
    }

    /// The oldest entry, where the oldest key may be another lock's.
    async fn first(&mut self, answers: &Answers) -> Result<Option<KeyValue>, Error> {
        let oldest = match &answers.first {
            Some(oldest) if !is_entry(&self.prefix, oldest.key()) => oldest.create_revision(),
            first => return Ok(first.clone()),
        };
        let entries = self.read_on(SortOrder::Ascend, oldest, answers.revision, |line, page| {
            page.into_iter().filter(|kv| is_entry(&line.prefix, kv.key())).collect()
        });
        let Some(first) = self::oldest(entries.await?) else { return Ok(None) };
        let (key, at) = (first.key().to_vec(), GetOptions::new().with_revision(answers.revision));
        let read = self.cluster.ask(|mut client| async move { client.get(key, Some(at)).await });
        Ok(read.await?.take_kvs().into_iter().next())
    }

    /// The first page in `order`, of keys made at `from` or on the far side of it, in which `wanted` finds something; none
    /// when there is no such page. All pages are of one `revision`, so that nobody slips through between them.
    async fn read_on(
        &mut self,
        order: SortOrder,
        mut from: i64,
        revision: i64,
        wanted: impl Fn(&Self, Vec<KeyValue>) -> Vec<KeyValue>,
    ) -> Result<Vec<KeyValue>, Error> {
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
            let found = wanted(self, page);
            if !found.is_empty() || !more {
                return Ok(found);
            }
            if last == from {
                break;
            }
            from = last;
        }
        Err(errors::too_many_keys(&self.prefix))
    }

    async fn ask(&mut self, transaction: Txn) -> Result<Answers, Error> {
        let answer = self.cluster.ask(|mut client| async move { client.txn(transaction).await }).await?;
        Answers::read(&answer).ok_or_else(|| self.cluster.nonsense())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_lock_below_this_one_are_no_entries() {
        for (key, expected) in [
            ("dlock/a/6f", true),
            ("dlock/a/", true),
            ("dlock/a/config", true),
            ("dlock/a/key/6f", false),
            ("dlock/a/6f/", false),
            ("dlock/ab/6f", false),
            ("dlock/a", false),
        ] {
            assert_eq!(is_entry("dlock/a/", key.as_bytes()), expected, "{key}");
        }
    }

    fn entry(key: &str) -> KeyValue {
        KeyValue(etcd_client::proto::PbKeyValue { key: key.into(), ..etcd_client::proto::PbKeyValue::default() })
    }

    #[test]
    fn a_place_is_told_as_far_as_it_is_known() {
        let look = |complete, before| Look {
            revision: 9,
            own: Some(KeyValue(etcd_client::proto::PbKeyValue::default())),
            first: None,
            before: (0..before).map(|number| entry(&number.to_string())).collect(),
            complete,
            count: 700,
        };
        for (complete, before, just_joined, expected) in [
            (true, 0, false, Some(0)),
            (true, 99, true, Some(99)),
            (false, 100, true, Some(699)),
            (false, 100, false, None),
        ] {
            assert_eq!(look(complete, before).position(just_joined), expected, "{complete} {before} {just_joined}");
        }
        assert!(look(true, 0).is_bound_to(0) && !look(true, 0).is_bound_to(7));
        assert!(look(true, 0).is_ours() && !look(false, 0).is_ours() && !look(true, 1).is_ours());
    }
}
