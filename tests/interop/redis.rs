//! redis-py's `Lock` on the lock's key, other libraries that use the key in a similar way, and foreign keys in its
//! place.

use std::collections::BTreeSet;

use super::{KEY, PROMPT, Shared, leave};
use crate::support::foreign::{Foreign, Kind};
use crate::support::redis_services::{RedissService, SentinelService, UnixService};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::servers::{Redis, Reply};
use crate::support::service::{Gated, RedisService, Service};

/// The redis key of [`KEY`].
const NAME: &str = "dlock:job";

/// A service whose locks are on one server, however dlock reaches it.
pub(super) trait OneServer: Service + Sync {
    fn server(&self) -> &Redis;

    /// How redis-py reaches the server.
    fn way(&self) -> String {
        format!("redis://127.0.0.1:{}", self.server().port())
    }
}

impl OneServer for RedisService {
    fn server(&self) -> &Redis {
        &self.redis
    }
}

impl OneServer for UnixService {
    fn server(&self) -> &Redis {
        &self.redis
    }

    fn way(&self) -> String {
        format!("unix://{}", self.redis.socket().display())
    }
}

impl OneServer for RedissService {
    fn server(&self) -> &Redis {
        &self.redis
    }

    fn way(&self) -> String {
        format!("{}?ssl_ca_certs={}", self.redis.url(), self.redis.certificates().ca().display())
    }
}

impl OneServer for SentinelService {
    fn server(&self) -> &Redis {
        self.set.master()
    }
}

impl<S: OneServer> Shared for S {
    fn place(&self) -> (String, String) {
        (self.way(), NAME.to_owned())
    }

    fn traces(&self) -> BTreeSet<String> {
        self.server().get(NAME).into_iter().collect()
    }

    fn shown(&self, token: &str) -> String {
        format!("held by another program: {token}")
    }

    fn rob(&self) {
        self.server().cli(&["DEL", NAME]);
    }

    /// redis-py has no queue: it polls.
    fn queue_other(&self, other: &mut Foreign) {
        wait_asking(self.server(), other);
    }
}

/// Has `other` begin to take the lock, and returns once it has asked this server twice.
pub(super) fn wait_asking(server: &Redis, other: &mut Foreign) {
    let monitor = server.monitor();
    other.start_acquire();
    let asked = |seen: &[Vec<String>]| seen.iter().filter(|words| words[0] == "SET" && words[1] == NAME).count();
    monitor.wait_until("the other to ask twice", |seen| asked(seen) >= 2);
}

#[test]
fn a_redis_py_whose_lock_never_expires_is_waited_for_and_never_deleted() {
    let service = RedisService::fresh();
    let mut other = service.other(Kind::RedisPy);
    other.set_lease("never");
    let value = other.acquire();
    let refused = service.run(KEY).arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line(&format!("did not get 'job': held by another program: {value}"));
    let waiter = service.queue_up(KEY, &[]);
    waiter.running.wait_stderr(&format!("waiting for 'job': held by another program: {value}"));
    assert_eq!((service.redis.get(NAME), service.redis.pttl(NAME)), (Some(value), -1));
    assert!(other.owns() && !waiter.has_held());
    let released = boottime();
    other.release();
    waiter.wait_held();
    assert!(boottime() - released < PROMPT);
    waiter.let_go().code(0).stderr_is_one_line("waiting for 'job'");
    leave(&service, vec![other]);
}

#[test]
fn the_expiry_of_the_others_lock_is_let_alone() {
    let service = RedisService::fresh();
    let mut other = service.other(Kind::RedisPy);
    other.acquire();
    let before = service.redis.pttl(NAME);
    let waiter = service.queue_up(KEY, &["-q", "--ttl", "2s"]);
    service.wait_blocked(1);
    service.assert_held(KEY);
    assert!((1..=before).contains(&service.redis.pttl(NAME)));
    other.release();
    waiter.wait_held();
    // Deleted, and taken by somebody for longer than dlock would hold it.
    service.rob();
    other.acquire();
    waiter.running.wait().code(79).stderr_is_one_line("lost 'job'");
    assert!(service.redis.pttl(NAME) > 50_000, "dlock has changed the expiry of redis-py's lock");
    other.release();
    leave(&service, vec![other]);
}

#[test]
fn without_a_namespace_the_key_is_the_others_own() {
    let service = RedisService::fresh();
    let mut other = Foreign::spawn(Kind::RedisPy, &service.way(), KEY);
    let run = || service.run(KEY).args(["--namespace", ""]);
    let holder = Gated::spawn(service.scratch(), run());
    holder.wait_held();
    assert_eq!(other.try_acquire(), None);
    holder.let_go().success();
    let value = other.try_acquire().expect("the lock is free");
    let refused = run().arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line(&format!("held by another program: {value}"));
    other.release();
    other.close();
    let counter = format!("{{{KEY}}}\u{1}fence");
    assert_eq!(service.redis.keys(), [counter]);
}

/// redis-py has no queue and takes the lock whenever it finds it free, even before dlock's waiters, which keep their
/// own order.
#[test]
fn dlocks_keep_their_order_around_a_redis_py() {
    let service = RedisService::fresh();
    let (mut holder, mut other) = (service.other(Kind::RedisPy), service.other(Kind::RedisPy));
    holder.acquire();
    let waiters = [(); 3].map(|()| service.queue_up(KEY, &["-q"]));
    service.queue_other(&mut other);
    holder.release();
    for (number, waiter) in waiters.iter().enumerate() {
        eventually("the next of them to have the lock", || {
            if other.is_held() {
                other.wait_held();
                other.release();
                other.start_acquire();
            }
            waiter.has_held().then_some(())
        });
        assert!(waiters[number + 1..].iter().all(|waiter| !waiter.has_held()), "not the first who came");
        waiter.open();
    }
    for waiter in waiters {
        waiter.let_go().success();
    }
    other.wait_held();
    other.release();
    leave(&service, vec![holder, other]);
}

/// How a library takes a lock for a minute and releases it: a command or a script with key, value and length.
struct Library {
    name: &'static str,
    take: &'static str,
    give_back: &'static str,
}

/// Libraries that do it differently from redis-py. Each answer is what the library checks.
const LIBRARIES: [Library; 4] = [
    Library {
        name: "the documented pattern",
        take: "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
        give_back: "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    },
    Library {
        name: "redsync",
        take: "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX')",
        give_back: "local val = redis.call('GET', KEYS[1])
            if val == ARGV[1] then return redis.call('DEL', KEYS[1])
            elseif val == false then return -1
            else return 0 end",
    },
    Library {
        name: "bsm/redislock",
        take: "if redis.call('msetnx', KEYS[1], ARGV[1]) == 1 then
                redis.call('pexpire', KEYS[1], ARGV[2])
                return redis.status_reply('OK')
            end
            return false",
        give_back: "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    },
    Library {
        name: "node-redlock",
        take: "for i, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end
            for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end
            return #KEYS",
        give_back: "local count = 0
            for i, key in ipairs(KEYS) do
                if redis.call('get', key) == ARGV[1] then redis.pcall('del', key) count = count + 1 end
            end
            return count",
    },
];

#[test]
fn the_scripts_of_other_libraries_and_dlock_keep_each_other_out() {
    let service = RedisService::fresh();
    let eval = |script: &str| {
        // Not text: other programs may leave anything.
        let words: [&[u8]; 6] = [b"EVAL", script.as_bytes(), b"1", NAME.as_bytes(), b"\xff\x00id", b"60000"];
        service.redis.call(&words)
    };
    for Library { name, take, give_back } in LIBRARIES {
        let holder = service.hold(KEY);
        let traces = service.traces();
        assert!(matches!(eval(take), Reply::Nil | Reply::Int(0)), "{name} took what dlock holds");
        assert!(matches!(eval(give_back), Reply::Int(0)), "{name} gave back what dlock holds");
        assert_eq!(service.traces(), traces, "{name}");
        holder.let_go().success();
        let taken = eval(take);
        assert!(taken == Reply::Status("OK".into()) || taken == Reply::Int(1), "{name} did not take it: {taken:?}");
        let refused = service.run(KEY).arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line(r"did not get 'job': held by another program: \xff\u{0}id");
        assert_eq!(eval(give_back), Reply::Int(1), "{name} did not hold it any more");
        service.assert_free(KEY);
    }
    leave(&service, Vec::new());
}

/// Redisson keeps its locks in hashes, which keep dlock out as long as they exist.
#[test]
fn a_lock_of_redisson_is_waited_for_and_never_deleted() {
    const LEFT: &str = "60000";
    let service = RedisService::fresh();
    let redis = &service.redis;
    redis.cli(&["HSET", NAME, "5b1e1a5e-0000-4000-8000-000000000000:1", "1"]);
    redis.cli(&["PEXPIRE", NAME, LEFT]);
    let refused = service.run(KEY).arg("-n").command(["echo", "overlap"]).output();
    refused.code(75).stdout_is("").stderr_is_one_line("did not get 'job': blocked by a redis hash at the lock's key");
    let waiter = service.queue_up(KEY, &[]);
    waiter.running.wait_stderr("waiting for 'job': blocked by a redis hash at the lock's key");
    let left = redis.pttl(NAME);
    assert!((1..=LEFT.parse().unwrap()).contains(&left));
    assert_eq!(redis.cli(&["HLEN", NAME]), "1");
    let deleted = boottime();
    redis.cli(&["DEL", NAME]);
    waiter.wait_held();
    assert!(boottime() - deleted < PROMPT);
    // Found at dlock's renewal, it counts as somebody else's lock as well.
    service.rob();
    redis.cli(&["HSET", NAME, "other", "1"]);
    waiter.let_go().code(79).stderr_ends_with_line("lost 'job'");
    assert_eq!(redis.cli(&["HLEN", NAME]), "1");
    redis.cli(&["DEL", NAME]);
    leave(&service, Vec::new());
}
