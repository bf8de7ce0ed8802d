/*!
Tables on standard output: locks, and settings.
*/

use std::fmt::Write;

use comfy_table::{ColumnConstraint, ContentArrangement, TableStyle, Width};

use crate::backend::survey::{Left, Seen, State};
use crate::holder::Holder;
use crate::printable::fitting;
use crate::report::picture::{safe, seconds};

/// The columns of a table of locks.
const COLUMNS: [&str; 7] = ["KEY", "HELD BY", "PROGRAM", "FOR", "LEASE", "WAITING", "REASON"];
/// How many locks a part of a table has.
pub(super) const PART: usize = 1000;

/// The settings of `dlock config`, in columns: option, value, origin. Nothing is cut.
#[must_use]
pub(crate) fn settings<'a>(settings: impl Iterator<Item = [&'a str; 3]>) -> String {
    let mut table = table();
    table.set_header(["OPTION", "VALUE", "ORIGIN"]).add_rows(settings.map(|row| row.map(safe)));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    drawn(&table, None)
}

/// An empty table, without lines between its columns.
fn table() -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// The lines of a table, cut to so many columns of a terminal.
fn drawn(table: &comfy_table::Table, width: Option<usize>) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let line = line.trim_end();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", width.map_or(line, |width| fitting(line, width)));
    }
    text
}

/// A table of locks, a line each, which is drawn in parts as they are read; its last columns are cut where there is a width.
#[derive(Debug, Default)]
pub(crate) struct Table {
    width: Option<usize>,
    /// What is not drawn yet.
    rows: Vec<[String; COLUMNS.len()]>,
    /// How wide the columns of the part before are.
    widths: Option<Vec<u16>>,
}

impl Table {
    /// A table for a terminal of this width, if it is for one.
    #[must_use]
    pub(crate) fn new(width: Option<usize>) -> Self {
        Self { width, ..Self::default() }
    }

    /// Adds these locks, and returns the lines that are complete: the columns of a [`PART`] are aligned.
    #[must_use]
    pub(crate) fn part(&mut self, locks: &[Seen]) -> String {
        self.rows.extend(locks.iter().map(row));
        if self.rows.len() < PART { String::new() } else { self.end() }
    }

    /// The remaining lines.
    #[must_use]
    pub(crate) fn end(&mut self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut table = table();
        if self.widths.is_none() {
            table.set_header(COLUMNS);
        }
        table.add_rows(self.rows.drain(..));
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if let Some(width) = self.widths.as_ref().and_then(|widths| widths.get(at)) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + 2)));
            }
        }
        let before = self.widths.take().unwrap_or_default();
        let widths = table.column_max_content_widths().into_iter().enumerate();
        self.widths = Some(widths.map(|(at, width)| width.max(before.get(at).copied().unwrap_or(0))).collect());
        drawn(&table, self.width)
    }
}

fn row(lock: &Seen) -> [String; COLUMNS.len()] {
    let (key, none) = (safe(lock.spot.name()), || "-".to_owned());
    let waiting = if lock.has_no_queue { none() } else { lock.waiting.to_string() };
    let Some(holder) = lock.holders.first() else {
        let why = if let State::Blocked(what) = &lock.state { safe(what) } else { String::new() };
        return [key, lock.state.name().to_owned(), none(), none(), none(), waiting, why];
    };
    let said = holder.published();
    let mut by = match &holder.who {
        Holder::Dlock(said) => format!("{}@{}", safe(&said.about.user), safe(&said.about.host)),
        Holder::Process(pid, _) => holder.user.as_deref().map_or(format!("pid {pid}"), safe),
        _ => "another program".to_owned(),
    };
    if lock.held_by > 1 {
        let _ = write!(by, " and {} more", lock.held_by - 1);
    }
    let program = match &holder.who {
        Holder::Dlock(said) if !said.about.program.is_empty() => safe(&said.about.program),
        Holder::Process(_, name) => safe(name),
        _ => none(),
    };
    let length = holder.age(lock.now).map_or_else(none, seconds);
    let lease = match holder.left {
        Some(Left::Millis(left)) => seconds(left),
        Some(Left::Forever) => "never".to_owned(),
        None => none(),
    };
    let reason = said.and_then(|said| said.about.reason.as_deref()).map(safe).unwrap_or_default();
    [
        key,
        by,
        program,
        length,
        lease,
        waiting,
        if holder.is_done() { "finished (--min-hold)".to_owned() } else { reason },
    ]
}
