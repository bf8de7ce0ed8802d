/*!
The only place that writes to standard error. Every line but those of a question begins with `dlock: ` and is escaped;
in systemd's journal its priority stands before that.

A reader that has stopped reading (a paused pager) must not keep dlock from renewing a lock: while a command runs, a
line that cannot be written soon is dropped.
*/

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;

use crate::printable::{fitting, shortened, shown};

/// Longest time that a line waits for the reader while a command runs, in milliseconds.
const PATIENCE_MS: u8 = 100;

/// Longest time that the last line waits for the reader, in milliseconds.
const LAST_PATIENCE_MS: u16 = 2000;

/// Standard error, which may be a terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    terminal: bool,
    /// `true` while the line that is kept up to date is on the screen.
    live: Cell<bool>,
}

impl Terminal {
    /// Standard error as it is now.
    #[must_use]
    pub(super) fn new() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { terminal: std::io::stderr().is_terminal() && !is_dumb, live: Cell::new(false) }
    }

    /// Returns `true` if lines can be kept up to date.
    #[must_use]
    pub(super) fn is_one(&self) -> bool {
        self.terminal
    }

    /// Returns `true` while the line that is kept up to date is on the screen.
    #[must_use]
    pub(super) fn is_live(&self) -> bool {
        self.live.get()
    }

    /// Leaves the line that is kept up to date on the screen, if it is there.
    pub(super) fn keep(&self) {
        if self.live.take() {
            write_soon(b"\n");
        }
    }

    /// Writes a line, unless it cannot be written soon.
    pub(super) fn put(&self, priority: u8, message: &str) {
        self.clear();
        write_soon(whole(priority, message).as_bytes());
    }

    /// Writes the state of the wait for `name` to a terminal: it replaces the state written before.
    pub(super) fn put_state(&self, name: &str, state: &str) {
        write_soon(format!("\r\x1b[2K{}", line_of(name, state, columns() - 1)).as_bytes());
        self.live.set(true);
    }

    /// Removes the line that is kept up to date, if it is on the screen.
    pub(super) fn clear(&self) {
        if self.live.take() {
            write_soon(b"\r\x1b[2K");
        }
    }
}

/// The line that shows the state of a wait in `columns` columns. A long name is cut so that it does not displace the
/// state, and then the end of the state.
fn line_of(name: &str, state: &str, columns: usize) -> String {
    let (name, state) = (shown(name.as_bytes()).to_string(), shown(state.as_bytes()).to_string());
    let line = |name: &str| format!("dlock: {name}: {state}");
    let whole = line(&name);
    if fitting(&whole, columns).len() == whole.len() {
        return whole;
    }
    // A name in quotes stays in them.
    let closing = if name.ends_with('\'') && fitting(&name, columns / 4).len() < name.len() { "'" } else { "" };
    let name = shortened(&name, (columns / 4).saturating_sub(closing.len())) + closing;
    shortened(&line(&name), columns)
}

/// The whole line for `message`: escaped, with the prefix and a newline, and for the journal with its priority in
/// front, by the numbers of syslog(3).
#[must_use]
pub(super) fn whole(priority: u8, message: &str) -> String {
    let level = if is_journal() { format!("<{priority}>") } else { String::new() };
    format!("{level}dlock: {}\n", shown(message.as_bytes()))
}

/// Returns `true` if standard error leads to systemd's journal, which reads a priority at the beginning of a line: see
/// `$JOURNAL_STREAM` in systemd.exec(5).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(io::stderr()).is_ok_and(|seen| stream == format!("{}:{}", seen.st_dev, seen.st_ino))
}

/// Writes the last line, and waits for a reader for a bounded time.
pub(super) fn write_last(priority: u8, message: &str) {
    write_all(whole(priority, message).as_bytes());
}

/// Returns `true` if standard error is a terminal.
#[must_use]
pub(super) fn is_there() -> bool {
    std::io::stderr().is_terminal()
}

/// The width of the terminal in columns; 80 if it is unknown.
fn columns() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills in a winsize.
    let asked = unsafe { libc::ioctl(2, libc::TIOCGWINSZ, &raw mut size) };
    if asked == 0 && size.ws_col > 1 { usize::from(size.ws_col) } else { 80 }
}

/// Writes `text` in one piece, unless it cannot be written soon. Does not allocate.
pub(super) fn write_soon(text: &[u8]) {
    let stderr = std::io::stderr();
    let mut writable = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if matches!(poll(&mut writable, PollTimeout::from(PATIENCE_MS)), Ok(1)) {
        let _ = write(&stderr, text);
    }
}

/// Writes all of `text` as long as it is read. Gives up when it is not: dlock must end in any case.
pub(super) fn write_all(mut text: &[u8]) {
    let stderr = std::io::stderr();
    while !text.is_empty() {
        // poll promises room for PIPE_BUF bytes; a longer write could block.
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
            // The other end is closed.
            Err(_) => return,
        }
    }
}

/// Redirects standard error to /dev/null, so that a reader at its other end does not wait for this process. Files and
/// terminals stay, as nobody waits for their end.
pub(crate) fn leave() {
    let is_file =
        fstat(io::stderr()).is_ok_and(|seen| SFlag::from_bits_truncate(seen.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG);
    if is_file || io::stderr().is_terminal() {
        return;
    }
    // SAFETY: the path is a C string; descriptor 2 is standard error, whose writers cope with whatever it is.
    unsafe {
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if nowhere >= 0 {
            libc::dup2(nowhere, 2);
            libc::close(nowhere);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_narrow_terminal_the_state_is_left_of_a_long_name_and_what_matters_most_of_the_state() {
        let state = "waiting 12s, 1 ahead of you; held 2m 3s by deploy@web1";
        for (name, columns, expected) in [
            ("k", 79, "dlock: k: waiting 12s, 1 ahead of you; held 2m 3s by deploy@web1"),
            ("k", 40, "dlock: k: waiting 12s, 1 ahead of you; …"),
            (
                "a-name-that-is-long",
                82,
                "dlock: a-name-that-is-long: waiting 12s, 1 ahead of you; held 2m 3s by deploy@web1",
            ),
            ("a-name-that-is-long", 40, "dlock: a-name-th…: waiting 12s, 1 ahead…"),
            ("'a-name-that-is-long'", 40, "dlock: 'a-name-…': waiting 12s, 1 ahead…"),
            ("備份備份備份", 40, "dlock: 備份備份…: waiting 12s, 1 ahead …"),
            ("k", 1, "…"),
        ] {
            assert_eq!(line_of(name, state, columns), expected, "{name} in {columns}");
            assert_eq!(fitting(expected, columns), expected);
        }
    }
}
