//! What is said of tables that would not keep locks, and of collations that take two names for one.

use crate::services::databases::tables::refused_and_mended;
use crate::support::database_services::MysqlService;
use crate::support::service::{Gated, Service};

#[test]
fn a_table_that_would_not_keep_locks_is_refused_with_what_mends_it() {
    let service = MysqlService::fresh();
    service.run("job").command(["true"]).output().success();
    for (change, what) in [
        ("ALTER TABLE shedlock MODIFY lock_until DATETIME NOT NULL", "lock_until of locks.shedlock is a datetime 0"),
        ("ALTER TABLE shedlock ENGINE=MyISAM", "has the engine MyISAM, which has no transactions"),
        ("ALTER TABLE shedlock DROP PRIMARY KEY", "shedlock may have several rows for one lock"),
        ("ALTER TABLE dlock_member MODIFY until DATETIME NOT NULL", "until of dlock_member does not keep milliseconds"),
        ("ALTER TABLE dlock_member ENGINE=MyISAM", "the table dlock_member has an engine without transactions"),
    ] {
        service.sql(change);
        refused_and_mended(&service, &[], what);
    }
}

/// By its collation, the table takes names for one that differ in case: then they are one lock, for all programs.
#[test]
fn a_collation_that_takes_two_names_for_one_is_warned_of() {
    let service = MysqlService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql("ALTER TABLE shedlock CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
    for mode in ["-x", "-s", "--slots=2"] {
        let holder = Gated::spawn(service.scratch(), service.run("job").arg(mode));
        holder.wait_held();
        let refused = service.run("JOB").arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_ends_with_line("did not get 'JOB': ");
        let warning = "takes the names dlock:JOB and dlock:job for one lock";
        assert!(refused.stderr().contains(warning), "{refused:?}");
        holder.let_go().success();
        let warned = service.run("JOB").args(["-n", mode]).command(["true"]).output();
        assert!(warned.status().success(), "{warned:?}");
        warned.stderr_is_one_line(warning);
    }
}

/// The second of them would wait for the first.
#[test]
fn two_keys_of_one_run_that_are_one_lock_are_refused() {
    let service = MysqlService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql("ALTER TABLE shedlock CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
    for mode in ["-x", "-s"] {
        let refused =
            service.run("job").args(["--key", "other", "--key", "JOB", mode]).command(["echo", "ran"]).output();
        refused
            .code(64)
            .stdout_is("")
            .stderr_ends_with_line("'JOB' and 'job' are one lock there: give one of these keys");
        service.run("job").args(["--key", "other", "-n"]).command(["true"]).output().success();
    }
}

/// Whatever the server's settings say of quotes, lengths and texts.
#[test]
fn settings_of_the_server_do_not_matter() {
    let settings =
        ["sql-mode=ANSI,NO_BACKSLASH_ESCAPES", "character-set-server=latin1", "transaction-isolation=SERIALIZABLE"];
    let service = MysqlService::on(crate::support::mysql::Mysql::with(&settings));
    for key in ["it's \\ \"a\"", "job ", "j\u{1f512}b", &"x".repeat(65)] {
        let holder = Gated::spawn(service.scratch(), service.run(key).args(["--reason", "it's \\ \u{1f512}"]));
        holder.wait_held();
        let refused = service.run(key).arg("-n").command(["echo", "overlap"]).output();
        refused.code(75).stdout_is("").stderr_is_one_line("it's \\ \u{1f512}");
        holder.let_go().success();
    }
}

/// A database may have thousands of them.
#[test]
fn the_tables_of_others_are_not_opened() {
    let service = MysqlService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql("CREATE TABLE other (a INT); FLUSH TABLES");
    service.run("job").command(["true"]).output().success();
    let opened = service.sql("SHOW OPEN TABLES FROM locks");
    let is_open = |table: &str| opened.iter().any(|row| row[1] == table);
    assert!(is_open("shedlock") && !is_open("other"), "{opened:?}");
}
