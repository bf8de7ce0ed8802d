/*!
Plays every lock service against [the model of the rule](crate::backend::contract::rule): the contenders that runs use
play random traces on a real server that lives as long as the test, each trace at its own key. A failing trace shrinks
to a few steps, and its seed is printed; `tests/run conformance` plays on for longer, or replays a seed.

Leases last a minute, and no test waits for their end: locks are [taken away](crate::backend::survey) instead.
*/

mod draw;
mod meetings;
mod play;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tokio::runtime::Runtime;

use crate::backend::conformance::draw::{Kind, Move, Play, SEATS, plays, slots};
use crate::backend::conformance::play::Table;
use crate::backend::contract::contender::Used;
use crate::backend::contract::rule::Lax;
use crate::backend::contract::service::{Options, Service};
use crate::backend::url::Target;
use crate::clock::{Instant, sleep_until};
use crate::lock::admission::Mode;
use crate::property::{from_env, holds};
use crate::support::rendezvous::eventually_within;
use crate::support::service::Service as Servers;

/// The longest time that a server needs to notice that a client has gone.
const LATE: Duration = Duration::from_secs(3);

/// Known properties of a service.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is an independent fact.
struct Known {
    lax: Lax,
    /// Number of traces that can be played in a second.
    a_second: u32,
    /// The longest time that a waiter counts as alive without a sign of life, in milliseconds.
    heartbeat_ttl: u64,
    /// `true` if a message tells the next waiter that it may enter.
    wakes: bool,
    /// `true` if a waiter watches only its predecessor, and learns of nothing else for a while.
    watches_one: bool,
    /// `true` if an owner may return after releasing the lock. Runs do not.
    comes_again: bool,
    /// `true` if a dropped attempt leaves nothing behind in this process.
    may_be_cut: bool,
    /// `true` if the waiters are in a list that can be shown.
    lists: bool,
}

const REDIS: Known = Known {
    lax: Lax {
        turns: false,
        no_queue: false,
        shared_tokens: false,
        any_slot: false,
        loses_requests: false,
        last_token: false,
        mortal: false,
        late_slots: false,
    },
    a_second: 50,
    heartbeat_ttl: 30_000,
    wakes: true,
    watches_one: false,
    comes_again: true,
    may_be_cut: true,
    lists: true,
};

const REDLOCK: Known = Known {
    lax: Lax { no_queue: true, any_slot: true, last_token: true, late_slots: true, ..REDIS.lax },
    a_second: 30,
    comes_again: false,
    wakes: false,
    lists: false,
    ..REDIS
};

const ETCD: Known = Known {
    lax: Lax { turns: true, shared_tokens: true, ..REDIS.lax },
    a_second: 12,
    comes_again: false,
    heartbeat_ttl: 60_000,
    ..REDIS
};

const ZOOKEEPER: Known = Known { a_second: 10, ..ETCD };

const POSTGRES: Known = Known { a_second: 12, comes_again: false, ..REDIS };

const MYSQL: Known = Known { watches_one: true, ..POSTGRES };

const FILE: Known = Known {
    lax: Lax { turns: true, mortal: true, loses_requests: true, no_queue: true, late_slots: true, ..REDIS.lax },
    a_second: 25,
    comes_again: false,
    may_be_cut: false,
    wakes: false,
    lists: false,
    ..REDIS
};

/// Plays traces of this kind for some seconds.
#[allow(clippy::print_stdout)] // The amount played is for the developer.
fn conform<S: Servers>(known: Known, kind: Kind) {
    let servers = S::fresh();
    let url = Target::parse(&servers.url()).expect("a URL");
    let service: Box<dyn Service> = url.open(&Options::default()).expect("a service");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (keys, steps, began) = (RefCell::new(Vec::new()), Cell::new(0), Instant::now());
    let one = |play: &Play| {
        let key = format!("k{}", keys.borrow().len());
        let mut table = Table::new(&*service, known, play, &key);
        keys.borrow_mut().push(key);
        let came = runtime.block_on(table.play(play));
        steps.set(steps.get() + table.steps);
        runtime.block_on(async { drop(table) });
        came.map_err(|why| TestCaseError::fail(format!("trace {}: {why}", keys.borrow().len())))
    };
    let many = 3 * known.a_second;
    // Tables are created by the first contender that needs them.
    let modes = [Mode::Exclusive, Mode::Shared, Mode::Exclusive, Mode::Exclusive];
    let first = vec![Move::Join(0), Move::Release(0, Used::No), Move::Join(1)];
    one(&Play { modes: modes.to_vec(), hold: vec![false; SEATS], once: false, moves: first }).expect("a first lock");
    if kind == Kind::Kept {
        // A number of slots other than the one that a minimum hold keeps is refused, also behind a waiter.
        one(&Play {
            modes: vec![slots(2), slots(3), Mode::Shared, Mode::Exclusive],
            hold: vec![true, false, false, false],
            once: false,
            moves: vec![Move::Join(0), Move::Join(2), Move::Release(0, Used::Yes), Move::Join(1)],
        })
        .expect("a refusal");
    }
    loop {
        holds(many, plays(kind), |play| one(&play));
        if Instant::now().since(began).as_secs() >= from_env("CONFORMANCE_MINUTES").unwrap_or(0) * 60 {
            break;
        }
    }
    let none = BTreeSet::new();
    let before = if kind == Kind::Modes && known.may_be_cut { left(&runtime, &servers, &keys, &none) } else { none };
    if !before.is_empty() {
        // Find the trace that leaves it.
        holds(many, plays(kind), |play| {
            one(&play)?;
            let left = left(&runtime, &servers, &keys, &before);
            prop_assert!(left.is_empty(), "{left:?} is left");
            Ok(())
        });
        panic!("{before:?} is left");
    }
    let (took, steps) = (Instant::now().since(began).as_secs_f64(), steps.get());
    println!("{} traces, {steps} steps in {took:.1} s", keys.borrow().len());
}

/// Returns what is left of these locks and is not in `before`. A server may notice late that a client has gone.
fn left<S: Servers>(
    runtime: &Runtime,
    servers: &S,
    keys: &RefCell<Vec<String>>,
    before: &BTreeSet<String>,
) -> BTreeSet<String> {
    let keys = keys.borrow();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut left = BTreeSet::new();
    let _ = eventually_within(LATE, || {
        // Tasks that the contenders have left to the runtime end, too.
        runtime.block_on(sleep_until(Instant::now() + Duration::from_millis(10)));
        // ZooKeeper itself ends a session that no client knows of.
        let is_new = |one: &String| !before.contains(one) && !one.starts_with("session ");
        left = servers.litter(&keys).into_iter().filter(is_new).collect();
        left.is_empty().then_some(())
    });
    left
}

macro_rules! conforms {
    ($($service:ident: $servers:ty, $known:expr;)*) => {
        $(mod $service {
            use super::*;

            #[test]
            fn modes_places_and_tokens_are_as_the_rule_says_and_nothing_is_left() {
                conform::<$servers>($known, Kind::Modes);
            }

            #[test]
            fn minimum_holds_and_periods_are_kept() {
                conform::<$servers>($known, Kind::Kept);
            }

            #[test]
            fn a_lock_is_broken_for_its_holder_alone() {
                conform::<$servers>($known, Kind::Broken);
            }
        })*
    };
}

conforms! {
    file: crate::support::service::FileService, FILE;
    redis: crate::support::service::RedisService, REDIS;
    redlock: crate::support::redis_services::Redlock3, REDLOCK;
    etcd: crate::support::service::EtcdService, ETCD;
    zookeeper: crate::support::service::ZooKeeperService, ZOOKEEPER;
    postgres: crate::support::database_services::PostgresService, POSTGRES;
    mysql: crate::support::database_services::MysqlService, MYSQL;
}
