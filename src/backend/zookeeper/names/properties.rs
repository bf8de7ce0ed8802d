/*!
What holds for every key and for whatever a lock's directory lists.
*/

use std::ffi::OsStr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::holder::About;
use crate::key::{Key, Namespace};
use crate::property::{holds, made_of, one_of};

/// The directory of a lock; none where one of the names is not valid at all.
fn directory(chroot: &str, namespace: &str, key: &str) -> Option<Result<Directory, String>> {
    let claim = Claim {
        key: Key::parse(OsStr::new(key)).ok()?,
        namespace: Namespace::parse(namespace).ok()?,
        owner: Owner::random().ok()?,
        ttl: Duration::from_secs(1),
        min_hold: Duration::ZERO,
        about: About::default(),
    };
    Some(Directory::of(chroot, &claim))
}

#[test]
fn every_lock_has_a_directory_of_its_own_directly_in_its_namespace() {
    const PIECES: &str = "a|b|.|..|/|%|%2F|%F0|🔒|\u{e000}|\u{ffff}|zookeeper|ü";
    let spelled = |key: &str| fitted(&Key::parse(OsStr::new(key)).map(|key| key.encoded()).unwrap_or_default());
    let names = (one_of("|x|apps/x"), made_of(PIECES), made_of(PIECES), made_of(PIECES), 0..3);
    holds(3000, names, |(chroot, namespace, one, other, how)| {
        // Often what a spelling of the first looks like.
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
            // With fewer digits it has no meaning, and who gets one is told that the directory is worn out.
            _ => prop_assert!(read.is_none_or(|read| read == i64::from(number)), "{read:?}"),
        }
        prop_assert!(number < 0 || is_worn_out(number.into()) == (i64::from(number) >= LAST_SEQUENCE));
        Ok(())
    });
}

/// One who wants the lock, before the server has numbered its nodes.
#[derive(Clone, Debug)]
enum Client {
    /// A dlock with this id.
    Ours(u128),
    /// Another client, whose nodes begin like this.
    Foreign(String),
}

fn hex(id: u128) -> String {
    format!("{id:032x}")
}

fn uuid(id: u128) -> String {
    let id = hex(id);
    [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-")
}

fn names_of(id: u128) -> Names {
    Names { curator: format!("_c_{}{CURATOR}", uuid(id)), kazoo: format!("{}{KAZOO}", after_digits(&hex(id))) }
}

fn client() -> impl Strategy<Value = Client> {
    let foreign = (any::<u128>(), "[a-z_-]{0,12}", 0..5).prop_map(|(id, word, kind)| match kind {
        0 => format!("_c_{}-lock-", uuid(id)),
        1 => format!("{}__lock__", hex(id)),
        2 => format!("_c_{}-lock-", hex(id)),
        3 => format!("{}__rlock__", hex(id)),
        _ => format!("{word}x"),
    });
    prop_oneof![2 => any::<u128>().prop_map(Client::Ours), 1 => foreign.prop_map(Client::Foreign)]
}

/// The nodes of those who want a lock, numbered by the server in the order in which they came, with gaps.
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
        match client {
            Client::Ours(id) => vec![number(&names_of(*id).curator), number(&names_of(*id).kazoo)],
            Client::Foreign(prefix) => vec![number(prefix)],
        }
    });
    nodes.collect()
}

#[test]
fn among_all_kinds_of_clients_exactly_one_is_first_and_everybody_sees_the_same_line() {
    let clients = vec((client(), 0..3_i64), 1..7).prop_filter("an id twice", |clients| {
        let ids = clients.iter().map(|(client, _)| match client {
            Client::Ours(id) => hex(*id)[1..].to_owned(),
            Client::Foreign(prefix) => prefix.clone(),
        });
        ids.collect::<std::collections::BTreeSet<_>>().len() == clients.len()
    });
    let junk = vec(one_of("config|lock-1|ü||-lock-00000000é1"), 0..3);
    let listing = (clients, 0..LAST_SEQUENCE - 100, junk).prop_flat_map(|(clients, first, junk)| {
        let nodes = numbered(&clients, first);
        let all: Vec<String> = nodes.iter().flatten().cloned().chain(junk.into_iter().map(str::to_owned)).collect();
        (Just(clients), Just(nodes), Just(all).prop_shuffle())
    });
    holds(1500, listing, |(clients, nodes, listed)| {
        let rival = |index: usize| Rival {
            first: nodes[index].first().cloned().unwrap_or_default(),
            last: nodes[index].last().cloned().unwrap_or_default(),
        };
        for (index, (client, _)) in clients.iter().enumerate() {
            let Client::Ours(id) = client else { continue };
            let expected = match index {
                0 => Standing::First,
                _ => Standing::Behind { holder: rival(0), predecessor: rival(index - 1), position: index as u64 },
            };
            prop_assert_eq!(standing(&listed, &names_of(*id)), expected);
        }
        let stranger = Names { curator: "_c_nobody-lock-".to_owned(), kazoo: "nobody__lock__".to_owned() };
        prop_assert_eq!(standing(&listed, &stranger), Standing::Missing { holder: Some(rival(0)) });
        Ok(())
    });
}

#[test]
fn any_listing_can_be_read() {
    const PIECES: &str = "_c_|-lock-|__lock__|0000000001|2147483647|-|-2147483648|é|0123456789abcdef";
    holds(1500, (vec(made_of(PIECES), 0..8), any::<u128>()), |(listed, id)| {
        let in_line = listed.iter().any(|name| sequence(name).is_some());
        match standing(&listed, &names_of(id)) {
            Standing::Missing { holder } => prop_assert_eq!(holder.is_some(), in_line),
            other => prop_assert!(false, "it is not there: {other:?}"),
        }
        Ok(())
    });
}
