/*!
The values of the placeholders that are the same in every database.
*/

use std::time::Duration;

use crate::backend::contract::claim::{Claim, Once};
use crate::backend::sql::table::{Table, Tables};
use crate::backend::sql::{name, owner};
use crate::lock::admission::Mode;

/// The most readers that may hold a lock together.
const READERS: usize = 1_000_000_000;

/// The values for one claim.
#[derive(Debug)]
pub(crate) struct Values {
    /// The table of locks.
    pub table: Table,
    /// The name of the row, as a literal.
    pub name: String,
    /// The name of the row.
    pub plain_name: String,
    /// The text in the row while this claim alone holds the lock, as a literal.
    pub me: String,
    /// The id of the owner, as a literal.
    pub owner: String,
    /// The mode of the claim.
    pub mode: Mode,
    /// The period of the claim.
    pub once: Option<Once>,
    /// The length of lease to ask for.
    pub ttl: Duration,
    /// The minimum time for which the lock stays taken.
    pub hold: Duration,
    done: String,
    about: String,
    /// The end of the record of a success.
    success: String,
    /// The owners of the outer runs, as literals with commas between them.
    outer: String,
    heartbeat_ttl: Duration,
    /// Quotes a text as a literal.
    literal: fn(&str) -> String,
}

impl Values {
    /// Creates the values for `claim` on `table`, with `literal` to quote texts. A waiter stays in the queue for
    /// `heartbeat_ttl` after its last heartbeat.
    pub(crate) fn new(table: Table, claim: &Claim, heartbeat_ttl: Duration, literal: fn(&str) -> String) -> Self {
        let success = claim.once_per.map(|once| claim.done(once.period(), 0).end()).unwrap_or_default();
        let plain_name = name::of(claim);
        Self {
            table,
            name: literal(&plain_name),
            plain_name,
            me: literal(&owner::held(&claim.owner)),
            owner: literal(claim.owner.as_str()),
            mode: claim.mode,
            once: claim.once_per,
            ttl: claim.ttl,
            hold: claim.min_hold,
            done: literal(&owner::kept(&claim.owner)),
            about: literal(&format!("{{{}", claim.about.rest())),
            success: literal(&success),
            outer: listed(&claim.outer, literal),
            heartbeat_ttl,
            literal,
        }
    }

    /// Returns the tables that requests of the claim use.
    pub(crate) fn uses(&self) -> Tables {
        if self.once.is_some() { Tables::LOCKS.and(Tables::ONCE) } else { Tables::LOCKS }
    }

    /// From now on, an outer run counts like any other holder.
    pub(crate) fn ignore_outer(&mut self) {
        self.outer = listed(&[], self.literal);
    }

    /// Uses the row of this name from now on.
    pub(crate) fn rename(&mut self, name: &str) {
        (self.name, self.plain_name) = ((self.literal)(name), name.to_owned());
    }

    /// Returns the mode of the claim as the statements have it, as a literal.
    pub(crate) fn mode_name(&self) -> String {
        (self.literal)(&self.mode.name())
    }

    /// Returns the text in the row while several hold the lock in the mode of the claim, as a literal.
    pub(crate) fn group(&self) -> String {
        (self.literal)(&owner::group(self.mode))
    }

    /// Returns `alone` if the claim is exclusive, or else `group`.
    pub(crate) fn alone_or<'a>(&self, alone: &'a str, group: &'a str) -> &'a str {
        if self.mode == Mode::Exclusive { alone } else { group }
    }

    /// Returns the value of this placeholder in a statement; the lock is to stay taken for at least `hold`.
    pub(crate) fn value(&self, place: &str, hold: Duration) -> Option<String> {
        Some(match place {
            "lock" => self.table.lock(),
            "holder" => self.table.holder(),
            "member" => self.table.member(),
            "queue" => self.table.queue(),
            "record" => self.table.record(),
            "name" => self.name.clone(),
            "me" => self.me.clone(),
            "done" => self.done.clone(),
            "owner" => self.owner.clone(),
            "about" => self.about.clone(),
            "group" => self.group(),
            "mode" => self.mode_name(),
            "room" => self.mode.room().min(READERS).to_string(),
            "outer" => self.outer.clone(),
            "ttl" => self.ttl.as_millis().to_string(),
            "hold" => hold.as_millis().to_string(),
            "heartbeat_ttl" => self.heartbeat_ttl.as_millis().to_string(),
            "once" => self.once.map(|_| self.table.once())?,
            "length" => self.once.map(|once| once.arguments()[1].clone())?,
            "begins" => (self.literal)("{\"v\":1,\"period\":"),
            "success" => self.success.clone(),
            // The table in which this owner publishes, and its id there.
            "own_table" => self.alone_or(&self.table.holder(), &self.table.member()).to_owned(),
            "own_id" => self.alone_or(&self.me, &self.owner).to_owned(),
            _ => return None,
        })
    }
}

/// Returns the ids as comma-separated literals; an empty literal if there are none.
fn listed(ids: &[String], literal: fn(&str) -> String) -> String {
    let ids: Vec<String> = ids.iter().map(|id| literal(id)).collect();
    if ids.is_empty() { "''".to_owned() } else { ids.join(", ") }
}
