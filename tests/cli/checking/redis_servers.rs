//! What can be wrong with redis servers.

use crate::cli::checking::{Found, assert_untouched, check_at};
use crate::support::certificates::{Identity, Tls};
use crate::support::redis_services::{Redlock3, RedlockService, SentinelService};
use crate::support::redis_sets::{RedisGroup, RedisReplicas};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::service::{RedisService, Service};

#[test]
fn settings_that_lose_locks_are_told_one_by_one() {
    let service = RedisService::fresh();
    let found = |words: &[&str], code| Found::at(service.scratch(), &service.url(), words, code);
    let set = |name: &str, value: &str| assert_eq!(service.redis.cli(&["CONFIG", "SET", name, value]), "OK");
    set("maxmemory-policy", "allkeys-lru");
    found(&[], 0).has("warn", "persistence", "appendonly is off: locks are lost when the server restarts").has(
        "ok",
        "eviction",
        "there is no maxmemory",
    );
    set("maxmemory", "100mb");
    set("appendonly", "yes");
    set("appendfsync", "no");
    found(&[], 0).has("warn", "eviction", "maxmemory-policy is allkeys-lru").has(
        "warn",
        "persistence",
        "appendfsync is no",
    );
    set("maxmemory-policy", "noeviction");
    set("appendfsync", "everysec");
    let best = found(&[], 0);
    assert_eq!(best.0["result"], "ok", "{:#}", best.0);
    found(&["--replicas", "1"], 69).has("fail", "replicas", "0 replicas, and --replicas asks for 1");
    service.redis.cli(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all"]);
    found(&[], 0).has("warn", "identity", "no user given, and the server knows 2");
    assert_untouched(&service);
}

/// No more rights than those for running commands: what cannot be asked is skipped.
#[test]
fn an_ordinary_user_learns_whether_locks_work() {
    let service = RedisService::fresh();
    let refused =
        service.scratch().dlock().run("x").backend(service.redis.url_for("app", "wrong", 0)).command(["true"]);
    refused.output().code(77).stderr_is_one_line("refused");
    let acl = |words: &[&str]| service.redis.cli(&[&["ACL", "SETUSER", "app"], words].concat());
    acl(&["on", ">secret", "resetkeys", "~dlock:*", "~{dlock:*", "-@all", "+eval", "+evalsha", "+blpop", "+type"]);
    acl(&[
        "+getrange",
        "+pttl",
        "+pexpire",
        "+time",
        "+zrem",
        "+hdel",
        "+del",
        "+zrange",
        "+hget",
        "+hset",
        "+exists",
        "+lpush",
    ]);
    acl(&[
        "+get",
        "+set",
        "+zscore",
        "+zrevrange",
        "+zadd",
        "+zrank",
        "+zcard",
        "+zrangebyscore",
        "+hvals",
        "+hgetall",
    ]);
    let found =
        |password: &str, code| Found::at(service.scratch(), &service.redis.url_for("app", password, 0), &[], code);
    let ordinary = found("secret", 0);
    assert_eq!(ordinary.with("skip"), ["version", "role", "eviction", "persistence", "replicas"]);
    ordinary.has("ok", "lock", "taken").has("ok", "identity", "user app").has("ok", "clock", "this host");
    acl(&["+info", "+role", "+config|get"]);
    let lacking = found("secret", 0);
    assert!(lacking.with("skip").is_empty());
    lacking.has("warn", "identity", "user app lacks +scan: dlock list is refused");
    lacking.has("warn", "identity", "user app lacks +multi +exec +hmget: dlock status, list and break are refused");
    acl(&["+scan", "+multi", "+exec", "+hmget", "-blpop"]);
    let lacking = found("secret", 0);
    lacking.has("warn", "identity", "user app lacks +blpop: ");
    assert_eq!(lacking.of("identity").len(), 2);
    acl(&["+blpop"]);
    assert_eq!(found("secret", 0).of("identity").len(), 1);
    let wrong = found("wrong", 77);
    wrong.has("fail", "identity", "refused").has("ok", "reach", "connected in").has("skip", "lock", "not tried");
    acl(&["-eval"]);
    found("secret", 77).has("fail", "lock", "'eval' command");
    acl(&["+eval"]);
    assert_untouched(&service);
}

#[test]
fn replicas_keep_no_locks_and_sentinels_name_the_master() {
    let servers = RedisReplicas::start(1);
    let scratch = Scratch::new();
    let found = |redis: &Redis, words: &[&str], code| Found::at(&scratch, &redis.url(), words, code);
    found(&servers[0], &[], 0).has("warn", "replicas", "1 replica that no grant waits for");
    found(&servers[0], &["--replicas", "1"], 0).has("ok", "replicas", "grants wait for 1");
    found(&servers[1], &[], 69).has("fail", "role", "it is a replica").has("fail", "lock", "");
    let service = SentinelService::fresh();
    let found = |code| Found::at(service.scratch(), &service.url(), &[], code);
    let whole = found(0);
    whole.has("ok", "master", "is called").has("ok", "role", "master");
    assert_eq!(whole.of("reach").len(), 3);
    service.set.sentinels()[0].kill();
    found(0).has("warn", "reach", "connection refused").has("ok", "lock", "taken");
    service.set.sentinels()[1].kill();
    found(69).has("fail", "reach", "connection refused").has("fail", "master", "").has("skip", "lock", "");
}

#[test]
fn certificates_that_are_wrong_or_end_soon_are_told() {
    for (server, code, result, text) in [
        // Those of the tests are valid for two days.
        (Identity::Server, 0, "warn", "the certificate ends on "),
        (Identity::OtherHost, 69, "fail", "its certificate is not for 127.0.0.1"),
        (Identity::Expired, 69, "fail", "its certificate has expired"),
        (Identity::Stranger, 69, "fail", "not signed by an authority that is trusted here"),
    ] {
        let service = RedisService::on(Redis::with_tls(Tls { server, ..Tls::default() }, [""; 0]));
        let check = check_at(service.scratch(), &service.url(), &[]).args(service.options());
        Found::by(check, code).has(result, "tls", text).has("ok", "reach", "connected");
    }
}

#[test]
fn servers_that_vote_are_counted() {
    let service = Redlock3::fresh();
    let scratch = service.scratch();
    let url = |ports: &[String]| format!("redlock://{}", ports.join(","));
    let at = |index: usize| format!("127.0.0.1:{}", service.servers[index].port());
    let all = Found::at(scratch, &service.url(), &[], 0);
    all.has("ok", "servers", "3, of which 1 may be away").has("warn", "persistence", "its votes are lost");
    Found::at(scratch, &url(&[at(0), at(1)]), &[], 0).has("warn", "servers", "2 servers outlive no more losses than 1");
    let twice = at(0).replace("127.0.0.1", "localhost");
    let twins = Found::at(scratch, &url(&[at(0), twice, at(1)]), &[], 69);
    twins.has("fail", "servers", "are one server, which would vote twice").has("fail", "lock", "");
    Found::at(scratch, &service.url(), &["--strict-fencing"], 69).has("fail", "persistence", "appendonly is off");
    assert_untouched(&service);
    service.servers[2].kill();
    Found::at(scratch, &service.url(), &[], 0).has("warn", "reach", "connection refused").has("ok", "lock", "taken");
    service.servers[1].kill();
    let minority = Found::at(scratch, &service.url(), &[], 69);
    minority.has("fail", "servers", "1 of 3 can be used, and a majority is 2").has("skip", "lock", "");
}

#[test]
fn a_clock_that_is_wrong_is_told() {
    let service = RedlockService::<3>::on(RedisGroup::with_clocks(3, [""; 0]));
    service.servers[1].clock().set(60);
    let found = Found::at(service.scratch(), &service.url(), &[], 0);
    found.has("warn", "clock", "ahead of this host").has("warn", "clock", "the clocks of the servers are ");
    assert_eq!(found.of("clock").iter().filter(|(result, _)| *result == "ok").count(), 2, "{:#}", found.0);
}
