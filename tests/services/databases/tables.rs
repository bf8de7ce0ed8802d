//! The tables: who makes them, who may use them, and what is said of one that would not keep locks.

use std::process::Command;

use crate::support::database_services::DatabaseService;
use crate::support::databases::Engine;
use crate::support::dlock::DLOCK;
use crate::support::service::{Gated, Service};

use super::on_databases;

on_databases! {
    twenty_at_once_make_them_together
    what_an_administrator_is_told_to_run_is_enough
    a_table_of_another_name_is_made_where_the_url_names_it
    what_generate_prints_is_enough
    a_role_without_rights_to_the_tables_is_told_so
    a_table_of_another_kind_is_refused
    another_table_has_locks_of_its_own
    names_that_are_too_long_for_the_column_are_told_apart
    a_damaged_token_is_refused_with_what_mends_it
}

/// Runs alone, and hands the lock over.
fn assert_works<E: Engine>(service: &DatabaseService<E>, url: &str) {
    let run = || service.scratch().dlock().run("job").backend(url);
    run().command(["echo", "ran"]).output().success().stdout_is("ran\n");
    let holder = Gated::spawn(service.scratch(), run().args(["-t", "1s"]));
    holder.wait_held();
    let waiter = Gated::spawn(service.scratch(), run().arg("-q"));
    service.wait_queued("job", 1);
    holder.let_go().success();
    waiter.wait_held();
    waiter.let_go().success();
    let meets = |rest: &[&str]| service.scratch().dlock().args(rest).backend(url).output();
    meets(&["latch", "-k", "job", "down", "--as", "a"]).success();
    meets(&["latch", "-k", "job", "wait", "--count", "1"]).success();
    meets(&["latch", "-k", "job", "forget"]).success();
    meets(&["barrier", "-k", "job", "--parties", "1"]).success();
}

/// Makes a run that must be refused by code 69 for this reason, and what it says that mends it.
#[track_caller]
pub fn refused_and_mended<E: Engine>(service: &DatabaseService<E>, options: &[&str], what: &str) {
    let run = || service.run("job").args(options);
    let refused = run().command(["echo", "ran"]).output();
    refused.code(69).stdout_is("").stderr_is_one_line(what);
    let told = refused.stderr();
    let (_, remedy) = told.trim_end().split_once("mend it by: ").unwrap();
    service.sql(remedy);
    run().command(["true"]).output().success();
}

fn twenty_at_once_make_them_together<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let all: Vec<_> = (0..20).map(|number| service.run(&format!("job{number}")).command(["true"]).spawn()).collect();
    for dlock in all {
        dlock.wait().success();
    }
    assert!(["shedlock", "dlock_holder", "dlock_queue"].into_iter().all(|table| service.has(table)));
}

fn what_an_administrator_is_told_to_run_is_enough<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::MAKE_APP);
    let url = service.url_for("app", "");
    is_told_what_to_run(&service, &url);
    assert_works(&service, &url);
    // No more than that.
    let may = |right: &str, table: &str| {
        service.value(&E::MAY.replace(":right", right).replace(":table", table)).is_some_and(|may| may == "1")
    };
    assert!(may("UPDATE", "shedlock") && may("DELETE", "dlock_queue"));
    assert!(!may("DELETE", "shedlock") && !may("DELETE", "dlock_holder"));
}

fn a_table_of_another_name_is_made_where_the_url_names_it<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::MAKE_APP);
    let url = format!("{}?table=jobs", service.url_for("app", ""));
    is_told_what_to_run(&service, &url);
    let run = || service.scratch().dlock().run("job").backend(&url);
    run().command(["true"]).output().success();
    assert!(service.has("jobs") && !service.has("shedlock"));
    // A variable counts where it names such a backend.
    let generate =
        |url: &str| Command::new(*DLOCK).args(["generate", E::KIND]).env("DLOCK_BACKEND", url).output().unwrap();
    let printed = |url: &str| String::from_utf8(generate(url).stdout).unwrap();
    assert!(printed(&url).contains("jobs") && printed(&url).contains("app"));
    assert!(printed("redis://h").contains("shedlock") && printed("redis://h").contains("dlock"));
    assert_eq!(generate("mysql:").status.code(), Some(64));
}

/// Asserts that a run at `url` is refused, and has an administrator run what that prints.
#[track_caller]
fn is_told_what_to_run<E: Engine>(service: &DatabaseService<E>, url: &str) {
    let refused = service.scratch().dlock().run("job").backend(url).command(["echo", "ran"]).output();
    refused.code(73).stdout_is("").stderr_is_one_line("have an administrator run: dlock generate ");
    let told = refused.stderr();
    let (_, command) = told.trim_end().split_once("administrator run: dlock ").unwrap();
    let (arguments, client) = command.split_once(" | ").unwrap();
    assert!(client.contains(&format!(" {} {}", service.port(), E::DATABASE)), "{client}");
    let output = Command::new("/bin/sh").args(["-c", &format!("'{}' {arguments}", *DLOCK)]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    service.sql(E::STRIP_APP);
    service.sql(std::str::from_utf8(&output.stdout).unwrap());
}

fn what_generate_prints_is_enough<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let output = Command::new(*DLOCK).args(["generate", E::KIND]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    service.sql(E::MAKE_DLOCK);
    service.sql(std::str::from_utf8(&output.stdout).unwrap());
    assert_works(&service, &service.url_for("dlock", ""));
}

fn a_role_without_rights_to_the_tables_is_told_so<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql(E::MAKE_APP);
    service.sql(E::STRIP_APP);
    let refused = service.scratch().dlock().run("job").backend(service.url_for("app", "")).command(["echo", "ran"]);
    refused.output().code(77).stdout_is("").stderr_is_one_line(" app lacks a right: ");
}

fn a_table_of_another_kind_is_refused<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql("CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until bigint NOT NULL)");
    let refused = service.run("job").command(["echo", "ran"]).output();
    refused.code(69).stdout_is("").stderr_is_one_line("?table=");
}

fn another_table_has_locks_of_its_own<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::MAKE_OWN);
    let url = format!("{}?table=own.locks", service.url());
    let holder = service.hold("job");
    let other = || service.scratch().dlock().run("job").backend(&url);
    other().arg("-n").command(["true"]).output().success();
    assert_eq!(service.count("SELECT count(*) FROM own.locks"), 1);
    assert_eq!(service.count("SELECT count(*) FROM own.locks_dlock_holder"), 1);
    holder.let_go().success();
}

fn names_that_are_too_long_for_the_column_are_told_apart<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let long = "ü".repeat(100);
    let (one, other) = (format!("{long}a"), format!("{long}b"));
    let holder = service.hold(&one);
    service.assert_free(&other);
    service.assert_held(&one);
    holder.let_go().success();
    assert_eq!(service.count("SELECT max(char_length(name)) FROM shedlock"), 64);
}

fn a_damaged_token_is_refused_with_what_mends_it<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql("UPDATE dlock_holder SET token = 9007199254740990");
    refused_and_mended(&service, &[], "the last token 9007199254740990 is more than a year ahead");
}
