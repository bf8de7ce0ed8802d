//! Others use the same table: they free the lock's row, delete it, take it, or keep it.

use std::time::Duration;

use super::tampering::Obstacle;
use crate::episode::Episode;
use crate::support::mysql::Mysql;
use crate::support::postgres::Postgres;
use crate::support::rendezvous::boottime;

/// The name of the lock's row.
const NAME: &str = "dlock:job";

/// A database, as other programs use its table.
pub trait Rows {
    /// "Now" as every program with the table has it, and a time that is far away.
    const NOW: &'static str;
    const FAR: &'static str;
    /// Makes the table.
    const TABLE: &'static str;
    /// What makes an insertion a change where the row is there.
    const UPSERT: &'static str;
    /// What empties all tables.
    const EMPTY: &'static str;

    /// The rows of the answer.
    fn ask(&self, sql: &str) -> Vec<Vec<String>>;

    /// So many milliseconds from now.
    fn later(ms: u128) -> String;
}

impl Rows for Postgres {
    const NOW: &'static str = "timezone('utc', clock_timestamp())";
    const FAR: &'static str = "'infinity'";
    const TABLE: &'static str = "CREATE TABLE IF NOT EXISTS shedlock (name varchar(64) PRIMARY KEY, \
        lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)";
    const UPSERT: &'static str = "ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, \
        locked_at = excluded.locked_at, locked_by = excluded.locked_by";
    const EMPTY: &'static str = "TRUNCATE shedlock, dlock_holder, dlock_member, dlock_queue";

    fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        self.sql(sql)
    }

    fn later(ms: u128) -> String {
        format!("{} + {ms} * interval '1 ms'", Self::NOW)
    }
}

impl Rows for Mysql {
    const NOW: &'static str = "UTC_TIMESTAMP(3)";
    const FAR: &'static str = "'9999-12-31'";
    const TABLE: &'static str = "CREATE TABLE IF NOT EXISTS shedlock (name VARCHAR(64) PRIMARY KEY, \
        lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) NOT NULL) \
        CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
    const UPSERT: &'static str = "ON DUPLICATE KEY UPDATE lock_until = VALUES(lock_until), \
        locked_at = VALUES(locked_at), locked_by = VALUES(locked_by)";
    const EMPTY: &'static str = "TRUNCATE shedlock; TRUNCATE dlock_holder; TRUNCATE dlock_member; TRUNCATE dlock_queue";

    fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        self.sql(sql)
    }

    fn later(ms: u128) -> String {
        format!("TIMESTAMPADD(MICROSECOND, {ms} * 1000, {})", Self::NOW)
    }
}

/// Frees or deletes the lock's row, or takes it for another program; returns since when, or from when on, it is free.
pub fn take<R: Rows>(episode: &mut Episode<'_>, rows: &R) -> Duration {
    match episode.rng.u8(..4) {
        0 => _ = rows.ask(&format!("DELETE FROM shedlock WHERE name = '{NAME}'")),
        1 => _ = rows.ask(R::EMPTY),
        2 => _ = rows.ask(&format!("UPDATE shedlock SET lock_until = {} WHERE name = '{NAME}'", R::NOW)),
        _ => {
            let lease = episode.ttl / 2 + episode.some_time(episode.ttl);
            let until = boottime() + lease;
            rows.ask(&format!(
                "UPDATE shedlock SET locked_by = 'web1', locked_at = {}, lock_until = {} WHERE name = '{NAME}'",
                R::NOW,
                R::later(lease.as_millis())
            ));
            return until;
        }
    }
    boottime()
}

/// The lock of another program, which may have no end.
pub fn obstacle<'w, R: Rows>(episode: &mut Episode<'_>, rows: &'w R) -> Obstacle<'w> {
    let (text, shown) = match episode.rng.u8(..3) {
        0 => ("web1", "held by another program: web1"),
        1 => ("dlock:web1", "held by another program: dlock:web1"),
        _ => ("\u{1b}[2J\u{7}\n\u{9b}1m\u{202e}", r"held by another program: \u{1b}[2J\u{7}\n\u{9b}1m\u{202e}"),
    };
    let until = if episode.coin() { R::FAR.to_owned() } else { R::later(3_600_000) };
    rows.ask(&format!(
        "{}; INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ('{NAME}', {until}, {}, '{text}') {}",
        R::TABLE,
        R::NOW,
        R::UPSERT
    ));
    Obstacle {
        shown: vec![shown.to_owned()],
        look: Box::new(move || format!("{:?}", rows.ask(&format!("SELECT * FROM shedlock WHERE name = '{NAME}'")))),
        remove: Box::new(move || {
            rows.ask(&format!("UPDATE shedlock SET lock_until = {} WHERE name = '{NAME}'", R::NOW));
        }),
        tidy: Box::new(|| ()),
    }
}
