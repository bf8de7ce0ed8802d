use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::support::certificates::{ClientCertificate, Identity, Tls};
use crate::support::process;
use crate::support::redis_services::{RedlockService, ReplicasService, SentinelService, UnixService};
use crate::support::redis_sets::{RedisGroup, RedisReplicas, RedisSentinels, is_master, wait_replicated};
use crate::support::rendezvous::eventually;
use crate::support::servers::{Client, Redis, Reply, need, need_python};
use crate::support::service::Service;

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_group_is_of_servers_that_know_nothing_of_each_other() {
    let group = RedisGroup::with(3, ["--appendonly", "yes", "--appendfsync", "always"]);
    let ports: Vec<String> = group.iter().map(|redis| format!("127.0.0.1:{}", redis.port())).collect();
    assert_eq!(group.url(), format!("redlock://{}", ports.join(",")));
    assert_eq!((group.majority(), RedisGroup::start(5).majority()), (2, 3));
    group[0].cli(&["SET", "k", "v"]);
    assert_eq!(group.iter().map(|redis| redis.keys().len()).collect::<Vec<_>>(), [1, 0, 0]);
    group[1].stop();
    group[2].kill();
    assert_eq!(group.running().map(Redis::port).collect::<Vec<_>>(), [group[0].port()]);
    group[1].cont();
    eventually("the frozen one to run", || group[1].is_running().then_some(()));
    group[0].restart();
    assert_eq!(group[0].get("k").as_deref(), Some("v"));
    assert_eq!(group.running().count(), 2);
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn every_redis_listens_at_a_socket_that_everybody_may_use() {
    let redis = Redis::start();
    UnixStream::connect(redis.socket()).unwrap();
    assert_eq!(fs::metadata(redis.socket()).unwrap().permissions().mode() & 0o777, 0o777);
    assert_eq!(redis.socket_url(), format!("redis+unix://{}", redis.socket().display()));
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn a_redis_with_tls_shows_its_certificate_and_asks_for_one() {
    let handshake = |redis: &Redis, identity: Option<Identity>| {
        let certificates = redis.certificates();
        let mut openssl = Command::new(need("openssl", "openssl"));
        openssl.args(["s_client", "-quiet", "-verify_return_error", "-verify_ip", "127.0.0.1", "-CAfile"]);
        openssl.arg(certificates.ca()).args(["-connect", &format!("127.0.0.1:{}", redis.tls_port())]);
        if let Some(identity) = identity {
            openssl.arg("-cert").arg(certificates.certificate(identity)).arg("-key").arg(certificates.key(identity));
        }
        let mut child = openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // One that was refused may be gone before it is asked anything.
        let _ = child.stdin.as_mut().unwrap().write_all(b"PING\r\nQUIT\r\n");
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let redis = Redis::with_tls(Tls::default(), ["--maxmemory-policy", "allkeys-lru"]);
    assert_eq!(redis.url(), format!("rediss://127.0.0.1:{}", redis.tls_port()));
    assert_eq!(redis.cli(&["CONFIG", "GET", "maxmemory-policy"]), "maxmemory-policy\nallkeys-lru");
    assert_eq!(handshake(&redis, None), "+PONG\r\n+OK\r\n");
    let expired = Tls { server: Identity::Expired, ..Tls::default() };
    assert_eq!(handshake(&Redis::with_tls(expired, [""; 0]), None), "");
    let strict = Tls { clients: ClientCertificate::Needed, ..Tls::default() };
    let strict = Redis::with_tls(strict, [""; 0]);
    assert!(!handshake(&strict, None).contains("PONG"));
    assert!(!handshake(&strict, Some(Identity::ClientOfStranger)).contains("PONG"));
    assert_eq!(handshake(&strict, Some(Identity::Client)), "+PONG\r\n+OK\r\n");
    let group = RedisGroup::with_tls(3, Tls::default());
    let places: Vec<_> = group.iter().map(|redis| format!("127.0.0.1:{}", redis.tls_port())).collect();
    assert_eq!(group.url(), format!("redlocks://{}", places.join(",")));
    assert_eq!(handshake(&group[2], None), "+PONG\r\n+OK\r\n");
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn replicas_have_what_was_written_until_they_are_cut_off() {
    let set = RedisReplicas::start(2);
    set[0].cli(&["SET", "k", "1"]);
    wait_replicated(&set[0], 2);
    assert_eq!(set[1].get("k").as_deref(), Some("1"));
    set.cut_replication(&set[1]);
    set[0].cli(&["SET", "k", "2"]);
    wait_replicated(&set[0], 1);
    assert_eq!(set[2].get("k").as_deref(), Some("2"));
    assert_eq!(set[1].get("k").as_deref(), Some("1"), "it still answers, with what it had");
    set[0].cli(&["SET", "k", "3"]);
    assert_eq!(set[0].cli(&["WAIT", "2", "100"]), "1");
    set.restore_replication(&set[1]);
    wait_replicated(&set[0], 2);
    assert_eq!(set[1].get("k").as_deref(), Some("3"));
    assert!(is_master(&set[0]) && !is_master(&set[1]));
    let write = set[1].call(&[b"SET", b"k", b"4"]);
    assert!(matches!(write, Reply::Error(error) if error.starts_with("READONLY")));
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn sentinels_replace_a_master_that_is_killed_or_frozen_and_what_was_not_replicated_is_lost() {
    let set = RedisSentinels::start();
    let first = set.master();
    assert_eq!(first.port(), set.servers[0].port());
    let ports: Vec<_> = set.sentinels().iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    assert_eq!(set.url(), format!("redis+sentinel://{}/mymaster", ports.join(",")));
    first.cli(&["SET", "early", "x"]);
    wait_replicated(first, 2);
    for replica in set.replicas() {
        set.servers.cut_replication(replica);
    }
    first.cli(&["SET", "late", "x"]);
    first.kill();
    let second = set.wait_failover(first);
    assert_ne!(second.port(), first.port());
    assert_eq!(set.master().port(), second.port());
    assert_eq!(second.keys(), ["early"]);
    second.cli(&["SET", "later", "x"]);
    for replica in &*set.servers {
        set.servers.restore_replication(replica);
    }
    // It comes back as a replica of the other one, sooner or later.
    first.restart();
    wait_replicated(second, 2);
    assert_eq!(first.get("later").as_deref(), Some("x"));
    set.wait_settled();
    second.stop();
    let third = set.wait_failover(second);
    assert_eq!(third.get("later").as_deref(), Some("x"));
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn sentinels_do_a_failover_when_told_and_two_of_them_are_enough() {
    let set = RedisSentinels::start();
    let first = set.master();
    set.sentinels()[0].kill();
    let second = set.fail_over();
    assert_ne!(second.port(), first.port());
    assert_eq!(set.master().port(), second.port());
    eventually("the old master to step down", || (!is_master(first)).then_some(()));
    assert_eq!(set.replicas().len(), 2);
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn nothing_of_a_set_is_left() {
    let set = RedisSentinels::start();
    let pids: Vec<i32> = set.sentinels().iter().chain(set.servers.iter()).map(Redis::pid).collect();
    assert_eq!(pids.len(), 6);
    drop(set);
    assert!(pids.iter().all(|&pid| process::state(pid) == process::State::Gone));
}

#[test]
#[ignore = "of the support itself: tests/run all"]
fn services_begin_clean_and_tell_litter_from_what_servers_say_to_each_other() {
    /// `redis` is one of the service's servers; where it replicates, `copies` servers have what it has.
    #[track_caller]
    fn check<S: Service>(service: &S, redis: &Redis, copies: usize) {
        const COUNTER: &str = "{dlock:job}\u{1}fence";
        let litter = |count: usize, what: &str| {
            eventually(&format!("{what} to be {count} lines of litter"), || {
                (service.litter(&["job"]).len() == count).then_some(())
            });
        };
        litter(0, "nothing");
        assert_eq!(service.queued("job"), 0);
        let mut other = Client::connect(redis.port()).unwrap();
        other.call(&[b"SET", COUNTER.as_bytes(), b"1", b"PX", b"60000"]).unwrap();
        litter(1, "a connection");
        other.call(&[b"SET", b"dlock:job", b"x"]).unwrap();
        litter(1 + copies, "a connection and a lock");
        drop(other);
        litter(copies, "a lock");
        assert_eq!(service.litter(&[]).len(), 2 * copies, "the counter of another key is litter");
        redis.cli(&["DEL", "dlock:job"]);
        redis.cli(&["PERSIST", COUNTER]);
        litter(copies, "a counter that stays forever");
    }
    let service = UnixService::fresh();
    check(&service, &service.redis, 1);
    let service = RedlockService::<3>::fresh();
    check(&service, &service.servers[2], 1);
    let service = ReplicasService::fresh();
    check(&service, &service.servers[0], 3);
    let service = SentinelService::fresh();
    check(&service, service.set.master(), 3);
}

/// A program that connects to servers and asks them for something, as a waiting dlock does.
const WAITER: &str = r"
import socket, subprocess, sys
open('/proc/self/comm', 'w').write('dlock')
if sys.argv[4] == 'holds':
    guard = ['sh', '-c', 'sleep 1000 & echo; wait']
    subprocess.Popen(guard, stdout=subprocess.PIPE).stdout.readline()
connections = [socket.create_connection(('127.0.0.1', int(port))) for port in sys.argv[3].split(',')]
if sys.argv[4] != 'silent':
    for connection in connections:
        connection.sendall(b'EXISTS dlock:job\r\n')
        connection.recv(100)
sys.stdin.read()
";

#[test]
#[ignore = "of the support itself: tests/run all"]
fn who_waits_for_a_redlock_is_known_by_its_connections() {
    let service = RedlockService::<3>::fresh();
    let python = need_python("socket", "python3");
    let start = |key: &str, servers: &[Redis], how: &str| {
        let ports: Vec<_> = servers.iter().map(|redis| redis.port().to_string()).collect();
        let mut command = Command::new(&python);
        command.args(["-c", WAITER, "--key", key, &ports.join(","), how]).current_dir(service.scratch().root());
        command.stdin(Stdio::piped()).spawn().unwrap()
    };
    let mut others = vec![
        // Not a majority, another lock, nothing sent yet, and one that holds the lock.
        start("job", &service.servers[..1], "waits"),
        start("other", &service.servers, "waits"),
        start("job", &service.servers, "silent"),
        start("job", &service.servers, "holds"),
    ];
    let connected = |redis: &Redis, count: usize| redis.clients().len() == count;
    eventually("all to be there", || connected(&service.servers[0], 4).then_some(()));
    let mut two = [start("job", &service.servers[1..], "waits"), start("job", &service.servers, "waits")];
    service.wait_queued("job", 2);
    service.wait_queued("other", 1);
    let pids: BTreeSet<i32> = two.iter().map(|child| child.id().cast_signed()).collect();
    assert_eq!(service.waiting("job"), pids);
    service.servers[0].stop();
    assert_eq!(service.waiting("job"), pids, "a majority is left");
    service.servers[0].cont();
    two[0].kill().unwrap();
    service.wait_queued("job", 1);
    for child in two.iter_mut().chain(&mut others) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(service.queued("job"), 0);
}
