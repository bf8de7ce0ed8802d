/*!
Tables on standard output: locks, and settings.
*/

use std::fmt::Write;

use comfy_table::{ColumnConstraint, ContentArrangement, TableStyle, Width};
use unicode_width::UnicodeWidthStr;

use crate::backend::survey::{Left, Snapshot, State};
use crate::holder::Holder;
use crate::printable::shortened;
use crate::report::picture::{safe, seconds};

/// The columns of a table of locks.
const COLUMNS: [&str; 7] = ["KEY", "HELD BY", "PROGRAM", "FOR", "LEASE", "WAITING", "REASON"];
/// The columns of long names, in the order in which they are cut for a narrow terminal, with the least width of each.
const NAMES: [(usize, usize); 3] = [(0, 6), (1, 6), (2, 2)];
/// Number of locks in a part of a table.
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

/// The lines of a table, cut to `width` columns of a terminal.
fn drawn(table: &comfy_table::Table, width: Option<usize>) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let line = line.trim_end();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", width.map_or_else(|| line.to_owned(), |width| shortened(line, width)));
    }
    text
}

/// A table of locks, one per line, which is drawn in parts as they are read. If there is a width, names are cut to fit,
/// and then the end of each line.
#[derive(Debug, Default)]
pub(crate) struct Table {
    width: Option<usize>,
    /// The rows that are not drawn yet.
    rows: Vec<[String; COLUMNS.len()]>,
    /// Widths of the columns of the part before.
    widths: Option<Vec<u16>>,
    /// Largest width of each column with a name, if there is a width.
    limits: Option<[usize; NAMES.len()]>,
}

impl Table {
    /// A table for a terminal of this width, or for no terminal.
    #[must_use]
    pub(crate) fn new(width: Option<usize>) -> Self {
        Self { width, ..Self::default() }
    }

    /// Adds these locks, and returns the lines that are complete: the columns of a [`PART`] are aligned.
    #[must_use]
    pub(crate) fn part(&mut self, locks: &[Snapshot]) -> String {
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
        let rows = std::mem::take(&mut self.rows);
        let mut header = COLUMNS.map(str::to_owned);
        if let (None, Some(width)) = (self.limits, self.width) {
            self.limits = Some(limits(std::iter::once(&header).chain(&rows), width));
        }
        let cut = |row: &mut [String; COLUMNS.len()]| {
            for ((at, _), limit) in NAMES.iter().zip(self.limits.iter().flatten()) {
                row[*at] = shortened(&row[*at], *limit);
            }
        };
        if self.widths.is_none() {
            cut(&mut header);
            table.set_header(header);
        }
        table.add_rows(rows.into_iter().map(|mut row| {
            cut(&mut row);
            row
        }));
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

/// Largest widths of the columns with names, so that all columns but the last fit into `width` columns of a terminal.
fn limits<'a>(rows: impl Iterator<Item = &'a [String; COLUMNS.len()]>, width: usize) -> [usize; NAMES.len()] {
    let mut widths = [0; COLUMNS.len() - 1];
    for row in rows {
        for (widest, text) in widths.iter_mut().zip(row) {
            *widest = text.width().max(*widest);
        }
    }
    let mut excess = (widths.iter().sum::<usize>() + 2 * (widths.len() - 1)).saturating_sub(width);
    NAMES.map(|(at, least)| {
        let cut = excess.min(widths[at].saturating_sub(least));
        excess -= cut;
        widths[at] - cut
    })
}

fn row(lock: &Snapshot) -> [String; COLUMNS.len()] {
    let (key, none) = (safe(lock.location.name()), || "-".to_owned());
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
