/*!
What dlock says, and to whom: [events](event) with data, [words](mod@line) for each, and the [terminal] on which they are
written.
*/

pub(crate) mod event;
mod line;
mod terminal;

use self::event::{Event, Level};
use self::line::line;
use self::terminal::Terminal;

/// How much dlock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// What somebody at three in the morning needs.
    #[default]
    Normal,
    /// A line also when the lock is acquired and released.
    Verbose,
}

/// Says things to the user.
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

    /// Says it to those who want to hear it, if somebody reads: a command may be running.
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
            Level::State => self.terminal.put_state(&line(event)),
            Level::Warning | Level::Note | Level::Detail => self.terminal.put(&line(event)),
        }
    }

    /// Says why dlock ends: always, and waits a while for a reader.
    pub(crate) fn end(&self, event: &Event) {
        self.terminal.clear();
        say(event);
    }

    /// Removes the state of the wait, where it was kept up to date.
    pub(crate) fn clear(&self) {
        self.terminal.clear();
    }
}

/// Says it whatever the verbosity, and waits a while for a reader: for what goes wrong where there is no [`Report`].
pub(crate) fn say(event: &Event) {
    terminal::write_last(&line(event));
}

/// A line of the guard's, which may not allocate when it has something to say: made before the guard is forked.
#[derive(Debug)]
pub(crate) struct Farewell(String);

impl Farewell {
    /// The line that will say `event`.
    #[must_use]
    pub(crate) fn new(event: &Event) -> Self {
        Self(terminal::whole(&line(event)))
    }

    /// Says it. Does not allocate.
    pub(crate) fn say(&self) {
        terminal::write_soon(self.0.as_bytes());
    }
}
