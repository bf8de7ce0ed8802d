/*!
The names of a lock in etcd: our keys, and the meaning of other clients' keys.

A lock's keys are `NS/KEY/<lease id>`, one for each contender, with the id in hexadecimal as etcd's own clients write
it. Such a contender is exclusive; others append the name of their mode: `<lease id>.shared`, `<lease id>.slots5`. Any
other key there counts as an exclusive contender, so that it is waited for.

A contender with a minimum hold has a second key, [`HOLD`] appended, created at the same revision: both are one entry,
which ends with the last of them. A key with one more `/` belongs to another lock, whose namespace begins with this
lock's name (`dlock` and `dlock/a`): it is no entry of this queue.
*/

use etcd_client::KeyValue;

use crate::backend::contract::claim::Claim;
use crate::lock::admission::{Entry, Mode};
use crate::lock::period::Period;

/// The suffix of the second key of a contender, which stays for its minimum hold.
pub(super) const HOLD: &str = ".hold";
/// The separator between a lock's name and the period length in the key that records the last success.
const ONCE: &str = "\u{1}once:";

/// The prefix of every key of the lock.
pub(super) fn prefix(claim: &Claim) -> String {
    prefix_of(&claim.namespace.join('/', &claim.key))
}

/// The prefix of every key of `lock`, which is spelled with its namespace.
pub(super) fn prefix_of(lock: &str) -> String {
    format!("{lock}/")
}

/// The key that records the last period of this length in which a command has succeeded. No key of a user has a control
/// character.
pub(super) fn record(claim: &Claim, period: Period) -> String {
    format!("{}{}", records(&claim.namespace.join('/', &claim.key)), period.length)
}

/// The prefix of these records for `lock`, which is spelled with its namespace.
pub(super) fn records(lock: &str) -> String {
    format!("{lock}{ONCE}")
}

/// The lock that such a record belongs to, spelled with its namespace; `None` for any other key.
pub(super) fn recorded(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key).ok()?.split_once(ONCE).map(|(lock, _)| lock)
}

/// The lock beside which this key of a latch or barrier is, spelled with its namespace, the place of the latch or
/// barrier, and its kind; `None` for any other key.
pub(super) fn met(key: &[u8]) -> Option<(&str, &str, &str)> {
    let text = std::str::from_utf8(key).ok()?;
    let (lock, rest) = text.split_once('\u{1}')?;
    let what =
        ["latch", "meet"].into_iter().find(|&what| rest.split_once('/').is_some_and(|(kind, _)| kind == what))?;
    Some((lock, &text[..lock.len() + 1 + what.len()], what))
}

/// The key with the trace of the last break of `lock`, which is spelled with its namespace.
pub(super) fn broken(lock: &str) -> String {
    format!("{lock}\u{1}broken")
}

/// The key prefix of all locks in the claim's namespace; without a namespace, that of its own lock.
pub(super) fn namespace(claim: &Claim) -> String {
    let own = prefix(claim);
    match own.strip_suffix(&format!("{}/", claim.key.encoded())) {
        Some(namespace) if !namespace.is_empty() => namespace.to_owned(),
        _ => own,
    }
}

/// The key with the request to stop for the holder with this lease, in the namespace whose keys begin with `namespace`.
/// It is not below the lock, where it would be in the queue.
pub(super) fn stop(namespace: &str, lease: i64) -> String {
    format!("{namespace}\u{1}stop/{lease:x}")
}

/// The lease id derived from this owner id.
pub(super) fn lease_of(owner: &str) -> i64 {
    lease(owner.get(..16))
}

/// The id of the lease for the minimum hold, derived from this owner id.
pub(super) fn hold_lease_of(owner: &str) -> i64 {
    lease(owner.get(16..))
}

/// The lease id from these hexadecimal digits: positive, and never 0, which would let the server choose one.
fn lease(digits: Option<&str>) -> i64 {
    let number = u64::from_str_radix(digits.unwrap_or_default(), 16).unwrap_or_default() >> 1;
    i64::try_from(number).unwrap_or_default().max(1)
}

/// The key of a contender with this lease, for the lock whose keys begin with `prefix`.
pub(super) fn key(prefix: &str, lease: i64, mode: Mode) -> String {
    match mode {
        Mode::Exclusive => format!("{prefix}{lease:x}"),
        Mode::Shared | Mode::Slots(_) => format!("{prefix}{lease:x}.{}", mode.name()),
    }
}

/// The part that both keys of one contender have in common.
pub(super) fn stem(key: &str) -> &str {
    key.strip_suffix(HOLD).unwrap_or(key)
}

/// Returns `true` if a key is an entry of the queue with this prefix, and not another lock's.
pub(super) fn is_entry(prefix: &str, key: &[u8]) -> bool {
    key.strip_prefix(prefix.as_bytes()).is_some_and(|name| !name.contains(&b'/'))
}

/// The mode of a contender, by its key; `None` if no client of the lock creates such a key: clients name a key after a
/// lease, and bind it to one.
pub(super) fn mode_of(kv: &KeyValue, prefix: &str) -> Option<Mode> {
    let name = stem(std::str::from_utf8(kv.key()).ok()?.strip_prefix(prefix)?);
    let (lease, mode) = match name.split_once('.') {
        None => (name, Mode::Exclusive),
        Some((lease, mode)) => (lease, Mode::read(mode).filter(|mode| *mode != Mode::Exclusive)?),
    };
    let is_lease = !lease.is_empty() && lease.bytes().all(|byte| byte.is_ascii_hexdigit());
    (kv.lease() != 0 && is_lease).then_some(mode)
}

/// The order of the queue. No two entries are created at the same revision, unless on purpose; then the name decides,
/// for all clients alike.
pub(super) fn order(kv: &KeyValue) -> (i64, &[u8]) {
    (kv.create_revision(), kv.key())
}

/// The entries of these keys, newest first. Each entry has the name that sorts last among its keys. Its slot is
/// unknown, as a key does not show it.
pub(super) fn entries(keys: &[KeyValue], prefix: &str) -> Vec<Entry> {
    let entry = |kv: &KeyValue| Entry {
        order: kv.create_revision(),
        name: String::from_utf8_lossy(kv.key()).into_owned(),
        mode: mode_of(kv, prefix).unwrap_or_default(),
        slot: None,
    };
    let mut entries: Vec<Entry> = keys.iter().filter(|kv| is_entry(prefix, kv.key())).map(entry).collect();
    entries.sort_unstable_by(|one, other| other.cmp(one));
    entries.dedup_by(|next, kept| next.order == kept.order && stem(&next.name) == stem(&kept.name));
    entries
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbKeyValue;

    use super::*;

    const PREFIX: &str = "dlock/a/";

    fn kv(key: &str, create_revision: i64, lease: i64) -> KeyValue {
        KeyValue(PbKeyValue { key: key.into(), create_revision, lease, ..PbKeyValue::default() })
    }

    fn slots(slots: u32) -> Mode {
        Mode::Slots(slots.try_into().expect("a slot"))
    }

    #[test]
    fn keys_of_a_lock_below_this_one_are_no_entries() {
        for (key, expected) in [
            ("dlock/a/6f", true),
            ("dlock/a/6f.shared.hold", true),
            ("dlock/a/", true),
            ("dlock/a/config", true),
            ("dlock/a/key/6f", false),
            ("dlock/a/6f/", false),
            ("dlock/ab/6f", false),
            ("dlock/a", false),
        ] {
            assert_eq!(is_entry(PREFIX, key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn a_mode_is_read_from_the_name_of_a_key_and_whatever_is_none_of_ours_is_exclusive() {
        for (name, lease, expected) in [
            ("6f", 7, Some(Mode::Exclusive)),
            ("6f.hold", 7, Some(Mode::Exclusive)),
            ("6f.shared", 7, Some(Mode::Shared)),
            ("6f.shared.hold", 7, Some(Mode::Shared)),
            ("6f.slots5", 7, Some(slots(5))),
            ("6f.slots5.hold", 7, Some(slots(5))),
            // A key without a lease would never end.
            ("6f", 0, None),
            ("6f.shared", 0, None),
            ("6f.exclusive", 7, None),
            ("6f.slots0", 7, None),
            ("6f.slots05", 7, None),
            ("6f.slots", 7, None),
            ("6f.hold.shared", 7, None),
            ("6f.shared.shared", 7, None),
            ("6f.", 7, None),
            (".shared", 7, None),
            ("config.shared", 7, None),
            ("config", 7, None),
            ("", 7, None),
        ] {
            let kv = kv(&format!("{PREFIX}{name}"), 3, lease);
            assert_eq!(mode_of(&kv, PREFIX), expected, "{name} {lease}");
            assert_eq!(entries(&[kv], PREFIX)[0].mode, expected.unwrap_or(Mode::Exclusive), "{name} {lease}");
        }
        assert_eq!(mode_of(&kv("dlock/b/6f.shared", 3, 7), PREFIX), None);
        let odd = KeyValue(PbKeyValue { key: b"dlock/a/\xff.shared".into(), lease: 7, ..PbKeyValue::default() });
        assert_eq!((mode_of(&odd, PREFIX), entries(&[odd], PREFIX)[0].mode), (None, Mode::Exclusive));
    }

    #[test]
    fn a_key_is_named_after_its_lease_and_its_mode_and_read_back() {
        for (mode, expected) in
            [(Mode::Exclusive, "dlock/a/6f"), (Mode::Shared, "dlock/a/6f.shared"), (slots(12), "dlock/a/6f.slots12")]
        {
            let key = key(PREFIX, 0x6f, mode);
            assert_eq!(key, expected);
            for key in [key.clone(), format!("{key}{HOLD}")] {
                assert_eq!(mode_of(&kv(&key, 3, 7), PREFIX), Some(mode), "{key}");
                assert_eq!(stem(&key), expected);
            }
        }
        let owner = "0123456789abcdefffffffffffffffff";
        assert_eq!((lease_of(owner), hold_lease_of(owner)), (0x0123_4567_89ab_cdef >> 1, i64::MAX));
        // A malformed owner id yields a valid lease id too: with 0, the server would choose one.
        for id in ["", "0000000000000000", "x", "é"] {
            assert_eq!((lease_of(id), hold_lease_of(id)), (1, 1), "{id:?}");
        }
    }

    #[test]
    fn what_is_recorded_of_a_period_is_outside_of_the_queue() {
        let claim = Claim::example("dlock", "a").expect("names");
        let key = record(&claim, Period { number: 7, length: 60_000 });
        assert_eq!(key, "dlock/a\u{1}once:60000");
        assert_eq!((recorded(key.as_bytes()), recorded(b"dlock/a\x01broken")), (Some("dlock/a"), None));
        assert!(!key.starts_with(&prefix(&claim)) && key.starts_with(&namespace(&claim)));
    }

    #[test]
    fn both_keys_of_a_contender_are_one_entry_and_the_newest_comes_first() {
        let keys = [
            kv("dlock/a/5.shared", 4, 7),
            kv("dlock/a/6", 9, 7),
            kv("dlock/a/5.shared.hold", 4, 8),
            // Its own key is gone already.
            kv("dlock/a/4.slots2.hold", 3, 8),
            kv("dlock/a/key/6f", 5, 7),
            kv("dlock/a/config", 4, 0),
        ];
        let entry = |order, name: &str, mode| Entry { order, name: format!("{PREFIX}{name}"), mode, slot: None };
        let expected = [
            entry(9, "6", Mode::Exclusive),
            entry(4, "config", Mode::Exclusive),
            entry(4, "5.shared.hold", Mode::Shared),
            entry(3, "4.slots2.hold", slots(2)),
        ];
        assert_eq!(entries(&keys, PREFIX), expected);
        let mut reversed = keys.to_vec();
        reversed.reverse();
        assert_eq!(entries(&reversed, PREFIX), expected);
        assert_eq!(entries(&[], PREFIX), []);
    }
}
