/*!
Reports to users: [events](event) as data, a [sentence](mod@line) for each, [pictures](picture) of locks, and the
[terminal] to write to. With `--events` the [journal] has a line for each thing that happens to a run.
*/

pub(crate) mod event;
pub(crate) mod journal;
mod level;
mod line;
pub(crate) mod picture;
mod terminal;
mod words;

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use self::event::{Event, Lack};
use self::journal::{Journal, Sink, entry};
use self::level::Level;
use self::line::{line, state};
use self::terminal::Terminal;
pub(crate) use self::terminal::leave;
use crate::lease::waiting::Trouble;
use crate::schema::events::{Entry, Run};

/// The amount that dlock reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// All that an operator needs to know.
    #[default]
    Normal,
    /// A line also when the lock is acquired and released.
    Verbose,
}

/// Reports events to the user.
#[derive(Debug)]
pub(crate) struct Report {
    verbosity: Verbosity,
    terminal: Terminal,
    journal: Option<Journal>,
    /// The name of the journal's destination.
    sink: String,
    /// The reason why dlock ends, if it was reported.
    reason: RefCell<Option<String>>,
}

/// The journal of this process, for the end after a panic.
static JOURNAL: OnceLock<Journal> = OnceLock::new();

impl Report {
    /// A report to standard error.
    #[must_use]
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        Self { verbosity, terminal: Terminal::new(), journal: None, sink: String::new(), reason: RefCell::default() }
    }

    /// Opens the journal of this run. Must be called before dlock opens anything else. The error is the reason why the
    /// journal cannot be opened.
    pub(crate) fn open_journal(&mut self, sink: &Sink, run: Run) -> Result<(), String> {
        let journal = Journal::open(sink, run)?;
        self.journal = Some(JOURNAL.get_or_init(|| journal).clone());
        self.sink = sink.to_string();
        Ok(())
    }

    /// Begins to write the journal, if there is one, in a thread. No more processes may be forked without an exec.
    pub(crate) fn start_journal(&self) -> std::io::Result<()> {
        self.journal.as_ref().map_or(Ok(()), Journal::start)
    }

    /// The descriptor of the journal, if there is one.
    #[must_use]
    pub(crate) fn journal(&self) -> Option<RawFd> {
        self.journal.as_ref().map(Journal::as_raw)
    }

    /// Adds an entry to the journal, if there is one.
    pub(crate) fn record(&self, entry: impl FnOnce() -> Option<Entry>) {
        if let Some(journal) = &self.journal
            && let Some(entry) = entry()
        {
            journal.put(entry);
            self.tell_of_lost_lines(journal);
        }
    }

    /// Reports with `-v`, once, that a line could not be written to the journal.
    fn tell_of_lost_lines(&self, journal: &Journal) {
        if self.verbosity >= Verbosity::Verbose
            && let Some(errno) = journal.failure()
        {
            let (sink, reason) = (self.sink.clone(), errno.desc().to_owned());
            let event = Event::LinesLost { sink, reason };
            self.terminal.put(event.priority() as u8, &line(&event));
        }
    }

    /// Adds the last entry to the journal, if there is one: dlock ends with this code.
    pub(crate) fn close_journal(&self, exit: u8) {
        if let Some(journal) = &self.journal {
            journal.close(exit, self.reason.take());
            self.tell_of_lost_lines(journal);
        }
    }

    /// Returns `true` if details are wanted: by people with `-v`, or by programs with the journal.
    #[must_use]
    pub(crate) fn has_details(&self) -> bool {
        self.verbosity >= Verbosity::Verbose || self.journal.is_some()
    }

    /// Returns `true` if the state of the wait can be kept up to date in one line.
    #[must_use]
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal.is_one()
    }

    /// Reports the event, if the verbosity includes it. Drops it if standard error is not read: a command may run.
    pub(crate) fn tell(&self, event: &Event) {
        // The state of a wait is repeated for people.
        if event.level() != Level::State {
            self.record(|| entry(event));
        }
        let least = match event.level() {
            Level::Warning => Verbosity::Quiet,
            Level::Note | Level::State => Verbosity::Normal,
            Level::Detail => Verbosity::Verbose,
        };
        if self.verbosity < least {
            return;
        }
        match state(event).filter(|_| self.is_terminal()) {
            Some((name, state)) => self.terminal.put_state(&name, &state),
            None => self.terminal.put(event.priority() as u8, &line(event)),
        }
    }

    /// Adds `event` to the journal alone, if there is one: people are told of it at another time.
    pub(crate) fn note(&self, event: &Event) {
        self.record(|| entry(event));
    }

    /// Reports the reason why dlock ends, whatever the verbosity; waits for a reader for a bounded time.
    pub(crate) fn end(&self, event: &Event) {
        self.end_quietly(event);
        say(event);
    }

    /// Reports the reason why dlock ends to the journal alone, if there is one.
    pub(crate) fn end_quietly(&self, event: &Event) {
        self.terminal.clear();
        self.note(event);
        self.reason.replace(Some(line(event)));
    }

    /// Removes the line that shows the state of the wait, if there is one.
    pub(crate) fn clear(&self) {
        self.terminal.clear();
    }

    /// Replaces the line that shows the state of the wait, if there is one, by `event`; with `-v`, only removes it.
    pub(crate) fn replace(&self, event: &Event) {
        if self.terminal.is_live() && self.verbosity < Verbosity::Verbose {
            self.terminal.put(event.priority() as u8, &line(event));
        } else {
            self.terminal.clear();
        }
    }

    /// Leaves the line that shows the state of the wait on the screen, if there is one.
    pub(crate) fn keep(&self) {
        self.terminal.keep();
    }
}

/// Reports the event whatever the verbosity, and waits for a reader for a bounded time. For errors where there is no
/// [`Report`].
pub(crate) fn say(event: &Event) {
    terminal::write_last(event.priority() as u8, &line(event));
}

/// Reports a bug that ends dlock with this code, and adds it to the journal, if there is one.
pub(crate) fn say_bug(event: &Event, exit: u8) {
    say(event);
    if let Some(journal) = JOURNAL.get() {
        journal.close(exit, Some(line(event)));
    }
}

/// The sentence for this event.
#[must_use]
pub(crate) fn sentence(event: &Event) -> String {
    line(event)
}

/// The reason why this machine cannot supervise a command, in words.
#[must_use]
pub(crate) fn lack(reason: &Lack) -> String {
    reason.words()
}

/// The problem with the backend at `place`, in words.
#[must_use]
pub(crate) fn trouble(place: &str, what: &Trouble) -> String {
    words::trouble(place, what)
}

/// Returns `true` if standard error is a terminal, where somebody may see the text at once.
#[must_use]
pub(crate) fn is_shown() -> bool {
    terminal::is_there()
}

/// Shows this text as it is, and waits for a reader for a bounded time: for questions.
pub(crate) fn show(text: &str) {
    terminal::write_all(text.as_bytes());
}

/// The last line of the guard, which may not allocate: the line is made before the guard is forked.
#[derive(Debug)]
pub(crate) struct Farewell(String);

impl Farewell {
    /// The line for `event`.
    #[must_use]
    pub(crate) fn new(event: &Event) -> Self {
        Self(terminal::whole(event.priority() as u8, &line(event)))
    }

    /// Writes the line. Does not allocate.
    pub(crate) fn say(&self) {
        terminal::write_soon(self.0.as_bytes());
    }
}
