//! Others who may create in the same database: what they prepare there is never called, and nobody is sent to locks of theirs.

use crate::cli::checking::Found;
use crate::support::database_services::PostgresService;
use crate::support::dlock::Dlock;
use crate::support::postgres::neighbours::{bait, trap};
use crate::support::service::Service;

/// Makes the role `mallory`, who may create in `public` as everybody may before PostgreSQL 15, and the role `dlock`.
const NEIGHBOURS: &str = "CREATE ROLE mallory LOGIN; CREATE ROLE dlock LOGIN; GRANT CREATE ON SCHEMA public TO public";
/// What whoever calls something of theirs does.
const FAILS: &str = "RAISE EXCEPTION 'hijacked %', current_user";
const USES: &str = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO dlock";

/// Has the role `mallory` do this.
#[track_caller]
fn by_mallory(service: &PostgresService, sql: &str) {
    service.sql(&format!("SET SESSION AUTHORIZATION mallory; {sql}; RESET SESSION AUTHORIZATION"));
}

fn dlock(service: &PostgresService, url: &str, words: &[&str]) -> Dlock {
    service.scratch().dlock().args(words).backend(url)
}

/// Each verb of those who use the locks at this URL, in a namespace of its own: a period lasts longer than the test.
#[track_caller]
fn every_verb_works(service: &PostgresService, namespace: &str, url: &str) {
    let dlock = |service, url, words: &[&str]| dlock(service, url, words).env("DLOCK_NAMESPACE", namespace);
    let done = |words: &[&str], code: i32| {
        let outcome = dlock(service, url, words).output();
        assert!(!format!("{outcome:?}").contains("hijacked"), "{words:?}: {outcome:?}");
        outcome.stderr();
        outcome.code(code).stdout()
    };
    let run =
        |options: &[&str]| dlock(service, url, &[&["run", "-k", "job"], options].concat()).command(["true"]).output();
    for options in [&[][..], &["-s"], &["--slots", "2"], &["--once-per", "1s"], &["--min-hold", "1ms"]] {
        run(options).success();
    }
    let handle = done(&["acquire", "-k", "kept", "--ttl", "1m"], 0);
    let waiter = dlock(service, url, &["run", "-qk", "kept", "-w", "0.1"]).command(["true"]).output();
    waiter.code(75).quiet();
    let status: serde_json::Value = serde_json::from_str(&done(&["status", "-k", "kept", "--json"], 75)).unwrap();
    done(&["status", "-k", "kept"], 75);
    assert!(done(&["list"], 0).contains("kept"));
    let with_handle = |verb| service.scratch().dlock().args([verb, handle.trim()]).output();
    with_handle("renew").code(0).stderr();
    let owner = status["holder"]["id"].as_str().unwrap();
    done(&["break", "-k", "kept", "--owner", owner, "--now"], 0);
    assert!(!with_handle("release").stderr().contains("hijacked"));
    assert!(!done(&["check"], 0).contains("fail"));
}

#[test]
fn what_a_neighbour_makes_in_the_path_is_never_called() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql(&format!("{NEIGHBOURS}; {USES}"));
    by_mallory(&service, &bait("public", FAILS));
    every_verb_works(&service, "1", &service.url_for("dlock", ""));
    every_verb_works(&service, "2", &service.url());
    // Also where the path has others before the server's own.
    service.sql("ALTER DATABASE postgres SET search_path = public, pg_catalog");
    every_verb_works(&service, "3", &service.url_for("dlock", ""));
    every_verb_works(&service, "4", &service.url());
}

/// As dlock's role and as a superuser, who would run the trigger, or what a view calls, with all rights.
#[test]
fn a_table_that_a_neighbour_has_prepared_is_refused() {
    let service = PostgresService::fresh();
    service.sql(NEIGHBOURS);
    by_mallory(&service, &trap("public", FAILS));
    let refused = |what: &str| {
        for url in [service.url(), service.url_for("dlock", "")] {
            for words in [&["run", "-k", "job", "--", "touch", "ran"][..], &["status", "-k", "job"], &["list"]] {
                let outcome = service.scratch().dlock().env("DLOCK_BACKEND", &url).args(words).output();
                outcome.code(69).stdout_is("").stderr_is_one_line(what);
                outcome.stderr_is_one_line("?table=SCHEMA.NAME");
            }
            Found::at(service.scratch(), &url, &[], 69).has("fail", "lock", what);
        }
    };
    refused("the table public.shedlock is of the role mallory");
    // A member of the role is not a friend: in old versions everybody can make others members of his role.
    service.sql("GRANT mallory TO dlock");
    refused("the table public.shedlock is of the role mallory");
    service.sql(
        "SET SESSION AUTHORIZATION mallory; DROP TABLE public.shedlock; CREATE VIEW public.shedlock AS
         SELECT 'dlock:job'::varchar AS name, 1/0 AS lock_until; GRANT ALL ON public.shedlock TO public; RESET SESSION AUTHORIZATION",
    );
    refused("public.shedlock is a view");
    assert!(!service.scratch().path("ran").exists());
    // A schema that the URL names is trusted with its owner, and a table as it is where the URL says so.
    service.sql(
        "DROP VIEW public.shedlock; CREATE SCHEMA migrations AUTHORIZATION mallory; GRANT ALL ON SCHEMA migrations TO dlock;
         SET SESSION AUTHORIZATION mallory; CREATE TABLE migrations.shedlock (name varchar(64) PRIMARY KEY,
         lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL);
         GRANT ALL ON migrations.shedlock TO dlock; RESET SESSION AUTHORIZATION; ALTER ROLE dlock SET search_path = migrations",
    );
    let url = service.url_for("dlock", "");
    let run = |query: &str| dlock(&service, &format!("{url}{query}"), &["run", "-k", "job"]).command(["true"]).output();
    run("").code(69).stderr_is_one_line("the table migrations.shedlock is of the role mallory");
    run("?table=migrations.shedlock").success().quiet();
    run("?trust-table").success();
}

#[test]
fn a_table_with_triggers_or_rules_is_refused_unless_the_url_trusts_it() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    let url = service.url();
    let run =
        |query: &str| dlock(&service, &format!("{url}{query}"), &["run", "-nk", "job"]).command(["true"]).output();
    service.sql(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER swallow BEFORE UPDATE ON shedlock FOR EACH ROW EXECUTE FUNCTION swallow()",
    );
    run("").code(69).stderr_is_one_line("the table public.shedlock has a trigger");
    service.sql("ALTER TABLE shedlock DISABLE TRIGGER swallow");
    run("").success().quiet();
    service.sql("DROP TRIGGER swallow ON shedlock; CREATE RULE swallow AS ON DELETE TO dlock_queue DO ALSO NOTHING");
    run("").code(69).stderr_is_one_line("the table public.dlock_queue has a rule");
    run("?trust-table").success();
}

/// The pattern of one schema for each user, as PostgreSQL's manual has it.
#[test]
fn two_roles_with_schemas_of_their_own_are_not_taken_for_one() {
    let service = PostgresService::fresh();
    service.sql(
        "CREATE ROLE r1 LOGIN; CREATE ROLE r2 LOGIN; CREATE SCHEMA AUTHORIZATION r1; CREATE SCHEMA AUTHORIZATION r2",
    );
    let run = |role: &str, query: &str| {
        dlock(&service, &format!("{}{query}", service.url_for(role, "")), &["run", "-vk", "job"])
            .command(["true"])
            .output()
    };
    let refused = run("r1", "");
    refused.code(73).stderr_is_one_line("would be made as r1.shedlock in a schema of this role alone");
    refused.stderr_is_one_line("?table=r1.shedlock");
    for role in ["r1", "r2"] {
        let named = run(role, &format!("?table={role}.shedlock"));
        named.code(0);
        assert!(!named.stderr().contains("other roles"), "{named:?}");
    }
    // Found by the path, it is told which one that is.
    let found = run("r1", "");
    found.code(0);
    assert!(found.stderr().contains("the table r1.shedlock is in the schema of the role r1"), "{found:?}");
    assert!(
        found.stderr().contains("acquired 'job' at ") && found.stderr().contains("(table r1.shedlock)"),
        "{found:?}"
    );
    let url = service.url_for("r2", "");
    let seen = dlock(&service, &url, &["status", "-k", "job"]).output();
    assert!(seen.code(0).stdout().contains("(table r2.shedlock): free"), "{seen:?}");
    let json = dlock(&service, &url, &["status", "-k", "job", "--json"]).output().stdout();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["table"], "r2.shedlock");
    let checked = Found::at(service.scratch(), &url, &[], 0);
    checked.has("ok", "table", "r2.shedlock").has("warn", "table", "in the schema of the role r2");
    let checked = Found::at(service.scratch(), &service.url(), &[], 0);
    checked.has("ok", "table", "public.shedlock").has("warn", "table", "the schema r1 has such a table too");
    // Of two in the path, the first one is used.
    service.sql("ALTER ROLE postgres SET search_path = public, r2");
    let first = dlock(&service, &service.url(), &["run", "-k", "job"]).command(["true"]).output();
    first.code(0).stderr_is_one_line("the schema r2 has such a table too");
}

#[test]
fn row_level_security_that_hides_locks_is_told() {
    let service = PostgresService::fresh();
    let holder = service.hold("job");
    service.sql("CREATE ROLE viewer LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO viewer");
    service.sql("ALTER TABLE shedlock ENABLE ROW LEVEL SECURITY");
    let url = service.url_for("viewer", "");
    for words in [&["list"][..], &["status", "-k", "job"]] {
        let seen = dlock(&service, &url, words).output();
        assert!(seen.stderr().contains("row-level security may hide locks"), "{seen:?}");
    }
    service.sql("CREATE POLICY team ON shedlock FOR SELECT TO viewer USING (name LIKE 'dlock:%')");
    let seen = dlock(&service, &url, &["status", "-k", "job"]).output();
    assert!(seen.code(75).stderr().contains("may hide locks"), "{seen:?}");
    // Whom it does not concern is not told.
    dlock(&service, &service.url(), &["status", "-k", "job"]).output().code(75).quiet();
    holder.let_go().success();
}

/// Where the tables are is asked with the first request, which does not make another one.
#[test]
fn tables_in_the_usual_place_take_no_request_of_their_own() {
    let service = crate::support::database_services::PostgresLoggedService::fresh();
    let run = || _ = service.run("job").command(["true"]).output().success().quiet();
    run();
    let before = service.log().len();
    run();
    let log = service.log().split_off(before);
    assert_eq!(log.matches("LOG:  statement: ").count(), 2, "an attempt and a release: {log}");
    assert!(!log.contains("ERROR"), "{log}");
    let transactions = log.matches("BEGIN").count();
    assert_eq!(log.matches("SET LOCAL search_path = pg_catalog, pg_temp;").count(), transactions, "{log}");
}

#[test]
fn a_server_that_must_let_in_by_scram_may_use_nothing_else() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    let run = |role: &str, query: &str| {
        let url = format!("{}{query}", service.url_for(role, "hush"));
        dlock(&service, &url, &["run", "-k", "job"]).command(["echo", "ran"]).output()
    };
    for (method, role) in [("scram-sha-256", "scram"), ("md5", "digest")] {
        service
            .sql(&format!("SET password_encryption = '{method}'; CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'hush'"));
    }
    for (method, role, is_let_in) in [
        ("scram-sha-256", "scram", true),
        ("md5", "digest", false),
        ("trust", "scram", false),
        ("password", "scram", false),
    ] {
        service.ask_for(method);
        let outcome = run(role, "?auth=scram");
        if is_let_in {
            outcome.success().stdout_is("ran\n");
        } else {
            outcome.code(77).stdout_is("").stderr_is_one_line("auth=scram demands");
        }
    }
    service.ask_for("md5");
    run("digest", "").success();
    run("digest", "?auth=md5").code(64).stderr_is_one_line("auth is scram");
}

/// That latches and barriers cannot be used is no matter of locks.
#[test]
fn a_table_of_records_that_another_role_has_made_is_refused_unless_the_url_trusts_it() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    service.sql("CREATE ROLE mallory; ALTER TABLE dlock_record OWNER TO mallory; CREATE ROLE app LOGIN");
    service.sql("GRANT ALL ON ALL TABLES IN SCHEMA public TO app");
    let dlock = |args: &[&str], more: &str| {
        service.scratch().dlock().args(args).backend(service.url_for("app", "") + more).output()
    };
    let checks = |what: &str| {
        let found = dlock(&["check"], "");
        let found = found.code(0).stderr_is_one_line("1 warning").stdout();
        assert!(found.contains("no latch or barrier can be used: ") && found.contains(what), "{found}");
    };
    let down = ["latch", "-k", "job", "down", "--as", "a"];
    dlock(&down, "").code(69).stderr_is_one_line("the table public.dlock_record is of the role mallory");
    checks("the table public.dlock_record is of the role mallory");
    let run = service.scratch().dlock().run("job").backend(service.url_for("app", ""));
    run.command(["true"]).output().success();
    dlock(&down, "?trust-table").success();
    service.sql("ALTER TABLE dlock_record OWNER TO postgres; REVOKE DELETE ON dlock_record FROM app");
    checks("permission denied for table dlock_record");
}
