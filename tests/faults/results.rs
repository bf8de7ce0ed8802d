//! The results of all campaigns: a file with one line per cell, and the tables made from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::episode::Report;
use super::held::Held;
use super::listed;
use super::matrix::{self, Cell, Class};
use super::world::Column;

/// The published results, in the checkout.
const PUBLISHED: &str = "tests/faults/results.jsonl";
/// The text that shows them, in the checkout.
const README: &str = "tests/faults/README.md";
/// The marks around the tables there.
const MARKS: (&str, &str) = ("<!-- results -->\n", "<!-- end of results -->");

/// Compares the tables in the campaign's README with the published results. If they differ, writes them there and returns
/// an error.
pub fn check_readme() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = root.join(README);
    let text = fs::read_to_string(&readme).map_err(|error| error.to_string())?;
    let published = Results::read(&root.join(PUBLISHED)).map_err(|error| error.to_string())?;
    let parts = text.split_once(MARKS.0).and_then(|(before, rest)| Some((before, rest.split_once(MARKS.1)?)));
    let (before, (shown, after)) = parts.ok_or_else(|| format!("{README} has no place for the results"))?;
    let tables = published.tables();
    if shown == tables {
        return Ok(());
    }
    let text = format!("{before}{}{tables}{}{after}", MARKS.0, MARKS.1);
    fs::write(&readme, text).map_err(|error| error.to_string())?;
    Err(format!("{README} showed other results than {PUBLISHED}; it has been written anew"))
}

/// The results of all episodes of a cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sum {
    pub runs: u64,
    /// How many further episodes say nothing, see [`Report::void`].
    #[serde(default)]
    pub void: u64,
    pub violations: u64,
    pub faults: u64,
    pub hand_overs: u64,
    pub false_losses: u64,
    pub overlaps: u64,
    pub late_refused: u64,
    pub rss_kib: u64,
    /// The margins in milliseconds, sorted.
    pub margins: Vec<u64>,
    /// The recovery times in milliseconds, sorted.
    pub recoveries: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    fault: String,
    column: Column,
    #[serde(default, skip_serializing_if = "is_alone")]
    held: Held,
    #[serde(flatten)]
    sum: Sum,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_alone(held: &Held) -> bool {
    *held == Held::Alone
}

/// The results of all cells.
pub struct Results {
    path: PathBuf,
    sums: BTreeMap<(String, Column, Held), Sum>,
}

impl Results {
    /// Reads the file at `path`; empty if there is none.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut sums = BTreeMap::new();
        for line in text.lines() {
            let line: Line = serde_json::from_str(line).map_err(io::Error::other)?;
            sums.insert((line.fault, line.column, line.held), line.sum);
        }
        Ok(Self { path: path.to_owned(), sums })
    }

    /// Adds an episode, and rewrites the file.
    pub fn add(&mut self, cell: Cell, report: &Report) -> io::Result<()> {
        let sum = self.sums.entry((cell.fault.name.to_owned(), cell.column, cell.held)).or_default();
        if report.void().is_some() {
            sum.void += 1;
            return self.write();
        }
        sum.runs += 1;
        sum.violations += u64::from(!report.violations.is_empty());
        sum.faults += report.faults;
        sum.hand_overs += report.hand_overs;
        sum.false_losses += report.false_losses;
        sum.overlaps += report.overlaps;
        sum.late_refused += report.late_refused;
        sum.rss_kib = sum.rss_kib.max(report.rss_kib);
        insert(&mut sum.margins, report.margin);
        insert(&mut sum.recoveries, report.recovery);
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let mut text = String::new();
        for ((fault, column, held), sum) in &self.sums {
            let line = Line { fault: fault.clone(), column: *column, held: *held, sum: sum.clone() };
            text += &serde_json::to_string(&line).map_err(io::Error::other)?;
            text.push('\n');
        }
        let new = self.path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(new, &self.path)
    }

    /// How often this cell was tried.
    pub fn runs(&self, cell: Cell) -> u64 {
        self.of(cell).map_or(0, |sum| sum.runs)
    }

    fn of(&self, cell: Cell) -> Option<&Sum> {
        self.sums.get(&(cell.fault.name.to_owned(), cell.column, cell.held))
    }

    /// The sums over all cells: faults, hand-overs, violations.
    pub fn totals(&self) -> (u64, u64, u64) {
        self.sums.values().fold((0, 0, 0), |(faults, hand_overs, violations), sum| {
            (faults + sum.faults, hand_overs + sum.hand_overs, violations + sum.violations)
        })
    }

    /// The table of the cells in which everything has to hold, fault by service, of locks that are held like this.
    pub fn matrix(&self, held: Held) -> String {
        let columns = [
            Column::File,
            Column::Redis,
            Column::Redlock,
            Column::Etcd,
            Column::ZooKeeper,
            Column::Postgres,
            Column::Mysql,
        ];
        let mut text = String::from("| fault |");
        for column in columns {
            let _ = write!(text, " {} |", column.title());
        }
        text += "\n| --- |";
        text += &" --- |".repeat(columns.len());
        text.push('\n');
        for fault in listed::FAULTS {
            let cells: Vec<Option<Cell>> = columns
                .iter()
                .map(|&column| {
                    let is_safe = |cell: &Cell| cell.held == held && cell.class == Class::Safe;
                    let of = |cell: &Cell| std::ptr::eq(cell.fault, fault) && is_safe(cell);
                    // What only redis under sentinels can suffer is in the column of redis.
                    let fits = |of: Column| of == column || (of == Column::Sentinel && column == Column::Redis);
                    matrix::cells().find(|cell| of(cell) && fits(cell.column))
                })
                .collect();
            // A cell that was never tried has nothing to show.
            if !cells.iter().flatten().any(|&cell| self.of(cell).is_some()) {
                continue;
            }
            let _ = write!(text, "| {} |", fault.title);
            for cell in cells {
                let _ = write!(text, " {} |", cell.map(|cell| self.brief(cell)).unwrap_or_default());
            }
            text.push('\n');
        }
        text
    }

    /// Runs, violations, the smallest margin, false losses, and how long it took until the lock was held again.
    fn brief(&self, cell: Cell) -> String {
        let Some(sum) = self.of(cell) else { return "not run".to_owned() };
        let mut text = format!("{}", sum.runs);
        if sum.violations > 0 {
            let _ = write!(text, " · **{} violated**", sum.violations);
        }
        if let Some(margin) = sum.margins.first() {
            let _ = write!(text, " · ≥ {}", seconds(*margin));
        }
        if sum.false_losses > 0 {
            let _ = write!(text, " · {} lost", sum.false_losses);
        }
        if let Some(recovery) = sum.recoveries.last() {
            let _ = write!(text, " · ↻ {}", seconds(*recovery));
        }
        text
    }

    /// The table of the documented windows: how often two commands overlapped, and what became of late writes.
    pub fn windows(&self) -> String {
        let mut text = String::from(
            "| fault | service | runs | runs with a violation | overlaps | late writes refused | held again after |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for cell in matrix::cells().filter(|cell| cell.class == Class::Documented) {
            let Some(sum) = self.of(cell) else { continue };
            let recovery = sum.recoveries.last().map(|last| seconds(*last)).unwrap_or_default();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                cell.fault.title,
                cell.title(),
                sum.runs,
                sum.violations,
                sum.overlaps,
                sum.late_refused,
                recovery
            );
        }
        text
    }

    /// The table of margins and recovery times, service by service.
    pub fn distribution(&self) -> String {
        let mut text = String::from(
            "| service | runs | faults | hand-overs | margin: smallest, 5 %, median | held again after: median, 95 %, longest |\n\
             | --- | --- | --- | --- | --- | --- |\n",
        );
        for column in Column::ALL {
            let sums: Vec<&Sum> =
                self.sums.iter().filter(|((_, of, _), _)| *of == column).map(|(_, sum)| sum).collect();
            let total = |count: fn(&Sum) -> u64| sums.iter().map(|sum| count(sum)).sum::<u64>();
            let all = |list: fn(&Sum) -> &Vec<u64>| {
                let mut all: Vec<u64> = sums.iter().flat_map(|sum| list(sum)).copied().collect();
                all.sort_unstable();
                all
            };
            let (margins, recoveries) = (all(|sum| &sum.margins), all(|sum| &sum.recoveries));
            let at = |list: &[u64], percent: usize| {
                list.get((list.len() * percent / 100).min(list.len().saturating_sub(1))).copied()
            };
            let ms = |list: &[u64], percents: [usize; 3]| {
                let shown = percents.map(|percent| at(list, percent).map(seconds));
                shown.into_iter().flatten().collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                column.title(),
                total(|sum| sum.runs),
                total(|sum| sum.faults),
                total(|sum| sum.hand_overs),
                ms(&margins, [0, 5, 50]),
                ms(&recoveries, [50, 95, 100])
            );
        }
        text
    }

    /// All tables.
    pub fn tables(&self) -> String {
        let (faults, hand_overs, violations) = self.totals();
        let runs: u64 = self.sums.values().map(|sum| sum.runs).sum();
        let void: u64 = self.sums.values().map(|sum| sum.void).sum();
        format!(
            "{runs} runs, {faults} faults, {hand_overs} hand-overs, {violations} of the runs with a violation; {void} more do not \
             count, because the machine itself stood still meanwhile, the lock could not be had before anything was broken, or the \
             servers did not come back.\n\n{}\n{}\n{}",
            self.matrix(Held::Alone),
            self.together() + &self.windows(),
            self.distribution()
        )
    }

    /// The tables of locks that several hold, as far as there is something to show.
    fn together(&self) -> String {
        let tried = |held: Held| self.sums.keys().any(|(.., of)| *of == held);
        let table =
            |held: Held| format!("Locks that are held by several ({}):\n\n{}\n", held.title(), self.matrix(held));
        [Held::Shared, Held::Slots].into_iter().filter(|&held| tried(held)).map(table).collect()
    }
}

fn insert(list: &mut Vec<u64>, value: Option<Duration>) {
    if let Some(value) = value {
        let value = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
        list.insert(list.partition_point(|&other| other < value), value);
    }
}

/// A time in seconds, or in milliseconds below one second.
fn seconds(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}
