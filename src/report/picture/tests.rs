use super::columns::PART;
use super::*;
use crate::backend::survey::{Location, Vote};
use crate::holder::ask::Ask;

const NOW: u64 = 1_795_298_868_000;

/// One lock at `place`, with nothing in the flags.
fn status(seen: &Snapshot, place: &str) -> String {
    super::status(seen, place, Some(""))
}

fn dlock(text: &str) -> Party {
    Party::new(Holder::read(text.as_bytes()), "")
}

fn lock(key: &str) -> Snapshot {
    Snapshot::free(Location::read(key, format!("dlock:{key}")), NOW)
}

/// The holder of the examples.
fn holder() -> Party {
    let text = r#"{"v":1,"id":"e457f1b7a38ab51a0c8ce773f17aabeb","token":1795298745323320,"since":1795298745000,
        "host":"web1","user":"deploy","pid":4711,"program":"backup.sh","ttl":30000,"reason":"nightly load",
        "job":"https://ci.example.org/jobs/42"}"#;
    dlock(text).lasting(Some(Left::Millis(17_400)))
}

fn waiter(host: &str, pid: i32, since: u64) -> Party {
    dlock(&format!(
        r#"{{"v":1,"id":"{pid}","since":{since},"host":"{host}","user":"ci","pid":{pid},"program":"deploy.sh"}}"#
    ))
}

#[test]
fn a_held_lock() {
    let queue = vec![waiter("runner-7", 812, NOW - 62_000), waiter("runner-9", 77, NOW - 12_000)];
    let seen = lock("backup").held_by(vec![holder()], 1).awaited_by(queue, 2);
    let expected = "\
backup at redis://locks: held for 2m 3s
  by       deploy@web1, pid 4711 (backup.sh)
  reason   nightly load
  job      https://ci.example.org/jobs/42
  since    2026-11-21T22:05:45Z
  lease    30s, 17s left unless it is renewed
  token    1795298745323320
  owner    e457f1b7a38ab51a0c8ce773f17aabeb
  queue    2
    1      ci@runner-7, pid 812 (deploy.sh), waiting 1m 2s
    2      ci@runner-9, pid 77 (deploy.sh), waiting 12s
";
    assert_eq!(status(&seen, "redis://locks"), expected);
}

#[test]
fn the_first_line_says_whether_a_lock_is_free() {
    let reader = |pid: i32| Party { mode: Some(Mode::Shared), ..waiter("h", pid, NOW - 5000) };
    let slot = |pid: i32| Party { mode: Mode::read("slots3"), slot: Some(0), ..waiter("h", pid, NOW - 5000) };
    let done = dlock(&format!(r#"{{"v":1,"done":true,"id":"a","until":{},"pid":5}}"#, NOW + 20_000));
    let foreign = |text: &str| Party::new(Holder::read(text.as_bytes()), "");
    let state = |state: State| Snapshot { state, ..lock("k") };
    for (seen, first) in [
        (lock("k"), "free"),
        (lock("k").awaited_by(vec![waiter("h", 7, NOW)], 1), "free, and the next in line is about to take it"),
        (lock("k").held_by(vec![foreign("x")], 1), "held by another program"),
        (lock("k").held_by(vec![reader(1)], 1), "held by 1 reader"),
        (lock("k").held_by(vec![reader(1), reader(2)], 1200), "held by 1200 readers"),
        (lock("k").held_by(vec![slot(1)], 1), "1 of 3 slots is taken"),
        (lock("k").held_by(vec![slot(1), slot(2)], 2), "2 of 3 slots are taken"),
        (lock("k").held_by(vec![slot(1), slot(2), slot(3)], 3), "all of 3 slots are taken"),
        (lock("k").held_by(vec![done], 1), "finished, and kept for another 20s (--min-hold)"),
        (
            state(State::Blocked("a redis list at the lock's key".to_owned())),
            "blocked by a redis list at the lock's key",
        ),
        (state(State::Contested), "held by nobody with a majority"),
        (state(State::Unknown), "cannot be told from this PID namespace"),
    ] {
        let text = status(&seen, "file:");
        assert_eq!(text.lines().next(), Some(format!("k at file:: {first}").as_str()), "{text}");
    }
}

#[test]
fn what_is_certain_of_a_process_is_said() {
    let line = |alive, is_own| {
        let text = status(&lock("k").held_by(vec![Party { alive, is_own, ..holder() }], 1), "file:");
        text.lines().nth(1).unwrap_or_default().trim_start_matches("  by       ").to_owned()
    };
    for (alive, is_own, expected) in [
        (None, false, ""),
        (Some(true), false, ""),
        (Some(true), true, ", this user on this host"),
        (Some(false), true, ", gone: no such process here"),
    ] {
        assert_eq!(line(alive, is_own), format!("deploy@web1, pid 4711 (backup.sh){expected}"));
    }
}

#[test]
fn what_happens_next_is_the_last_line_where_it_is_known() {
    let last = |alive, left| {
        let seen = lock("k").held_by(vec![Party { left, alive, ..holder() }], 1).awaited_by(Vec::new(), 3);
        status(&seen, "x").lines().last().unwrap_or_default().to_owned()
    };
    let left = Some(Left::Millis(16_001));
    assert_eq!(last(Some(false), left), "  next     nobody renews it any more: it is free in 16s");
    for (alive, left) in [(Some(true), left), (None, left), (Some(false), None), (Some(false), Some(Left::Forever))] {
        assert_eq!(last(alive, left), "  queue    3");
    }
}

#[test]
fn of_a_holder_that_is_gone_it_is_said_when_the_lock_is_free_and_not_how_to_ask_it() {
    let gone = |renewed| {
        let text = r#"{"v":1,"id":"e457","user":"deploy","host":"web1","pid":7,"ttl":30000,"stop":true}"#;
        let holder = Party { renewed, alive: Some(false), ..dlock(text) };
        status(&lock("k").held_by(vec![holder], 1), "zk://a")
    };
    let text = gone(Some(NOW - 12_000));
    assert_eq!(text.lines().last(), Some("  next     nobody renews it any more: it is free within 28s"), "{text}");
    assert!(gone(Some(NOW - 60_000)).ends_with("it is free within 0s\n"));
    assert!(!gone(None).contains("  next  ") && !gone(None).contains("  stop it  "));
}

#[test]
fn what_can_be_done_about_a_holder_is_said_until_it_is_done() {
    let seen = |key: &str, asked: Option<Ask>| {
        let text = r#"{"v":1,"id":"e457f1b7a38ab51a","user":"deploy","host":"web1","pid":7,"stop":true}"#;
        status(&lock(key).held_by(vec![Party { asked, ..dlock(text) }], 1), "file:")
    };
    for (key, expected) in [
        ("backup", "dlock break --key backup --owner e457f1b7a38ab51a"),
        ("-x", "dlock break --key=-x --owner e457f1b7a38ab51a"),
        ("a b's", "dlock break --key 'a b'\\''s' --owner e457f1b7a38ab51a"),
    ] {
        let text = seen(key, None);
        assert_eq!(text.lines().last(), Some(format!("  stop it  {expected}").as_str()), "{text}");
    }
    let reader = |id: &str| dlock(&format!(r#"{{"v":1,"id":"{id}","pid":7,"mode":"shared","stop":true}}"#));
    let text = status(&lock("k").held_by(vec![reader("a"), reader("b")], 2), "file:");
    assert_eq!(text.lines().last(), Some("  stop one dlock break --key k --owner OWNER"), "{text}");
    let asked = Ask::new("e457f1b7a38ab51a", "alice@ops1", Some("maintenance"), NOW - 4000);
    let text = seen("backup", Some(asked));
    assert!(text.contains("\n  asked    alice@ops1 asked it to stop 4s ago: maintenance\n"), "{text}");
    assert!(!text.contains("  stop it  "), "{text}");
    let seen = |place: &str, ago: u64| {
        let old = Ask::new("e457f1b7a38ab51a", "alice@ops1", None, NOW - ago);
        let text = r#"{"v":1,"id":"e457f1b7a38ab51a","user":"deploy","host":"web1","pid":7,"stop":true}"#;
        let holder = Party { asked: Some(old), ..dlock(text) };
        super::status(&lock("backup").held_by(vec![holder], 1), place, Some(" -b redis://locks"))
    };
    let text = seen("redis://locks", 5001);
    let next = "  next     if it does not stop, take the lock away: dlock break -b redis://locks --key backup --owner e457f1b7a38ab51a --now";
    assert_eq!(text.lines().last(), Some(next), "{text}");
    assert_eq!(
        seen("redis://locks", 1500),
        text.replace("does not stop", "has not stopped in 4s").replace("5s ago", "1s ago")
    );
    assert!(!seen("file:", 5001).contains("  next  "));
}

#[test]
fn a_delay_is_told_with_the_lease_that_it_is_a_part_of() {
    let holder = dlock(r#"{"v":1,"id":"a","pid":7,"ttl":40000,"delay":10000}"#).lasting(Some(Left::Millis(36_000)));
    let text = status(&lock("k").held_by(vec![holder], 1), "x");
    assert!(text.contains("\n  lease    40s with 10s of --lock-delay, 36s left unless it is renewed\n"), "{text}");
}

#[test]
fn a_minimum_hold_is_told_while_it_runs_and_after_it() {
    let holder = |done: bool, left: u64| {
        let text = format!(
            r#"{{"v":1,"id":"a","pid":7,"ttl":30000,"hold":60000,"since":{},"until":{},"done":{done}}}"#,
            NOW - 1000,
            NOW + 59_000
        );
        let holder = dlock(&text).lasting(Some(Left::Millis(left)));
        super::status(&lock("k").held_by(vec![holder], 1), "redis://h", Some(" -b redis://h"))
    };
    let text = holder(false, 59_000);
    assert!(text.contains("\n  kept     until 2026-"), "{text}");
    assert!(text.contains("\n  lease    30s, 59s left (--min-hold)\n"), "{text}");
    assert!(holder(false, 29_000).contains("\n  lease    30s, 29s left unless it is renewed\n"));
    let text = holder(true, 59_000);
    let next = "  next     to free it sooner: dlock break -b redis://h --key k --owner a --now";
    assert_eq!(text.lines().last(), Some(next), "{text}");
}

#[test]
fn long_lines_of_holders_and_waiters_are_cut_and_counted() {
    let parties = |count: i32| (0..count).map(|pid| waiter("h", pid, NOW - 5000)).collect::<Vec<_>>();
    let readers: Vec<Party> = parties(30).into_iter().map(|one| Party { mode: Some(Mode::Shared), ..one }).collect();
    let text = status(&lock("k").held_by(readers, 30).awaited_by(parties(1000), 1500), "x");
    let more: Vec<&str> = text.lines().filter(|line| line.contains("more")).collect();
    assert_eq!(more, ["    … and 10 more", "    … and 1480 more"]);
    assert_eq!(text.lines().count(), 1 + 1 + 20 + 1 + 1 + 20 + 1, "{text}");
}

#[test]
fn a_vote_that_is_no_majority_is_told() {
    let vote =
        |server: &str, state, id: Option<&str>| Vote { server: server.to_owned(), state, id: id.map(str::to_owned) };
    let votes = vec![vote("a:1", "held", Some("x")), vote("b:1", "unknown", None)];
    let seen = Snapshot { state: State::Unknown, votes: Some(votes), ..lock("k") };
    let expected = "k at redlock://a,b: cannot be told from the servers that answer\n  server   a:1: held by x\n  server   b:1: unknown\n";
    assert_eq!(status(&seen, "redlock://a,b"), expected);
}

/// These locks as a table.
fn table(locks: &[Snapshot], width: Option<usize>) -> String {
    let mut table = Table::new(width);
    table.part(locks) + &table.end()
}

#[test]
fn a_long_table_is_drawn_in_parts_that_have_the_same_columns() {
    let locks: Vec<Snapshot> = (0..=PART).map(|at| lock(&format!("{at:09}"))).collect();
    let (mut whole, mut drawn) = (Table::new(None), Vec::new());
    for locks in locks.chunks(300) {
        drawn.push(whole.part(locks));
    }
    drawn.push(whole.end());
    assert_eq!(drawn.iter().map(|part| part.lines().count()).collect::<Vec<_>>(), [0, 0, 0, PART + 2, 0]);
    let mut table = Table::new(None);
    let first = table.part(&locks[..PART]);
    let second = table.part(&[lock("k")]) + &table.end();
    assert_eq!(first.lines().count(), PART + 1);
    assert_eq!(second, "k          free     -        -    -      0\n", "{first}");
    assert_eq!(first.lines().last(), Some("000000999  free     -        -    -      0"));
}

#[test]
fn a_table_of_locks() {
    let foreign = Party::new(Holder::Foreign(b"x".to_vec()), "").lasting(Some(Left::Forever));
    let blocked = State::Blocked("a redis list at the lock's key".to_owned());
    let locks = [
        lock("backup").held_by(vec![holder()], 1).awaited_by(Vec::new(), 2),
        lock("cache").held_by(vec![foreign], 1),
        Snapshot { state: blocked, ..lock("import") },
    ];
    let expected = "\
KEY     HELD BY          PROGRAM    FOR    LEASE  WAITING  REASON
backup  deploy@web1      backup.sh  2m 3s  17s    2        nightly load
cache   another program  -          -      never  0
import  blocked          -          -      -      0        a redis list at the lock's key
";
    assert_eq!(table(&locks, None), expected);
    let cut = table(&locks, Some(20));
    assert!(cut.lines().all(|line| line.chars().count() <= 20) && cut.starts_with("KEY     HELD …  P…"), "{cut}");
    assert_eq!(table(&[], None), "");
}

#[test]
fn on_a_narrow_terminal_long_names_are_cut_and_no_state() {
    let long = "nightly-backup-of-the-customer-database";
    let locks = [lock(long).held_by(vec![holder()], 1).awaited_by(Vec::new(), 2)];
    for (width, expected) in [
        (200, format!("{long}  deploy@web1  backup.sh  2m 3s  17s    2        nightly load")),
        (80, "nightly-backup-of-the-customer-d…  deploy@web1  backup.sh  2m 3s  17s    2".to_owned()),
        (60, "nightly-back…  deploy@web1  backup.sh  2m 3s  17s    2".to_owned()),
        (40, "night…  deplo…  b…  2m 3s  17s    2".to_owned()),
    ] {
        let table = table(&locks, Some(width));
        assert_eq!(table.lines().nth(1).unwrap_or_default().trim_end_matches('…').trim_end(), expected, "{table}");
    }
}

#[test]
fn what_is_watched_has_its_state_first_and_its_place_below() {
    let seen = lock("nightly-backup-of-the-customer-database").held_by(vec![holder()], 1);
    let url = "etcd://a,b,c";
    for (columns, first) in [
        (200, "nightly-backup-of-the-customer-database: held for 2m 3s"),
        (40, "nightly-backup-of-the-c…: held for 2m 3s"),
        (20, "nigh…: held for 2m 3s"),
    ] {
        let text = watched(&seen, url, None, columns);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], [first, "  at       etcd://a,b,c"], "{text}");
        assert_eq!(lines[2..], super::status(&seen, url, None).lines().skip(1).collect::<Vec<_>>()[..]);
    }
}

#[test]
fn what_others_wrote_does_not_disturb_a_terminal() {
    let evil = r#"{"v":1,"id":"\u001b[2J","host":"\u001b[2J","user":"a\nb","pid":7,"program":"\u202e","reason":"\u0007","job":"\r"}"#;
    let seen = lock("k").held_by(vec![dlock(evil)], 1).awaited_by(vec![dlock(evil)], 1);
    for text in [status(&seen, "x"), table(std::slice::from_ref(&seen), None)] {
        assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
        assert!(!text.contains('\u{202e}'));
    }
}

#[test]
fn a_renewal_that_was_missed_is_told() {
    for (ttl, left, since) in [
        (30_000, 30_000, None),
        (30_000, 15_000, None),
        (30_000, 14_999, Some(15_001)),
        (0, 0, None),
        (6000, 0, Some(6000)),
    ] {
        assert_eq!(overdue(ttl, left), since, "{left} of {ttl}");
    }
    let last = |alive, left| {
        let seen = lock("k").held_by(vec![Party { left: Some(Left::Millis(left)), alive, ..holder() }], 1);
        status(&seen, "x").lines().last().unwrap_or_default().to_owned()
    };
    let steps = Party::new(Holder::read(br#"{"v":1,"id":"ab","ttl":30000,"handle":true}"#), "");
    let steps = lock("k").held_by(vec![Party { left: Some(Left::Millis(1000)), ..steps }], 1);
    assert!(!status(&steps, "x").contains("  next"), "nothing renews a lock between two steps");
    let expected = "  next     not renewed for 20s (due every 10s): its host may be dead or cut off";
    assert_eq!(last(None, 9_500), expected);
    assert_eq!(last(Some(true), 9_500), expected.replace("its host may be dead or cut off", "it may be suspended"));
    assert!(last(None, 20_000).starts_with("  owner"));
}

#[test]
fn a_job_that_has_outlived_its_dlock_has_the_lock_file_open() {
    let seen = lock("k").held_by(vec![Party { left: None, alive: Some(false), ..holder() }], 1);
    let expected = "  next     its command still has the lock file open: it is free when that has ended\n";
    assert!(status(&seen, "file:///d").ends_with(expected));
    assert!(!status(&seen, "etcd://a").contains("next"));
}

#[test]
fn times_that_make_no_sense_are_left_out() {
    let text = format!(r#"{{"v":1,"done":true,"id":"a","since":{},"hold":9}}"#, u64::MAX / 2);
    let seen = lock("k").held_by(vec![dlock(&text)], 1);
    assert!(status(&seen, "x").starts_with("k at x: finished, and kept (--min-hold)\n"));
    let future = lock("k").held_by(vec![waiter("h", 7, NOW + 60_000)], 1);
    assert!(status(&future, "x").starts_with("k at x: held\n"));
    assert_eq!(table(&[future], None).lines().nth(1), Some("k    ci@h     deploy.sh  -    -      0"));
}
