/*!
Properties of every key, and of every listing of a lock's directory.
*/

use std::collections::BTreeMap;
use std::ffi::OsStr;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::backend::zookeeper::line::{Awaited, QueueView, Rival, Standing, Who};
use crate::key::Key;
use crate::lock::admission::enters;
use crate::property::{holds, made_of, one_of};

/// Returns the directory of a lock, or `None` if one of the names is not valid at all.
fn directory(chroot: &str, namespace: &str, key: &str) -> Option<Result<Directory, String>> {
    let claim = Claim::example(namespace, key).ok()?;
    Some(Directory::of(chroot, &claim))
}

#[test]
fn every_lock_has_a_directory_of_its_own_directly_in_its_namespace() {
    const PIECES: &str = "a|b|.|..|/|%|%2F|%F0|🔒|\u{e000}|\u{ffff}|zookeeper|ü";
    let spelled = |key: &str| fitted(&Key::parse(OsStr::new(key)).map(|key| key.encoded()).unwrap_or_default());
    let names = (one_of("|x|apps/x"), made_of(PIECES), made_of(PIECES), made_of(PIECES), 0..3);
    holds(3000, names, |(chroot, namespace, one, other, how)| {
        // Often equal to the spelling of the first one.
        let other = if how == 0 { spelled(&one) } else { other };
        let (Some(Ok(first)), Some(Ok(second))) =
            (directory(chroot, &namespace, &one), directory(chroot, &namespace, &other))
        else {
            return Ok(());
        };
        prop_assert_eq!(first.path() == second.path(), one == other, "{} {}", first.path(), second.path());
        let mut place = String::from("/");
        for part in [chroot, &namespace].into_iter().filter(|part| !part.is_empty()) {
            place = place + part + "/";
        }
        let name = first.path().strip_prefix(&place).unwrap_or_default();
        prop_assert!(!name.is_empty() && !name.contains('/'), "{}", first.path());
        for part in first.path()[1..].split('/') {
            prop_assert!(!matches!(part, "" | "." | "..") && !part.contains(is_unfit), "{}", first.path());
        }
        let ancestry = first.ancestry();
        prop_assert!(ancestry.last().is_some_and(|last| last == first.path()));
        prop_assert!(ancestry.windows(2).all(|pair| pair[1].rsplit_once('/').is_some_and(|(up, _)| up == pair[0])));
        Ok(())
    });
}

#[test]
fn a_sequence_number_is_read_whoever_wrote_it_and_never_for_another_one() {
    let prefix = one_of("lock-|x-lock-|ff__lock__|ff__rlock__|_c_x-write-");
    let number = prop_oneof![0..20_i32, any::<i32>(), i32::MIN..i32::MIN + 20, i32::MAX - 20..=i32::MAX];
    holds(2000, (prefix, number), |(prefix, number)| {
        let read = sequence(&format!("{prefix}{number:010}"));
        match number {
            0.. => prop_assert_eq!(read, Some(number.into())),
            // With fewer digits it has no meaning, and its contender is told that the directory is worn out.
            _ => prop_assert!(read.is_none_or(|read| read == i64::from(number)), "{read:?}"),
        }
        prop_assert!(number < 0 || is_worn_out(number.into()) == (i64::from(number) >= LAST_SEQUENCE));
        Ok(())
    });
}

/// A contender, before the server has numbered its nodes.
#[derive(Clone, Debug)]
enum Client {
    /// A dlock with this id, which wants the lock in this mode.
    Ours(u128, Mode),
    /// A dlock with this id that creates two nodes, as earlier releases did.
    Earlier(u128),
    /// Another client, with the beginning of its node's name, and its mode.
    Foreign(String, Mode),
}

fn hex(id: u128) -> String {
    format!("{id:032x}")
}

fn uuid(id: u128) -> String {
    let id = hex(id);
    [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-")
}

fn names_of(id: u128, mode: Mode) -> Names {
    let slots = mode.slots().map(|_| format!("-{}", mode.name())).unwrap_or_default();
    let (curator, kazoo) = if mode == Mode::Shared { (READ, KAZOO_READ) } else { (WRITE, KAZOO) };
    Names {
        first: format!("_c_{}{slots}{MUTEX}", uuid(id)),
        middle: format!("_c_{}{slots}{curator}", uuid(id)),
        last: format!("{}{slots}{kazoo}", contender_of(&hex(id))),
        mode,
    }
}

impl Client {
    /// Returns the names of its nodes, without their numbers.
    fn prefixes(&self) -> Vec<String> {
        match self {
            Self::Ours(id, mode) => names_of(*id, *mode).all().map(str::to_owned).to_vec(),
            Self::Earlier(id) => {
                let names = names_of(*id, Mode::Exclusive);
                vec![names.first, names.last]
            }
            Self::Foreign(prefix, _) => vec![prefix.clone()],
        }
    }

    fn mode(&self) -> Mode {
        match self {
            Self::Ours(_, mode) | Self::Foreign(_, mode) => *mode,
            Self::Earlier(_) => Mode::Exclusive,
        }
    }
}

fn mode() -> impl Strategy<Value = Mode> {
    one_of("exclusive|shared|slots2|slots3").prop_map(|name| Mode::read(name).expect("a mode"))
}

fn client() -> impl Strategy<Value = Client> {
    let foreign = (any::<u128>(), "[a-z_-]{0,12}", 0..7).prop_map(|(id, word, kind)| {
        let prefix = match kind {
            0 => format!("_c_{}-lock-", uuid(id)),
            1 => format!("{}__lock__", hex(id)),
            2 => format!("_c_{}-lock-", hex(id)),
            3 => format!("_c_{}-__WRIT__", uuid(id)),
            4 => return Client::Foreign(format!("{}__rlock__", hex(id)), Mode::Shared),
            5 => return Client::Foreign(format!("_c_{}-__READ__", uuid(id)), Mode::Shared),
            _ => format!("{word}x"),
        };
        Client::Foreign(prefix, Mode::Exclusive)
    });
    let ours = (any::<u128>(), mode()).prop_map(|(id, mode)| Client::Ours(id, mode));
    prop_oneof![4 => ours, 1 => any::<u128>().prop_map(Client::Earlier), 2 => foreign]
}

/// Returns the nodes of these contenders, numbered by the server in their order of arrival, with gaps.
fn numbered(clients: &[(Client, i64)], first: i64) -> Vec<Vec<String>> {
    let mut next = first;
    let mut number = |prefix: &str| {
        next += 1;
        format!("{prefix}{next:010}")
    };
    let nodes = clients.iter().map(|(client, gap)| {
        for _ in 0..*gap {
            number("");
        }
        client.prefixes().iter().map(|prefix| number(prefix)).collect()
    });
    nodes.collect()
}

/// Returns the standing of one dlock, given the `slots` that the others have entered.
fn standing(listed: &[String], names: &Names, slots: &[(Rival, Option<u32>)]) -> Standing {
    let mut line = QueueView::read(listed, names, &BTreeMap::new());
    for (rival, slot) in slots {
        line.tell(rival, *slot);
    }
    line.keep(Vec::new());
    line.standing()
}

/// Clients of all kinds, the nodes of each, and a shuffled listing of these and of nodes that are no locks.
type Listing = (Vec<(Client, i64)>, Vec<Vec<String>>, Vec<String>);

fn listing() -> impl Strategy<Value = Listing> {
    let clients = vec((client(), 0..3_i64), 1..7).prop_filter("an id twice", |clients| {
        let ids = clients.iter().map(|(client, _)| match client {
            Client::Ours(id, _) | Client::Earlier(id) => hex(*id)[1..].to_owned(),
            Client::Foreign(prefix, _) => prefix.clone(),
        });
        ids.collect::<std::collections::BTreeSet<_>>().len() == clients.len()
    });
    let junk = vec(one_of("config|lock-1|ü||-lock-00000000é1"), 0..3);
    (clients, 0..LAST_SEQUENCE - 100, junk).prop_flat_map(|(clients, first, junk)| {
        let nodes = numbered(&clients, first);
        let all: Vec<String> = nodes.iter().flatten().cloned().chain(junk.into_iter().map(str::to_owned)).collect();
        (Just(clients), Just(nodes), Just(all).prop_shuffle())
    })
}

#[test]
fn among_all_kinds_of_clients_everybody_sees_the_same_line_and_those_enter_who_may() {
    holds(1500, listing(), |(clients, nodes, listed)| {
        let modes: Vec<Mode> = clients.iter().map(|(client, _)| client.mode()).collect();
        let rival = |index: usize| Rival {
            first: nodes[index].first().cloned().unwrap_or_default(),
            last: nodes[index].last().cloned().unwrap_or_default(),
        };
        let may = |index: usize| enters(modes[index], modes[..index].iter().copied());
        // In queue order, each one has the slot with the number of those before it.
        let has_slot = |index: usize| may(index) && modes[index].slots().is_some();
        let slot = |index: usize| has_slot(index).then(|| u32::try_from(index).expect("few"));
        let slots: Vec<(Rival, Option<u32>)> = (0..clients.len()).map(|index| (rival(index), slot(index))).collect();
        for (index, (client, _)) in clients.iter().enumerate() {
            let Client::Ours(id, mode) = client else { continue };
            let others = [&slots[..index], &slots[index + 1..]].concat();
            let seen = standing(&listed, &names_of(*id, *mode), &others);
            let before = modes[..index].iter().find(|mode| mode.slots().is_some());
            match seen {
                Standing::OtherSlots { slots, .. } => {
                    prop_assert_eq!(before.and_then(|mode| mode.slots()), Some(slots));
                    prop_assert!(before.is_some_and(|before| mode.contradicts(*before)));
                }
                Standing::Enters { slot: entered } => {
                    prop_assert!(may(index), "{modes:?}");
                    prop_assert_eq!(entered, slot(index));
                }
                Standing::Behind(behind) => {
                    prop_assert!(!may(index), "{modes:?}");
                    prop_assert_eq!(behind.holder, Who::Rival(rival(0)));
                    let waiting = (0..index).filter(|&before| !may(before)).count() as u64;
                    prop_assert_eq!(behind.position, Some(waiting + 1));
                    prop_assert_eq!(behind.beside + 1 + waiting, index as u64);
                    let last = |index: usize| rival(index).last;
                    match behind.awaited {
                        Some(Awaited::Gone(node)) => {
                            let excludes = |&before: &usize| *mode == Mode::Exclusive || modes[before] != *mode;
                            prop_assert_eq!(Some(node), (0..index).rev().find(excludes).map(last));
                        }
                        Some(Awaited::Turn(node)) => prop_assert_eq!(node, last(index - 1)),
                        Some(Awaited::Any(all)) => prop_assert_eq!(all, (0..index).map(last).collect::<Vec<_>>()),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
        Ok(())
    });
}

#[test]
fn any_listing_can_be_read() {
    const PIECES: &str = "_c_|-lock-|__lock__|-__READ__|-slots2|0000000001|2147483647|-|-2147483648|é|0123456789abcdef";
    holds(1500, (vec(made_of(PIECES), 0..8), any::<u128>(), mode()), |(listed, id, mode)| {
        let in_line = listed.iter().any(|name| sequence(name).is_some());
        match standing(&listed, &names_of(id, mode), &[]) {
            Standing::ConnectReply => prop_assert!(!in_line || mode != Mode::Exclusive),
            Standing::Behind(behind) => prop_assert!(in_line && behind.position.is_none() && behind.awaited.is_none()),
            Standing::OtherSlots { .. } => prop_assert!(mode.slots().is_some_and(|slots| slots != 2)),
            other => prop_assert!(false, "it is not there: {other:?}"),
        }
        Ok(())
    });
}
