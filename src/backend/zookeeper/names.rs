/*!
How a lock is spelled in ZooKeeper: where its nodes are, how ours are called, and what others' names say.

A lock is the directory `/NS/KEY`. Each contender has sequential nodes in it, and the smallest sequence number holds.
Curator and kazoo know only nodes in their own spelling, so a contender has two, made in one request.
*/

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::backend::Claim;
use crate::holder::Owner;
use crate::lock::admission::{Entry, Mode, Place, place};

/// What is appended to a lock's directory for the name of the node that keeps the lock taken after it was used. No key has a bare
/// `%` in its spelling, so this is no other lock's directory.
const BESIDE: &str = "%dlock";

/// What stands between a name's prefix and its sequence number, in Curator's spelling.
const CURATOR: &str = "-lock-";
/// What stands between a name's prefix and its sequence number, in kazoo's spelling.
const KAZOO: &str = "__lock__";
/// How many digits a sequence number has.
const DIGITS: usize = 10;
/// From here on sequence numbers are too close to their end, where every new node gets the same one.
const LAST_SEQUENCE: i64 = (1 << 31) - 1_000_000;

/// The directory of a lock: its path, and those above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    path: String,
}

impl Directory {
    /// Where `claim` has its nodes; the error says what no path of ZooKeeper can be.
    pub(super) fn of(chroot: &str, claim: &Claim) -> Result<Self, String> {
        let joined = claim.namespace.join('/', &claim.key);
        // An encoded key has no slash: what is before the last one is the namespace.
        let (namespace, key) = joined.rsplit_once('/').unwrap_or(("", &joined));
        let mut path = String::new();
        for (what, parts) in [("chroot", chroot), ("namespace", namespace)] {
            for part in parts.split('/').filter(|_| !parts.is_empty()) {
                let odd = part.is_empty() || part == "." || part == ".." || part.ends_with(BESIDE);
                if odd || part.chars().any(is_unfit) {
                    return Err(format!("the {what} {parts:?} is no path that ZooKeeper allows: use another one"));
                }
                let _ = write!(path, "/{part}");
            }
        }
        let _ = write!(path, "/{}", fitted(key));
        if path == "/zookeeper" || path.starts_with("/zookeeper/") {
            return Err("/zookeeper is ZooKeeper's own: use another --namespace or key".to_owned());
        }
        Ok(Self { path })
    }

    /// Its path.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The path of the node beside it that keeps the lock taken after it was used.
    pub(super) fn beside(&self) -> String {
        format!("{}{BESIDE}", self.path)
    }

    /// The path of a node in it.
    pub(super) fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// The directories that must exist, from the root downwards, this one last.
    pub(super) fn ancestry(&self) -> Vec<String> {
        let ends = self.path.char_indices().skip(1).filter(|&(_, character)| character == '/').map(|(at, _)| at);
        ends.chain([self.path.len()]).map(|end| self.path[..end].to_owned()).collect()
    }
}

/// What ZooKeeper allows in no name; Java sees the characters beyond the first plane as surrogates.
fn is_unfit(character: char) -> bool {
    character.is_control() || matches!(character, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// An encoded key with the characters that ZooKeeper refuses percent-encoded too. It has no bare `%`, so different keys
/// still have different spellings.
fn fitted(encoded: &str) -> String {
    encoded.chars().fold(String::new(), |mut text, character| {
        if is_unfit(character) {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(text, "%{byte:02X}");
            }
        } else {
            text.push(character);
        }
        text
    })
}

/// The names of our nodes, without their sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// In Curator's spelling.
    pub curator: String,
    /// In kazoo's.
    pub kazoo: String,
}

impl Names {
    /// Those of `owner`.
    pub(super) fn of(owner: &Owner) -> Self {
        let id = owner.as_str();
        let parts = [id.get(..8), id.get(8..12), id.get(12..16), id.get(16..20), id.get(20..)];
        let uuid = parts.map(Option::unwrap_or_default).join("-");
        Self { curator: format!("_c_{uuid}{CURATOR}"), kazoo: format!("{}{KAZOO}", after_digits(id)) }
    }

    /// Whether a node is ours, whatever session made it.
    pub(super) fn are_of(&self, name: &str) -> bool {
        name.starts_with(&self.curator) || name.starts_with(&self.kazoo)
    }
}

/// An id as kazoo's spelling has it. Curator sorts a name that it does not understand as a whole, and one that begins
/// with a digit could come before its own sequence numbers: it would wait for us while we wait for it.
fn after_digits(id: &str) -> String {
    format!("f{}", id.get(1..).unwrap_or_default())
}

/// Whoever else wants or holds the lock, by its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    /// The name of its first node: what it says of itself is there.
    pub first: String,
    /// The name of its last node, which its holder does not write to: the one to watch.
    pub last: String,
}

/// Our place among the contenders for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Ours is the smallest sequence number.
    First,
    /// Others are before us.
    Behind {
        /// The holder of the lock.
        holder: Rival,
        /// The one before us.
        predecessor: Rival,
        /// How many are before us.
        position: u64,
    },
    /// We are not among them.
    Missing {
        /// Who holds the lock; nobody when it is free.
        holder: Option<Rival>,
    },
}

/// Where the owner of `names` stands among the children of a lock's directory.
pub(super) fn standing(children: &[String], names: &Names) -> Standing {
    let mut contenders: BTreeMap<String, Vec<(i64, &String)>> = BTreeMap::new();
    for child in children {
        if let Some(sequence) = sequence(child) {
            contenders.entry(contender_id(child)).or_default().push((sequence, child));
        }
    }
    for nodes in contenders.values_mut() {
        nodes.sort_unstable();
    }
    let rival = |id: &str| {
        let nodes = contenders.get(id).map_or(&[][..], Vec::as_slice);
        let name = |node: Option<&(i64, &String)>| node.map(|(_, name)| (*name).clone()).unwrap_or_default();
        Rival { first: name(nodes.first()), last: name(nodes.last()) }
    };
    let first = |(id, nodes): (&String, &Vec<(i64, &String)>)| {
        nodes.first().map(|&(order, _)| Entry { order, name: id.clone(), mode: Mode::Exclusive })
    };
    let entries: Vec<Entry> = contenders.iter().filter_map(first).collect();
    let own = contender_id(&names.kazoo);
    match place(&entries, |entry| entry.name == own) {
        Place::Enters => Standing::First,
        Place::Behind { holder, predecessor, position } => {
            Standing::Behind { holder: rival(&holder.name), predecessor: rival(&predecessor.name), position }
        }
        Place::Missing => {
            let holder = entries.iter().min_by_key(|entry| entry.order);
            Standing::Missing { holder: holder.map(|entry| rival(&entry.name)) }
        }
    }
}

/// A node's sequence number, if it has one: whoever made it, it stands in the queue.
pub(super) fn sequence(name: &str) -> Option<i64> {
    let (prefix, digits) = name.split_at_checked(name.len().checked_sub(DIGITS)?)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    // The dash before the digits is Curator's separator, unless there is one more.
    let negative = prefix.ends_with("--") || prefix.ends_with("__-");
    Some(if negative { -number } else { number })
}

/// Whether too many nodes were made in a directory for the order of the next ones to be certain.
pub(super) fn is_worn_out(sequence: i64) -> bool {
    !(0..LAST_SEQUENCE).contains(&sequence)
}

/// What the two nodes of one dlock have in common, and no two contenders have.
fn contender_id(name: &str) -> String {
    if let Some(uuid) = name.strip_prefix("_c_").and_then(|rest| rest.get(..36)) {
        let id: String = uuid.chars().filter(|&character| character != '-').collect();
        if is_id(&id) {
            return after_digits(&id);
        }
    }
    match name.get(..32) {
        Some(id) if is_id(id) => id.to_owned(),
        _ => name.to_owned(),
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::time::Duration;

    use super::*;
    use crate::holder::About;
    use crate::key::{Key, Namespace};

    fn directory(chroot: &str, namespace: &str, key: &str) -> Result<String, String> {
        let claim = Claim {
            key: Key::parse(OsStr::new(key)).expect("a key"),
            namespace: Namespace::parse(namespace).expect("a namespace"),
            owner: Owner::random().expect("random"),
            ttl: Duration::from_secs(1),
            min_hold: Duration::ZERO,
            about: About::default(),
        };
        Directory::of(chroot, &claim).map(|directory| directory.path().to_owned())
    }

    #[test]
    fn a_lock_is_a_directory_in_its_namespace() {
        for (chroot, namespace, key, path) in [
            ("", "dlock", "job", "/dlock/job"),
            ("", "", "job", "/job"),
            ("apps/x", "dlock", "a/b", "/apps/x/dlock/a%2Fb"),
            ("", "a/b", "..", "/a/b/%2E."),
            ("", "dlock", "🔒", "/dlock/%F0%9F%94%92"),
            ("", "dlock", "%F0%9F%94%92", "/dlock/%25F0%259F%2594%2592"),
            ("", "dlock", "a\u{e000}\u{ffff}锁", "/dlock/a%EE%80%80%EF%BF%BF锁"),
            ("x", "", "zookeeper", "/x/zookeeper"),
        ] {
            assert_eq!(directory(chroot, namespace, key).as_deref(), Ok(path));
        }
        for (chroot, namespace, key) in
            [("", "", "zookeeper"), ("", "zookeeper", "x"), ("", "a//b", "x"), ("", "..", "x"), ("", "🔒", "x")]
        {
            assert!(directory(chroot, namespace, key).is_err(), "{namespace:?} {key:?}");
        }
    }

    #[test]
    fn directories_above_it_come_first() {
        let directory = Directory { path: "/a/b/c".to_owned() };
        assert_eq!(directory.ancestry(), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(directory.node("n"), "/a/b/c/n");
    }

    fn named(id: &str) -> Names {
        let uuid = format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
        Names { curator: format!("_c_{uuid}-lock-"), kazoo: format!("f{}__lock__", &id[1..]) }
    }

    #[test]
    fn our_nodes_are_spelled_as_curator_and_kazoo_do() {
        let owner = Owner::random().expect("random");
        assert_eq!(Names::of(&owner), named(owner.as_str()));
        assert_eq!(contender_id(&Names::of(&owner).curator), contender_id(&Names::of(&owner).kazoo));
    }

    #[test]
    fn sequence_numbers_are_read_as_every_client_writes_them() {
        for (name, expected) in [
            ("_c_x-lock-0000000012", Some(12)),
            ("ff__lock__0000000012", Some(12)),
            ("ff__rlock__0000000003", Some(3)),
            ("ff__lock__-2147483648", Some(-2_147_483_648)),
            ("lock--2147483648", Some(-2_147_483_648)),
            ("ex0000000007", Some(7)),
            ("x-72057594037927937-2147483647", Some(2_147_483_647)),
            ("0000000001", Some(1)),
            ("config", None),
            ("lock-000000001", None),
            ("lock-00000é0001", None),
            ("", None),
        ] {
            assert_eq!(sequence(name), expected, "{name}");
        }
    }

    #[test]
    fn the_smallest_sequence_number_holds_whoever_made_it() {
        let own = "0123456789abcdef0123456789abcdef";
        let names = named(own);
        let node = |prefix: &str, sequence: i64| format!("{prefix}{sequence:010}");
        let ours = [node(&names.curator, 7), node(&names.kazoo, 8)];
        let other = named("a123456789abcdef0123456789abcde0");
        let (other_first, other_last) = (node(&other.curator, 3), node(&other.kazoo, 4));
        let foreign = "9".repeat(32) + "__lock__0000000005";
        let standing_among = |others: &[&String]| {
            let children: Vec<String> = others.iter().map(|name| (*name).clone()).chain(ours.clone()).collect();
            standing(&children, &names)
        };
        let rival = |first: &str, last: &str| Rival { first: first.to_owned(), last: last.to_owned() };
        assert_eq!(standing_among(&[]), Standing::First);
        let later = node(&other.kazoo, 9);
        assert_eq!(standing_among(&[&later, &"config".to_owned()]), Standing::First);
        // The two nodes of one contender count once.
        let holder = rival(&other_first, &other_last);
        assert_eq!(
            standing_among(&[&other_last, &other_first]),
            Standing::Behind { holder: holder.clone(), predecessor: holder.clone(), position: 1 }
        );
        assert_eq!(
            standing_among(&[&other_first, &foreign, &other_last]),
            Standing::Behind { holder, predecessor: rival(&foreign, &foreign), position: 2 }
        );
        let missing = standing(&[foreign.clone(), later], &names);
        assert_eq!(missing, Standing::Missing { holder: Some(rival(&foreign, &foreign)) });
        assert_eq!(standing(&["config".to_owned()], &names), Standing::Missing { holder: None });
    }

    #[test]
    fn numbers_near_their_end_are_refused() {
        for (sequence, worn_out) in
            [(0, false), (2_146_483_647, false), (2_146_483_648, true), (i64::from(i32::MAX), true), (-1, true)]
        {
            assert_eq!(is_worn_out(sequence), worn_out, "{sequence}");
        }
    }
}
