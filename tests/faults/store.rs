/*!
A store that knows nothing of locks: it accepts a write whose token is not smaller than the largest that it has seen,
and refuses all others. Where several hold a lock together, only the tokens count of those who exclude the writer: writers
and readers exclude each other, and work on one slot has nothing to do with that on another. Commands write to it through
a named pipe, so it also sees the order of the writes.
*/

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::mode_witness::Hold;
use crate::support::rendezvous::{boottime, make_fifo};
use crate::support::scratch::Scratch;

/// What a command tells the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It begins, with this hold.
    Start(Hold),
    /// It writes, with this hold.
    Write(Hold),
}

/// What became of all writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Writes from a command after which another one had begun already, and refused.
    pub late_refused: u64,
    /// Writes from a command after which another one had begun already, and accepted.
    pub late_taken: u64,
}

#[derive(Default)]
struct Heard {
    words: Vec<(Duration, Word)>,
    nonsense: Vec<String>,
}

/// The store.
pub struct Store {
    path: PathBuf,
    heard: Arc<Mutex<Heard>>,
    pipe: File,
    thread: Option<JoinHandle<()>>,
}

/// The line that ends the store's thread.
const STOP: &str = "stop";

impl Store {
    /// Creates the store; one per scratch directory.
    pub fn new(scratch: &Scratch) -> Self {
        let path = scratch.path("store");
        make_fifo(&path);
        // With both ends in one hand, nobody ever blocks in open.
        let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let heard = Arc::<Mutex<Heard>>::default();
        let (shared, reader) = (Arc::clone(&heard), BufReader::new(pipe.try_clone().unwrap()));
        let thread = thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok).take_while(|line| line != STOP) {
                let at = boottime();
                let mut heard = shared.lock().unwrap_or_else(PoisonError::into_inner);
                match parse(&line) {
                    Some(word) => heard.words.push((at, word)),
                    None => heard.nonsense.push(line),
                }
            }
        });
        Self { path, heard, pipe, thread: Some(thread) }
    }

    /// The pipe, for programs that are not shells.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Shell code that reports that a command begins.
    pub fn start(&self) -> String {
        self.say("start")
    }

    /// Shell code that writes once.
    pub fn write(&self) -> String {
        self.say("write")
    }

    /// Shell code that writes twenty times a second until it is killed: one process, in a session of its own.
    pub fn write_on(&self) -> String {
        let program = r#"$| = 1; my ($mode, $slot) = ($ENV{HELD_AS} // "x", $ENV{DLOCK_SLOT} // "-");
            while (1) { print "write $ENV{DLOCK_TOKEN} $mode $slot\n"; select undef, undef, undef, 0.05 }"#;
        format!("setsid perl -e '{program}' > '{}'", self.path.display())
    }

    fn say(&self, what: &str) -> String {
        let hold = "${DLOCK_TOKEN:-none} ${HELD_AS:-x} ${DLOCK_SLOT:--}";
        format!("echo \"{what} {hold}\" > '{}'", self.path.display())
    }

    /// Everything reported up to now, and when.
    pub fn words(&self) -> Vec<(Duration, Word)> {
        self.lock().words.clone()
    }

    /// When each command has begun, and its hold.
    pub fn starts(&self) -> Vec<(Duration, Hold)> {
        let start = |(at, word)| if let Word::Start(hold) = word { Some((at, hold)) } else { None };
        self.words().into_iter().filter_map(start).collect()
    }

    /// Whether this many commands have begun, and the last of them has written.
    pub fn has_written(&self, count: usize) -> bool {
        let heard = self.lock();
        let starts = heard.words.iter().filter(|(_, word)| matches!(word, Word::Start(_))).count();
        starts >= count && matches!(heard.words.last(), Some((_, Word::Write(_))))
    }

    /// What a store that refuses smaller tokens made of it. An error names a line that none of the commands writes.
    pub fn writes(&self) -> Result<Writes, String> {
        let heard = self.lock();
        if let Some(line) = heard.nonsense.first() {
            return Err(format!("a command wrote {line:?}"));
        }
        let mut writes = Writes::default();
        let mut begun: Vec<Hold> = Vec::new();
        for (_, word) in &heard.words {
            match *word {
                Word::Start(hold) => begun.push(hold),
                Word::Write(hold) => {
                    let own = begun.iter().rposition(|other| *other == hold).map_or(0, |own| own + 1);
                    let mut others = begun.iter().filter(|other| **other != hold && other.excludes(&hold));
                    if begun[own..].iter().any(|later| *later != hold && later.excludes(&hold)) {
                        let is_refused = others.any(|other| other.token > hold.token);
                        *(if is_refused { &mut writes.late_refused } else { &mut writes.late_taken }) += 1;
                    }
                }
            }
        }
        Ok(writes)
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads `start TOKEN` or `write TOKEN`, with the mode and the slot unless the lock is held alone.
fn parse(line: &str) -> Option<Word> {
    let words: Vec<&str> = line.split(' ').collect();
    let (what, hold) = match words[..] {
        [what, token] => (what, Hold::read("x", "-", token)?),
        [what, token, mode, slot] => (what, Hold::read(mode, slot, token)?),
        _ => return None,
    };
    match what {
        "start" => Some(Word::Start(hold)),
        "write" => Some(Word::Write(hold)),
        _ => None,
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = writeln!(self.pipe, "{STOP}");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
