/*!
Interprets what was read of a lock file: its holders and waiters, by the kernel's table and the files. Does no reading
itself.
*/

use crate::backend::file::content::Record;
use crate::backend::file::kernel::KernelLocks;
use crate::backend::file::seats::Seat;
use crate::backend::survey::{Location, Party, Snapshot, State};
use crate::holder::{Holder, Published};
use crate::lock::admission::Mode;

/// The data read about a lock.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The locks in the kernel's table.
    pub locks: KernelLocks,
    /// The record of the exclusive holder.
    pub alone: Record,
    /// The seats that are taken, as far as they can be seen.
    pub seats: Vec<Seat>,
    /// The records of the seats, by their numbers.
    pub records: Vec<(u32, Record)>,
    /// `true` if the file system is local to this host.
    pub is_local: bool,
    /// `true` if it has content that this user may not read.
    pub is_closed: bool,
}

/// The knowledge of the processes on this host.
pub(super) struct Processes {
    /// Returns the process with this id, which holds the lock or waits for it.
    pub process: fn(i32, Option<Mode>) -> Party,
    /// Returns the ids of the process with this id in all PID namespaces that it is in.
    pub numbers: fn(i32) -> Vec<i32>,
    /// Returns `true` if a holder may be where the kernel does not show its locks.
    pub is_unseen: fn(&Published) -> bool,
    /// Returns `true` if the kernel shows all locks here. In a separate PID namespace it omits those of outside
    /// processes, and those whose process has ended while another one continues with its descriptor.
    pub sees_all: fn() -> bool,
}

impl Found {
    /// Returns the state of the lock at `now`, in milliseconds since 1970.
    pub(super) fn seen(&self, location: Location, now: u64, processes: &Processes) -> Snapshot {
        let (locks, kept) = (&self.locks, self.kept());
        let mut waiting = locks.waiting.clone();
        waiting.extend(locks.first.filter(|first| !locks.waiting.contains(first)));
        waiting.extend(&locks.behind);
        let alone = |pid| (processes.process)(pid, Some(Mode::Exclusive));
        let holders = match (self.seats.is_empty() && locks.readers.is_empty(), locks.holder) {
            (false, _) => [self.sharing(processes), kept].concat(),
            (true, None) => kept,
            (true, Some(pid)) => match self.alone.published().filter(|said| !said.done) {
                Some(said) if (processes.numbers)(pid).contains(&said.about.pid) => {
                    vec![Party::new(Holder::Dlock(said), "")]
                }
                // The first in line has it locked until its predecessor's hold is over.
                _ if !kept.is_empty() && is_dlock(&alone(pid)) => {
                    waiting.insert(0, pid);
                    kept
                }
                _ => vec![alone(pid)],
            },
        };
        let is_told = self.is_local && !self.is_closed && (processes.sees_all)() && !self.names_one_unseen(processes);
        let is_hidden = holders.is_empty() && !is_told;
        let queue: Vec<Party> = waiting.into_iter().map(|pid| (processes.process)(pid, None)).collect();
        let mut seen = Snapshot::free(location, now).held_by(holders, 0).awaited_by(queue, 0);
        if is_hidden {
            seen.state = State::Unknown;
        }
        seen
    }

    /// Returns the parties that keep the lock taken without using it.
    fn kept(&self) -> Vec<Party> {
        let left = self.records.iter().filter(|(number, _)| !self.seats.iter().any(|seat| seat.number == *number));
        let records = left.map(|(_, record)| record).chain([&self.alone]);
        records.filter_map(|record| Some(Party::new(record.finished()?.0, ""))).collect()
    }

    /// Returns the co-holders by the seats that are taken, and the processes of other programs that read.
    fn sharing(&self, processes: &Processes) -> Vec<Party> {
        let occupant = |seat: &Seat| {
            let (_, record) = self.records.iter().find(|(number, _)| *number == seat.number)?;
            record.published().filter(|said| said.mode() == Some(seat.mode) && !said.done)
        };
        let mut known: Vec<i32> = Vec::new();
        let mut holders: Vec<Party> = Vec::new();
        for seat in &self.seats {
            let said = occupant(seat).unwrap_or_else(|| {
                let mode = Some(seat.mode.name());
                Box::new(Published { v: 1, mode, slot: seat.slot(), ..Published::default() })
            });
            known.push(said.about.pid);
            holders.push(Party::new(Holder::Dlock(said), ""));
        }
        let is_known = |pid: &i32| (processes.numbers)(*pid).iter().any(|number| known.contains(number));
        let readers = self.locks.readers.iter().filter(|pid| !is_known(pid));
        holders.extend(readers.map(|&pid| (processes.process)(pid, Some(Mode::Shared))));
        holders
    }

    /// Returns `true` if a recorded holder's locks may not be shown by the kernel here.
    fn names_one_unseen(&self, processes: &Processes) -> bool {
        let records = self.records.iter().map(|(_, record)| record).chain([&self.alone]);
        let mut said = records.filter_map(Record::published).filter(|said| !said.done);
        said.any(|said| (processes.is_unseen)(&said))
    }
}

/// Returns `true` if this process is a dlock.
fn is_dlock(party: &Party) -> bool {
    matches!(&party.who, Holder::Process(_, name) if name == "dlock")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::file::kept::MinimumHold;

    /// Each process from 100 on is a dlock; from 200 on, it has the number 1 in its own PID namespace.
    const HERE: Processes = Processes {
        process: |pid, mode| {
            let name = if pid >= 100 { "dlock" } else { "flock" };
            Party { mode, ..Party::new(Holder::Process(pid, name.to_owned()), "") }
        },
        numbers: |pid| if pid >= 200 { vec![1, pid] } else { vec![pid] },
        is_unseen: |said| said.about.ns == Some(9),
        sees_all: || true,
    };

    fn record(pid: i32, rest: &str, kept: Option<u64>) -> Record {
        let text = format!(r#"{{"v":1,"id":"id{pid}","pid":{pid}{rest}}}"#);
        let kept = kept.and_then(|seconds| MinimumHold::from_now(Duration::from_secs(seconds)));
        Record { holder: text.into_bytes(), kept }
    }

    fn seat(mode: &str, number: u32) -> Seat {
        Seat { mode: Mode::read(mode).expect("a mode"), number }
    }

    fn told(found: &Found, processes: &Processes) -> String {
        let seen = found.seen(Location::default(), 0, processes);
        let party = |party: &Party| {
            let name = match &party.who {
                Holder::Dlock(said) if said.id.is_empty() => "somebody".to_owned(),
                Holder::Dlock(said) => said.id.clone(),
                Holder::Process(pid, _) => pid.to_string(),
                other => format!("{other:?}"),
            };
            let slot = party.slot.map(|slot| format!(" in {slot}")).unwrap_or_default();
            format!("{name}{slot}{}", if party.is_done() { " done" } else { "" })
        };
        let all = |parties: &[Party]| parties.iter().map(party).collect::<Vec<_>>().join(", ");
        let (holders, queue) = (all(&seen.holders), all(&seen.queue));
        format!("{}: {holders} | {}: {queue}", seen.state.name(), seen.waiting)
    }

    #[test]
    fn who_holds_a_lock_and_who_waits_follows_from_the_table_and_the_files() {
        let found = || Found { is_local: true, ..Found::default() };
        let held = |pid| Found { locks: KernelLocks { holder: Some(pid), ..KernelLocks::default() }, ..found() };
        let shared = |slot: u32| format!(r#","mode":"slots3","slot":{slot}"#);
        let line =
            KernelLocks { waiting: vec![101], first: Some(102), behind: vec![103, 104], ..KernelLocks::default() };
        let reading = KernelLocks { holder: Some(100), readers: vec![100, 7], ..KernelLocks::default() };
        for (what, found, expected) in [
            ("nothing", found(), "free:  | 0: "),
            ("another program", held(7), "held: 7 | 0: "),
            ("a dlock", Found { alone: record(100, "", None), ..held(100) }, "held: id100 | 0: "),
            ("one of another PID namespace", Found { alone: record(1, "", None), ..held(200) }, "held: id1 | 0: "),
            ("a text that another one left", Found { alone: record(99, "", None), ..held(7) }, "held: 7 | 0: "),
            (
                "a line",
                Found { locks: KernelLocks { holder: Some(7), ..line }, ..found() },
                "held: 7 | 4: 101, 102, 103, 104",
            ),
            ("one that is kept", Found { alone: record(99, "", Some(60)), ..found() }, "held: id99 done | 0: "),
            (
                "one that is kept, and the next in line, which has the file already",
                Found { alone: record(99, "", Some(60)), ..held(101) },
                "held: id99 done | 1: 101",
            ),
            (
                "slots, of which one has not said yet whose it is, and one that is kept",
                Found {
                    seats: vec![seat("slots3", 0), seat("slots3", 2)],
                    records: vec![(0, record(100, &shared(0), None)), (1, record(98, &shared(1), Some(60)))],
                    ..found()
                },
                "held: id100 in 0, somebody in 2, id98 in 1 done | 0: ",
            ),
            (
                "readers, one of them another program",
                Found {
                    locks: reading,
                    seats: vec![seat("shared", 0)],
                    records: vec![(0, record(100, r#","mode":"shared""#, None))],
                    ..found()
                },
                "held: id100, 7 | 0: ",
            ),
            ("one that cannot be seen", Found { alone: record(100, r#","ns":9"#, None), ..found() }, "unknown:  | 0: "),
            ("one that is over", Found { alone: record(100, r#","ns":8"#, None), ..found() }, "free:  | 0: "),
            ("another host's file system", Found::default(), "unknown:  | 0: "),
            ("a file that may not be read", Found { is_closed: true, ..found() }, "unknown:  | 0: "),
            ("one that may not be read and is held", Found { is_closed: true, ..held(7) }, "held: 7 | 0: "),
        ] {
            assert_eq!(told(&found, &HERE), expected, "{what}");
        }
        // If the kernel does not show all locks, no lock is reported as free.
        let inside = Processes { sees_all: || false, ..HERE };
        assert_eq!(told(&found(), &inside), "unknown:  | 0: ");
        assert_eq!(told(&held(7), &inside), "held: 7 | 0: ");
    }
}
