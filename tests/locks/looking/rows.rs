//! Locks in a database: ShedLock's, those of a table that no dlock has used yet, and a standby.

use std::time::Duration;

use serde_json::Value;

use crate::locks::looking::{list, look, names, read, status, told};
use crate::services::databases::on_databases;
use crate::support::database_services::{DatabaseService, MysqlService, PostgresService};
use crate::support::databases::Engine;
use crate::support::mysql::{MariaDb, Mysql};
use crate::support::postgres::{PostgreSql, Postgres};
use crate::support::rendezvous::eventually;
use crate::support::service::{Gated, Service};

on_databases! {
    locks_of_shedlock_are_foreign_also_where_no_dlock_has_been
    a_table_of_another_name_has_its_own_locks
    a_minimum_hold_is_told_while_it_runs
    what_others_write_into_the_tables_spoils_nothing_but_itself
    a_thousand_locks_are_read_by_a_few_statements
    long_texts_of_a_crowd_are_read_as_far_as_there_is_room
    a_server_works_no_longer_on_a_look_than_it_is_waited_for
}

/// A lock of ShedLock's that was taken 65 seconds ago, until this time.
fn shedlock<E: Engine>(service: &DatabaseService<E>, name: &str, until: &str) {
    let since = E::AFTER.replace(":then", ":now").replace(":secs", "-65");
    service.sql(&format!("INSERT INTO shedlock VALUES ('{name}', {until}, {since}, 'web1')"));
}

/// Looks without a namespace: there names are ShedLock's.
fn look_at_all<S: Service>(service: &S, words: &[&str]) -> Value {
    let outcome = look(service, &[words, &["--json", "--namespace", ""]].concat()).output();
    // A list may be empty.
    let _ = outcome.stderr();
    read(&outcome)
}

/// A dlock that holds `job` at this URL.
fn hold_at<S: Service>(service: &S, url: &str) -> Gated {
    let holder = Gated::spawn(service.scratch(), service.scratch().dlock().run("job").backend(url));
    holder.wait_held();
    holder
}

fn locks_of_shedlock_are_foreign_also_where_no_dlock_has_been<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::TABLE);
    shedlock(&service, "a/job", &E::AFTER.replace(":then", ":now").replace(":secs", "60"));
    shedlock(&service, "over", &E::AFTER.replace(":then", ":now").replace(":secs", "-1"));
    shedlock(&service, "stuck", ":later");
    let holds = |service: &DatabaseService<E>| {
        let seen = look_at_all(service, &["status", "-k", "a/job"]);
        let holder = &seen["holder"];
        assert_eq!((&holder["kind"], &holder["text"]), (&"foreign".into(), &"web1".into()), "{seen}");
        assert!(holder["ttl_left_ms"].as_u64().is_some_and(|left| (1..=60_000).contains(&left)), "{seen}");
        assert!(holder["held_ms"].as_u64().is_some_and(|held| (65_000..125_000).contains(&held)), "{seen}");
        assert_eq!(look_at_all(service, &["status", "-k", "over"])["state"], "free");
        assert_eq!(names(&look_at_all(service, &["list"])), ["a/job", "stuck"]);
        assert_eq!(names(&look_at_all(service, &["list", "a/"])), ["a/job"]);
        assert_eq!(names(&look_at_all(service, &["list", "st"])), ["stuck"]);
    };
    holds(&service);
    let tables = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME LIKE 'dlock%'";
    assert_eq!(service.value(tables).as_deref(), Some("0"), "looking makes no tables");
    // And next to locks of dlock, which are in a namespace of their own.
    let holder = service.hold("job");
    assert_eq!(status(&service, "job")["holder"]["pid"], holder.pid());
    assert_eq!(names(&list(&service, &[])), ["job"]);
    assert_eq!(names(&look_at_all(&service, &["list"])), ["a/job", "dlock:job", "stuck"]);
    holder.let_go().success();
    holds(&service);
}

fn a_table_of_another_name_has_its_own_locks<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let url = format!("{}?table=other", service.url());
    let holder = hold_at(&service, &url);
    assert_eq!(status(&service, "job")["state"], "free");
    let outcome = service.scratch().dlock().args(["status", "--json", "-k", "job"]).backend(&url).output();
    outcome.code(75).quiet();
    assert_eq!(read(&outcome)["holder"]["pid"], holder.pid());
    holder.let_go().success();
}

fn a_minimum_hold_is_told_while_it_runs<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    for mode in [&[][..], &["-s"]] {
        let run = service.run("job").args(mode).args(["--min-hold", "90s", "-t", "30s"]);
        let holder = Gated::spawn(service.scratch(), run);
        holder.wait_held();
        let seen = status(&service, "job");
        assert!(seen["holder"]["kept_until"].is_string(), "{seen}");
        assert!(told(&service, "job", 75).contains(" at least (--min-hold)\n"));
        drop(holder);
        for table in ["shedlock", "dlock_holder", "dlock_member"] {
            service.sql(&format!("TRUNCATE TABLE {table}"));
        }
    }
}

fn what_others_write_into_the_tables_spoils_nothing_but_itself<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let holder = service.hold("job");
    shedlock(&service, "dlock:foreign", &E::AFTER.replace(":then", ":now").replace(":secs", "60"));
    service.sql(
        "INSERT INTO dlock_holder (name, owner, token, ttl_ms, about) VALUES ('dlock:foreign', 'web1', -7, -5, 'x')",
    );
    service.sql("INSERT INTO shedlock VALUES ('dlock:many', :later, :now, 'dlock:slots5')");
    let last = if E::KIND == "mysql" { "'9999-12-31 23:59:59'" } else { "'infinity'" };
    let first = if E::KIND == "mysql" { "'1000-01-01 00:00:00'" } else { "'-infinity'" };
    service.sql(&format!(
        "INSERT INTO dlock_member (name, owner, mode, slot, token, since, until, ttl_ms, hold_ms, done, about) \
         VALUES ('dlock:many', 'x', 'slots5', -1, -1, {first}, {last}, -1, -1, 1 = 0, '{{')"
    ));
    service.sql(&format!(
        "INSERT INTO dlock_queue (name, owner, mode, alive_until, since, about) VALUES ('dlock:job', 'x', 'y', {}, {first}, '')",
        E::AFTER.replace(":then", ":now").replace(":secs", "25")
    ));
    let locks = list(&service, &[]);
    assert_eq!(names(&locks), ["foreign", "job", "many"], "{locks}");
    let seen = status(&service, "job");
    assert_eq!((&seen["holder"]["pid"], &seen["queue"][0]["mode"]), (&holder.pid().into(), &Value::Null), "{seen}");
    assert_eq!(status(&service, "foreign")["holder"]["text"], "web1");
    let many = status(&service, "many");
    let member = &many["holder"];
    assert_eq!(
        (&many["held_by"], &member["slot"], &member["since"]),
        (&1.into(), &Value::Null, &Value::Null),
        "{many}"
    );
    service.sql("DELETE FROM dlock_queue");
    holder.let_go().success();
}

/// The numbers below this one, in a table `numbers`.
fn number<E: Engine>(service: &DatabaseService<E>, end: u32) {
    service.sql("CREATE TABLE numbers (i INT NOT NULL PRIMARY KEY)");
    let values: Vec<String> = (0..end).map(|i| format!("({i})")).collect();
    service.sql(&format!("INSERT INTO numbers VALUES {}", values.join(",")));
}

fn a_thousand_locks_are_read_by_a_few_statements<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.run("first").command(["true"]).output().success();
    number(&service, 12_000);
    let padded = "CONCAT('dlock:', LPAD(CAST(i + 1 AS CHAR(5)), 5, '0'))";
    service.sql(&format!("INSERT INTO shedlock SELECT {padded}, :later, :now, 'web1' FROM numbers"));
    let outcome = look(&service, &["list", "--json"]).output();
    outcome.code(0).stderr_is_one_line("1000 of 12000 locks shown; --limit 0 shows all");
    assert!(outcome.elapsed() < Duration::from_secs(10), "{outcome:?}");
    let document = read(&outcome);
    let first: Vec<&str> = names(&document);
    assert_eq!((first.len(), first[0], first[999], &document["total"]), (1000, "00001", "01000", &12_000.into()));
    assert_eq!(names(&list(&service, &["--limit", "0"])).len(), 12_000);
    assert_eq!(names(&list(&service, &["1199"])).len(), 10);
}

/// What does not fit into an answer is left out, and nobody is.
fn long_texts_of_a_crowd_are_read_as_far_as_there_is_room<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let holder = service.hold("job");
    number(&service, 1500);
    // What dlock publishes has no more than four kilobytes.
    let reason = "r".repeat(3000);
    let about = format!(r#"{{"host":"h","user":"u","pid":7,"program":"x","reason":"{reason}"}}"#);
    let id = "LPAD(CAST(i AS CHAR(5)), 32, '0')";
    service.sql(&format!(
        "INSERT INTO dlock_queue (name, owner, mode, alive_until, since, about) \
         SELECT 'dlock:job', {id}, 'exclusive', {}, :now, '{about}' FROM numbers ORDER BY i",
        E::AFTER.replace(":then", ":now").replace(":secs", "25")
    ));
    service.sql(&format!(
        "INSERT INTO dlock_member (name, owner, mode, slot, token, since, until, ttl_ms, hold_ms, done, about) \
         SELECT 'dlock:many', {id}, 'shared', NULL, i + 1, :now, :later, 30000, 0, 1 = 0, '{about}' FROM numbers"
    ));
    service.sql("INSERT INTO shedlock VALUES ('dlock:many', :later, :now, 'dlock:shared')");
    let told = |key: &str, parties: &str, count: &str| {
        let seen = status(&service, key);
        let parties = seen[parties].as_array().unwrap();
        let long = parties.iter().filter(|one| one["reason"] == reason.as_str()).count();
        assert_eq!((parties.len(), &seen[count]), (1000, &1500.into()), "{key}");
        assert!((100..200).contains(&long) && parties[0]["reason"] == reason.as_str(), "{key}: {long}");
    };
    told("job", "queue", "waiting");
    told("many", "holders", "held_by");
    let list = list(&service, &[]);
    assert_eq!(names(&list), ["job", "many"]);
    assert_eq!((&list["locks"][0]["waiting"], &list["locks"][1]["held_by"]), (&1500.into(), &1500.into()));
    service.sql("DELETE FROM dlock_queue");
    holder.let_go().success();
}

fn a_server_works_no_longer_on_a_look_than_it_is_waited_for<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::TABLE);
    shedlock(&service, "dlock:job", ":later");
    let works =
        if E::KIND == "mysql" { "BENCHMARK(1000000000, SHA2('x', 512)) = 0" } else { "pg_sleep(300) IS NOT NULL" };
    service.sql(&format!("CREATE VIEW slow AS SELECT * FROM shedlock WHERE {works}"));
    for words in [&["status", "-k", "job"][..], &["list"]] {
        let url = format!("{}?table=slow&trust-table", service.url());
        let outcome = service.scratch().dlock().args(words).backend(&url).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("cannot read ");
        assert!(outcome.elapsed() < Duration::from_secs(10), "{outcome:?}");
        eventually("the server to stop", || service.connections().is_empty().then_some(()));
    }
}

#[test]
fn a_lock_without_an_end_never_expires() {
    let service = PostgresService::fresh();
    service.sql(PostgreSql::TABLE);
    shedlock(&service, "stuck", "'infinity'");
    let stuck = look_at_all(&service, &["status", "-k", "stuck"]);
    assert_eq!((&stuck["holder"]["ttl_left_ms"], &stuck["holder"]["expires"]), (&Value::Null, &false.into()));
    assert_eq!(names(&look_at_all(&service, &["list"])), ["stuck"]);
}

/// Its row has to stay, because its tokens depend on it.
#[test]
fn a_lock_that_never_expires_is_freed_by_an_update() {
    let service = PostgresService::fresh();
    service.sql(PostgreSql::TABLE);
    shedlock(&service, "dlock:job", "'infinity'");
    shedlock(&service, "dlock:it''s", "'infinity'");
    for key in ["job", "it's"] {
        let text = told(&service, key, 75);
        let (_, statement) = text.split_once("if its owner is gone, free it by ").unwrap();
        assert!(statement.starts_with("UPDATE ") && !text.contains("delete"), "{text}");
        service.sql(statement.lines().next().unwrap());
        assert_eq!(status(&service, key)["state"], "free");
    }
}

#[test]
fn names_that_a_table_takes_for_one_are_one_lock() {
    let service = MysqlService::fresh();
    service.sql(&(MariaDb::TABLE.to_owned() + " CHARACTER SET latin1"));
    let holder = service.hold("Job");
    let waiter = service.queue_up("Job", &["-q"]);
    for key in ["Job", "job"] {
        let seen = status(&service, key);
        assert_eq!((&seen["key"], &seen["place"]), (&key.into(), &"dlock:Job".into()), "{seen}");
        assert_eq!((&seen["holder"]["pid"], &seen["queue"][0]["pid"]), (&holder.pid().into(), &waiter.pid().into()));
    }
    assert_eq!(names(&list(&service, &["J"])), ["Job"]);
    assert_eq!(names(&list(&service, &["j"])), Vec::<&str>::new());
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
}

#[test]
fn the_primary_is_looked_at_wherever_it_is_named() {
    let service = PostgresService::fresh();
    let holder = service.hold("job");
    let standby = Postgres::standby_of(&service);
    let url = |ports: &[u16]| {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("postgres://postgres@{}/postgres", hosts.join(","))
    };
    // What the standby says may be old.
    assert_primary(&service, &url(&[standby.port(), service.port()]), &url(&[standby.port()]), holder.pid());
    holder.let_go().success();
}

#[test]
fn of_several_servers_of_mysql_the_one_that_takes_writes_is_looked_at() {
    let service = MysqlService::fresh();
    let holder = service.hold("job");
    let replica = Mysql::with(&["read_only=ON"]);
    let both = format!("mysql://dlock@127.0.0.1:{},127.0.0.1:{}/locks", replica.port(), service.port());
    assert_primary(&service, &both, &replica.url(), holder.pid());
    holder.let_go().success();
}

/// Asserts that the holder with this pid is seen at `both`, and that the server at `standby` alone is refused.
#[track_caller]
fn assert_primary<S: Service>(service: &S, both: &str, standby: &str, pid: i32) {
    let look = |url: &str| service.scratch().dlock().args(["status", "--json", "-k", "job"]).backend(url).output();
    let outcome = look(both);
    outcome.code(75).quiet();
    assert_eq!(read(&outcome)["holder"]["pid"], pid);
    look(standby).code(69).stderr_is_one_line("is a standby, or read-only: name the primary");
}
