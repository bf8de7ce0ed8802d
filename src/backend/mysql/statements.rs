/*!
Requests: statements with their values, grouped into transactions. A request is one packet, so that it is one write and
one round trip, and the server executes all of it or stops at the first error.

Texts are hexadecimal literals, independent of the server's settings for quotes. Time is the server's when a statement
begins, which is after the request was sent: a lease never ends before that plus its length, and a delayed request never
takes a lock too early.
*/

use std::fmt::Write;
use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Used;
use crate::backend::error::Error;
use crate::backend::mysql::inspected;
use crate::backend::mysql::link::Link;
use crate::backend::mysql::looks;
use crate::backend::mysql::texts::{SURE, contends, keep, literal, waits};
use crate::backend::sql::answers::{Look, Row};
use crate::backend::sql::breaking::BreakStatements;
use crate::backend::sql::dialect::{Dialect, RecordStatements, With};
use crate::backend::sql::looks::Looks;
use crate::backend::sql::table::Table;
use crate::backend::sql::template::lines;
use crate::backend::sql::turn::{Blocker, Watch};
use crate::backend::sql::values::Values;
use crate::lock::admission::Mode;
use crate::printable::shown;

const GREETING: &str = include_str!("statements/greeting.sql");
const TAKE: &str = include_str!("statements/take.sql");
const LOOK: &str = include_str!("statements/look.sql");
const JOIN: &str = include_str!("statements/join.sql");
const QUEUE: &str = include_str!("statements/queue.sql");
const AWAY: &str = include_str!("statements/away.sql");
const ROW: &str = include_str!("statements/row.sql");
const RENEW: &str = include_str!("statements/renew.sql");
const ASKED: &str = include_str!("statements/asked.sql");
const RELEASE: &str = include_str!("statements/release.sql");
const RELEASED: &str = include_str!("statements/released.sql");
const GROUP_LOCK: &str = include_str!("statements/group/lock.sql");
const GROUP_TAKE: &str = include_str!("statements/group/take.sql");
const GROUP_RENEW: &str = include_str!("statements/group/renew.sql");
const GROUP_RELEASE: &str = include_str!("statements/group/release.sql");
const GROUP_RELEASED: &str = include_str!("statements/group/released.sql");
const ROOM: &str = include_str!("statements/room.sql");
const ONCE: &str = include_str!("statements/once.sql");
const INSPECT: &str = include_str!("statements/inspect.sql");
const TABLES: &str = include_str!("statements/tables.sql");

/// The quote character around names.
pub(super) const QUOTE: char = '`';
/// The server's time in UTC at the beginning of the statement; it can be compared with a column of the table in any
/// time zone of the session.
const NOW: &str = "UTC_TIMESTAMP(3)";
/// The server's time at the beginning of the statement, in microseconds since 1970.
const MICROS: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
/// The largest token that a counter may have: not more than a year ahead of the clock.
const LARGEST: &str = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 31622400000000)";
/// The shortest time after which a server closes an idle connection.
const SILENCE: Duration = Duration::from_secs(5);

/// The statements for one claim.
#[derive(Debug)]
pub(super) struct Statements {
    values: Values,
    /// The owner's id.
    owner: String,
}

/// The script that `dlock generate mysql` prints for this table, and for the user of the locks, if known.
pub(super) fn setup(table: &Table, user: Option<&str>) -> String {
    let replace = match user {
        Some(_) => "",
        None => "-- Replace the user dlock by the one that uses the locks, which needs no more than this.\n",
    };
    // The server may treat a backslash as an escape.
    let user = user.unwrap_or("dlock").replace('\\', "\\\\").replace('\'', "''");
    format!(
        "-- The tables of dlock on MySQL and MariaDB, for the database that has them. The first one is ShedLock's: where there\n\
         -- is one, it stays as it is. '%' is any host: put in the one of the account, if it has one.\n{replace}{}",
        table.script(TABLES, &format!("'{user}'@'%'"))
    )
}

impl Dialect for Statements {
    type Link = Link;
    const LOOKS: Looks = looks::LOOKS;
    const BREAKING: BreakStatements = looks::BREAKING;
    const RECORDS: RecordStatements = looks::RECORDS;
    const GENERATE: &'static str = "mysql";
    const CLIENT: [&'static str; 2] = ["mysql{host} -P {port} {database}", "mysql{socket} {database}"];

    fn new(table: Table, claim: &Claim, heartbeat_ttl: Duration) -> Self {
        Self { values: Values::new(table, claim, heartbeat_ttl, literal), owner: claim.owner.as_str().to_owned() }
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

    fn greeting(&self) -> String {
        self.fill(GREETING)
    }

    fn request(&self, text: &str, own: &dyn Fn(&str) -> Option<String>) -> String {
        let code = lines(text, |place| own(place).or_else(|| self.value(place, self.values.hold))) + "\n";
        self.transaction(&code)
    }

    fn attempt(&self, with: With) -> String {
        let is_slots = self.values.mode.slots().is_some();
        let mut text = keep(&contends(&self.owner));
        if with.queue {
            if is_slots {
                text += &keep(&waits(&self.owner));
            }
            text += &self.fill(JOIN);
        }
        text += &self.transaction(&self.fill(self.values.alone_or(TAKE, GROUP_TAKE)));
        if is_slots {
            // The next waiter may be able to enter now.
            let _ = writeln!(text, "DO IF(@dlock, RELEASE_LOCK({}), 0);", waits(&self.owner));
        }
        // Only a result that is read after the commit counts.
        text += &self.fill(LOOK);
        if with.queue {
            text += &self.fill(QUEUE);
        }
        if with.inspect { text + &self.fill(INSPECT) } else { text }
    }

    fn row(&self) -> String {
        self.fill(ROW)
    }

    fn renew(&self, _listen: bool) -> String {
        let renew = self.transaction(&self.fill(self.values.alone_or(RENEW, GROUP_RENEW)));
        keep(&contends(&self.owner)) + &renew + &self.fill(LOOK)
    }

    fn asked(&self) -> Option<String> {
        Some(self.fill(ASKED))
    }

    fn release(&self, used: Used) -> String {
        let hold = if used == Used::No { Duration::ZERO } else { self.values.hold };
        let is_recorded = used == Used::Success && self.values.once.is_some();
        let record = if is_recorded { self.fill(ONCE) } else { String::new() };
        let release = self.fill_with(self.values.alone_or(RELEASE, GROUP_RELEASE), hold);
        let released = self.fill(self.values.alone_or(RELEASED, GROUP_RELEASED));
        // After the commit, so that whoever waits for us sees the result.
        let wake = format!("DO RELEASE_LOCK({}), RELEASE_LOCK({});\n", contends(&self.owner), waits(&self.owner));
        self.transaction(&(record + &release)) + &released + &wake
    }

    fn away(&self) -> String {
        self.fill(AWAY)
    }

    fn tables(&self) -> Vec<String> {
        self.values.table.statements(TABLES)
    }

    fn inspected(&self, rows: &[Row], name: &str) -> Result<Option<Vec<String>>, Error> {
        inspected::warnings(rows, self.table(), name)
    }

    fn renamed(&mut self, look: &Look) -> Option<String> {
        let known = std::mem::take(&mut self.values.plain_name);
        self.values.rename(&look.name);
        (known != look.name).then(|| {
            format!(
                "the table {} takes the names {} and {} for one lock, by its collation: use a binary one, such as utf8mb4_bin",
                self.values.table,
                shown(known.as_bytes()),
                shown(look.name.as_bytes())
            )
        })
    }

    fn kept_as(&self) -> Option<&str> {
        Some(&self.values.plain_name)
    }

    fn watch(&self, blocker: Blocker) -> Option<Watch> {
        let (entry, lock) = match blocker {
            Blocker::Contender(id) => (id.clone(), contends(&id)),
            Blocker::Waiter(id) => (format!("{id}:w"), waits(&id)),
            Blocker::Full => return Some(Watch::Room { request: self.fill(ROOM) }),
        };
        let request = format!("SELECT 'gone', GET_LOCK({lock}, {{wait}});\nDO RELEASE_LOCK({lock});\n");
        Some(Watch::Gone { entry, request })
    }
}

impl Statements {
    /// Wraps the statements in one transaction, which locks the row first if several may hold the lock. If it has ended before
    /// its commit, the request ends with an error (1242), and is repeated. `DO` would make a warning of the error.
    fn transaction(&self, statements: &str) -> String {
        let lock = self.fill(self.values.alone_or("", GROUP_LOCK));
        format!(
            "START TRANSACTION;\n{lock}{statements}SET @dlock_sure = IF({SURE}, 0, (SELECT 1 UNION SELECT 2));\nCOMMIT;\n"
        )
    }

    fn fill(&self, text: &str) -> String {
        self.fill_with(text, self.values.hold)
    }

    fn fill_with(&self, text: &str, hold: Duration) -> String {
        let code = lines(text, |place| self.value(place, hold));
        if code.is_empty() { code } else { code + "\n" }
    }

    /// The value of a placeholder in a statement.
    fn value(&self, place: &str, hold: Duration) -> Option<String> {
        let Values { name, table, ttl, .. } = &self.values;
        let life = |ttl: u128, since: &str| format!("GREATEST({}, {})", later(NOW, ttl), end_of(since, hold));
        Some(match place {
            "now" => NOW.to_owned(),
            "micros" => MICROS.to_owned(),
            "sure" => SURE.to_owned(),
            "largest" => LARGEST.to_owned(),
            "here" => keep(&contends(&self.owner)),
            "silence" => SILENCE.max(*ttl).as_secs().to_string(),
            // If the collation takes different names for one, only the name in the row matches.
            "this" => format!("s.name = {name} AND s.name = {name} COLLATE utf8mb4_bin"),
            "held_until" => end_of("s.locked_at", hold),
            // One millisecond more, for a column that rounds.
            "life" => life(ttl.as_millis() + 1, "s.locked_at"),
            "member_held_until" => end_of("m.since", hold),
            "member_life" => life(ttl.as_millis(), "m.since"),
            // The longest time for which the holder relies on the lock, in milliseconds.
            "counted" => format!(
                "COALESCE((SELECT h.ttl_ms FROM {} h WHERE h.name = {name} AND s.locked_by IN (h.owner, CONCAT(h.owner, ':done'))), \
                 (SELECT MAX(GREATEST(m.ttl_ms, m.hold_ms)) + 1 FROM {} m WHERE m.name = {name} \
                 AND s.locked_by = CONCAT('dlock:', m.mode)))",
                table.holder(),
                table.member()
            ),
            _ => {
                let common = || inspected::value(place, table).or_else(|| self.values.value(place, hold));
                return self.value_for_modes(place).or_else(|| self.value_for_periods(place)).or_else(common);
            }
        })
    }

    /// The value of a placeholder that concerns modes and the queue.
    fn value_for_modes(&self, place: &str) -> Option<String> {
        let Values { name, owner, me, mode, table, .. } = &self.values;
        let (group, queue, member) = (self.values.group(), table.queue(), table.member());
        // A waiter whose time lies further ahead dates from before the clock was set back.
        let waits =
            format!("q.name = {name} AND q.alive_until > {NOW} AND q.alive_until <= TIMESTAMPADD(SECOND, 31, {NOW})");
        // All waiters, if we are not in the queue.
        let before = format!(
            "{waits} AND q.ticket < COALESCE((SELECT own.ticket FROM {queue} own WHERE own.name = {name} \
             AND own.owner = {owner}), {})",
            i64::MAX
        );
        Some(match place {
            "mine" if *mode == Mode::Exclusive => format!("s.locked_by = {me} AND s.lock_until > {NOW}"),
            "mine" => format!("s.locked_by = {group} AND s.lock_until > {NOW} AND m.owner = {owner} AND NOT m.done"),
            "head" => format!("(SELECT q.owner FROM {queue} q WHERE {waits} ORDER BY q.ticket LIMIT 1)"),
            "slot" => mode.slots().map_or_else(
                || "NULL".to_owned(),
                |slots| {
                    let taken = format!("FROM {member} t WHERE t.name = {name} AND t.slot IS NOT NULL");
                    format!(
                        "(SELECT MIN(c.i) FROM (SELECT 0 AS i UNION ALL SELECT t.slot + 1 {taken}) c WHERE c.i < {slots} \
                         AND c.i NOT IN (SELECT t.slot {taken}))"
                    )
                },
            ),
            // Another number of slots that is in use, or that a waiter before us wants.
            "other_slots" if mode.slots().is_some() => {
                let (wanted, lock) = (self.values.mode_name(), table.lock());
                format!(
                    "COALESCE((SELECT CONVERT(SUBSTR(g.locked_by, 7) USING utf8mb4) FROM {lock} g WHERE g.name = {name} \
                     AND g.lock_until > {NOW} AND g.locked_by LIKE 'dlock:slots%' AND SUBSTR(g.locked_by, 7) <> {wanted}), \
                     (SELECT q.mode FROM {queue} q WHERE {before} AND q.mode LIKE 'slots%' AND q.mode <> {wanted} LIMIT 1))"
                )
            }
            "other_slots" => "NULL".to_owned(),
            // An exclusive waiter waits for the nearest one before it, whatever its mode.
            "other_ahead" if *mode == Mode::Exclusive => "NULL".to_owned(),
            "other_ahead" => format!(
                "(SELECT q.owner FROM {queue} q WHERE q.ticket < own.ticket AND {waits} AND q.mode <> {} \
                 ORDER BY q.ticket DESC LIMIT 1)",
                self.values.mode_name()
            ),
            "waits" => waits,
            "before" => before,
            _ => return None,
        })
    }

    /// The value of a placeholder that concerns the period of a claim.
    fn value_for_periods(&self, place: &str) -> Option<String> {
        let Some(once) = self.values.once else { return (place == "done_by").then(|| "NULL".to_owned()) };
        let [number, length, age] = once.arguments();
        let now = format!("({MICROS} DIV 1000)");
        // At most one period away from the period by the server's clock.
        let own = format!("(({now} - {age}) DIV {length})");
        let period = format!("GREATEST({own} - 1, LEAST({number}, {own} + 1))");
        Some(match place {
            "period" => period,
            // The success in this period or a later one; remembered for two periods.
            "done_by" => format!(
                "(SELECT o.done FROM {} o WHERE o.name = {} AND o.length_ms = {length} AND o.period >= {period} \
                 AND ABS(o.at_ms - {now}) <= 2 * {length})",
                self.values.table.once(),
                self.values.name
            ),
            _ => return None,
        })
    }
}

/// The SQL expression for `millis` milliseconds after `time`.
fn later(time: &str, millis: u128) -> String {
    format!("TIMESTAMPADD(MICROSECOND, {}, {time})", millis.saturating_mul(1000))
}

/// The SQL expression for the end of a minimum hold that began at `since`, or begins now if the clock was set back.
fn end_of(since: &str, hold: Duration) -> String {
    later(&format!("LEAST({since}, {NOW})"), hold.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::About;
    use crate::support::database_services::MysqlService;
    use crate::support::service::Service;

    fn claim(key: &str) -> Claim {
        Claim {
            ttl: Duration::from_secs(30),
            min_hold: Duration::from_secs(7),
            about: About { reason: Some("it's {name} \\ $1".to_owned()), ..About::default() },
            ..Claim::example("dlock", key).expect("names")
        }
    }

    fn all(mode: Mode) -> Vec<String> {
        let claim = Claim { mode, ..claim("it's {me} \\") };
        let statements = Statements::new(Table::shedlock(QUOTE), &claim, Duration::from_secs(15));
        vec![
            statements.attempt(With { queue: true, listen: true, inspect: true }),
            statements.attempt(With::default()),
            statements.renew(false),
            statements.release(Used::Yes),
            statements.release(Used::No),
            statements.row(),
            statements.away(),
            statements.greeting(),
        ]
    }

    const SLOTS: Mode = Mode::Slots(std::num::NonZeroU32::new(5).expect("not 0"));

    #[test]
    fn every_place_has_a_value_and_texts_are_digits() {
        for mode in [Mode::Exclusive, Mode::Shared, SLOTS] {
            for text in all(mode) {
                assert!(!text.contains(['{', '\\']) && !text.contains("it's"), "{text}");
                assert!(!text.contains("DELETE FROM `shedlock`"), "{text}");
            }
        }
    }

    #[test]
    fn what_is_left_of_a_transaction_that_was_broken_off_decides_nothing() {
        for text in [Mode::Exclusive, Mode::Shared, SLOTS].into_iter().flat_map(all) {
            for inside in text.split("START TRANSACTION;\n").skip(1) {
                let inside = inside.split("COMMIT;").next().expect("statements");
                let statements: Vec<&str> = inside.trim().split(";\n").collect();
                let [decided @ .., last] = &statements[..] else { panic!("{text}") };
                assert!(last.starts_with("SET @dlock_sure = IF(TRUE") && last.contains("@@in_transaction"), "{text}");
                assert!(last.contains("UNION"), "{text}");
                for statement in decided.iter().filter(|one| one.contains("AND @dlock") || one.contains("WHERE @dlock"))
                {
                    assert!(
                        statement.contains("@@in_transaction") || statement.contains("`dlock_queue`"),
                        "{statement}"
                    );
                }
            }
        }
    }

    /// Some statements make a warning of an error, and the commit of nothing would follow.
    #[test]
    fn the_end_of_a_transaction_that_was_broken_off_is_an_error_to_the_server() {
        let server = MysqlService::fresh();
        let end = "SET @dlock_sure = ";
        let text = all(Mode::Shared).swap_remove(3);
        let (_, last) = text.split_once(end).expect("the last statement");
        let last = format!("{end}{}", last.split(";\n").next().expect("a statement"));
        server.sql(&format!("START TRANSACTION; {last}; COMMIT"));
        let error = server.try_sql(&last).expect_err("no transaction");
        assert!(error.starts_with("1242"), "{error}");
    }

    #[test]
    fn what_counts_is_read_after_the_commit_and_whom_we_keep_out_is_woken_after_it() {
        let order = |text: &str, words: &[&str]| {
            let places: Vec<usize> = words.iter().map(|word| text.find(word).expect(word)).collect();
            assert!(places.is_sorted(), "{words:?}: {text}");
        };
        let [ours, alone, group] = ["DO IF(IS_USED_LOCK('dlock:", "START TRANSACTION;\nUPDATE", "FOR UPDATE;"];
        for (mode, begins) in [(Mode::Exclusive, alone), (Mode::Shared, group), (SLOTS, group)] {
            let [attempt, _, renew, release, ..] = &all(mode)[..] else { panic!("statements") };
            order(attempt, &[ours, "INSERT INTO `dlock_queue`", begins, "COMMIT;", "SELECT 'look'", "SELECT 'queue'"]);
            order(renew, &[begins, "COMMIT;", "SELECT 'look'"]);
            let is_ours = "\nSET @dlock_sure = IF(EXISTS (SELECT 1 FROM";
            order(release, &[begins, "COMMIT;", is_ours, "'released'", "RELEASE_LOCK"]);
        }
        assert!(!all(Mode::Shared)[1].contains("dlock_queue` (name"));
    }

    #[test]
    fn what_an_administrator_runs_makes_all_and_grants_what_is_used() {
        let script = setup(&Table::shedlock(QUOTE), None);
        for part in [
            "CREATE TABLE IF NOT EXISTS `shedlock` (",
            "GRANT SELECT, INSERT, UPDATE ON `dlock_holder` TO 'dlock'@'%';",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON `dlock_queue` TO 'dlock'@'%';",
        ] {
            assert!(script.contains(part), "{script}");
        }
        assert_eq!(Table::shedlock(QUOTE).statements(TABLES).len(), 6);
        assert!(script.starts_with("-- ") && !script.contains('{'));
    }
}
