//! Others who may create in the same database: views and triggers in the way of the tables.

use crate::support::database_services::MysqlService;
use crate::support::service::Service;

/// Who looks at a view calls its functions, as the one who looks.
#[test]
fn a_view_in_place_of_a_table_is_never_read() {
    let service = MysqlService::fresh();
    service.sql(
        "CREATE FUNCTION locks.bait() RETURNS TEXT NO SQL SQL SECURITY INVOKER RETURN EXTRACTVALUE(1, CONCAT('~', 'hijacked'))",
    );
    service.sql("CREATE SQL SECURITY INVOKER VIEW locks.shedlock AS SELECT 'dlock:job' AS name, locks.bait() AS lock_until, 1 AS locked_at, 'x' AS locked_by");
    let url = service.url();
    for words in [&["run", "-k", "job", "--", "true"][..], &["status", "-k", "job"], &["list"], &["check"]] {
        let refused = service.scratch().dlock().env("DLOCK_BACKEND", &url).args(words).output();
        refused.code(69);
        let told = format!("{}{}", refused.stdout(), refused.stderr());
        assert!(told.contains("locks.shedlock is a view") && !told.contains("hijacked"), "{told}");
    }
}

#[test]
fn a_table_with_a_trigger_is_refused_unless_the_url_trusts_it() {
    let service = MysqlService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql(
        "CREATE TRIGGER locks.swallow BEFORE UPDATE ON locks.shedlock FOR EACH ROW SET NEW.locked_by = OLD.locked_by",
    );
    let run = |query: &str| {
        let url = format!("{}{query}", service.url());
        service.scratch().dlock().run("job").arg("-n").backend(url).command(["true"]).output()
    };
    run("").code(69).stderr_is_one_line("the table locks.shedlock has a trigger");
    service.sql("DROP TRIGGER locks.swallow; CREATE TRIGGER locks.audit AFTER UPDATE ON locks.shedlock FOR EACH ROW SET @seen = 1");
    run("?trust-table").success();
}
