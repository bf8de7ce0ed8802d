/*!
The content of a lock file: the fencing counter, the holders, and the end of a minimum hold.

The file of an exclusive lock consists of its beginning only. Each co-holder of a shared lock has its own record after
that, at an offset given by its seat, so that no holder overwrites another one. Between records there are NULs.
*/

use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::TOKEN_LIMIT;
use crate::backend::file::errors;
use crate::backend::file::kept::MinimumHold;
use crate::clock::{millis, wall_millis};
use crate::holder::done::Done;
use crate::holder::{Holder, LOCK_FILE, Published};
use crate::printable::MAX_SHOWN;

/// The highest token that is granted. A counter that has reached it is damaged: it would leave no room for another.
pub(super) const HIGHEST: u64 = TOKEN_LIMIT - 2;

/// The first bytes of every lock file that dlock has written.
pub(super) const MARK: &str = LOCK_FILE;

/// The length of the beginning of a lock file, which has the counter, and of each later record, in bytes.
pub(super) const BLOCK: usize = MAX_SHOWN + 1536;

/// The beginning of a line that records a period in which a command has succeeded.
const DONE: &str = "once ";
/// The room for such lines, in bytes: enough for at least eight lengths of periods in most cases.
const ROOM: usize = 1024;

/// The length of the line with the counter.
pub(super) const COUNTER: u64 = MARK.len() as u64 + 20;

/// A holder's record: a line with what it publishes about itself, and one with its minimum hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The text that it publishes; may be empty.
    pub holder: Vec<u8>,
    /// The time until which the lock stays taken, if that is longer than it is used.
    pub kept: Option<MinimumHold>,
}

impl Record {
    /// Reads the record of a seat. Bytes after the first NUL do not belong to it.
    #[must_use]
    pub(super) fn parse(block: &[u8]) -> Self {
        let text = block.split(|&byte| byte == 0).next().unwrap_or_default();
        Self::of_lines(text.split(|&byte| byte == b'\n'))
    }

    fn of_lines<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let holder = lines.next().unwrap_or_default().to_vec();
        Self { holder, kept: lines.next().and_then(MinimumHold::parse) }
    }

    /// Formats the lines, where `text` is what a holder publishes.
    #[must_use]
    pub(super) fn lines(text: &str, kept: Option<&MinimumHold>) -> String {
        let line = |text: &str| if text.is_empty() { String::new() } else { format!("{text}\n") };
        line(text) + &line(&kept.map(MinimumHold::text).unwrap_or_default())
    }

    /// Returns the whole block of a seat: these lines, and zeros up to its end.
    #[must_use]
    pub(super) fn block(text: &str, kept: Option<&MinimumHold>) -> Vec<u8> {
        let mut block = Self::lines(text, kept).into_bytes();
        block.resize(BLOCK, 0);
        block
    }

    /// Returns what a dlock has published here; `None` if the text is not from dlock.
    #[must_use]
    pub(super) fn published(&self) -> Option<Box<Published>> {
        match Holder::read(&self.holder) {
            Holder::Dlock(published) => Some(published),
            _ => None,
        }
    }

    /// Returns an earlier run that keeps the lock taken although it no longer uses it, and for how long. Call this only
    /// if the kernel does not say that the run still exists.
    #[must_use]
    pub(super) fn finished(&self) -> Option<(Holder, Duration)> {
        let left = self.kept.as_ref()?.left()?;
        let Some(mut published) = self.published() else { return Some((Holder::Unknown, left)) };
        (published.done, published.until) = (true, Some(wall_millis().saturating_add(millis(left))));
        Some((Holder::Dlock(published), left))
    }
}

/// The beginning of a lock file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// The last token, 0 if there was none; `None` if the counter is damaged: not a number, or so large that it leaves
    /// no room for another token.
    pub counter: Option<u64>,
    /// The record of the exclusive holder, or of the last one.
    pub record: Record,
    /// The last periods of each length in which a command has succeeded, newest first.
    pub done: Vec<Done>,
}

impl Content {
    /// Reads a lock file: an empty one, as `flock(1)` creates it, or one that dlock has written. Anything else is
    /// foreign data and an error.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        if content.is_empty() {
            return Ok(Self { counter: Some(0), record: Record::default(), done: Vec::new() });
        }
        let Some(content) = content.strip_prefix(MARK.as_bytes()) else {
            return Err(errors::NOT_OURS.to_owned());
        };
        // Records may follow.
        let content = content.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut lines = content.split(|&byte| byte == b'\n');
        let counter = lines.next().and_then(|line| std::str::from_utf8(line).ok()?.trim().parse().ok());
        let lines: Vec<&[u8]> = lines.collect();
        let done = lines.iter().filter_map(|line| Done::read(line.strip_prefix(DONE.as_bytes())?)).collect();
        let record = Record::of_lines(lines.into_iter());
        Ok(Self { counter: counter.filter(|counter| *counter < HIGHEST), record, done })
    }

    /// Returns who has already succeeded in the period of `claim` at `now` (milliseconds since 1970); `None` if nobody
    /// has, or if the claim has no period.
    #[must_use]
    pub(super) fn done_in(&self, claim: &Claim, now: u64) -> Option<Box<Done>> {
        let period = claim.once_per?.by(now);
        let mut remembered = self.done.iter().filter(|done| done.is_remembered(now));
        remembered.find(|done| done.covers(period)).cloned().map(Box::new)
    }

    /// Returns the token for the next holder, which `next` computes from the counter and the clock. The error says how
    /// to fix what prevents it.
    pub(super) fn token(&self, next: impl FnOnce(u64) -> u64) -> Result<u64, String> {
        let token = next(self.counter.ok_or(errors::DAMAGED)?);
        // The counter leaves room, so only the clock can be wrong.
        if token <= HIGHEST { Ok(token) } else { Err(errors::WRONG_CLOCK.to_owned()) }
    }
}

/// Returns the lines of the periods in which commands have succeeded, as far as there is room.
#[must_use]
pub(super) fn done_lines(done: &[Done]) -> String {
    let lines = done.iter().map(|done| format!("{DONE}{}\n", done.text()));
    lines.fold(String::new(), |text, line| if text.len() + line.len() > ROOM { text } else { text + &line })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::contract::claim::Once;
    use crate::holder::About;
    use crate::lock::period::Period;
    use crate::property::{holds, made_of};

    #[test]
    fn contents() {
        let record = |holder: &[u8]| Record { holder: holder.to_vec(), kept: None };
        let content = |counter, holder: &[u8]| Ok(Content { counter, record: record(holder), done: Vec::new() });
        let whole = b"dlock:1 0000000000000000017\n{}\nrest of a longer one";
        assert_eq!(Content::parse(whole), content(Some(17), b"{}"));
        assert_eq!(Content::parse(b""), content(Some(0), b""));
        assert_eq!(Content::parse(b"dlock:1 garbage\n{}\n"), content(None, b"{}"), "its holder is still known");
        assert!(Content::parse(b"4711\n").is_err());
    }

    #[test]
    fn a_damaged_counter_is_known_as_such() {
        for (counter, read) in [
            ("0", Some(0)),
            ("0001795190000000123", Some(1_795_190_000_000_123)),
            ("9007199254740989", Some(TOKEN_LIMIT - 3)),
            ("9007199254740990", None),
            ("9007199254740992", None),
            ("18446744073709551615", None),
            ("18446744073709551616", None),
            ("-1", None),
            ("17x", None),
            ("", None),
        ] {
            let content = Content::parse(format!("{MARK}{counter}\n").as_bytes());
            assert_eq!(content.map(|content| content.counter), Ok(read), "{counter}");
        }
    }

    #[test]
    fn a_token_is_granted_or_what_prevents_it_is_told() {
        let clock = 1_795_190_000_000_000;
        for (counter, clock, token) in [
            (Some(0), clock, Ok(clock)),
            // A host that boots without a clock.
            (Some(clock), 7, Ok(clock + 1)),
            (Some(HIGHEST - 1), clock, Ok(HIGHEST)),
            (None, clock, Err(errors::DAMAGED)),
            (Some(17), HIGHEST, Ok(HIGHEST)),
            (Some(17), HIGHEST + 1, Err(errors::WRONG_CLOCK)),
        ] {
            let content = Content { counter, record: Record::default(), done: Vec::new() };
            let granted = content.token(|counter| clock.max(counter + 1));
            assert_eq!(granted, token.map_err(str::to_owned), "{counter:?} at {clock}");
        }
    }

    #[test]
    fn whatever_a_lock_file_holds_leaves_room_for_a_token_or_is_left_alone() {
        const PIECES: &str = "dlock:1 |dlock|0000001795190000000|9007199254740991|18446744073709551615|-1| |\n|{}";
        let text = (any::<bool>(), made_of(PIECES))
            .prop_map(|(ours, text)| if ours { format!("{MARK}{text}") } else { text }.into_bytes());
        holds(2000, prop_oneof![3 => text, 1 => any::<Vec<u8>>()], |bytes| {
            match Content::parse(&bytes) {
                Ok(content) => {
                    prop_assert!(content.counter.is_none_or(|counter| counter < HIGHEST));
                    prop_assert!(bytes.is_empty() || bytes.starts_with(MARK.as_bytes()));
                    prop_assert!(!content.record.holder.contains(&b'\n'));
                }
                Err(_) => prop_assert!(!bytes.is_empty() && !bytes.starts_with(MARK.as_bytes())),
            }
            Ok(())
        });
    }

    #[test]
    fn what_is_written_down_is_read_back_also_before_the_rest_of_a_longer_text() {
        let holder = "[^\n\0]{0,40}";
        holds(500, (0..HIGHEST, holder, any::<String>()), |(counter, holder, rest)| {
            let content = Content::parse(format!("{MARK}{counter:019}\n{holder}\n{rest}").as_bytes());
            let content = content.map(|content| (content.counter, content.record.holder));
            prop_assert_eq!(content, Ok((Some(counter), holder.into_bytes())));
            Ok(())
        });
    }

    #[test]
    fn a_record_is_read_back() {
        holds(500, ("[^\n\0]{1,80}", any::<bool>()), |(text, hold)| {
            let kept = MinimumHold::from_now(Duration::from_secs(u64::from(hold)));
            let block = Record::block(&text, kept.as_ref());
            prop_assert_eq!(block.len(), BLOCK);
            prop_assert_eq!(Record::parse(&block), Record { holder: text.into_bytes(), kept });
            Ok(())
        });
        assert_eq!(Record::parse(&[]), Record::default());
        assert_eq!(Record::parse(&Record::block("", None)), Record::default());
        // The beginning of a file whose lock is shared, with the record of the first seat.
        let mut file = format!("{MARK}{:019}\n\n", 17).into_bytes();
        assert_eq!(file.len() as u64, COUNTER + 1);
        file.resize(BLOCK, 0);
        file.extend(Record::block("{}", None));
        let expected = Content { counter: Some(17), record: Record::default(), done: Vec::new() };
        assert_eq!(Content::parse(&file), Ok(expected));
    }

    #[test]
    fn the_longest_text_with_the_longest_hold_fits_into_a_record() {
        let line = format!("kept {} {most} {most}", "x".repeat(36), most = u64::MAX);
        let kept = MinimumHold::parse(line.as_bytes()).expect("a hold");
        let beginning = Record::lines(&"x".repeat(MAX_SHOWN), Some(&kept)).len() + ROOM;
        assert!(usize::try_from(COUNTER).expect("a length") + beginning < BLOCK);
    }

    #[test]
    fn what_was_done_is_read_back_and_counts_for_its_period() {
        let now = wall_millis();
        let about = About { host: "web1".to_owned(), user: "deploy".to_owned(), pid: 7, ..About::default() };
        let done = |minutes: u64, at| Done::by(&about, Period::at(Duration::from_secs(60 * minutes), now), at);
        let all = [done(60, now), done(1440, now), done(5, now - 700_000)];
        let text = format!("{MARK}{:019}\n\n{}", 17, done_lines(&all));
        let content = Content::parse(text.as_bytes()).expect("ours");
        assert_eq!((content.counter, &content.record, &content.done[..]), (Some(17), &Record::default(), &all[..]));
        let claim = |minutes: u64| Claim {
            once_per: Some(Once::now(Duration::from_secs(60 * minutes))),
            ..Claim::example("", "job").expect("names")
        };
        let by = |claim: &Claim| content.done_in(claim, now);
        assert_eq!(by(&claim(60)).as_deref(), Some(&all[0]));
        assert_eq!(by(&claim(1440)).as_deref(), Some(&all[1]));
        // Over, unknown, and not requested.
        assert_eq!([by(&claim(5)), by(&claim(7)), by(&Claim::example("", "job").expect("names"))], [None, None, None]);
        let many: Vec<Done> = (1..100).map(|minutes| done(minutes, now)).collect();
        let lines = done_lines(&many);
        assert!(lines.len() <= ROOM && lines.lines().count() >= 8, "{lines}");
    }
}
