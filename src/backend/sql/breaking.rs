/*!
Requests to stop and breaks at a database: puts a request next to an owner's published text, or ends a lock. Each is one
transaction that compares the whole id of the owner or, for another program, everything that distinguishes its grant. No
row of a lock is ever deleted.
*/

use crate::backend::sql::looks::Looks;
use crate::backend::sql::owner;
use crate::backend::sql::published::Columns;
use crate::backend::sql::table::Table;
use crate::backend::survey::Party;
use crate::holder::ask::Ask;
use crate::lock::admission::Mode;

/// The statements of requests to stop and breaks at one kind of database. Changes answer `done` if they were made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakStatements {
    /// Begins a transaction.
    pub begin: &'static str,
    /// Puts a request to stop next to an owner's metadata.
    pub ask: &'static str,
    /// Notifies that owner; empty if it polls.
    pub tell: &'static str,
    /// Ends a lock that one owner holds alone.
    pub take: &'static str,
    /// Ends the hold of one of several holders.
    pub member: &'static str,
    /// Ends the lock of another program.
    pub foreign: &'static str,
    /// Records a break; it replaces `{trace}` in those statements.
    pub trace: &'static str,
    /// Makes such a transaction wait for others only briefly: holders may wait for the rows that it has locked.
    pub hurry: &'static str,
    /// Wakes the next in line; empty if waiters poll.
    pub wake: &'static str,
    /// The statements of looks, for the parts that they share.
    pub looks: Looks,
}

/// The target of a change.
#[derive(Debug)]
pub(crate) struct Act<'a> {
    /// The name of the lock's row.
    place: &'a str,
    whom: Whom<'a>,
}

/// The holder that a change is about.
#[derive(Debug)]
enum Whom<'a> {
    /// A dlock with this id, which holds the lock in this mode.
    Dlock(&'a str, Mode),
    /// Another program, by the columns of the lock's row.
    Foreign(&'a Columns),
}

impl<'a> Act<'a> {
    /// Returns the target for this party at the row of this name; `None` if the party is not a dlock.
    pub(crate) fn new(place: &'a str, party: &'a Party) -> Option<Self> {
        let whom = Whom::Dlock(&party.published()?.id, party.mode.unwrap_or_default());
        Some(Self { place, whom })
    }

    /// Returns the target for another program with these columns.
    pub(crate) fn foreign(place: &'a str, columns: &'a Columns) -> Self {
        Self { place, whom: Whom::Foreign(columns) }
    }
}

impl BreakStatements {
    /// Returns the request that puts `ask` next to the owner's metadata, and records it if `traced`.
    pub(crate) fn ask(&self, table: &Table, act: &Act<'_>, ask: &Ask, traced: bool) -> String {
        self.transaction(self.ask, table, act, ask, traced)
    }

    /// Returns the request that notifies the owner; empty if there is none.
    pub(crate) fn tell(&self, table: &Table, act: &Act<'_>) -> String {
        self.filled(self.tell, table, act, "")
    }

    /// Returns the request that ends the lock, and records `ask` if `traced`.
    pub(crate) fn take(&self, table: &Table, act: &Act<'_>, ask: &Ask, traced: bool) -> String {
        let statements = match act.whom {
            Whom::Dlock(_, Mode::Exclusive) => self.take,
            Whom::Dlock(..) => self.member,
            Whom::Foreign(_) => self.foreign,
        };
        self.transaction(statements, table, act, ask, traced)
    }

    /// Returns the request that wakes the next in line; empty if there is none.
    pub(crate) fn wake(&self, table: &Table, act: &Act<'_>) -> String {
        self.filled(self.wake, table, act, "")
    }

    fn transaction(&self, statements: &str, table: &Table, act: &Act<'_>, ask: &Ask, traced: bool) -> String {
        let (trace, hurry) = if traced { (self.trace, self.hurry) } else { ("", "") };
        // A trace starts on its own line, because its comments must be whole lines.
        let statements = statements.replace("{trace}", &format!("\n{trace}"));
        self.filled(&format!("{}{hurry}{statements}\nCOMMIT;\n", self.begin), table, act, &ask.text())
    }

    fn filled(&self, text: &str, table: &Table, act: &Act<'_>, ask: &str) -> String {
        let literal = self.looks.literal;
        self.looks.filled(text, table, |place| {
            let number = |number: Option<u64>| number.map_or_else(|| "NULL".to_owned(), |number| number.to_string());
            Some(match (place, &act.whom) {
                ("name", _) => literal(act.place),
                ("ask", _) => literal(ask),
                ("held" | "owner", Whom::Dlock(id, Mode::Exclusive)) => literal(&owner::of(id)[0]),
                ("held", Whom::Dlock(_, mode)) => literal(&owner::group(*mode)),
                ("held", Whom::Foreign(columns)) => literal(&columns.locked_by),
                ("kept" | "done", Whom::Dlock(id, _)) => literal(&owner::of(id)[1]),
                // No owner has this text.
                ("done", Whom::Foreign(_)) => literal(""),
                ("beside", Whom::Dlock(_, Mode::Exclusive)) => table.holder(),
                ("beside", Whom::Dlock(..)) => table.member(),
                ("owner", Whom::Dlock(id, _)) => literal(id),
                ("channel", Whom::Dlock(id, _)) => literal(&format!("dlock_{id}")),
                ("seen_since", Whom::Foreign(columns)) => number(columns.since),
                ("seen_until", Whom::Foreign(columns)) => number(columns.until),
                _ => return None,
            })
        })
    }

    /// Asserts that every placeholder has a value, and that a change is one transaction.
    #[cfg(test)]
    #[track_caller]
    pub(crate) fn check(&self) {
        use crate::holder::Holder;

        const ID: &str = "0123456789abcdef0123456789abcdef";
        let table = Table::shedlock('"');
        let columns = Columns { locked_by: "it's".to_owned(), since: Some(7), ..Columns::default() };
        let foreign = Act::foreign("dlock:job", &columns);
        let parties = [Mode::Exclusive, Mode::Shared].map(|mode| {
            let mut party = Party::new(Holder::read(format!(r#"{{"v":1,"id":"{ID}"}}"#).as_bytes()), "");
            party.mode = Some(mode);
            party
        });
        let acts = parties.iter().map(|party| Act::new("dlock:job", party).expect("a dlock"));
        let ask = Ask::new(ID, "a@b", None, 1);
        let own = |text: String| text.replace(&(self.looks.literal)(&ask.text()), "ASK");
        let mut changes = vec![self.take(&table, &foreign, &ask, true), self.take(&table, &foreign, &ask, false)];
        for act in acts {
            assert!(!format!("{}{}", self.tell(&table, &act), self.wake(&table, &act)).contains('{'));
            for traced in [false, true] {
                changes.push(self.take(&table, &act, &ask, traced));
                changes.push(self.ask(&table, &act, &ask, traced));
                assert!(own(self.ask(&table, &act, &ask, traced)).contains("ASK"));
            }
        }
        let once = table.once();
        assert_eq!(
            changes.iter().filter(|change| change.contains(&once) && own((*change).clone()).contains("ASK")).count(),
            5
        );
        assert!(!self.wake(&table, &foreign).contains('{'));
        for change in changes.into_iter().map(own) {
            assert!(!change.contains('{') && change.trim_end().ends_with("COMMIT;"), "{change}");
            assert_eq!(change.matches("COMMIT;").count(), 1, "{change}");
        }
    }
}
