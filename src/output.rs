/*!
The only place that writes to standard output, for subcommands that print something. The standard output of `dlock run`
belongs to the command alone.
*/

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::{Exit, Failure};
use crate::report::event::Event;
use crate::supervise::surroundings::was_closed;

/// Writes `answer` to standard output. A reader that has closed the pipe is not an error.
pub(crate) fn print(answer: &[u8]) -> Result<(), Failure> {
    match write(answer) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(&error)),
        _ => Ok(()),
    }
}

/// Returns `true` if standard output is a pipe or a terminal whose other end is closed.
#[must_use]
pub(crate) fn is_closed() -> bool {
    let output = io::stdout();
    let mut polled = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    poll(&mut polled, PollTimeout::ZERO).is_ok() && polled[0].revents().is_some_and(|events| events.intersects(gone))
}

/// Returns `true` if the terminal cannot move its cursor, as in the shell of an editor.
#[must_use]
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// Writes `answer`, which must not be lost, to standard output: a reader that has closed the pipe is an error.
pub(crate) fn deliver(answer: &[u8]) -> Result<(), Failure> {
    write(answer).map_err(|error| failed(&error))
}

/// Returns `true` if nothing was written yet, or only whole lines.
#[must_use]
pub(crate) fn is_at_start() -> bool {
    IS_AT_START.load(Ordering::Relaxed)
}

static IS_AT_START: AtomicBool = AtomicBool::new(true);

fn write(answer: &[u8]) -> io::Result<()> {
    if was_closed(libc::STDOUT_FILENO) {
        return Err(nix::errno::Errno::EBADF.into());
    }
    IS_AT_START.store(answer.ends_with(b"\n"), Ordering::Relaxed);
    let mut output = io::stdout().lock();
    output.write_all(answer).and_then(|()| output.flush())
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(Exit::NotWritten, Event::OutputFailed(error.to_string()))
}

/// Returns `true` if standard output is a terminal that shows every character.
#[must_use]
pub(crate) fn is_terminal_of_utf8() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    io::stdout().is_terminal() && said.is_some_and(|said| is_utf8(&said))
}

/// Returns `true` if a locale of this name has UTF-8.
fn is_utf8(locale: &str) -> bool {
    let charset = locale.split('.').nth(1).unwrap_or_default().split('@').next().unwrap_or_default();
    charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
}

/// Returns the columns and rows of the terminal at standard output; `None` if it is not one.
#[must_use]
pub(crate) fn terminal() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills in a winsize.
    let asked = unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size) };
    let is_known = asked == 0 && size.ws_col > 1 && size.ws_row > 1;
    Some(if is_known { (size.ws_col.into(), size.ws_row.into()) } else { (80, 24) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_says_whether_it_has_utf8() {
        for (locale, expected) in [
            ("C.UTF-8", true),
            ("de_DE.utf8", true),
            ("de_DE.UTF-8@euro", true),
            ("C", false),
            ("POSIX", false),
            ("de_DE.ISO-8859-1", false),
            ("", false),
        ] {
            assert_eq!(is_utf8(locale), expected, "{locale}");
        }
    }
}
