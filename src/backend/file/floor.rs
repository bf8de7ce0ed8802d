/*!
Keeps fencing tokens increasing across a reboot, when lock files on a file system in memory lose their counters and the
clock may be set back.

One file on disk serves all of root's lock files on this host. It holds an upper bound of all tokens of earlier boots
(the floor), and an upper bound of the tokens that this boot may grant for now (the ceiling):

```text
dlock:1 8ec27367-dbc6-49b1-83c9-d4bcdbb87e7c 0001795190000000123 0001795193600000123
```

The ceiling is an hour ahead of the tokens, so that it is written and synced to disk once an hour and not for each lock.
After a reboot it becomes the floor.

Only root can write there; other users have neither. No problem with this file prevents a lock from being taken.
*/

use std::fs::{DirBuilder, File, OpenOptions, read_to_string};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use crate::backend::file::content::{HIGHEST, MARK};
use crate::backend::file::kernel::flock;

/// The directory of the file.
pub(super) const PLACE: &str = "/var/lib/dlock";
/// The file's name there.
const NAME: &str = "tokens";
/// The kernel's id of the current boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The distance from a token to the ceiling, in microseconds, as tokens are.
const AHEAD: u64 = 3_600_000_000;
/// A token this far ahead of the clock comes from a damaged counter, and does not raise the ceiling.
const DAMAGED: u64 = 365 * 24 * AHEAD;
/// Number of attempts to lock the file for writing.
const TRIES: usize = 25;
/// The pause between two of these attempts.
const PAUSE: Duration = Duration::from_millis(4);

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Marks {
    boot: String,
    floor: u64,
    ceiling: u64,
}

impl Marks {
    /// Reads the content; `None` if it is malformed.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix(MARK)?.trim_end().split(' ');
        let boot = words.next().filter(|boot| !boot.is_empty())?.to_owned();
        let number = |word: Option<&str>| word?.parse().ok().filter(|number| *number < HIGHEST);
        let marks = Self { boot, floor: number(words.next())?, ceiling: number(words.next())? };
        (words.next().is_none() && marks.floor <= marks.ceiling).then_some(marks)
    }

    fn text(&self) -> String {
        format!("{MARK}{} {:019} {:019}\n", self.boot, self.floor, self.ceiling)
    }

    /// Returns the token of a lock whose counter was `counter`, during this `boot` and at `clock` (microseconds), and
    /// the marks that must be on disk before the token is used.
    fn token(found: Option<&Self>, boot: &str, counter: u64, clock: u64) -> (u64, Self) {
        let mut marks = match found {
            Some(found) if found.boot == boot => found.clone(),
            Some(found) => Self { boot: boot.to_owned(), floor: found.ceiling, ceiling: found.ceiling },
            None => Self { boot: boot.to_owned(), floor: 0, ceiling: 0 },
        };
        let token = clock.max(counter + 1);
        // An existing counter has been kept since the boot, and began above the floor.
        let token = if counter == 0 { token.max(marks.floor + 1) } else { token };
        let sane = token <= clock.max(marks.floor) + DAMAGED && token + AHEAD < HIGHEST;
        if token > marks.ceiling && sane {
            marks.ceiling = token + AHEAD;
        }
        (token, marks)
    }
}

/// Returns the token after `counter` at `clock` (microseconds), and a warning, if any. `place` is [`PLACE`].
pub(super) fn token(place: &Path, counter: u64, clock: u64) -> (u64, Option<String>) {
    match try_token(place, counter, clock) {
        Ok(token) => (token, None),
        Err(error) => {
            let path = place.join(NAME);
            let warning = (!is_closed(&error)).then(|| {
                format!(
                    "could not keep the tokens in {} ({error}): after a restart with an older clock they may be smaller",
                    path.display()
                )
            });
            (clock.max(counter + 1), warning)
        }
    }
}

/// Returns `true` if the error only says that this user or this system has no such place.
fn is_closed(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ENOENT))
}

fn try_token(place: &Path, counter: u64, clock: u64) -> io::Result<u64> {
    let boot = read_to_string(BOOT)?;
    let file = open(place)?;
    let decide = || {
        let found = read(&file)?;
        let (token, marks) = Marks::token(found.as_ref(), boot.trim_end(), counter, clock);
        Ok::<_, io::Error>((token, (found.as_ref() != Some(&marks)).then_some(marks)))
    };
    let (token, change) = decide()?;
    if change.is_none() {
        return Ok(token);
    }
    for _ in 0..TRIES {
        match flock(&file, libc::LOCK_EX | libc::LOCK_NB) {
            Ok(()) => {
                let (token, change) = decide()?;
                if let Some(marks) = change {
                    file.write_all_at(marks.text().as_bytes(), 0)?;
                    file.sync_data()?;
                }
                return Ok(token);
            }
            Err(Errno::EWOULDBLOCK) => std::thread::sleep(PAUSE),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::other("another process has it locked"))
}

/// Reads the marks; `None` if the file is empty. A malformed file is an error, and is left alone.
fn read(file: &File) -> io::Result<Option<Marks>> {
    let mut text = [0; 256];
    let length = file.read_at(&mut text, 0)?;
    if length == 0 {
        return Ok(None);
    }
    let marks = std::str::from_utf8(&text[..length]).ok().and_then(Marks::parse);
    marks.map(Some).ok_or_else(|| io::Error::other("it is damaged: remove it"))
}

/// Opens the file, and creates it if it does not exist. Fails on anything but a regular file that only this user may
/// write to.
fn open(place: &Path) -> io::Result<File> {
    let path = place.join(NAME);
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let open = || OpenOptions::new().read(true).write(true).create(true).mode(0o600).custom_flags(flags).open(&path);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match DirBuilder::new().mode(0o700).create(place) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            open()?
        }
        other => other?,
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other("it is not a file that only this user can write to: remove it"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::contract::contender::TOKEN_LIMIT;

    const DAY: u64 = 24 * AHEAD;
    const NOW: u64 = 20_000 * DAY;

    fn marks(boot: &str, floor: u64, ceiling: u64) -> Marks {
        Marks { boot: boot.to_owned(), floor, ceiling }
    }

    #[test]
    fn tokens_begin_above_all_that_an_earlier_start_gave() {
        let this = marks("b", NOW - DAY, NOW + AHEAD);
        let other = marks("a", 0, NOW);
        for (found, counter, clock, token, written) in [
            // The first one ever.
            (None, 0, NOW, NOW, marks("b", 0, NOW + AHEAD)),
            // The clock advances, below the ceiling and then above it.
            (Some(&this), 0, NOW, NOW, this.clone()),
            (Some(&this), NOW, NOW, NOW + 1, this.clone()),
            (Some(&this), 0, NOW + AHEAD + 1, NOW + AHEAD + 1, marks("b", NOW - DAY, NOW + 2 * AHEAD + 1)),
            // After a restart with a correct clock, with one that is a day behind, and with one of 1970.
            (Some(&other), 0, NOW + DAY, NOW + DAY, marks("b", NOW, NOW + DAY + AHEAD)),
            (Some(&other), 0, NOW - DAY, NOW + 1, marks("b", NOW, NOW + 1 + AHEAD)),
            (Some(&other), 0, 7, NOW + 1, marks("b", NOW, NOW + 1 + AHEAD)),
            // Each lock begins there, and continues from its own counter; the ceiling does not run away.
            (Some(&marks("b", NOW, NOW + AHEAD)), 0, 7, NOW + 1, marks("b", NOW, NOW + AHEAD)),
            (Some(&marks("b", NOW, NOW + AHEAD)), NOW + 1, 7, NOW + 2, marks("b", NOW, NOW + AHEAD)),
            // A damaged counter affects its own lock only.
            (Some(&this), NOW + 400 * DAY, NOW, NOW + 400 * DAY + 1, this.clone()),
            (Some(&this), TOKEN_LIMIT - 2, NOW, TOKEN_LIMIT - 1, this.clone()),
            (None, 0, TOKEN_LIMIT - 2, TOKEN_LIMIT - 2, marks("b", 0, 0)),
        ] {
            assert_eq!(Marks::token(found, "b", counter, clock), (token, written), "{found:?} {counter} {clock}");
        }
    }

    #[test]
    fn what_is_written_down_is_read_back_and_nothing_else() {
        let whole = marks("8ec27367-dbc6", 7, 9);
        assert_eq!(Marks::parse(&whole.text()), Some(whole));
        for bad in ["", "dlock:1 ", "dlock:1 b 7", "dlock:1 b 9 7", "dlock:1 b 7 9 9", "dlock:1  7 9", "x b 7 9"] {
            assert_eq!(Marks::parse(bad), None, "{bad}");
        }
        assert_eq!(Marks::parse(&marks("b", 0, HIGHEST).text()), None);
    }

    #[test]
    fn nothing_that_is_wrong_with_the_file_keeps_a_lock_from_being_taken() {
        let scratch = tempfile::tempdir().expect("a directory");
        let place = scratch.path().join("place");
        let file = place.join(NAME);
        assert_eq!(token(&place, 0, NOW), (NOW, None));
        assert_eq!(token(&place, NOW, NOW), (NOW + 1, None));
        let mode = |path: &Path| std::fs::metadata(path).expect("made").mode() & 0o777;
        assert_eq!((mode(&place), mode(&file)), (0o700, 0o600));
        let warned = |word: &str| {
            let (token, warning) = token(&place, 0, NOW - 1);
            assert_eq!(token, NOW - 1);
            assert!(warning.as_ref().is_some_and(|warning| warning.contains(word)), "{warning:?}");
        };
        std::fs::write(&file, "garbage").expect("written");
        warned("damaged");
        assert_eq!(std::fs::read_to_string(&file).expect("left alone"), "garbage");
        std::fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("/dev/null", &file).expect("a link");
        warned("symbolic link");
        std::fs::remove_file(&file).expect("removed");
        // Locked by a frozen process.
        assert_eq!(token(&place, 0, NOW), (NOW, None));
        let locked = File::open(&file).expect("there");
        flock(&locked, libc::LOCK_EX).expect("locked");
        assert_eq!(token(&place, 0, NOW), (NOW, None));
        let (later, warning) = token(&place, 0, NOW + DAY);
        assert!(later == NOW + DAY && warning.is_some_and(|warning| warning.contains("locked")));
        scratch.close().expect("removed");
        // The place does not exist and cannot be created.
        assert_eq!(token(&place, 0, NOW), (NOW, None));
    }
}
