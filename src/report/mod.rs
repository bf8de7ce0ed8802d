/*!
What dlock reports: [events](event) with data, a [sentence](mod@line) for each, and the [terminal] to which they are written.
*/

pub(crate) mod event;
mod level;
mod line;
mod terminal;

use self::event::Event;
use self::level::Level;
use self::line::{line, state};
use self::terminal::Terminal;

/// How much dlock reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// What an operator needs to know.
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
}

impl Report {
    /// A report to standard error.
    #[must_use]
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        Self { verbosity, terminal: Terminal::new() }
    }

    /// Whether the state of the wait can be kept up to date in one line.
    #[must_use]
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal.is_one()
    }

    /// Reports the event, if the verbosity includes it. Drops it if standard error is not read: a command may be running.
    pub(crate) fn tell(&self, event: &Event) {
        let least = match event.level() {
            Level::Warning => Verbosity::Quiet,
            Level::Note | Level::State => Verbosity::Normal,
            Level::Detail => Verbosity::Verbose,
        };
        if self.verbosity < least {
            return;
        }
        match event.level() {
            Level::State if self.is_terminal() => self.terminal.put_state(&state(event)),
            Level::State | Level::Warning | Level::Note | Level::Detail => self.terminal.put(&line(event)),
        }
    }

    /// Reports why dlock ends, whatever the verbosity; waits for a reader for a bounded time.
    pub(crate) fn end(&self, event: &Event) {
        self.terminal.clear();
        say(event);
    }

    /// Removes the line that shows the state of the wait, if there is one.
    pub(crate) fn clear(&self) {
        self.terminal.clear();
    }

    /// Replaces the line that shows the state of the wait, if there is one, by `event`. With `-v` another line says it.
    pub(crate) fn replace(&self, event: &Event) {
        if self.terminal.is_live() && self.verbosity < Verbosity::Verbose {
            self.terminal.put(&line(event));
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
    terminal::write_last(&line(event));
}

/// The last line of the guard, which may not allocate: the line is made before the guard is forked.
#[derive(Debug)]
pub(crate) struct Farewell(String);

impl Farewell {
    /// The line for `event`.
    #[must_use]
    pub(crate) fn new(event: &Event) -> Self {
        Self(terminal::whole(&line(event)))
    }

    /// Writes the line. Does not allocate.
    pub(crate) fn say(&self) {
        terminal::write_soon(self.0.as_bytes());
    }
}
