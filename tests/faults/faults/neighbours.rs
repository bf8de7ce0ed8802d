//! Others may create in the same database: what they make there, before the locks or while one is held, has the names of what
//! dlock's statements use. Whoever calls something of theirs frees all locks that are held, and leaves a trace that no rollback
//! removes; where nothing may be written, MariaDB ends the statement with an error.

use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};

use fastrand::Rng;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::databases::{Engine, Server, Session};
use crate::support::mysql::MariaDb;
use crate::support::postgres::PostgreSql;
use crate::support::postgres::neighbours::{bait, trap, types, views};
use crate::world::Servers;

/// What earlier episodes have left. The tables are made by others here.
const CLEAR: &str = "DROP TABLE IF EXISTS shedlock, dlock_holder, dlock_member, dlock_queue, dlock_once, dlock_record";

/// What `mallory` does, who may create in the database that has the locks of `dlock`, and no more.
struct Plan {
    /// Makes the two.
    accounts: String,
    /// Puts a table or a view where the table of locks is to be, and what dlock says of it.
    prepared: (String, &'static str),
    /// With what an administrator removes that.
    removed: String,
    /// What is made while the lock is held, each with whether newcomers find a table of locks of hers from then on.
    steps: Vec<(String, bool)>,
}

/// A database with such a neighbour.
trait Shared: Engine {
    /// Lets `dlock` use the tables that an administrator has made.
    const USES: &'static str;
    /// Why an administrator does not use tables that `dlock` has made.
    const OF_DLOCK: Option<&'static str>;
    /// Has `mallory` take everything with her that keeps others away.
    const LEAVES: &'static str;

    fn plan(rng: &mut Rng) -> Plan;

    /// What was called of hers.
    fn called(server: &Server<Self>) -> Vec<String>;
}

pub fn neighbour(episode: &mut Episode<'_>) {
    match &episode.world.servers {
        Servers::Postgres(postgres) => play(episode, postgres),
        Servers::Mysql(mysql) => play(episode, mysql),
        _ => unreachable!("only databases have neighbours"),
    }
}

fn play<E: Shared>(episode: &mut Episode<'_>, server: &Server<E>) {
    let plan = E::plan(&mut episode.rng);
    server.sql(&format!("{CLEAR}; {}", plan.accounts));
    let mut mallory = server.client_as("mallory");
    let make = |sql: &str| _ = mallory.query(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
    // What was called is told also where nothing else can go on then.
    let done = panic::catch_unwind(AssertUnwindSafe(|| contend(episode, server, plan, make)));
    let called = E::called(server);
    if let Some(first) = called.first() {
        episode.violation(Invariant::NoneCalled, format!("{} calls, the first one: {first}", called.len()));
    }
    if let Err(panic) = done {
        panic::resume_unwind(panic);
    }
}

/// A holder and waiters, while others `make` what is planned.
fn contend<E: Shared>(episode: &mut Episode<'_>, server: &Server<E>, plan: Plan, mut make: impl FnMut(&str)) {
    let (own, administrator) = (server.url_for("dlock", ""), server.url());
    episode.backend = Some(own.clone());
    if episode.coin() {
        episode.broken();
        make(&plan.prepared.0);
        others_come(episode, &own, Some(plan.prepared.1));
        others_come(episode, &administrator, Some(plan.prepared.1));
    }
    server.sql(&plan.removed);
    // The tables are an administrator's, or of `dlock`, whom nobody else trusts.
    let (maker, mistrusted) = if episode.coin() { (&administrator, None) } else { (&own, E::OF_DLOCK) };
    episode.scratch.dlock().run(KEY).backend(maker).command(["true"]).output().success();
    server.sql(E::USES);

    let mut steps = plan.steps.into_iter();
    // The first one keeps nobody away.
    for (step, _) in steps.by_ref().take(episode.rng.usize(..2)) {
        episode.broken();
        make(&step);
    }
    let mut is_trapped = false;
    let holder = episode.scene(Way::Straight);
    for (step, traps) in steps {
        episode.broken();
        make(&step);
        is_trapped |= traps;
        others_come(episode, &own, is_trapped.then_some("is of the role mallory"));
        others_come(episode, &administrator, mistrusted);
        let most = episode.ttl / 2;
        episode.linger(most);
    }
    episode.mended();
    holder.let_go();
    episode.ends(holder.running, &[Ending::Own(0)]);
    episode.serve_waiters();
    make(E::LEAVES);
}

/// Somebody looks, or comes for the lock and does not wait: it is held, or nothing is done for this reason.
fn others_come(episode: &mut Episode<'_>, url: &str, refused: Option<&str>) {
    let ways: [(&[&str], i32); 5] = [
        (&["run", "-nk", KEY], 75),
        (&["run", "-snk", KEY], 75),
        (&["run", "--slots", "2", "-nk", KEY], 75),
        (&["status", "-k", KEY], 75),
        (&["list"], 0),
    ];
    let (words, code) = ways[episode.rng.usize(..ways.len())];
    let dlock = episode.scratch.dlock().args(words).backend(url);
    let section: Vec<OsString> = episode.section(&episode.store.write());
    let outcome = if words[0] == "run" { dlock.command(section).output() } else { dlock.output() };
    let (said, expected) = (outcome.stderr(), if refused.is_some() { 69 } else { code });
    if outcome.status().code() != Some(expected) || refused.is_some_and(|why| !said.contains(why)) {
        episode.violation(Invariant::EndsRight, format!("not {expected} ({refused:?}), {words:?}:\n{outcome:?}"));
    }
}

impl Shared for PostgreSql {
    const USES: &'static str = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO dlock";
    const OF_DLOCK: Option<&'static str> = Some("is of the role dlock");
    const LEAVES: &'static str = "DROP OWNED BY mallory CASCADE";

    fn plan(rng: &mut Rng) -> Plan {
        // What is raised goes to the server's log at once.
        const DOES: &str = "RAISE LOG 'hijacked as %', current_user;
            IF pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off' THEN
              DELETE FROM public.shedlock WHERE lock_until OPERATOR(pg_catalog.>) pg_catalog.timezone('utc', pg_catalog.now());
            END IF";
        // The schemas in which she can have the first word.
        let (path, first) = match rng.u8(..3) {
            0 => ("\"$user\", public", "dlock"),
            1 => ("early, public, pg_catalog", "early"),
            _ => ("public, pg_catalog", ""),
        };
        let accounts = format!(
            "CREATE ROLE dlock LOGIN; ALTER ROLE dlock SET search_path = {path}; CREATE ROLE mallory LOGIN;
             ALTER ROLE mallory SET search_path = pg_catalog; GRANT CREATE ON SCHEMA public TO public;
             GRANT CREATE ON DATABASE postgres TO mallory"
        );
        let view = "CREATE VIEW public.shedlock AS SELECT 'dlock:job'::varchar AS name, 1/0 AS lock_until;
            GRANT ALL ON public.shedlock TO public";
        let (prepared, kind) = if rng.bool() {
            ((trap("public", DOES), "is of the role mallory"), "TABLE")
        } else {
            ((view.to_owned(), "public.shedlock is a view"), "VIEW")
        };
        let mut steps: Vec<(String, bool)> = Vec::new();
        for schema in ["public", "dlock", "early"] {
            let make = format!("CREATE SCHEMA IF NOT EXISTS {schema}; GRANT USAGE ON SCHEMA {schema} TO public; ");
            let make = if schema == "public" { "" } else { &make };
            steps.push((format!("{make}{}", bait(schema, DOES)), false));
            if schema != "public" {
                steps.push((format!("{make}{}", trap(schema, DOES)), schema == first));
            }
            steps.push((format!("{make}{}", types(schema, DOES)), false));
            steps.push((format!("{make}{}", views(schema, DOES)), false));
        }
        // The first one is in every path.
        rng.shuffle(&mut steps[1..]);
        steps.truncate(rng.usize(3..=6));
        Plan { accounts, prepared, removed: format!("DROP {kind} IF EXISTS shedlock"), steps }
    }

    fn called(server: &Server<Self>) -> Vec<String> {
        let log = server.log();
        log.lines().filter(|line| line.contains("LOG:  hijacked as ")).map(str::to_owned).collect()
    }
}

impl Shared for MariaDb {
    const USES: &'static str = "";
    const OF_DLOCK: Option<&'static str> = None;
    const LEAVES: &'static str = "DO 0";

    fn plan(rng: &mut Rng) -> Plan {
        let accounts = "CREATE DATABASE mallory; CREATE TABLE mallory.calls (what TEXT) ENGINE=MyISAM;
            GRANT INSERT ON mallory.calls TO dlock@'%'; CREATE USER mallory@'%'; GRANT ALL ON mallory.* TO mallory@'%';
            GRANT CREATE, CREATE VIEW, CREATE ROUTINE, TRIGGER ON locks.* TO mallory@'%'";
        let does = |what: &str| {
            format!(
                "INSERT INTO mallory.calls VALUES ('{what}'); DELETE FROM locks.shedlock WHERE lock_until > UTC_TIMESTAMP(3)"
            )
        };
        let function = |database: &str, name: &str, arguments: &str| {
            format!(
                "EXECUTE IMMEDIATE \"CREATE FUNCTION {database}.`{name}`({arguments}) RETURNS TEXT SQL SECURITY INVOKER \
                 BEGIN {}; RETURN NULL; END\"",
                does(name)
            )
        };
        let table = |database: &str| {
            let triggers = ["INSERT", "UPDATE", "DELETE"].map(|what| {
                format!(
                    "EXECUTE IMMEDIATE \"CREATE TRIGGER {database}.on_{what} BEFORE {what} ON {database}.shedlock \
                     FOR EACH ROW BEGIN {}; END\"",
                    does(what)
                )
            });
            format!(
                "CREATE TABLE {database}.shedlock (name VARCHAR(64) PRIMARY KEY, lock_until DATETIME(3) NOT NULL, \
                 locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) NOT NULL); {}",
                triggers.join("; ")
            )
        };
        let view = format!(
            "{}; CREATE SQL SECURITY INVOKER VIEW locks.shedlock AS SELECT 'dlock:job' AS name, locks.looked() AS lock_until, \
             1 AS locked_at, 'x' AS locked_by",
            function("locks", "looked", "")
        );
        let (prepared, kind) = if rng.bool() {
            ((table("locks"), "the table locks.shedlock has a trigger"), "TABLE")
        } else {
            ((view, "locks.shedlock is a view"), "VIEW")
        };
        // Whoever may make triggers on the tables of locks is no ordinary neighbour.
        let removed = format!("DROP {kind} IF EXISTS shedlock; REVOKE TRIGGER ON locks.* FROM mallory@'%'");
        // The server's own functions, as the statements have them: with none, one and more arguments.
        let [none, one, more] = [
            &["UTC_TIMESTAMP", "DATABASE", "USER", "RAND", "ROW_COUNT", "CONNECTION_ID"][..],
            &["COUNT", "MIN", "MAX", "RELEASE_LOCK", "IS_USED_LOCK", "GROUP_CONCAT"],
            &[
                "IF",
                "LEFT",
                "COALESCE",
                "GREATEST",
                "CONCAT",
                "GET_LOCK",
                "TIMESTAMPDIFF",
                "TIMESTAMPADD",
                "SUBSTRING_INDEX",
            ],
        ];
        let functions = |database: &str| {
            let all = [(none, ""), (one, "a TEXT"), (more, "a TEXT, b TEXT")];
            let all = all.iter().flat_map(|(names, arguments)| names.iter().map(move |name| (name, arguments)));
            (all.map(|(name, arguments)| function(database, name, arguments)).collect::<Vec<_>>().join("; "), false)
        };
        let views = ["TABLES", "COLUMNS", "PROCESSLIST", "DUAL"].map(|name| {
            format!("CREATE SQL SECURITY INVOKER VIEW locks.`{name}` AS SELECT locks.glanced() AS TABLE_NAME")
        });
        let views = format!("{}; {}", function("locks", "glanced", ""), views.join("; "));
        let mut steps = vec![functions("locks"), functions("mallory"), (table("mallory"), false), (views, false)];
        rng.shuffle(&mut steps);
        Plan { accounts: accounts.to_owned(), prepared, removed, steps }
    }

    fn called(server: &Server<Self>) -> Vec<String> {
        server.sql("SELECT what FROM mallory.calls").into_iter().flatten().collect()
    }
}
