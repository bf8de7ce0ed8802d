/*!
The journal that `--events` writes: a line for each thing that happens to a run.

Its own thread writes the lines, so that a stopped reader, a full pipe or a slow disk delays no renewal and no stop. It
waits for a reader for a bounded time, and then counts the lines that are lost.
*/

mod entries;
mod opening;
mod reaching;
mod writing;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;

pub(super) use self::entries::entry;
use self::writing::Writer;
use crate::clock::{Instant, since_boot, wall_millis};
pub(crate) use crate::report::journal::opening::Sink;
use crate::schema::events::{Course, Entry, Moment, Run, millis};

/// Highest number of lines that can wait to be written.
const MOST: usize = 256;
/// Longest wait for the last line when dlock ends: longer than the writer waits for a reader.
const LAST: Duration = Duration::from_secs(1);

/// A line that waits to be written.
struct Stamped {
    at: Moment,
    /// Number of lines lost before it, because too many were waiting.
    lost: u64,
    entry: Entry,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Stamped>,
    lost: u64,
    /// The course of the run so far, for the last line.
    course: Course,
    /// `true` once the last line has been queued.
    over: bool,
    /// `true` once the last line has been written or lost.
    done: bool,
    /// The error of the first line that could not be written.
    failure: Option<Errno>,
    /// `true` once `failure` has been reported.
    is_told: bool,
}

/// The state that the threads share.
struct Desk {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// `None` once a thread has taken it.
    writer: Mutex<Option<Writer>>,
}

/// The journal of one run.
#[derive(Clone)]
pub(crate) struct Journal {
    desk: Arc<Desk>,
    begun: Instant,
    pid: u32,
    descriptor: RawFd,
}

/// Locks `mutex`, even after a panic elsewhere: at worst there is one line more or less.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    /// The journal of this run, which goes to `sink`. Nothing is written before [`Journal::start`]. The error is the
    /// reason why it cannot be opened.
    pub(super) fn open(sink: &Sink, run: Run) -> Result<Self, String> {
        let file = sink.open()?;
        let torn = !matches!(sink, Sink::Descriptor(_)) && opening::is_torn(&file);
        Ok(Self::new(file, run, torn))
    }

    /// A journal that is written to `file`, whose last line may be `torn`.
    fn new(file: OwnedFd, run: Run, torn: bool) -> Self {
        let (pid, descriptor) = (run.pid, file.as_raw_fd());
        let writer = Mutex::new(Some(Writer::new(file, run).after(torn)));
        let desk = Desk { queue: Mutex::default(), changed: Condvar::new(), writer };
        Self { desk: Arc::new(desk), begun: Instant::now(), pid, descriptor }
    }

    /// The number of its descriptor.
    #[must_use]
    pub(super) fn as_raw(&self) -> RawFd {
        self.descriptor
    }

    /// Begins to write. From now on, no process may be forked that goes on without executing another program.
    pub(super) fn start(&self) -> std::io::Result<()> {
        let desk = Arc::clone(&self.desk);
        let work = move || {
            if let Some(writer) = lock(&desk.writer).take() {
                desk.work(writer);
            }
        };
        std::thread::Builder::new().name("events".to_owned()).stack_size(256 * 1024).spawn(work).map(drop)
    }

    /// Adds a line.
    pub(super) fn put(&self, entry: Entry) {
        let mut queue = lock(&self.desk.queue);
        queue.course.note(&entry);
        if queue.lines.len() >= MOST {
            queue.lost += 1;
        } else {
            queue.put(entry);
            self.desk.changed.notify_all();
        }
    }

    /// Returns the error of a line that could not be written, at most once: on the first call after the error is known.
    pub(super) fn failure(&self) -> Option<Errno> {
        let mut queue = lock(&self.desk.queue);
        let failure = queue.failure.filter(|_| !queue.is_told);
        queue.is_told |= failure.is_some();
        failure
    }

    /// Adds the last line, and waits for a bounded time until it is written.
    pub(super) fn close(&self, exit: u8, error: Option<String>) {
        // Not in the guard, which has a copy of this.
        if std::process::id() != self.pid {
            return;
        }
        let mut queue = lock(&self.desk.queue);
        if std::mem::replace(&mut queue.over, true) {
            return;
        }
        let Course { outcome, waited_ms, ran_ms } = queue.course.clone();
        let total_ms = millis(Instant::now().since(self.begun));
        queue.put(Entry::End { exit, error, outcome, waited_ms, ran_ms, total_ms });
        self.desk.changed.notify_all();
        drop(queue);
        // Nobody else writes: no thread was started, or it has not begun.
        let writer = lock(&self.desk.writer).take();
        if let Some(writer) = writer {
            return self.desk.work(writer);
        }
        let limit = Instant::now() + LAST;
        let mut queue = lock(&self.desk.queue);
        while !queue.done {
            let left = limit.since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = self.desk.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}

impl Queue {
    fn put(&mut self, entry: Entry) {
        let at = Moment { wall: wall_millis(), boot: millis(since_boot()) };
        let lost = std::mem::take(&mut self.lost);
        self.lines.push_back(Stamped { at, lost, entry });
    }
}

impl Desk {
    /// Writes all lines up to the last one.
    fn work(&self, mut writer: Writer) {
        let mut queue = lock(&self.queue);
        loop {
            match queue.lines.pop_front() {
                Some(Stamped { at, lost, entry }) => {
                    let is_last = queue.over && queue.lines.is_empty();
                    drop(queue);
                    writer.put(at, lost, entry, is_last);
                    queue = lock(&self.queue);
                    queue.failure = queue.failure.or(writer.failure());
                }
                None if queue.over => break,
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
        queue.done = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn journal(file: impl Into<OwnedFd>) -> Journal {
        let of = str::to_owned;
        let (key, owner, backend, namespace) = (of("k"), of("o"), of("file:"), of(""));
        let run = Run { key, owner, backend, namespace, pid: 7, host: of("h"), user: of("u"), program: of("") };
        Journal::new(file.into(), Run { pid: std::process::id(), ..run }, false)
    }

    fn read(text: &str) -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect()
    }

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read_but_dlock_for_a_bounded_time_at_its_end() {
        let (mut reader, end) = std::io::pipe().expect("a pipe");
        let journal = journal(end);
        journal.start().expect("a thread");
        let begun = Instant::now();
        for _ in 0..10_000 {
            journal.put(Entry::Trouble { error: "x".repeat(100) });
        }
        journal.close(3, None);
        assert!(Instant::now().since(begun) < 3 * LAST, "{:?}", Instant::now().since(begun));
        drop(journal);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("lines");
        let lines = read(&text);
        assert!(lines.len() < 10_000 && lines.iter().all(|line| line["event"] == "trouble"), "{}", lines.len());
    }

    #[test]
    fn what_was_put_before_the_thread_began_is_written_and_the_end_is_the_last_and_comes_once() {
        for starts in [false, true] {
            let (mut reader, end) = std::io::pipe().expect("a pipe");
            let journal = journal(end);
            for _ in 0..MOST + 7 {
                journal.put(Entry::Renewed { ttl_ms: 7 });
            }
            if starts {
                let reading = std::thread::spawn(move || {
                    let mut text = String::new();
                    reader.read_to_string(&mut text).map(|_| text)
                });
                journal.start().expect("a thread");
                journal.close(70, Some("it broke".to_owned()));
                journal.close(0, None);
                drop(journal);
                let lines = read(&reading.join().expect("a reader").expect("text"));
                assert_eq!(lines.len(), MOST + 1);
                let end = &lines[MOST];
                assert_eq!((&end["event"], &end["exit"], &end["dropped"]), (&"end".into(), &70.into(), &7.into()));
                assert_eq!(end["error"], "it broke");
            } else {
                // The pipe is full before all of them are written.
                journal.close(0, None);
                drop(journal);
                let mut text = String::new();
                reader.read_to_string(&mut text).expect("lines");
                assert!(read(&text).len() > MOST / 2);
            }
        }
    }
}
