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

use crate::printable::{fitting, shown};

/// How long a line may wait for its reader while a command runs, in milliseconds.
const PATIENCE_MS: u8 = 100;

/// How long the last line may wait for it, in milliseconds.
const LAST_PATIENCE_MS: u16 = 2000;

/// Standard error, as a terminal or anything else.
#[derive(Debug)]
pub(super) struct Terminal {
    terminal: bool,
    /// Whether the line that is kept up to date is on the screen.
    live: Cell<bool>,
}

impl Terminal {
    /// What standard error is now.
    #[must_use]
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), live: Cell::new(false) }
    }

    /// Whether lines can be kept up to date.
    #[must_use]
    pub(super) fn is_one(&self) -> bool {
        self.terminal
    }

    /// Writes a line, if there is room for it soon.
    pub(super) fn put(&self, message: &str) {
        self.clear();
        write_soon(whole(message).as_bytes());
    }

    /// Writes a state that changes: on a terminal one line that is kept up to date, otherwise a line.
    pub(super) fn put_state(&self, message: &str) {
        if self.terminal {
            let line = format!("dlock: {}", shown(message.as_bytes()));
            write_soon(format!("\r\x1b[2K{}", fitting(&line, columns() - 1)).as_bytes());
            self.live.set(true);
        } else {
            self.put(message);
        }
    }

    /// Removes the line that was kept up to date.
    pub(super) fn clear(&self) {
        if self.live.take() {
            write_soon(b"\r\x1b[2K");
        }
    }
}

/// The line that says `message`: safe for a terminal, and with its end.
#[must_use]
pub(super) fn whole(message: &str) -> String {
    format!("dlock: {}\n", shown(message.as_bytes()))
}

/// Writes the last line, and waits a while for its reader.
pub(super) fn write_last(message: &str) {
    write_all(whole(message).as_bytes());
}

/// The width of the terminal; 80 where it does not say.
fn columns() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills in a winsize.
    let asked = unsafe { libc::ioctl(2, libc::TIOCGWINSZ, &raw mut size) };
    if asked == 0 && size.ws_col > 1 { usize::from(size.ws_col) } else { 80 }
}

/// Writes in one piece if there is room for it soon. Does not allocate.
pub(super) fn write_soon(text: &[u8]) {
    let stderr = std::io::stderr();
    let mut writable = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if matches!(poll(&mut writable, PollTimeout::from(PATIENCE_MS)), Ok(1)) {
        let _ = write(&stderr, text);
    }
}

/// Writes all of it, as long as somebody reads: dlock must come to its end also where nobody does.
fn write_all(mut text: &[u8]) {
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
