/*!
When to stop the command, and which signals to pass on: pure decisions of what happened and what time it is.
*/

use std::time::Duration;

use super::protocol::Window;
use crate::clock::Instant;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing before this instant; nothing at all when there is none.
    Wait(Option<Instant>),
    /// Send SIGTERM, because of the lease's own deadline or because it was ordered.
    Term {
        /// The deadline came: nobody ordered it.
        by_deadline: bool,
    },
    /// Send SIGKILL, again and again until nothing is left.
    Kill,
}

/// The way down: SIGTERM, then SIGKILL. It is set off by the lease's deadline or by an order, and has no way back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ladder {
    lease: Option<Window>,
    ordered: Option<Instant>,
    deadline_passed: bool,
    termed: bool,
}

impl Ladder {
    /// The ladder of a command under a lease, or under a lock that has none.
    #[must_use]
    pub(crate) fn new(lease: Option<Window>) -> Self {
        Self { lease, ..Self::default() }
    }

    /// The lease was renewed. Once its SIGTERM has been sent no renewal rescues the command.
    pub(crate) fn extend(&mut self, window: Window) {
        if self.lease.is_some() && !self.deadline_passed {
            self.lease = Some(window);
        }
    }

    /// Stop the command: SIGTERM at once, SIGKILL at `kill_at` or at the lease's deadline if that is earlier.
    pub(crate) fn stop(&mut self, kill_at: Instant) {
        self.ordered = Some(self.ordered.map_or(kill_at, |earlier| earlier.min(kill_at)));
    }

    /// Whether the command is being stopped.
    #[must_use]
    pub(crate) fn is_stopping(&self) -> bool {
        self.ordered.is_some() || self.deadline_passed
    }

    /// What is to be done at `now`. A step that was returned counts as done.
    pub(crate) fn step(&mut self, now: Instant) -> Step {
        if self.lease.is_some_and(|lease| now >= lease.term_at) {
            self.deadline_passed = true;
        }
        let kill_at = match (self.ordered, self.lease) {
            (Some(ordered), Some(lease)) => Some(ordered.min(lease.kill_at)),
            (Some(ordered), None) => Some(ordered),
            (None, Some(lease)) => Some(lease.kill_at),
            (None, None) => None,
        };
        if self.is_stopping() && !self.termed {
            self.termed = true;
            return Step::Term { by_deadline: self.ordered.is_none() };
        }
        if kill_at.is_some_and(|at| now >= at) {
            return Step::Kill;
        }
        let term_at = self.lease.filter(|_| !self.deadline_passed).map(|lease| lease.term_at);
        Step::Wait(match (term_at, kill_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        })
    }
}

/// How long the guard waits for its own copy of a signal before it passes dlock's on.
const WAIT_FOR_OWN: Duration = Duration::from_millis(40);
/// How long a copy that dlock has not reported yet stays remembered.
const REMEMBER: Duration = Duration::from_secs(2);
/// How long a copy stays remembered once dlock has reported it: `timeout` signals dlock first and then its group.
const REMEMBER_MATCHED: Duration = Duration::from_millis(100);
/// How many signals can be open at a time; beyond that, of two that are the same the older is dropped.
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
    /// Whether the command had this with what the guard itself got, `own`. When a terminal goes away its shell and the
    /// kernel tell the group in the same moment, and of what is pending twice every process sees one, from either.
    fn reached_with(self, own: Self) -> bool {
        self.signal == own.signal && (self.sender == own.sender || self.sender == 0)
    }
}

/// Which of the signals that dlock got are passed on: those that the guard, which is in the same process group, did
/// not get from the same sender. A signal to the whole group has reached the command already.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    own: [Option<(Sent, Instant)>; OPEN],
    asked: [Option<(Sent, Instant)>; OPEN],
}

impl Forwards {
    /// The guard itself got `sent`: whatever dlock reports of it went to the whole group.
    pub(crate) fn saw(&mut self, sent: Sent, now: Instant) {
        self.own.iter_mut().filter(|own| own.is_some_and(|(_, until)| until < now)).for_each(|own| *own = None);
        let mut until = now + REMEMBER;
        for open in &mut self.asked {
            if open.is_some_and(|(asked, _)| asked.reached_with(sent)) {
                *open = None;
                until = now + REMEMBER_MATCHED;
            }
        }
        put(&mut self.own, sent, until);
    }

    /// dlock got `sent`.
    pub(crate) fn ask(&mut self, sent: Sent, now: Instant) {
        let own = self.own.iter_mut().flatten().find(|(own, until)| sent.reached_with(*own) && now < *until);
        match own {
            Some((_, until)) => *until = (*until).min(now + REMEMBER_MATCHED),
            None => put(&mut self.asked, sent, now + WAIT_FOR_OWN),
        }
    }

    /// The next signal whose time to be passed on has come.
    pub(crate) fn due(&mut self, now: Instant) -> Option<i32> {
        let open = self.asked.iter_mut().find(|open| open.is_some_and(|(_, at)| now >= at))?;
        open.take().map(|(sent, _)| sent.signal)
    }

    /// When [`Forwards::due`] has something next.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.asked.iter().flatten().map(|(_, at)| *at).min()
    }
}

fn put(places: &mut [Option<(Sent, Instant)>; OPEN], sent: Sent, at: Instant) {
    let free = places.iter().position(Option::is_none);
    // More places than signals: one of them is there twice, and of those the kernel would have made one as well.
    let is_double = |place: &Option<(Sent, Instant)>| {
        let same = |(other, _): &&(Sent, Instant)| place.is_some_and(|(sent, _)| sent.signal == other.signal);
        places.iter().flatten().filter(same).nth(1).is_some()
    };
    let oldest = || {
        let doubles = places.iter().enumerate().filter(|(_, place)| is_double(place));
        doubles.min_by_key(|(_, place)| place.map(|(_, at)| at)).map_or(0, |(i, _)| i)
    };
    let index = free.unwrap_or_else(oldest);
    places[index] = Some((sent, at));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn window(term: u64, kill: u64) -> Window {
        Window { term_at: at(term), kill_at: at(kill) }
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_the_command() {
        let mut ladder = Ladder::new(Some(window(100, 200)));
        assert_eq!(ladder.step(at(0)), Step::Wait(Some(at(100))));
        ladder.extend(window(150, 250));
        assert_eq!(ladder.step(at(100)), Step::Wait(Some(at(150))));
        assert_eq!(ladder.step(at(150)), Step::Term { by_deadline: true });
        assert_eq!(ladder.step(at(150)), Step::Wait(Some(at(250))));
        ladder.extend(window(1000, 2000));
        assert_eq!(ladder.step(at(250)), Step::Kill, "no renewal rescues it after SIGTERM");
        assert_eq!(ladder.step(at(260)), Step::Kill);
    }

    #[test]
    fn an_order_stops_it_earlier_and_the_lease_still_bounds_it() {
        let mut ladder = Ladder::new(Some(window(100, 200)));
        ladder.stop(at(500));
        assert_eq!(ladder.step(at(10)), Step::Term { by_deadline: false });
        assert_eq!(ladder.step(at(10)), Step::Wait(Some(at(100))));
        ladder.extend(window(400, 450));
        assert_eq!(ladder.step(at(300)), Step::Wait(Some(at(400))), "renewed while it is being stopped");
        assert_eq!(ladder.step(at(450)), Step::Kill);

        let mut ladder = Ladder::new(None);
        assert_eq!(ladder.step(at(0)), Step::Wait(None));
        ladder.stop(at(50));
        ladder.stop(at(70));
        assert_eq!(ladder.step(at(10)), Step::Term { by_deadline: false });
        assert_eq!(ladder.step(at(50)), Step::Kill);
    }

    #[test]
    fn a_thaw_long_after_the_deadline_terms_and_kills_at_once() {
        let mut ladder = Ladder::new(Some(window(100, 200)));
        assert_eq!(ladder.step(at(9_000)), Step::Term { by_deadline: true });
        assert_eq!(ladder.step(at(9_000)), Step::Kill);
    }

    const TERM: Sent = Sent { signal: 15, sender: 42 };

    #[test]
    fn a_signal_to_dlock_alone_is_passed_on_once() {
        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0));
        assert_eq!(forwards.due(at(39)), None);
        assert_eq!(forwards.next(), Some(at(40)));
        assert_eq!(forwards.due(at(40)), Some(15));
        assert_eq!(forwards.due(at(41)), None);
    }

    #[test]
    fn a_signal_to_the_group_is_not_passed_on_whoever_hears_it_first() {
        let mut forwards = Forwards::default();
        forwards.saw(TERM, at(0));
        forwards.ask(TERM, at(900));
        assert_eq!(forwards.due(at(5_000)), None);

        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0));
        forwards.saw(TERM, at(30));
        assert_eq!(forwards.due(at(5_000)), None);
    }

    #[test]
    fn timeout_signals_dlock_and_then_the_group() {
        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0));
        forwards.saw(TERM, at(1));
        forwards.ask(TERM, at(2));
        assert_eq!(forwards.due(at(5_000)), None);
    }

    #[test]
    fn a_later_signal_to_dlock_alone_is_not_swallowed() {
        let mut forwards = Forwards::default();
        forwards.saw(TERM, at(0));
        forwards.ask(TERM, at(1));
        forwards.ask(TERM, at(200));
        assert_eq!(forwards.due(at(240)), Some(15));
        forwards.ask(Sent { sender: 43, ..TERM }, at(201));
        assert_eq!(forwards.due(at(241)), Some(15));
    }

    #[test]
    fn a_storm_loses_none_beyond_the_room_but_does_not_panic() {
        let mut forwards = Forwards::default();
        for sender in 0..100 {
            forwards.ask(Sent { signal: 10, sender }, at(0));
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
        forwards.ask(shell, at(0));
        forwards.ask(kernel, at(1));
        assert_eq!(forwards.due(at(1_000)), None);
        forwards.ask(kernel, at(2_000));
        assert_eq!(forwards.due(at(2_040)), Some(1), "a hang-up that only a session leader is told of");
    }

    #[test]
    fn a_guard_that_was_kept_from_its_work_loses_none() {
        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0));
        forwards.ask(Sent { signal: 10, sender: 42 }, at(1_000));
        assert_eq!(forwards.due(at(1_000)), Some(15));
        assert_eq!(forwards.due(at(1_040)), Some(10));
    }

    #[test]
    fn a_burst_of_one_signal_pushes_out_no_other() {
        let mut forwards = Forwards::default();
        forwards.ask(TERM, at(0));
        for _ in 0..100 {
            forwards.ask(Sent { signal: 10, sender: 42 }, at(1));
        }
        assert!(std::iter::from_fn(|| forwards.due(at(50))).any(|signal| signal == TERM.signal));
    }
}
