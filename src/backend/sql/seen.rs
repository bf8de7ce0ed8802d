/*!
Interprets the rows that a look at a database reads: one for each lock that is held, one for each co-holder if several
hold it together, and one for each waiter.

The rows are texts, as databases send them, and begin with a word for their kind. Knows no database and no protocol.
*/

use std::str::FromStr;

use crate::backend::sql::owner;
use crate::backend::sql::published::{Columns, Member};
use crate::backend::survey::{Left, Location, Party, Snapshot, State};
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::lock::admission::Mode;

/// The latest end of a lock that counts as a time: the end of the year 9999, as it is the latest in some databases.
const LAST: u64 = 253_402_300_799_999;

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The row of a lock that is held.
    Lock,
    /// One of several holders of it.
    Member,
    /// One of its waiters.
    Waiter,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenRow {
    kind: Kind,
    /// The name of the lock's row.
    name: String,
    columns: Columns,
    /// The minimum hold in milliseconds; in a lock's row, the longer one of that and the lease.
    hold: Option<u64>,
    /// The mode of one of several holders, or of a waiter.
    mode: Option<Mode>,
    /// The number of rows of this kind that the lock has.
    count: u64,
    /// The database's time in milliseconds since 1970.
    now: u64,
    /// The text of the request to stop that was made to it.
    ask: Option<String>,
}

impl SeenRow {
    /// Reads a row; `None` if it does not have the form that the statements give. The tables may contain anything:
    /// values that are malformed there are unknown. The columns are the word, the name of the lock's row, the owner,
    /// the token, the published metadata, the start, the end, the mode, the slot, `done`, the minimum hold, the number
    /// of rows, the time, and the request to stop.
    #[must_use]
    pub(crate) fn read(row: &[Option<String>]) -> Option<Self> {
        let texts: Vec<Option<&str>> = row.iter().map(Option::as_deref).collect();
        let [kind, name, owner, token, about, since, until, mode, slot, done, hold, count, now, ask] = texts[..] else {
            return None;
        };
        let kind = match kind? {
            "lock" => Kind::Lock,
            "member" => Kind::Member,
            "waiter" => Kind::Waiter,
            _ => return None,
        };
        let (way, owner) = (mode.and_then(Mode::read), owner?.to_owned());
        // The owner is a char column, which some databases pad with blanks.
        let id = owner.trim_end().to_owned();
        let (locked_by, member) = match kind {
            Kind::Lock => (owner, None),
            Kind::Member => {
                let done = matches!(done, Some("t" | "1"));
                let group = way.map_or_else(|| owner::PREFIX.to_owned() + mode.unwrap_or_default(), owner::group);
                (group, Some(Member { owner: id, slot: number(slot), done, beside: 0 }))
            }
            Kind::Waiter => (owner::PREFIX.to_owned() + &id, None),
        };
        let columns = Columns {
            locked_by,
            token: number(token),
            since: number(since),
            until: number(until),
            about: about.map(str::to_owned),
            member,
        };
        let (count, now) = (number(count)?, number(now)?);
        Some(Self {
            kind,
            name: name?.to_owned(),
            columns,
            hold: number(hold),
            mode: way,
            count,
            now,
            ask: ask.map(str::to_owned),
        })
    }

    /// Returns the party that the row is about, with the rest of its lease.
    fn party(&self) -> Party {
        let Columns { locked_by, since, until, .. } = &self.columns;
        let mut who = self.columns.holder();
        if let Holder::Dlock(said) = &mut who {
            let is_longer = |hold: &u64| *hold > 0 && (self.kind == Kind::Member || Some(*hold) > said.about.ttl);
            said.hold = self.hold.filter(is_longer);
        }
        // ShedLock's owner is the name of its host: together with the time, it identifies this grant.
        let mut party = Party::new(who, format!("{} {locked_by} {}", self.name, since.unwrap_or_default()));
        party.since = *since;
        party.left = match (self.kind, until) {
            (Kind::Waiter, _) => None,
            (_, Some(until)) if *until <= LAST => Some(Left::Millis(until.saturating_sub(self.now))),
            _ => Some(Left::Forever),
        };
        if self.kind == Kind::Waiter {
            party.mode = self.mode;
        }
        party.asked = self.ask.as_ref().and_then(|ask| Ask::read(ask.as_bytes(), &party.id()));
        party
    }
}

/// Parses a number; `None` if it is missing or out of range, such as a time before 1970.
fn number<N: FromStr>(field: Option<&str>) -> Option<N> {
    field?.parse().ok()
}

/// Returns the name of the lock's row if the database takes it and the one of `location` as equal.
#[must_use]
pub(crate) fn other_name(lines: &[SeenRow], location: &Location) -> Option<String> {
    let names = || lines.iter().filter(|line| line.kind == Kind::Lock).map(|line| &line.name);
    if names().any(|name| *name == location.place) { None } else { names().next().cloned() }
}

/// Returns the columns of the row with this name if this party, which is another program, has the lock.
#[must_use]
pub(crate) fn columns_of<'a>(lines: &'a [SeenRow], place: &str, party: &Party) -> Option<&'a Columns> {
    let mut rows = lines.iter().filter(|line| line.kind == Kind::Lock && line.name == place);
    rows.find(|line| line.columns.is_foreign() && line.party().id() == party.id()).map(|line| &line.columns)
}

/// Returns the lock at this place, by those `lines` that are about its row. `now` is the database's time.
#[must_use]
pub(crate) fn seen(location: Location, lines: &[SeenRow], now: u64) -> Snapshot {
    let of = |kind| lines.iter().filter(move |line| line.kind == kind);
    let about = |kind| of(kind).filter(|line| line.name == location.place).collect::<Vec<_>>();
    let (rows, members, waiters) = (about(Kind::Lock), about(Kind::Member), about(Kind::Waiter));
    let count = |lines: &[&SeenRow]| lines.first().map_or(0, |line| line.count);
    let parties = |lines: &[&SeenRow]| lines.iter().map(|line| line.party()).collect::<Vec<_>>();
    let (queue, waiting) = (parties(&waiters), count(&waiters));
    let held = match rows.first() {
        None => return Snapshot::free(location, now).awaited_by(queue, waiting),
        Some(row) if owner::read_group(&row.columns.locked_by).is_some() => (parties(&members), count(&members)),
        Some(row) => (vec![row.party()], 1),
    };
    let seen = Snapshot { state: State::Held, ..Snapshot::free(location, now) };
    seen.held_by(held.0, held.1).awaited_by(queue, waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::About;

    const ID: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";
    const NOW: u64 = 100_000;

    /// Returns the row with these texts: `-` is NULL, and `A` a dlock's metadata.
    fn row(text: &str) -> Vec<Option<String>> {
        let about = About { host: "web1".to_owned(), ttl: Some(30_000), ..About::default() };
        let about = format!("{{{}", about.rest());
        let field = |field: &str| match field {
            "-" => None,
            "A" => Some(about.clone()),
            other => Some(other.replace("OTHER", OTHER).replace("ID", ID)),
        };
        text.split_whitespace().map(field).collect()
    }

    fn seen_of(rows: &[&str]) -> Snapshot {
        let lines: Vec<SeenRow> = rows.iter().map(|text| SeenRow::read(&row(text)).expect(text)).collect();
        seen(Location { key: None, place: "dlock:job".to_owned() }, &lines, NOW)
    }

    /// Describes in one line what was seen.
    fn told(rows: &[&str]) -> String {
        let seen = seen_of(rows);
        let party = |party: &Party| {
            let id = if party.published().is_some() { party.id()[..4].to_owned() } else { "foreign".to_owned() };
            let left = party.left.map(|left| match left {
                Left::Millis(left) => format!(" {left}"),
                Left::Forever => " forever".to_owned(),
            });
            let slot = party.slot.map(|slot| format!(" slot {slot}"));
            let hold = party.published().and_then(|said| said.hold).map(|hold| format!(" hold {hold}"));
            let done = if party.is_done() { " done" } else { "" };
            [id, left.unwrap_or_default(), slot.unwrap_or_default(), hold.unwrap_or_default(), done.to_owned()].concat()
        };
        let all = |parties: &[Party]| parties.iter().map(party).collect::<Vec<_>>().join(", ");
        let (holders, queue) = (all(&seen.holders), all(&seen.queue));
        format!("{} {}: {holders} | {}: {queue}", seen.state.name(), seen.held_by, seen.waiting)
    }

    #[test]
    fn who_holds_a_lock_and_who_waits_follows_from_its_rows() {
        for (rows, expected) in [
            (&[][..], "free 0:  | 0: "),
            (&["waiter dlock:job ID - A 90000 - exclusive - - - 1 100000 -"], "free 0:  | 1: 0123"),
            (&["lock dlock:job dlock:ID 7 A 90000 120000 - - - 30000 1 100000 -"], "held 1: 0123 20000 | 0: "),
            (
                &["lock dlock:job dlock:ID 7 A 90000 120000 - - - 60000 1 100000 -"],
                "held 1: 0123 20000 hold 60000 | 0: ",
            ),
            (
                &["lock dlock:job dlock:ID:done 7 A 90000 120000 - - - 30000 1 100000 -"],
                "held 1: 0123 20000 done | 0: ",
            ),
            (&["lock dlock:job web1 - - 90000 120000 - - - - 1 100000 -"], "held 1: foreign 20000 | 0: "),
            (&["lock dlock:job web1 - - 90000 - - - - - 1 100000 -"], "held 1: foreign forever | 0: "),
            (&["lock dlock:job web1 - - -5 253402300800000 - - - - 1 100000 -"], "held 1: foreign forever | 0: "),
            // The row of another lock.
            (&["lock dlock:other web1 - - 90000 120000 - - - - 1 100000 -"], "free 0:  | 0: "),
            (
                &[
                    "lock dlock:job dlock:slots5 9 - 90000 120000 - - - 0 1 100000 -",
                    "member dlock:job OTHER 8 A 90000 110000 slots5 0 f 0 2 100000 -",
                    "member dlock:job ID 9 A 90000 110000 slots5 3 t 40000 2 100000 -",
                    "waiter dlock:job ID - A 90000 - slots5 - - - 7 100000 -",
                ],
                "held 2: fedc 10000 slot 0, 0123 10000 slot 3 hold 40000 done | 7: 0123",
            ),
            // Malformed values are unknown, and the others count.
            (&["lock dlock:job web1 x - y 120000 - - - -5 1 100000 -"], "held 1: foreign 20000 | 0: "),
            (
                &[
                    "lock dlock:job dlock:slots5 9 - 90000 120000 - - - 0 1 100000 -",
                    "member dlock:job ID -9 A - - slots5 -1 - -1 1 100000 -",
                    "member dlock:other ID 9 A 90000 110000 slots0 3 t 0 2 100000 -",
                    "waiter dlock:job OTHER - A - - slots0 - - - 1 100000 -",
                ],
                "held 1: 0123 forever | 1: fedc",
            ),
            // The lease of the last of them has just ended.
            (&["lock dlock:job dlock:shared 9 - 90000 120000 - - - 0 1 100000 -"], "held 0:  | 0: "),
        ] {
            assert_eq!(told(rows), expected, "{rows:?}");
        }
    }

    #[test]
    fn a_waiter_says_how_it_wants_the_lock_and_since_when() {
        let seen = seen_of(&["waiter dlock:job ID - A 90000 - shared - - - 1 100000 -"]);
        let waiter = &seen.queue[0];
        assert_eq!((waiter.mode, waiter.since, waiter.left), (Some(Mode::Shared), Some(90_000), None));
        assert_eq!(waiter.published().map(|said| said.about.host.as_str()), Some("web1"));
    }

    #[test]
    fn two_grants_of_one_host_are_not_the_same() {
        let id = |text: &str| seen_of(&[text]).holders[0].id();
        let one = id("lock dlock:job web1 - - 90000 120000 - - - - 1 100000 -");
        assert_eq!(one, id("lock dlock:job web1 - - 90000 130000 - - - - 1 100000 -"));
        assert_ne!(one, id("lock dlock:job web1 - - 90001 120000 - - - - 1 100000 -"));
        assert_ne!(one, id("lock dlock:job web2 - - 90000 120000 - - - - 1 100000 -"));
    }

    #[test]
    fn a_row_of_another_form_means_nothing() {
        for text in [
            "lock dlock:job web1 - - 90000 120000 - - - - 1 -",
            "lock dlock:job web1 - - 90000 120000 - - - - 1 100000 1 -",
            "lock - web1 - - 90000 120000 - - - - 1 100000 -",
            "lock dlock:job - - - 90000 120000 - - - - 1 100000 -",
            "lock dlock:job web1 - - 90000 120000 - - - - 1 - -",
            "lock dlock:job web1 - - 90000 120000 - - - - -1 100000 -",
            "lock dlock:job web1 - - 90000 120000 - - - - - 100000 -",
            "other dlock:job web1 - - 90000 120000 - - - - 1 100000 -",
        ] {
            assert_eq!(SeenRow::read(&row(text)), None, "{text}");
        }
    }
}
