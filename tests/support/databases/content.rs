//! What is in a database, as the test sees it: locks, waiters and connections, and how to change them.

use std::time::Duration;

use crate::support::daemon::Daemon;
use crate::support::pool::Servers;
use crate::support::rendezvous::{boottime, eventually, eventually_within};

use super::{Engine, Server, Session};

/// The answer to a statement.
type Rows = Vec<Vec<String>>;

impl<E: Engine> Server<E> {
    /// The rows of the answer to these statements, with [`Engine::NOW`] as `:now` and [`Engine::LATER`] as `:later`; nothing
    /// where there are none. An error fails the test. The connection is kept for the next ones.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Rows {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{error}: {sql}"))
    }

    /// The rows of the answer to these statements as [`Self::sql`] has them, or the code of the error and its text.
    #[track_caller]
    pub fn try_sql(&self, sql: &str) -> Result<Rows, String> {
        if sql.is_empty() {
            return Ok(Vec::new());
        }
        let mut kept = self.kept();
        let mut client = kept.take().filter(E::Client::is_usable).unwrap_or_else(|| self.client());
        let answer = client.query(&sql.replace(":now", E::NOW).replace(":later", E::LATER));
        *kept = Some(client);
        answer
    }

    /// Another connection of the test's own, for a transaction that stays open.
    #[track_caller]
    pub fn client(&self) -> E::Client {
        self.client_as(E::Client::ADMINISTRATOR)
    }

    /// A connection of this user, who needs no password.
    #[track_caller]
    pub fn client_as(&self, user: &str) -> E::Client {
        E::Client::connect_as(user, &self.socket())
            .unwrap_or_else(|| panic!("the server does not serve:\n{}", self.log()))
    }

    /// The first value of the answer; none where there is no row.
    #[track_caller]
    pub fn value(&self, sql: &str) -> Option<String> {
        self.sql(sql).into_iter().next().and_then(|row| row.into_iter().next())
    }

    /// The first value of the answer, which is a number.
    #[track_caller]
    pub fn count(&self, sql: &str) -> usize {
        self.value(sql).and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no number: {sql}"))
    }

    /// Whether there is such a table.
    #[track_caller]
    pub fn has(&self, table: &str) -> bool {
        self.value(&E::HAS.replace(":table", table)).is_some()
    }

    /// `locked_by` of `name` while it is locked.
    #[track_caller]
    pub fn locked_by(&self, name: &str) -> Option<String> {
        if !self.has("shedlock") {
            return None;
        }
        self.value(&format!("SELECT locked_by FROM shedlock WHERE name = '{name}' AND lock_until > :now"))
    }

    /// The owners who hold `name` together, the first that came first.
    #[track_caller]
    pub fn members(&self, name: &str) -> Vec<String> {
        if !self.has("dlock_member") {
            return Vec::new();
        }
        let held = format!(
            "SELECT m.owner FROM dlock_member m JOIN shedlock s ON s.name = m.name \
             AND s.locked_by = concat('dlock:', m.mode) WHERE m.name = '{name}' AND m.until > :now \
             AND s.lock_until > :now ORDER BY m.token"
        );
        self.sql(&held).into_iter().flatten().collect()
    }

    /// How many wait for `name`, also those that have hung up.
    #[track_caller]
    pub fn waiting(&self, name: &str) -> usize {
        if !self.has("dlock_queue") {
            return 0;
        }
        let alive = format!("name = '{name}' AND alive_until > :now - INTERVAL '1' MINUTE");
        self.count(&format!("SELECT count(*) FROM dlock_queue WHERE {alive}"))
    }

    /// The connections of dlocks.
    #[track_caller]
    pub fn connections(&self) -> Vec<String> {
        self.sql(E::CONNECTIONS).into_iter().map(|row| row.join(" ")).collect()
    }

    /// How many dlocks wait for a row that another transaction has locked.
    #[track_caller]
    pub fn blocked(&self) -> usize {
        self.count(E::BLOCKED)
    }

    /// Locks that are held or are not among `names`, waiters, and connections of dlocks.
    #[track_caller]
    pub fn left(&self, names: &[String]) -> Vec<String> {
        let mut left = self.connections();
        if self.has("shedlock") {
            let rows = self.sql("SELECT name FROM shedlock WHERE lock_until > :now");
            left.extend(rows.into_iter().flatten());
            let rows = self.sql("SELECT name FROM shedlock");
            left.extend(rows.into_iter().flatten().filter(|name| !names.contains(name)));
            // The rows of those who were killed stay until others come.
            let rows = self.sql(
                "SELECT 'holds', owner FROM dlock_member WHERE until > :now \
                 UNION ALL SELECT 'waits', owner FROM dlock_queue WHERE alive_until > :now",
            );
            left.extend(rows.into_iter().map(|row| row.join(" ")));
        }
        if self.has("dlock_record") {
            let rows = self.sql("SELECT what, record FROM dlock_record WHERE record <> '' AND until > :now");
            left.extend(rows.into_iter().map(|row| row.join(" ")));
        }
        left
    }

    /// When the lease of `name` ends by the server's own row, by [`boottime`]; the server's clock is the machine's.
    #[track_caller]
    pub fn expiry(&self, name: &str) -> Duration {
        Self::expiry_by(&mut self.client(), name)
    }

    /// When the lease of `name` ends as [`Self::expiry`] has it, as a transaction sees it that keeps others from changing it.
    #[track_caller]
    pub fn expiry_by(client: &mut E::Client, name: &str) -> Duration {
        let now = boottime();
        let rows = client.query(&format!("SELECT {} FROM shedlock WHERE name = '{name}'", E::LEFT)).unwrap();
        let left: i64 = rows[0][0].parse().unwrap();
        let distance = Duration::from_millis(left.unsigned_abs());
        if left < 0 { now.saturating_sub(distance) } else { now + distance }
    }

    /// Waits until the lease of `name` is another one than before.
    #[track_caller]
    pub fn wait_renewed(&self, name: &str) {
        let until = || self.value(&format!("SELECT lock_until FROM shedlock WHERE name = '{name}'"));
        let before = until();
        eventually("a renewal", || (until() != before).then_some(()));
    }

    /// Asserts for some seconds that there are not more connections of dlocks than this, but for moments in which several
    /// waiters look at the same time.
    #[track_caller]
    pub fn stay_within(&self, limit: usize) {
        const MOMENT: Duration = Duration::from_secs(1);
        let mut since = None;
        let crowded = eventually_within(Duration::from_secs(4), || {
            let (now, count) = (boottime(), self.connections().len());
            if count <= limit {
                since = None;
                return None;
            }
            let begun = *since.get_or_insert(now);
            (now - begun > MOMENT).then_some(count)
        });
        assert_eq!(crowded, None, "too many connections for too long");
    }
}

impl<E: Engine> Servers for Server<E> {
    fn daemons(&self) -> Vec<&Daemon> {
        vec![self]
    }

    fn has_clients(&self) -> bool {
        self.count(E::CLIENTS) > 0
    }

    fn clear(&self) {
        E::clear(self);
    }

    fn state(&self) -> String {
        format!("{:?}", E::STATE.iter().map(|sql| self.sql(sql)).collect::<Vec<_>>())
    }
}
