/*!
Requests: statements with their values, grouped into transactions. A request is one message, so that it is one write and
one round trip, and the server executes all of it or stops at the first error.

Values are literals, quoted by the client library. Time is the server's at the arrival of the request, which is after it
was sent: a lease never ends before that plus its length, and a delayed request never takes a lock too early.
*/

use std::time::Duration;

use postgres_protocol::escape::{escape_identifier, escape_literal};

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Used;
use crate::backend::error::Error;
use crate::backend::postgres::inspected;
use crate::backend::postgres::link::Link;
use crate::backend::postgres::looks;
use crate::backend::postgres::place::{HOME, NAMES};
use crate::backend::postgres::texts::{MICROS, NOW, channel};
use crate::backend::sql::answers::{Look, Row};
use crate::backend::sql::breaking::BreakStatements;
use crate::backend::sql::dialect::{Dialect, RecordStatements, With};
use crate::backend::sql::looks::Looks;
use crate::backend::sql::table::Table;
use crate::backend::sql::template::lines;
use crate::backend::sql::values::Values;
use crate::lock::admission::Mode;

const TAKE: &str = include_str!("statements/take.sql");
const LOOK: &str = include_str!("statements/look.sql");
const JOIN: &str = include_str!("statements/join.sql");
const QUEUE: &str = include_str!("statements/queue.sql");
const AWAY: &str = include_str!("statements/away.sql");
const ROW: &str = include_str!("statements/row.sql");
const RENEW: &str = include_str!("statements/renew.sql");
const RELEASE: &str = include_str!("statements/release.sql");
const WAKE: &str = include_str!("statements/wake.sql");
const GROUP_TAKE: &str = include_str!("statements/group/take.sql");
const GROUP_RENEW: &str = include_str!("statements/group/renew.sql");
const GROUP_RELEASE: &str = include_str!("statements/group/release.sql");
const ONCE: &str = include_str!("statements/once.sql");
const INSPECT: &str = include_str!("statements/inspect.sql");
const TABLES: &str = include_str!("statements/tables.sql");

/// The quote character on both sides of a name.
pub(super) const QUOTE: char = '"';

/// The largest valid token of a counter: at most a year ahead of the clock.
const LARGEST: &str = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint + 31622400000000";
/// The condition for a waiter that is alive. A time that lies further ahead is from before the clock was set back.
const ALIVE: &str = "q.alive_until > (statement_timestamp() AT TIME ZONE 'UTC') \
    AND q.alive_until <= (statement_timestamp() AT TIME ZONE 'UTC') + interval '31 s'";
/// The longest time that a statement waits for another transaction. While it waits, a server does not notice that its
/// client is gone, and a request that was given up must not be granted later.
const LOCK_WAIT: Duration = Duration::from_millis(1500);

/// The statements for one claim.
#[derive(Debug)]
pub(super) struct Statements {
    values: Values,
    channel: String,
}

/// Returns the output of `dlock generate postgres` for this table, and for the role that uses the locks if it is known.
pub(super) fn setup(table: &Table, role: Option<&str>) -> String {
    let replace = match role {
        Some(_) => "",
        None => "-- Replace the role dlock by the one that uses the locks, which needs no more than this.\n",
    };
    let advice = if table.is_named() {
        ""
    } else {
        "-- Before version 15 everybody may create in the schema public. In a database of its own, take that away:\n\
         -- REVOKE CREATE ON SCHEMA public FROM PUBLIC;\n"
    };
    format!(
        "-- The tables of dlock on PostgreSQL. The first one is ShedLock's: where there is one, it stays as it is.\n\
         {replace}{}{advice}",
        table.clone().assumed_in(HOME).script(TABLES, &escape_identifier(role.unwrap_or("dlock")))
    )
}

impl Dialect for Statements {
    type Link = Link;
    const HOME: Option<&'static str> = Some(HOME);
    const LOOKS: Looks = looks::LOOKS;
    const BREAKING: BreakStatements = looks::BREAKING;
    const RECORDS: RecordStatements = looks::RECORDS;
    const GENERATE: &'static str = "postgres";
    const CLIENT: [&'static str; 2] = ["psql{host} -p {port} {database}", "psql{directory} -p {port} {database}"];

    fn new(table: Table, claim: &Claim, heartbeat_ttl: Duration) -> Self {
        let channel = channel(claim.owner.as_str());
        Self { values: Values::new(table, claim, heartbeat_ttl, escape_literal), channel }
    }

    fn ignore_outer(&mut self) {
        self.values.ignore_outer();
    }

    fn values(&self) -> &Values {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }

    fn request(&self, text: &str, own: &dyn Fn(&str) -> Option<String>) -> String {
        let code = lines(text, |place| own(place).or_else(|| self.value(place, self.values.hold))) + "\n";
        self.transaction(&code, 4)
    }

    fn attempt(&self, with: With) -> String {
        let listen = if with.listen { self.listen() } else { String::new() };
        let join = if with.queue { self.transaction(&(listen + &self.fill(JOIN)), 4) } else { String::new() };
        let queue = if with.queue { self.fill(QUEUE) } else { String::new() };
        let inspect = if with.inspect { self.fill(INSPECT) } else { String::new() };
        let (take, wake) = match self.values.mode {
            Mode::Exclusive => (self.fill(TAKE), String::new()),
            // After one member of a group has entered, the next in line may be able to enter too.
            Mode::Shared | Mode::Slots(_) => (self.fill(GROUP_TAKE), self.fill(WAKE)),
        };
        join + &self.transaction(&[take, self.fill(LOOK), queue, inspect].concat(), 4) + &wake
    }

    fn row(&self) -> String {
        self.transaction(&self.fill(ROW), 4)
    }

    fn renew(&self, listen: bool) -> String {
        let listen = if listen { self.transaction(&self.listen(), 10) } else { String::new() };
        listen + &self.transaction(&(self.fill(self.values.alone_or(RENEW, GROUP_RENEW)) + &self.fill(LOOK)), 10)
    }

    fn release(&self, used: Used) -> String {
        let hold = if used == Used::No { Duration::ZERO } else { self.values.hold };
        let is_recorded = used == Used::Success && self.values.once.is_some();
        let record = if is_recorded { self.fill(ONCE) } else { String::new() };
        let release = self.fill_with(self.values.alone_or(RELEASE, GROUP_RELEASE), hold);
        self.transaction(&(record + &release), 4) + &self.fill(WAKE)
    }

    fn away(&self) -> String {
        self.transaction(&self.fill(AWAY), 4) + &self.fill(WAKE)
    }

    fn tables(&self) -> Vec<String> {
        let statements = self.values.table.statements(TABLES);
        statements.iter().map(|statement| format!("BEGIN;\n{NAMES}{statement}\nCOMMIT;\n")).collect()
    }

    fn stored(&self, look: &Look) -> Option<Duration> {
        // Both are relative to the arrival of the request.
        Some(Duration::from_millis(look.columns.until?.saturating_sub(look.now)))
    }

    fn inspected(&self, rows: &[Row], name: &str) -> Result<Option<Vec<String>>, Error> {
        inspected::warnings(rows, self.table(), name)
    }
}

impl Statements {
    fn listen(&self) -> String {
        format!("LISTEN {};\n", self.channel)
    }

    /// Returns one transaction, which overrides the settings of the server and the role. A statement in it waits for
    /// other transactions at most for the lease divided by `share`.
    fn transaction(&self, statements: &str, share: u32) -> String {
        let wait = LOCK_WAIT.min(self.values.ttl / share).as_millis().max(1);
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED;\n{NAMES}SET LOCAL synchronous_commit = on;\nSET LOCAL lock_timeout = {wait};\n\
             SET LOCAL statement_timeout = {};\nSET LOCAL client_min_messages = warning;\n{statements}COMMIT;\n",
            2 * wait
        )
    }

    fn fill(&self, text: &str) -> String {
        self.fill_with(text, self.values.hold)
    }

    fn fill_with(&self, text: &str, hold: Duration) -> String {
        let code = lines(text, |place| self.value(place, hold));
        if code.is_empty() { code } else { code + "\n" }
    }

    /// Returns the columns that inspect the tables beside the table of locks: one that does not survive a crash, the
    /// type of the ends of co-holders, and one for which rights are missing.
    fn inspected_beside(&self) -> String {
        let Values { table, mode, once, .. } = &self.values;
        let (member, done) = (escape_literal(&table.member()), escape_literal(&table.once()));
        let is_group = *mode != Mode::Exclusive;
        let tables: Vec<&str> = [(is_group, &member), (once.is_some(), &done)]
            .iter()
            .filter(|(used, _)| *used)
            .map(|(_, name)| name.as_str())
            .collect();
        if tables.is_empty() {
            return "NULL, NULL, NULL".to_owned();
        }
        let tables = tables.iter().map(|name| format!("to_regclass({name})")).collect::<Vec<_>>().join(", ");
        let ends = if is_group {
            format!(
                "(SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a \
                 WHERE a.attrelid = to_regclass({member}) AND a.attname = 'until')"
            )
        } else {
            "NULL".to_owned()
        };
        format!(
            "(SELECT min(c.oid::regclass::text) FROM pg_class c WHERE c.oid IN ({tables}) AND c.relpersistence <> 'p'), {ends}, \
             (SELECT min(c.oid::regclass::text) FROM pg_class c WHERE c.oid IN ({tables}) \
             AND NOT (has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE')))"
        )
    }

    /// Returns the value of a placeholder in a statement.
    fn value(&self, place: &str, hold: Duration) -> Option<String> {
        let ttl = self.values.ttl.as_millis();
        Some(match place {
            "beside" => self.inspected_beside(),
            "now" => NOW.to_owned(),
            "micros" => MICROS.to_owned(),
            "largest" => LARGEST.to_owned(),
            "held_until" => end_of("locked_at", hold),
            // One millisecond more, for a column that rounds.
            "life" => {
                format!("greatest({NOW} + ({ttl}::bigint + 1) * interval '1 ms', {})", end_of("locked_at", hold))
            }
            "member_held_until" => end_of("m.since", hold),
            "member_life" => {
                format!("greatest({NOW} + {ttl}::bigint * interval '1 ms', {})", end_of("m.since", hold))
            }
            _ => {
                let common = || self.values.value(place, hold);
                return self.value_for_modes(place).or_else(|| self.value_for_periods(place)).or_else(common);
            }
        })
    }

    /// Returns the value of a placeholder in a statement for a lock with several holders.
    fn value_for_modes(&self, place: &str) -> Option<String> {
        let Values { name, owner, me, mode, table, .. } = &self.values;
        let (group, queue) = (self.values.group(), table.queue());
        // The waiters before us, or all of them if we are not in the queue.
        let before = format!(
            "q.name = {name} AND {ALIVE} AND q.ticket < coalesce((SELECT own.ticket FROM {queue} own \
             WHERE own.name = {name} AND own.owner = {owner}), {})",
            i64::MAX
        );
        Some(match place {
            "mine" if *mode == Mode::Exclusive => format!("s.locked_by = {me} AND s.lock_until > {NOW}"),
            "mine" => format!(
                "s.locked_by = {group} AND s.lock_until > {NOW} AND m.owner IS NOT NULL AND m.owner = {owner} AND NOT m.done"
            ),
            "slot" => mode.slots().map_or_else(
                || "NULL".to_owned(),
                |slots| {
                    format!(
                        "(SELECT min(i) FROM generate_series(0, {}) i WHERE i NOT IN (SELECT t.slot FROM {} t \
                         WHERE t.name = {name} AND t.slot IS NOT NULL))",
                        slots - 1,
                        table.member()
                    )
                },
            ),
            // A different number of slots that is in use, or that a waiter before us wants.
            "other_slots" if mode.slots().is_some() => format!(
                "(SELECT o.mode FROM (SELECT substr(s.locked_by, 7) AS mode WHERE s.lock_until > {NOW} \
                 AND s.locked_by LIKE 'dlock:slots%' UNION ALL SELECT q.mode FROM {queue} q WHERE {before} \
                 AND q.mode LIKE 'slots%') o WHERE o.mode <> {} LIMIT 1)",
                self.values.mode_name()
            ),
            "other_slots" => "NULL".to_owned(),
            "before" => before,
            _ => return None,
        })
    }

    /// Returns the value of a placeholder in a statement about the period of a claim.
    fn value_for_periods(&self, place: &str) -> Option<String> {
        let Some(once) = self.values.once else { return (place == "done_by").then(|| "NULL".to_owned()) };
        let [number, length, age] = once.arguments();
        let now = format!("{MICROS} / 1000");
        // At most one period away from the current one by the server's clock.
        let own = format!("({now} - {age}) / {length}");
        let period = format!("greatest({own} - 1, least({number}, {own} + 1))");
        Some(match place {
            "period" => period,
            // The success in the period or a later one, which is remembered for two periods.
            "done_by" => format!(
                "(SELECT o.done FROM {} o WHERE o.name = {} AND o.length_ms = {length} AND o.period >= {period} \
                 AND abs(o.at_ms - {now}) <= 2 * {length}::bigint)",
                self.values.table.once(),
                self.values.name
            ),
            _ => return None,
        })
    }
}

/// Returns the end of a minimum hold that began at `since`. After the clock was set back, the hold begins now.
fn end_of(since: &str, hold: Duration) -> String {
    format!("(least({since}, {NOW}) + {}::bigint * interval '1 ms')", hold.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sql::template::statements;
    use crate::holder::About;

    fn claim(key: &str) -> Claim {
        Claim {
            ttl: Duration::from_secs(30),
            min_hold: Duration::from_secs(7),
            about: About { reason: Some("it's {name} \\ $1".to_owned()), ..About::default() },
            ..Claim::example("dlock", key).expect("names")
        }
    }

    fn all(statements: &Statements) -> Vec<String> {
        let with = With { queue: true, listen: true, inspect: true };
        vec![
            statements.attempt(with),
            statements.attempt(With::default()),
            statements.row(),
            statements.renew(true),
            statements.release(Used::Yes),
            statements.release(Used::No),
            statements.away(),
        ]
    }

    #[test]
    fn every_place_has_a_value_and_no_value_is_read_again() {
        let statements =
            Statements::new(Table::shedlock(QUOTE).assumed_in(HOME), &claim("it's {me}"), Duration::from_secs(15));
        let group = [GROUP_TAKE, GROUP_RENEW, GROUP_RELEASE];
        for text in [TAKE, LOOK, JOIN, QUEUE, AWAY, ROW, RENEW, RELEASE, WAKE, INSPECT].into_iter().chain(group) {
            let places = text.split('{').skip(1).map(|rest| rest.split('}').next().expect("a place"));
            for place in places {
                assert!(statements.value(place, Duration::ZERO).is_some(), "{place}");
            }
        }
        assert!(all(&statements).iter().all(|text| text.contains("'dlock:it''s {me}'")));
        assert!(all(&statements)[0].contains(r"it''s {name} \\\\ $1"));
    }

    #[test]
    fn every_transaction_has_settings_of_its_own_and_an_end() {
        let made = |mode| {
            let claim = Claim { mode, ..claim("job") };
            all(&Statements::new(Table::shedlock(QUOTE).assumed_in(HOME), &claim, Duration::from_secs(15)))
        };
        let all = made(Mode::Exclusive);
        for text in all.iter().chain(&made(Mode::Shared)) {
            let parts = statements(text);
            let count = |word: &str| parts.iter().filter(|part| part.starts_with(word)).count();
            assert!(count("BEGIN") >= 1 && count("BEGIN") == count("COMMIT;"), "{text}");
            assert_eq!(count(NAMES.trim_end()), count("BEGIN"), "{text}");
            assert_eq!(count("SET LOCAL") - count("BEGIN"), 4 * count("BEGIN ISOLATION LEVEL"), "{text}");
            assert_eq!(count("SET"), count("SET LOCAL"), "a pooler gives the session to others: {text}");
            assert!(!text.contains("DELETE FROM \"public\".\"shedlock\""), "{text}");
        }
        // The waiter's entry is committed before it looks, and the release before the search for the next waiter.
        let order = |text: &str, words: [&str; 3]| {
            let places = words.map(|word| text.find(word).expect(word));
            assert!(places.is_sorted(), "{text}");
        };
        order(
            &all[0],
            ["INSERT INTO \"public\".\"dlock_queue\"", "COMMIT;", "UPDATE \"public\".\"shedlock\" SET locked_by"],
        );
        order(&all[4], ["UPDATE \"public\".\"shedlock\" SET", "COMMIT;", "pg_notify"]);
        assert!(!all[1].contains("INSERT INTO \"public\".\"dlock_queue\"") && !all[1].contains("LISTEN"));
    }

    #[test]
    fn what_an_administrator_runs_makes_all_and_grants_what_is_used() {
        let script = Table::shedlock(QUOTE).assumed_in(HOME).script(TABLES, &escape_identifier("app"));
        for part in [
            "CREATE TABLE IF NOT EXISTS \"public\".\"shedlock\" (",
            "\"public\".\"dlock_holder\" (",
            "UNLOGGED TABLE",
            "DELETE ON \"public\".\"dlock_member\", \"public\".\"dlock_queue\", \"public\".\"dlock_record\" TO \"app\"",
        ] {
            assert!(script.contains(part), "{script}");
        }
        assert_eq!(Table::shedlock(QUOTE).assumed_in(HOME).statements(TABLES).len(), 6);
        assert!(
            setup(&Table::shedlock(QUOTE).assumed_in(HOME), None).starts_with("-- ")
                && !setup(&Table::shedlock(QUOTE).assumed_in(HOME), None).contains('{')
        );
    }

    #[test]
    fn a_request_waits_for_others_for_less_than_its_own_time() {
        for (ttl, attempt, renewal) in [(1, 250, 100), (4, 1000, 400), (30, 1500, 1500)] {
            let claim = Claim { ttl: Duration::from_secs(ttl), ..claim("job") };
            let statements = Statements::new(Table::shedlock(QUOTE).assumed_in(HOME), &claim, Duration::from_secs(15));
            assert!(statements.attempt(With::default()).contains(&format!("lock_timeout = {attempt};")));
            assert!(statements.renew(false).contains(&format!("lock_timeout = {renewal};")));
        }
    }
}
