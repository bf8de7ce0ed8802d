/*!
The only place that writes to standard error. Every line begins with `dlock: `, and nothing in it can upset a terminal.

dlock keeps a lock alive while it talks, so a reader that has stopped reading (a paused pager) must not be able to
stop it: what cannot be written soon is dropped while a command runs.
*/

use std::cell::Cell;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

use crate::holder::shown;

/// How long a line may wait for its reader while a command runs, in milliseconds.
const PATIENCE_MS: u8 = 100;

/// How long the last line may wait for it, in milliseconds.
const LAST_PATIENCE_MS: u16 = 2000;

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
    terminal: bool,
    /// Whether the line that is kept up to date is on the screen.
    live: Cell<bool>,
}

impl Report {
    /// A report to standard error.
    #[must_use]
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        Self { verbosity, terminal: std::io::stderr().is_terminal(), live: Cell::new(false) }
    }

    /// Whether lines can be kept up to date.
    #[must_use]
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The one line that says why dlock ends; always said, and waited for a while.
    pub(crate) fn error(&self, message: &str) {
        self.clear();
        say(message);
    }

    /// Something the user must know while the command runs, also with `-q`; dropped when nobody reads.
    pub(crate) fn warning(&self, message: &str) {
        self.put(message);
    }

    /// Something worth a line, not with `-q`.
    pub(crate) fn note(&self, message: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.put(message);
        }
    }

    /// A line only for `-v`.
    pub(crate) fn detail(&self, message: &str) {
        if self.verbosity >= Verbosity::Verbose {
            self.put(message);
        }
    }

    /// The state of the wait: on a terminal one line that is kept up to date, otherwise a line.
    pub(crate) fn waiting(&self, message: &str) {
        if self.verbosity < Verbosity::Normal {
            return;
        }
        if self.terminal {
            let line: String = format!("dlock: {}", shown(message.as_bytes())).chars().take(columns() - 1).collect();
            put_soon(format!("\r\x1b[2K{line}").as_bytes());
            self.live.set(true);
        } else {
            self.put(message);
        }
    }

    /// Removes the line that was kept up to date.
    pub(crate) fn clear(&self) {
        if self.live.take() {
            put_soon(b"\r\x1b[2K");
        }
    }

    fn put(&self, message: &str) {
        self.clear();
        put_soon(line(message).as_bytes());
    }
}

/// Writes one line whatever the verbosity, for what goes wrong before there is a [`Report`].
pub(crate) fn say(message: &str) {
    put_all(line(message).as_bytes());
}

/// A line of the guard's, which may not allocate when it has something to say: made before the guard is forked.
#[derive(Debug)]
pub(crate) struct Farewell(String);

impl Farewell {
    /// The line that will say `message`.
    #[must_use]
    pub(crate) fn new(message: &str) -> Self {
        Self(line(message))
    }

    /// Says it. Does not allocate.
    pub(crate) fn say(&self) {
        put_soon(self.0.as_bytes());
    }
}

fn line(message: &str) -> String {
    format!("dlock: {}\n", shown(message.as_bytes()))
}

/// The width of the terminal; 80 where it does not say.
fn columns() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills in a winsize.
    let asked = unsafe { libc::ioctl(2, libc::TIOCGWINSZ, &raw mut size) };
    if asked == 0 && size.ws_col > 1 { usize::from(size.ws_col) } else { 80 }
}

/// Writes in one piece if there is room for it soon.
fn put_soon(text: &[u8]) {
    let stderr = std::io::stderr();
    let mut writable = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if matches!(poll(&mut writable, PollTimeout::from(PATIENCE_MS)), Ok(1)) {
        let _ = write(&stderr, text);
    }
}

/// Writes all of it, as long as somebody reads: dlock must come to its end also where nobody does.
fn put_all(mut text: &[u8]) {
    let stderr = std::io::stderr();
    while !text.is_empty() {
        // Where there is room for a part only, a longer text would be waited for.
        let part = &text[..text.len().min(libc::PIPE_BUF)];
        match poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)], PollTimeout::from(LAST_PATIENCE_MS)) {
            Ok(1) => {}
            Err(Errno::EINTR) => continue,
            _ => return,
        }
        match write(&stderr, part) {
            Ok(0) => return,
            Ok(written) => text = &text[written..],
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // Nobody reads: then nobody can be told.
            Err(_) => return,
        }
    }
}
