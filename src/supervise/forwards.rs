/*!
The signals that dlock passes on to the command: pure decisions from what was received and when.

A signal to the whole process group (from a terminal, `timeout` or `kill %1`) has reached the command already. The guard
sees such signals itself as long as it is in the group, and through its listener afterwards.
*/

use std::time::Duration;

use crate::clock::Instant;

/// Time that the guard waits for the group's copy of a signal before it passes dlock's on.
const WAIT_FOR_OWN: Duration = Duration::from_millis(40);
/// Time for which the group's copy stays remembered once dlock has reported the signal: `timeout` signals dlock first
/// and then its group.
const REMEMBER_MATCHED: Duration = Duration::from_millis(100);
/// If the group's copy is this old and dlock, which runs, has not reported the signal, it never will.
const STALE: Duration = Duration::from_secs(2);
/// The number of undecided signals that are kept. If there are more, the older of two equal ones is dropped.
const OPEN: usize = 32;

/// A signal and the process that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The signal's number.
    pub signal: i32,
    /// The sender's process id, 0 for the kernel (a terminal) and for one outside this PID namespace.
    pub sender: i32,
}

impl Sent {
    /// Returns `true` if this signal reached the command as `own`, which the group got. When a terminal goes away, its
    /// shell and the kernel signal the group at the same moment; of a signal that is pending twice each process sees
    /// one, from either.
    fn reached_with(self, own: Self) -> bool {
        self.signal == own.signal && (self.sender == own.sender || self.sender == 0)
    }
}

/// A signal that went to the whole group.
#[derive(Clone, Copy, Debug)]
struct Own {
    sent: Sent,
    received: Instant,
    /// The time at which it is forgotten; `None` while dlock, which may be stopped, has not reported it.
    until: Option<Instant>,
}

/// A signal that dlock has reported.
#[derive(Clone, Copy, Debug)]
struct Asked {
    sent: Sent,
    due: Instant,
}

/// The signals that dlock or its group got recently.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    own: [Option<Own>; OPEN],
    asked: [Option<Asked>; OPEN],
}

impl Forwards {
    /// Notes that the group got `sent`: if dlock reports it too, it has reached the command already.
    pub(crate) fn saw(&mut self, sent: Sent, now: Instant) {
        self.forget(now);
        let mut until = None;
        for open in &mut self.asked {
            if open.is_some_and(|asked| asked.sent.reached_with(sent)) {
                *open = None;
                until = Some(now + REMEMBER_MATCHED);
            }
        }
        put(&mut self.own, Own { sent, received: now, until }, |own| (own.sent.signal, own.received));
    }

    /// Notes that dlock got `sent`, and read it at `read_at`: it will be passed on unless the group got it too.
    pub(crate) fn ask(&mut self, sent: Sent, read_at: Instant, now: Instant) {
        self.forget(now);
        let reached = self.own.iter().flatten().any(|own| sent.reached_with(own.sent));
        // The kernel keeps only the first of equal signals until it is read, so dlock will not report what the group
        // got until then. Nor what it should have read long ago: all pending signals are read in one go.
        for own in self.own.iter_mut().flatten() {
            let same = own.sent.signal == sent.signal && (own.received <= read_at || sent.reached_with(own.sent));
            if same || own.received + STALE <= read_at {
                own.until.get_or_insert(now + REMEMBER_MATCHED);
            }
        }
        if !reached {
            put(&mut self.asked, Asked { sent, due: now + WAIT_FOR_OWN }, |asked| (asked.sent.signal, asked.due));
        }
    }

    /// Returns the next signal that is due to be passed on.
    pub(crate) fn due(&mut self, now: Instant) -> Option<i32> {
        let open = self.asked.iter_mut().find(|open| open.is_some_and(|asked| now >= asked.due))?;
        open.take().map(|asked| asked.sent.signal)
    }

    /// Returns the instant at which [`Forwards::due`] has something next.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.asked.iter().flatten().map(|asked| asked.due).min()
    }

    fn forget(&mut self, now: Instant) {
        let over = |own: &Own| own.until.is_some_and(|until| until <= now);
        self.own.iter_mut().filter(|own| own.as_ref().is_some_and(over)).for_each(|own| *own = None);
    }
}

/// Puts `new` into a free place. If there is none, it replaces the oldest of the entries whose signal is there twice.
/// `key` gives the signal and the time of an entry.
fn put<T: Copy>(places: &mut [Option<T>; OPEN], new: T, key: impl Fn(&T) -> (i32, Instant)) {
    let free = places.iter().position(Option::is_none);
    // There are more places than signals, so one is there twice; the kernel merges such signals too.
    let is_double = |place: &Option<T>| {
        let signal = place.as_ref().map(|place| key(place).0);
        places.iter().flatten().filter(|other| Some(key(other).0) == signal).nth(1).is_some()
    };
    let oldest = || {
        let doubles = places.iter().enumerate().filter(|(_, place)| is_double(place));
        doubles.min_by_key(|(_, place)| place.as_ref().map(|place| key(place).1)).map_or(0, |(index, _)| index)
    };
    let index = free.unwrap_or_else(oldest);
    places[index] = Some(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    const TERM: Sent = Sent { signal: 15, sender: 42 };

    #[test]
    fn a_signal_to_dlock_alone_is_passed_on_once() {
        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0), at(0));
        assert_eq!(forwards.due(at(39)), None);
        assert_eq!(forwards.next(), Some(at(40)));
        assert_eq!(forwards.due(at(40)), Some(15));
        assert_eq!(forwards.due(at(41)), None);
    }

    #[test]
    fn a_signal_to_the_group_is_not_passed_on_whoever_hears_it_first() {
        let mut forwards = Forwards::default();
        forwards.saw(TERM, at(0));
        forwards.ask(TERM, at(900), at(900));
        assert_eq!(forwards.due(at(5_000)), None);

        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0), at(0));
        forwards.saw(TERM, at(30));
        assert_eq!(forwards.due(at(5_000)), None);
    }

    #[test]
    fn timeout_signals_dlock_and_then_the_group() {
        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0), at(0));
        forwards.saw(TERM, at(1));
        forwards.ask(TERM, at(2), at(2));
        assert_eq!(forwards.due(at(5_000)), None);
    }

    #[test]
    fn a_later_signal_to_dlock_alone_is_not_swallowed() {
        let mut forwards = Forwards::default();
        forwards.saw(TERM, at(0));
        forwards.ask(TERM, at(1), at(1));
        forwards.ask(TERM, at(200), at(200));
        assert_eq!(forwards.due(at(240)), Some(15));
        forwards.ask(Sent { sender: 43, ..TERM }, at(201), at(201));
        assert_eq!(forwards.due(at(241)), Some(15));
    }

    #[test]
    fn a_storm_loses_none_beyond_the_room_but_does_not_panic() {
        let mut forwards = Forwards::default();
        for sender in 0..100 {
            forwards.ask(Sent { signal: 10, sender }, at(0), at(0));
            forwards.saw(Sent { signal: 12, sender }, at(0));
        }
        let mut passed = 0;
        while forwards.due(at(50)).is_some() {
            passed += 1;
        }
        assert_eq!(passed, OPEN);
    }

    #[test]
    fn what_the_kernel_sends_matches_the_same_signal_of_a_shell() {
        let (shell, kernel) = (Sent { signal: 1, sender: 42 }, Sent { signal: 1, sender: 0 });
        let mut forwards = Forwards::default();
        forwards.saw(shell, at(0));
        forwards.ask(shell, at(0), at(0));
        forwards.ask(kernel, at(1), at(1));
        assert_eq!(forwards.due(at(1_000)), None);
        forwards.ask(kernel, at(2_000), at(2_000));
        assert_eq!(forwards.due(at(2_040)), Some(1), "a hang-up that only a session leader is told of");
    }

    #[test]
    fn a_guard_that_was_kept_from_its_work_loses_none() {
        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0), at(0));
        forwards.ask(Sent { signal: 10, sender: 42 }, at(1_000), at(1_000));
        assert_eq!(forwards.due(at(1_000)), Some(15));
        assert_eq!(forwards.due(at(1_040)), Some(10));
    }

    #[test]
    fn a_burst_of_one_signal_pushes_out_no_other() {
        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0), at(0));
        for _ in 0..100 {
            forwards.ask(Sent { signal: 10, sender: 42 }, at(1), at(1));
        }
        assert!(std::iter::from_fn(|| forwards.due(at(50))).any(|signal| signal == TERM.signal));
    }

    #[test]
    fn a_signal_to_the_group_that_dlock_reads_late_is_not_passed_on() {
        let mut forwards = Forwards::default();
        forwards.saw(TERM, at(0));
        forwards.saw(Sent { signal: 2, sender: 42 }, at(1));
        // dlock was stopped for a minute.
        forwards.ask(Sent { signal: 2, sender: 42 }, at(60_000), at(60_001));
        forwards.ask(TERM, at(60_001), at(60_002));
        assert_eq!(forwards.due(at(70_000)), None);
    }

    #[test]
    fn of_two_senders_to_the_group_dlock_may_report_one_and_a_later_signal_to_it_alone_counts() {
        let other = Sent { sender: 43, ..TERM };
        let mut forwards = Forwards::default();
        forwards.saw(TERM, at(0));
        forwards.saw(other, at(1));
        forwards.ask(TERM, at(5_000), at(5_000));
        assert_eq!(forwards.due(at(5_100)), None);
        forwards.ask(other, at(6_000), at(6_000));
        assert_eq!(forwards.due(at(6_040)), Some(15));
    }
}
