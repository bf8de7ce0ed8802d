/*!
Barriers on one host: a file with the marks of the parties. A mark is alive as long as its party has locked the mark's
byte, which ends with the party's process. The last party to leave removes the file.
*/

use std::fs::File;

use serde::{Deserialize, Serialize};

use crate::backend::error::Error;
use crate::backend::file::meeting::{Board, no_byte_lock, read, write};
use crate::backend::file::ranges::{self, Kind, Range};
use crate::backend::meeting::rule::{Mark, Step, step};
use crate::backend::meeting::{Barrier, Gathering};

/// Upper limit of the locked bytes: far more than there can be parties.
const MOST_BYTES: i32 = 10_000;

/// The content of a barrier's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    marks: Vec<Seat>,
}

/// A mark, and the byte that shows that its party is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seat {
    #[serde(flatten)]
    mark: Mark,
    /// The byte that its party has locked.
    byte: i32,
}

fn range(byte: i32) -> Range {
    Range { start: byte, length: 1 }
}

/// Returns the seats whose marks are alive, including the one of our own `id`, and whether others were dropped.
fn living(file: &File, id: &str) -> Result<(Vec<Seat>, bool), String> {
    let mut living = Vec::new();
    let all = read::<Record>(file)?.marks;
    let before = all.len();
    for seat in all {
        if seat.mark.id == id || ranges::conflict(file, range(seat.byte)).map_err(no_byte_lock)?.is_some() {
            living.push(seat);
        }
    }
    let dropped = living.len() < before;
    Ok((living, dropped))
}

/// Returns `true` if the file is that of a barrier where a party waits.
pub(super) fn is_in_use(file: &File) -> bool {
    // A writer may have been in the middle of its work.
    living(file, "").or_else(|_| living(file, "")).is_ok_and(|(living, _)| !living.is_empty())
}

/// Locks and returns a byte that nobody has locked, never the first one.
fn take_byte(file: &File) -> Result<i32, String> {
    for byte in 1..MOST_BYTES {
        if ranges::lock(file, Kind::Write, range(byte)).map_err(no_byte_lock)? {
            return Ok(byte);
        }
    }
    Err("too many processes have locked a byte of it".to_owned())
}

/// One party at a barrier.
#[derive(Debug)]
pub(super) struct FileBarrier {
    board: Board,
    parties: u32,
}

impl FileBarrier {
    /// Returns a party that waits for this number of `parties`.
    pub(super) fn new(board: Board, parties: u32) -> Self {
        Self { board, parties }
    }

    fn own(&self) -> Mark {
        let meeting = &self.board.meeting;
        Mark {
            name: meeting.name.clone(),
            id: meeting.id.as_str().to_owned(),
            parties: self.parties,
            ..Mark::default()
        }
    }

    /// Looks at the file and takes all necessary steps under one lock.
    async fn gather(&mut self, arrives: bool) -> Result<Gathering, Error> {
        let own = self.own();
        let work = |file: &File| -> Result<Gathering, String> {
            let (mut seats, mut changed) = living(file, &own.id)?;
            loop {
                let marks: Vec<Mark> = seats.iter().map(|seat| seat.mark.clone()).collect();
                match step(&marks, &own, arrives) {
                    Step::Tell(gathering) => {
                        if changed {
                            write(file, &Record { marks: seats })?;
                        }
                        return Ok(gathering);
                    }
                    Step::Leave(gathering) => {
                        seats.retain(|seat| seat.mark.id != own.id);
                        write(file, &Record { marks: seats })?;
                        return Ok(gathering);
                    }
                    Step::Join => {
                        let byte = take_byte(file)?;
                        seats.retain(|seat| seat.mark.name != own.name);
                        seats.push(Seat { mark: own.clone(), byte });
                    }
                    Step::Open => {
                        let waiting = seats.iter_mut().filter(|seat| seat.mark.waits_with(&own));
                        waiting.for_each(|seat| seat.mark.open = true);
                    }
                }
                changed = true;
            }
        };
        if !arrives && !self.board.is_there() {
            return Ok(Gathering::Gone);
        }
        Ok(self.board.with(true, work).await?.unwrap_or(Gathering::Gone))
    }

    /// Removes our mark. An open mark stays unless `open` is `true`; returns `true` if it stays.
    async fn take_away(&mut self, open: bool) -> Result<bool, Error> {
        self.board.find()?;
        if !self.board.is_there() {
            return Ok(false);
        }
        let own = self.own();
        let mut is_left = false;
        let work = |file: &File| -> Result<bool, String> {
            let (mut marks, _) = living(file, &own.id)?;
            let is_own = |seat: &Seat| seat.mark.id == own.id;
            is_left = !open && marks.iter().any(|seat| is_own(seat) && seat.mark.open);
            if !is_left {
                for seat in marks.iter().filter(|seat| is_own(seat)) {
                    // The lock ends with the process at the latest.
                    let _ = ranges::unlock(file, range(seat.byte));
                }
                marks.retain(|seat| !is_own(seat));
            }
            let record = Record { marks };
            write(file, &record)?;
            Ok(record.marks.is_empty())
        };
        self.board.with_or_without(work).await?;
        Ok(is_left)
    }
}

#[async_trait::async_trait(?Send)]
impl Barrier for FileBarrier {
    async fn connect(&mut self) -> Result<(), Error> {
        self.board.find()
    }

    async fn arrive(&mut self) -> Result<Gathering, Error> {
        self.gather(true).await
    }

    async fn look(&mut self) -> Result<Gathering, Error> {
        self.gather(false).await
    }

    async fn changed(&mut self) -> Result<(), Error> {
        self.board.changed().await;
        Ok(())
    }

    async fn withdraw(&mut self) -> Result<bool, Error> {
        self.take_away(false).await
    }

    async fn close(&mut self) {
        // If this fails, the mark ends with the process.
        let _ = self.take_away(true).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_mark_is_alive_as_long_as_its_byte_is_locked() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("file");
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let open = || options.open(&path).expect("opened");
        let (one, other, looker) = (open(), open(), open());
        let seat = |file: &File, id: &str| Seat {
            mark: Mark { name: id.to_owned(), id: id.to_owned(), parties: 3, ..Mark::default() },
            byte: take_byte(file).expect("a byte"),
        };
        let marks = vec![seat(&one, "a"), seat(&other, "b"), Seat { byte: 7, ..seat(&looker, "c") }];
        assert_eq!(marks.iter().map(|seat| seat.byte).collect::<Vec<_>>(), [1, 2, 7]);
        write(&one, &Record { marks: marks.clone() }).expect("written");
        let alive = |file: &File, id: &str| {
            let (living, dropped) = living(file, id).expect("read");
            (living.iter().map(|seat| seat.mark.id.clone()).collect::<String>(), dropped)
        };
        assert_eq!(alive(&one, "a"), ("ab".to_owned(), true), "our own lock does not show");
        assert_eq!(alive(&looker, "c"), ("abc".to_owned(), false));
        drop(other);
        assert_eq!(alive(&looker, "c"), ("ac".to_owned(), true));
    }
}
