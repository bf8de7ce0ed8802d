//! Breaking locks in a database: ShedLock's, requests that are left over, and the rights that it takes.

use crate::locks::breaking::{break_it, holder, owner, wait_renewed};
use crate::locks::looking::rights::viewer;
use crate::locks::looking::status;
use crate::services::databases::on_databases;
use crate::support::database_services::DatabaseService;
use crate::support::databases::{Engine, Session};
use crate::support::service::{Gated, Service};

on_databases! {
    a_lock_of_shedlock_is_taken_while_it_is_the_same_grant
    a_request_that_is_left_over_is_ignored_and_goes_with_the_next_grant
    whoever_may_change_what_holders_publish_can_ask
    a_break_does_not_wait_for_the_table_of_its_record
}

/// How the sentence begins about a break that is not recorded.
const UNTRACED: &str = "dlock: could not record this break of 'job', so dlock status will not show it: ";

const NOBODY: &str = "0123456789abcdef0123456789abcdef";

fn a_lock_of_shedlock_is_taken_while_it_is_the_same_grant<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.run("other").command(["true"]).output().success();
    service.sql("INSERT INTO shedlock VALUES ('dlock:job', :later, :now, 'web1')");
    let id = owner(&service);
    let refused = break_it(&service, &id, &[]);
    refused.code(75).stderr_is_one_line(
        "cannot be asked, it is another program: nothing was done; --now takes the lock away at once",
    );
    service.sql("UPDATE shedlock SET locked_by = 'web2' WHERE name = 'dlock:job'");
    break_it(&service, &id, &["--now"]).code(79).stderr_is_one_line("nothing was done");
    service.assert_held("job");
    let taken = break_it(&service, &owner(&service), &["--now"]);
    taken.code(0).stderr_is_one_line("took 'job' away from another program: web2; whether it notices is not known");
    // Its row stays, as ShedLock needs it.
    assert_eq!(service.value("SELECT locked_by FROM shedlock WHERE name = 'dlock:job'").as_deref(), Some("web2"));
    service.run("job").arg("-n").command(["true"]).output().success();
}

fn a_request_that_is_left_over_is_ignored_and_goes_with_the_next_grant<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let first = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    first.wait_held();
    for request in [&format!(r#"{{"v":1,"stop":"{NOBODY}","by":"a@b","at":1}}"#), "x"] {
        service.sql(&format!("UPDATE dlock_holder SET ask = '{request}' WHERE name = 'dlock:job'"));
        wait_renewed(&service);
        wait_renewed(&service);
        assert_eq!(holder(&service)["asked"], serde_json::Value::Null);
    }
    assert!(first.running.is_running());
    first.let_go().success();
    let next = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    next.wait_held();
    assert_eq!(service.count("SELECT COUNT(*) FROM dlock_holder WHERE ask IS NOT NULL"), 0);
    break_it(&service, &owner(&service), &[]).code(0).stderr_ends_with_line("'job' was released after ");
    next.running.wait().code(79).stderr_is_one_line("asked it to stop");
}

fn whoever_may_change_what_holders_publish_can_ask<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let first = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    first.wait_held();
    let (user, tables) = match E::KIND {
        "postgres" => ("viewer", ""),
        _ => ("viewer@'%'", "locks."),
    };
    service.sql(match E::KIND {
        "postgres" => "CREATE ROLE viewer LOGIN PASSWORD 'secret'",
        _ => "CREATE USER viewer@'%' IDENTIFIED BY 'secret'",
    });
    let grant = |right: &str, table: &str| service.sql(&format!("GRANT {right} ON {tables}{table} TO {user}"));
    for table in ["shedlock", "dlock_holder", "dlock_member", "dlock_queue"] {
        grant("SELECT", table);
    }
    let breaking = |words: &[&str]| {
        let id = owner(&service);
        let words = [&["break", "--key", "job", "--owner", &id], words].concat();
        viewer(&service, E::KIND, &words).output()
    };
    breaking(&[]).code(77).stderr_is_one_line("viewer lacks a right: ");
    grant("UPDATE", "dlock_holder");
    let asked = breaking(&[]);
    asked.code(0).stderr_ends_with_line("'job' was released after ");
    assert!(asked.stderr().starts_with(UNTRACED), "{asked:?}");
    first.running.wait().code(79).stderr_is_one_line("asked it to stop");
    let next = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    next.wait_held();
    breaking(&["--now"]).code(77).stderr_is_one_line("viewer lacks a right: ");
    assert!(next.running.is_running());
    grant("UPDATE", "shedlock");
    let taken = breaking(&["--now"]);
    taken.code(0).stderr_ends_with_line("took 'job' away from ");
    assert!(taken.stderr().starts_with(UNTRACED), "{taken:?}");
    next.running.wait().code(79).stderr_is_one_line("lost 'job' at ");
    assert_eq!(status(&service, "job")["last_break"], serde_json::Value::Null);
    grant("SELECT, INSERT, UPDATE", "dlock_once");
    let last = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
    last.wait_held();
    breaking(&["--now"]).code(0).stderr_is_one_line("took 'job' away from ");
    last.running.wait().code(79).stderr_ends_with_line(" was taken away by ");
    assert_eq!(status(&service, "job")["last_break"]["taken"], true);
}

fn a_break_does_not_wait_for_the_table_of_its_record<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    for words in [&[][..], &["--now"]] {
        let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "3s"]));
        holder.wait_held();
        let mut other = service.client();
        let lock = E::OBSTACLES.last().expect("one that locks a table").replace("shedlock", "dlock_once");
        other.query(&format!("BEGIN; {lock}")).unwrap();
        let broken = break_it(&service, &owner(&service), words);
        assert!(broken.code(0).stderr().starts_with(UNTRACED), "{broken:?}");
        assert_eq!(holder.running.wait().code(79).stderr().matches("lost 'job' at ").count(), 1);
        other.query(E::END).unwrap();
        assert_eq!(status(&service, "job")["last_break"], serde_json::Value::Null);
    }
}
