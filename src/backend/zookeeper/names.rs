/*!
The names of a lock in ZooKeeper: the path of its directory, our nodes' names, and the meaning of other clients' names.

A lock is the directory `/NS/KEY`. Each contender has sequential nodes in it, which order the contenders. Other clients
know only nodes with names like their own, so a contender has three, created in one request:

| mode | for Curator's mutex | for Curator's read/write lock | for kazoo |
| --- | --- | --- | --- |
| exclusive | `_c_<uuid>-lock-` | `_c_<uuid>-__WRIT__` | `f<31 hex>__lock__` |
| shared | `_c_<uuid>-lock-` | `_c_<uuid>-__READ__` | `f<31 hex>__rlock__` |
| slots N | `_c_<uuid>-slotsN-lock-` | `_c_<uuid>-slotsN-__WRIT__` | `f<31 hex>-slotsN__lock__` |
*/

use std::fmt::Write;

use percent_encoding::percent_decode_str;

use crate::backend::contract::claim::Claim;
use crate::holder::Owner;
use crate::key::{Key, Namespace};
use crate::lock::admission::Mode;

/// The suffix of the directories next to a lock's own: the one with minimum holds, and those of latches and barriers.
/// On its own it is the name of the node that keeps a namespace. No encoded key has a bare `%`, so none of them is
/// another lock's directory.
const BESIDE: &str = "%dlock";
/// The prefix of the names of Curator's nodes, before an id.
const PROTECTED: &str = "_c_";
/// The length of that id.
const UUID: usize = 36;
/// The mark before the sequence number in the name of a node for Curator's mutex.
const MUTEX: &str = "-lock-";
/// The mark before the sequence number in the name of a writer's node for Curator's read/write lock.
const WRITE: &str = "-__WRIT__";
/// The mark before the sequence number in the name of a reader's node for Curator's read/write lock.
const READ: &str = "-__READ__";
/// The mark before the sequence number of a node for kazoo's lock, and of a writer's for its read/write lock.
const KAZOO: &str = "__lock__";
/// The mark before the sequence number of a reader's node for kazoo's read/write lock.
const KAZOO_READ: &str = "__rlock__";
/// The ends of readers' node names before the sequence number, for any client.
const READERS: [&str; 2] = ["__READ__", KAZOO_READ];
/// The number of digits of a sequence number.
const DIGITS: usize = 10;
/// The first sequence number that is too close to the end, where every new node gets the same one.
const LAST_SEQUENCE: i64 = (1 << 31) - 1_000_000;

/// The directory of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    path: String,
}

impl Directory {
    /// Returns the directory for `claim`; the error says which part ZooKeeper does not allow in a path.
    pub(super) fn of(chroot: &str, claim: &Claim) -> Result<Self, String> {
        Self::named(chroot, &claim.namespace, &claim.key)
    }

    /// Returns the directory of the lock with this name; the error says which part ZooKeeper does not allow in a path.
    pub(super) fn named(chroot: &str, namespace: &Namespace, key: &Key) -> Result<Self, String> {
        let joined = namespace.join('/', key);
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

    /// Returns its path.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path of the directory above it.
    pub(super) fn above(&self) -> &str {
        match self.path.rsplit_once('/') {
            Some((above, _)) if !above.is_empty() => above,
            _ => "/",
        }
    }

    /// Returns the path of the node that keeps the directory above from being empty and removed; `None` in the root.
    pub(super) fn keeper(&self) -> Option<String> {
        Some(self.above()).filter(|above| *above != "/").map(|above| format!("{above}/{BESIDE}"))
    }

    /// Returns the path of the directory next to it, whose nodes keep the lock taken after use.
    pub(super) fn beside(&self) -> String {
        format!("{}{BESIDE}", self.path)
    }

    /// Returns the path of the directory next to it for its latch or barrier, as `what` says.
    pub(super) fn meeting(&self, what: &str) -> String {
        format!("{}%{what}{BESIDE}", self.path)
    }

    /// Returns the path of the node called `name` in the directory for minimum holds.
    pub(super) fn hold(&self, name: &str) -> String {
        format!("{}{BESIDE}/{name}", self.path)
    }

    /// Returns the path of a node in it.
    pub(super) fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// Returns the directories that must exist, from the root downwards, this one last.
    pub(super) fn ancestry(&self) -> Vec<String> {
        let ends = self.path.char_indices().skip(1).filter(|&(_, character)| character == '/').map(|(at, _)| at);
        ends.chain([self.path.len()]).map(|end| self.path[..end].to_owned()).collect()
    }
}

/// Returns `true` if ZooKeeper refuses this character in names; Java sees those beyond the first plane as surrogates.
fn is_unfit(character: char) -> bool {
    character.is_control() || matches!(character, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// Percent-encodes the characters of an encoded key that ZooKeeper refuses. The key has no bare `%`, so different keys
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

/// Returns the key of the lock whose directory, or the one next to it, has this name; `None` if there is no such key.
pub(super) fn key_of(name: &str) -> Option<Key> {
    let name = name.strip_suffix(BESIDE).unwrap_or(name);
    let key = percent_decode_str(name).decode_utf8().ok()?;
    Key::parse(key.as_ref().as_ref()).ok().filter(|key| fitted(&key.encoded()) == name)
}

/// Returns the key of the latch or barrier (`what`) whose directory has this name; `None` for any other directory.
pub(super) fn met(name: &str, what: &str) -> Option<Key> {
    key_of(name.strip_suffix(BESIDE)?.strip_suffix(what)?.strip_suffix('%')?)
}

/// The names of our nodes, without their sequence numbers, in order of creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// For Curator's mutex.
    pub first: String,
    /// For Curator's read/write lock.
    pub middle: String,
    /// For kazoo.
    pub last: String,
    /// The mode in which we want to hold the lock, as the names say.
    pub mode: Mode,
}

impl Names {
    /// Returns the names for `owner`, which wants to hold the lock in this mode.
    pub(super) fn of(owner: &Owner, mode: Mode) -> Self {
        let id = owner.as_str();
        let parts = [id.get(..8), id.get(8..12), id.get(12..16), id.get(16..20), id.get(20..)];
        let uuid = parts.map(Option::unwrap_or_default).join("-");
        let slots = if mode.slots().is_some() { format!("-{}", mode.name()) } else { String::new() };
        let (curator, kazoo) = if mode == Mode::Shared { (READ, KAZOO_READ) } else { (WRITE, KAZOO) };
        Self {
            first: format!("{PROTECTED}{uuid}{slots}{MUTEX}"),
            middle: format!("{PROTECTED}{uuid}{slots}{curator}"),
            last: format!("{}{slots}{kazoo}", contender_of(id)),
            mode,
        }
    }

    /// Returns all three, in their order.
    pub(super) fn all(&self) -> [&str; 3] {
        [&self.first, &self.middle, &self.last]
    }

    /// Returns `true` if a node is ours, whichever session created it.
    pub(super) fn are_of(&self, name: &str) -> bool {
        self.all().into_iter().any(|own| name.starts_with(own))
    }
}

/// Returns the id that marks all nodes of the dlock with this owner's id, and begins the name of its last one. It never
/// begins with a digit: Curator sorts a name that it does not understand as a whole, and such a name could come before
/// its own sequence numbers, so that it would wait for us while we wait for it.
pub(super) fn contender_of(owner: &str) -> String {
    format!("f{}", owner.get(1..).unwrap_or_default())
}

/// Returns a node's sequence number, if it has one: then it is in the queue, whichever client created it.
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

/// Returns `true` if too many nodes were created in a directory for the order of the next ones to be certain.
pub(super) fn is_worn_out(sequence: i64) -> bool {
    !(0..LAST_SEQUENCE).contains(&sequence)
}

/// Returns the part that all nodes of one contender have in common, and no two contenders share.
pub(super) fn contender(name: &str) -> String {
    id_in(name).unwrap_or_else(|| name.to_owned())
}

/// Returns the mode in which the contender with this node wants to hold the lock, as far as the name says. Consider all
/// of its nodes: those of a reader include one that looks exclusive, for clients that know no readers.
pub(super) fn mode_in(name: &str) -> Mode {
    let before = name.len().checked_sub(DIGITS).and_then(|length| name.get(..length)).unwrap_or_default();
    let marked = [MUTEX, WRITE, KAZOO].into_iter().find_map(|mark| before.strip_suffix(mark));
    let slots = marked.and_then(|marked| marked.rsplit_once('-')).and_then(|(_, mode)| Mode::read(mode));
    match slots.filter(|mode| mode.slots().is_some() && id_in(name).is_some()) {
        Some(slots) => slots,
        None if READERS.into_iter().any(|mark| before.ends_with(mark)) => Mode::Shared,
        None => Mode::Exclusive,
    }
}

/// Returns the id in a name by Curator, kazoo or dlock, which is the same for all nodes of one dlock.
fn id_in(name: &str) -> Option<String> {
    if let Some(uuid) = name.strip_prefix(PROTECTED).and_then(|rest| rest.get(..UUID)) {
        let id: String = uuid.chars().filter(|&character| character != '-').collect();
        if is_id(&id) {
            return Some(contender_of(&id));
        }
    }
    name.get(..32).filter(|id| is_id(id)).map(str::to_owned)
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(chroot: &str, namespace: &str, key: &str) -> Result<String, String> {
        let claim = Claim::example(namespace, key).expect("names");
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

    #[test]
    fn our_nodes_are_spelled_as_curator_and_kazoo_do() {
        let owner = Owner::random().expect("random");
        let id = owner.as_str();
        let uuid = format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
        let five = Mode::read("slots5").expect("a mode");
        for (mode, first, middle, last) in [
            (Mode::Exclusive, "-lock-", "-__WRIT__", "__lock__"),
            (Mode::Shared, "-lock-", "-__READ__", "__rlock__"),
            (five, "-slots5-lock-", "-slots5-__WRIT__", "-slots5__lock__"),
        ] {
            let names = Names::of(&owner, mode);
            let expected = [format!("_c_{uuid}{first}"), format!("_c_{uuid}{middle}"), format!("f{}{last}", &id[1..])];
            assert_eq!(names.all(), expected.each_ref().map(String::as_str));
            for name in expected.map(|name| name + "0000000007") {
                assert_eq!(contender(&name), contender_of(id), "{name}");
                assert!(names.are_of(&name), "{name}");
            }
        }
    }

    #[test]
    fn a_name_says_how_its_contender_wants_the_lock() {
        const ID: &str = "f123456789abcdef0123456789abcdef";
        const UUID: &str = "_c_0123456789-abcdef-012345-6789a-bcdef";
        let two = Mode::read("slots2").expect("a mode");
        for (name, expected) in [
            (format!("{ID}__lock__"), Mode::Exclusive),
            (format!("{ID}__rlock__"), Mode::Shared),
            (format!("{ID}-slots2__lock__"), two),
            (format!("{ID}-slots0__lock__"), Mode::Exclusive),
            (format!("{ID}-slots1001__lock__"), Mode::Exclusive),
            (format!("{ID}-shared__lock__"), Mode::Exclusive),
            (format!("{UUID}-lock-"), Mode::Exclusive),
            (format!("{UUID}-__WRIT__"), Mode::Exclusive),
            (format!("{UUID}-__READ__"), Mode::Shared),
            (format!("{UUID}-slots2-lock-"), two),
            (format!("{UUID}-slots2-__WRIT__"), two),
            // Not as dlock writes them.
            (format!("{UUID}-slots2-__READ__"), Mode::Shared),
            (format!("{UUID}-slots2-x"), Mode::Exclusive),
            ("x-slots2-lock-".to_owned(), Mode::Exclusive),
            ("sh".to_owned(), Mode::Exclusive),
            (String::new(), Mode::Exclusive),
        ] {
            assert_eq!(mode_in(&format!("{name}0000000007")), expected, "{name}");
        }
        for odd in ["", "é", "ééééé", "__READ__", "__rlock__00000é0001"] {
            assert_eq!(mode_in(odd), Mode::Exclusive, "{odd}");
        }
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
    fn numbers_near_their_end_are_refused() {
        for (sequence, worn_out) in
            [(0, false), (2_146_483_647, false), (2_146_483_648, true), (i64::from(i32::MAX), true), (-1, true)]
        {
            assert_eq!(is_worn_out(sequence), worn_out, "{sequence}");
        }
    }
}
