/*!
The end of a lock that stays taken after its use (`--min-hold`), in the line after the holder's text.

```text
kept 8e6c3d90-… 0000000000000612345 0000000000000040000
```

The fields are the boot in which the line was written, the end of the hold in milliseconds since that boot, and the
length of the hold in milliseconds. After a reboot all processes are new, so the hold is over. The kernel knows nothing
of this, so only dlock waits for it.
*/

use std::time::Duration;

use crate::clock::{Instant, millis, since_boot};

/// The beginning of the line.
const MARK: &str = "kept ";
/// The kernel's id of the current boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The end of a minimum hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MinimumHold {
    boot: String,
    /// The end, in milliseconds since the boot.
    until: u64,
    /// The length of the hold in milliseconds.
    hold: u64,
}

impl MinimumHold {
    /// Returns the hold of a lock that was granted now and is held for at least `min_hold`; `None` if that is zero, or
    /// if the kernel does not tell the boot.
    pub(super) fn from_now(min_hold: Duration) -> Option<Self> {
        if min_hold.is_zero() {
            return None;
        }
        let (boot, hold) = (boot()?, millis(min_hold));
        Some(Self { boot, until: now().saturating_add(hold), hold })
    }

    /// Reads the line; `None` if it is missing or malformed.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line).ok()?.strip_prefix(MARK)?.split(' ');
        let boot = words.next().filter(|boot| !boot.is_empty())?.to_owned();
        let kept = Self { boot, until: words.next()?.parse().ok()?, hold: words.next()?.parse().ok()? };
        words.next().is_none().then_some(kept)
    }

    /// Formats the line.
    pub(super) fn text(&self) -> String {
        format!("{MARK}{} {:019} {:019}", self.boot, self.until, self.hold)
    }

    /// Returns how long the lock stays taken from now on; `None` if that is over.
    pub(super) fn left(&self) -> Option<Duration> {
        boot().and_then(|boot| self.left_at(&boot, now()))
    }

    /// Returns the rest of the hold at `now` (milliseconds since this `boot`); `None` if it is over.
    fn left_at(&self, boot: &str, now: u64) -> Option<Duration> {
        let left = self.until.saturating_sub(now).min(self.hold);
        (self.boot == boot && left > 0).then(|| Duration::from_millis(left))
    }
}

/// The ends of the holds that one waiter has seen, by its own clock.
///
/// A hold cannot grow while it is waited for, whatever the waiter's clock shows: in a time namespace it may differ a
/// lot from the clock by which the hold was recorded.
#[derive(Debug, Default)]
pub(super) struct Ends(Vec<(MinimumHold, Instant)>);

impl Ends {
    /// Returns the end of each hold in `found`, seen at `now`; `None` for a hold that is over. Forgets holds that are
    /// no longer found.
    pub(super) fn of(&mut self, found: &[MinimumHold], now: Instant) -> Vec<Option<Instant>> {
        let left: Vec<Option<Duration>> = found.iter().map(MinimumHold::left).collect();
        self.at(found, &left, now)
    }

    /// Like [`Ends::of`], where `left` has the rest of each hold.
    fn at(&mut self, found: &[MinimumHold], left: &[Option<Duration>], now: Instant) -> Vec<Option<Instant>> {
        let known = std::mem::take(&mut self.0);
        let end = |(kept, left): (&MinimumHold, &Option<Duration>)| {
            let at = now + (*left)?;
            let before = known.iter().find(|(known, _)| known == kept).map(|(_, end)| *end);
            Some(before.map_or(at, |before| before.min(at)))
        };
        let ends: Vec<Option<Instant>> = found.iter().zip(left).map(end).collect();
        let seen = found.iter().zip(&ends).filter_map(|(kept, end)| Some((kept.clone(), (*end)?)));
        self.0 = seen.collect();
        ends.into_iter().map(|end| end.filter(|&end| now < end)).collect()
    }
}

fn boot() -> Option<String> {
    std::fs::read_to_string(BOOT).ok().map(|boot| boot.trim_end().to_owned())
}

/// Returns the time since the boot in milliseconds, which is the same in every process.
fn now() -> u64 {
    millis(since_boot())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    #[test]
    fn what_is_written_is_read_back() {
        let kept = MinimumHold::from_now(Duration::from_secs(40)).expect("a boot");
        assert_eq!(MinimumHold::parse(kept.text().as_bytes()), Some(kept.clone()));
        assert!(kept.left().is_some_and(|left| left <= Duration::from_secs(40)));
        assert_eq!(MinimumHold::from_now(Duration::ZERO), None);
    }

    #[test]
    fn only_this_boot_counts_and_never_more_than_the_whole_hold() {
        let kept = MinimumHold { boot: "a".to_owned(), until: 50_000, hold: 40_000 };
        for (boot, now, left) in [
            ("a", 10_000, Some(40_000)),
            ("a", 49_999, Some(1)),
            ("a", 50_000, None),
            ("a", 60_000, None),
            ("b", 10_000, None),
            // In a time namespace whose clock is behind.
            ("a", 0, Some(40_000)),
        ] {
            assert_eq!(kept.left_at(boot, now), left.map(Duration::from_millis), "{boot} {now}");
        }
    }

    #[test]
    fn a_hold_that_is_waited_for_does_not_grow() {
        let kept = |until| MinimumHold { boot: "a".to_owned(), until, hold: 40_000 };
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let left = |seconds: u64| Some(Duration::from_secs(seconds));
        let (one, other) = (kept(1), kept(2));
        let mut ends = Ends::default();
        let both = [one.clone(), other.clone()];
        assert_eq!(ends.at(&both, &[left(5), left(9)], at(100)), [Some(at(105)), Some(at(109))]);
        // By a clock that stands still, or is set back.
        assert_eq!(ends.at(&both, &[left(5), left(40)], at(104)), [Some(at(105)), Some(at(109))]);
        assert_eq!(ends.at(&both, &[left(5), left(3)], at(105)), [None, Some(at(108))]);
        assert_eq!(ends.at(&both, &[left(5), None], at(106)), [None, None]);
        // Seen for the first time, or again after it was gone.
        assert_eq!(ends.at(std::slice::from_ref(&other), &[left(2)], at(107)), [Some(at(109))]);
        assert_eq!(ends.at(&[one], &[left(5)], at(108)), [Some(at(113))]);
        assert!(ends.at(&[], &[], at(109)).is_empty());
    }

    #[test]
    fn any_line_is_understood_as_a_whole_or_not_at_all() {
        const PIECES: &str = "kept |kept| |a|17|0000000000000040000|-1|18446744073709551616|\n|\0";
        holds(2000, made_of(PIECES), |line| {
            if let Some(kept) = MinimumHold::parse(line.as_bytes()) {
                prop_assert_eq!(MinimumHold::parse(kept.text().as_bytes()), Some(kept));
            }
            Ok(())
        });
    }
}
