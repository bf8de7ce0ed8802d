//! Many locks, many waiters, long names: what looking costs, and what is left out.

use std::time::Duration;

use crate::locks::looking::{list, look, names, read, status, told};
use crate::support::servers::need_python;
use crate::support::service::{EtcdService, FileService, Gated, RedisService, Service, ZooKeeperService};
use crate::support::zookeeper::{Acl, Kind};

/// Runs what follows, and writes the largest number of kilobytes that it had in memory to standard error.
const MEASURED: &str = "import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print('dlock: peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)";

#[test]
fn a_hundred_thousand_locks_cost_little_memory_and_only_short_requests() {
    let service = RedisService::fresh();
    let fill = "for i = 1, 100000 do redis.call('SET', 'dlock:' .. string.format('%06d', i), 'x', 'PX', 600000)
        redis.call('SET', 'other:' .. i, 'x') end";
    service.redis.cli(&["EVAL", fill, "0"]);
    service.redis.cli(&["CONFIG", "RESETSTAT"]);
    let python = need_python("resource", "python3");
    let outcome = look(&service, &["list", "--json"]).wrapped_by([python.to_str().unwrap(), "-c", MEASURED]).output();
    outcome.code(0);
    let document = read(&outcome);
    assert_eq!((&document["total"], &document["cut"]), (&100_000.into(), &true.into()));
    let shown = names(&document);
    assert_eq!((shown.len(), shown[0], shown[999]), (1000, "000001", "001000"));
    let said = outcome.stderr();
    assert!(said.contains("dlock: 1000 of 100000 locks shown; --limit 0 shows all\n"), "{said}");
    let peak: u64 = said.split("peak ").nth(1).and_then(|peak| peak.trim().parse().ok()).unwrap();
    assert!(peak < 32 * 1024, "{peak} kB");
    // The server looks through no more than a thousand keys for one request, however slow this machine is.
    let stats = service.redis.cli(&["INFO", "commandstats"]);
    let calls = |command: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    assert!((150..1000).contains(&calls("scan")) && calls("keys") == 0 && calls("exec") <= 20, "{stats}");
    assert_eq!(names(&list(&service, &["0999"])).len(), 100);
    // All of a fifth of them, which are printed as they are read.
    let cut = "for i = 20001, 100000 do redis.call('DEL', 'dlock:' .. string.format('%06d', i)) end";
    service.redis.cli(&["EVAL", cut, "0"]);
    for words in [&["list", "--limit", "0", "--json"][..], &["list", "--limit", "0"]] {
        let outcome = look(&service, words).wrapped_by([python.to_str().unwrap(), "-c", MEASURED]).output();
        outcome.code(0);
        let said = outcome.stderr();
        let peak: u64 = said.split("peak ").nth(1).and_then(|peak| peak.trim().parse().ok()).unwrap();
        assert!(peak < 30 * 1024, "{words:?}: {peak} kB");
        let text = outcome.stdout();
        assert!(text.contains("000001") && text.contains("020000"));
    }
}

#[test]
fn of_a_long_queue_the_first_thousand_are_told_and_all_are_counted() {
    let service = RedisService::fresh();
    let holder = service.hold("job");
    let fill = "for i = 1, 1500 do redis.call('ZADD', KEYS[1], i, 'id' .. i)
        redis.call('HSET', KEYS[2], 'id' .. i, '9000000000000') end";
    service.redis.cli(&["EVAL", fill, "2", "{dlock:job}\u{1}queue", "{dlock:job}\u{1}alive"]);
    let seen = status(&service, "job");
    assert_eq!((&seen["waiting"], &seen["queue_cut"]), (&1500.into(), &true.into()));
    let queue = seen["queue"].as_array().unwrap();
    assert_eq!((queue.len(), &queue[999]["id"], &queue[999]["position"]), (1000, &"id1000".into(), &1000.into()));
    let text = told(&service, "job", 75);
    assert!(text.contains("    … and 1480 more\n  stop it  ") && text.lines().count() < 35, "{text}");
    service.redis.cli(&["DEL", "{dlock:job}\u{1}queue", "{dlock:job}\u{1}alive"]);
    holder.let_go().success();
}

/// On services where each lock costs a request.
#[test]
fn more_than_a_thousand_locks_are_listed_in_time_everywhere() {
    fn assert_cut<S: Service>(service: &S) {
        let outcome = look(service, &["list", "--json"]).output();
        outcome.code(0).stderr_is_one_line("--limit 0 shows all");
        assert!(outcome.elapsed() < Duration::from_secs(20), "{outcome:?}");
        let document = read(&outcome);
        let first = names(&document);
        assert_eq!((first.len(), first[0], first[999]), (1000, "0001", "1000"));
        // They may have been counted on the way.
        assert!(document["total"].as_u64().is_none_or(|total| total == 1100) && document["cut"] == true);
        assert_eq!(names(&list(service, &["--limit", "0"])).len(), 1100);
    }
    let etcd = EtcdService::fresh();
    let lease = etcd.etcd.grant(600);
    for number in 1..=1100 {
        etcd.etcd.put(&format!("dlock/{number:04}/7"), "x", lease);
    }
    assert_cut(&etcd);
    let zookeeper = ZooKeeperService::fresh();
    let mut client = zookeeper.zookeeper.client();
    client.create("/dlock", "", Kind::Persistent, Acl::Open).unwrap();
    for number in 1..=1100 {
        let lock = format!("/dlock/{number:04}");
        client.create(&lock, "", Kind::Persistent, Acl::Open).unwrap();
        client.create(&format!("{lock}/x-lock-"), "x", Kind::EphemeralSequential, Acl::Open).unwrap();
    }
    assert_cut(&zookeeper);
}

/// The longest names, and the longest reasons: more than an answer to any other request may have.
#[test]
fn long_names_and_long_texts_are_read_a_part_at_a_time() {
    let service = RedisService::fresh();
    let reason = "r".repeat(3000);
    let text = format!(r#"{{"v":1,"id":"ID","host":"h","user":"u","pid":7,"reason":"{reason}"}}"#);
    let fill = "for i = 1, 600 do
        local id, text = 'id' .. i, (string.gsub(ARGV[1], 'ID', 'id' .. i))
        redis.call('SET', 'dlock:' .. string.rep('n', 500) .. string.format('%04d', i), text, 'PX', 600000)
        redis.call('ZADD', KEYS[1], i, id)
        redis.call('HSET', KEYS[2], id, '9000000000000')
        redis.call('HSET', KEYS[3], id, text)
        redis.call('ZADD', KEYS[4], 9000000000000 + i, id)
        redis.call('HSET', KEYS[5], id, text) end
        redis.call('SET', KEYS[6], ARGV[2], 'PX', 600000)";
    let group = r#"{"v":1,"mode":"shared","id":"id1"}"#;
    let side = |name: &str| format!("{{dlock:job}}\u{1}{name}");
    let keys = [side("queue"), side("alive"), side("who"), side("holders"), side("details"), "dlock:job".to_owned()];
    let keys = keys.each_ref().map(String::as_str);
    service.redis.cli(&[&["EVAL", fill, "6"], &keys[..], &[&text, group]].concat());
    let document = list(&service, &["--limit", "0"]);
    assert_eq!(names(&document).len(), 601);
    assert_eq!(document["locks"][7]["holder"]["reason"].as_str().map(str::len), Some(3000));
    let seen = status(&service, "job");
    let reasons = |of: &str| -> usize {
        seen[of].as_array().unwrap().iter().filter(|one| one["reason"] == reason.as_str()).count()
    };
    assert_eq!((reasons("queue"), &seen["waiting"]), (600, &600.into()));
    assert_eq!((reasons("holders"), &seen["held_by"]), (600, &600.into()));
    assert_eq!((&document["locks"][0]["key"], &document["locks"][0]["held_by"]), (&"job".into(), &600.into()));
}

#[test]
fn a_name_that_cannot_be_told_from_its_file_is_shown_by_that_file() {
    let service = FileService::fresh();
    let long = "é".repeat(256);
    let holder = Gated::spawn(service.scratch(), service.run(&long).arg("-q"));
    holder.wait_held();
    assert_eq!(status(&service, &long)["key"], long.as_str());
    let list = list(&service, &[]);
    let lock = &list["locks"][0];
    assert!(lock["key"].is_null() && lock["place"].as_str().is_some_and(|place| place.contains("%~")), "{list}");
    assert_eq!(lock["holder"]["pid"], holder.pid());
    holder.let_go().success();
}
