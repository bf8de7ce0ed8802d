/*!
The time until which a session is surely alive, as a pure function of the requests and answers.

A follower tells the leader only every half tick which sessions it has heard from, and the leader alone decides when a
session ends. A tick is at most half a session. So an answer proves nothing by itself, but an answered write proves that
the leader has heard of all requests that were answered a quarter of a session before it, and a tenth of that more: the
leader's clock may be slow.
*/

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instant;

/// The longest time from an answer until the leader has heard of it, by the leader's clock, as a fraction of a session
/// (one quarter).
const LATENESS: u32 = 4;
/// The fraction by which the leader's clock may be slow (one tenth).
const SLOW: u32 = 10;
/// The minimum distance between noted requests, as a fraction of a session (1/64). Bounds how many are kept.
const GRAIN: u32 = 64;

/// One answered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered {
    sent: Instant,
    at: Instant,
}

/// The requests of which the leader has surely heard.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    session: Duration,
    /// The send time of the newest request of which the leader has surely heard.
    proven: Instant,
    /// The answered requests for which that is not certain yet, oldest first.
    waiting: VecDeque<Answered>,
}

impl Timeline {
    /// Creates the timeline of a session of this length whose connect request, to the leader, was sent at `connected`.
    pub(super) fn new(session: Duration, connected: Instant) -> Self {
        Self { session, proven: connected, waiting: VecDeque::new() }
    }

    /// Returns the send time from which the session's length counts.
    pub(super) fn proven(&self) -> Instant {
        self.proven
    }

    /// Records that a connect request sent at `sent` was answered and has resumed the session.
    pub(super) fn connected(&mut self, sent: Instant) {
        self.prove(sent);
    }

    /// Records that a request sent at `sent` was answered at `at`.
    pub(super) fn answered(&mut self, sent: Instant, at: Instant) {
        let heard = is_heard(lateness(self.session), sent);
        // Every later write proves all requests that were answered that long before this one: the newest is enough.
        while self.waiting.get(1).is_some_and(&heard) {
            self.waiting.pop_front();
        }
        // The older of two close ones stands for both.
        if self.waiting.back().is_none_or(|last| last.sent + self.session / GRAIN <= sent) {
            self.waiting.push_back(Answered { sent, at });
        }
    }

    /// Records that a write sent at `sent` was answered at `at`.
    pub(super) fn written(&mut self, sent: Instant, at: Instant) {
        let heard = is_heard(lateness(self.session), sent);
        while let Some(oldest) = self.waiting.front().copied().filter(&heard) {
            self.prove(oldest.sent);
            self.waiting.pop_front();
        }
        self.answered(sent, at);
    }

    fn prove(&mut self, sent: Instant) {
        self.proven = self.proven.max(sent);
    }
}

/// Returns the time by which an answer must precede a write for the leader to have heard of it.
fn lateness(session: Duration) -> Duration {
    let by_the_leader = session / LATENESS;
    by_the_leader + by_the_leader / SLOW
}

/// Returns a test that is `true` if the leader has heard of a request when it hears of a write sent at `write`.
fn is_heard(lateness: Duration, write: Instant) -> impl Fn(&Answered) -> bool {
    move |answered| answered.at + lateness <= write
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Duration = Duration::from_secs(12);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(0) + Duration::from_secs(100 + seconds)
    }

    /// Returns the proven time after these requests, each (sent, answered, whether it is a write), in seconds.
    fn proven(requests: &[(u64, u64, bool)]) -> u64 {
        let mut timeline = Timeline::new(SESSION, at(0));
        for &(sent, answered, write) in requests {
            if write {
                timeline.written(at(sent), at(answered));
            } else {
                timeline.answered(at(sent), at(answered));
            }
        }
        timeline.proven().since(at(0)).as_secs()
    }

    #[test]
    fn a_write_proves_what_was_answered_a_good_quarter_of_a_session_before_it() {
        let (read, write) = (false, true);
        for (requests, expected) in [
            // At first only the connect request counts, however many answers there are.
            (&[][..], 0),
            (&[(5, 5, read), (10, 10, read)], 0),
            (&[(2, 2, write)], 0),
            // The one before the last write, if it is old enough.
            (&[(2, 2, write), (4, 4, write)], 0),
            // A quarter is not enough: the leader's clock may be slow.
            (&[(2, 2, write), (5, 5, write)], 0),
            (&[(2, 2, write), (6, 6, write)], 2),
            (&[(2, 2, write), (4, 4, write), (6, 6, write)], 2),
            (&[(2, 2, write), (4, 4, write), (6, 6, write), (8, 8, write)], 4),
            // Reads count, but only a write makes them count.
            (&[(4, 4, read), (5, 5, read), (9, 9, write)], 5),
            (&[(4, 4, read), (9, 9, read)], 0),
            // A slow request may have arrived late: its answer must be old enough.
            (&[(2, 6, write), (8, 8, write)], 0),
            (&[(2, 6, write), (9, 9, write)], 0),
            (&[(2, 6, write), (10, 10, write)], 2),
        ] {
            assert_eq!(proven(requests), expected, "{requests:?}");
        }
    }

    #[test]
    fn a_reconnection_counts_from_its_own_request_and_never_takes_time_back() {
        let mut timeline = Timeline::new(SESSION, at(0));
        timeline.written(at(2), at(2));
        timeline.connected(at(7));
        assert_eq!(timeline.proven(), at(7));
        timeline.connected(at(3));
        timeline.written(at(8), at(8));
        assert_eq!(timeline.proven(), at(7));
    }

    #[test]
    fn a_long_wait_takes_no_memory_and_loses_nothing() {
        let mut timeline = Timeline::new(SESSION, at(0));
        for second in 1..1000 {
            timeline.answered(at(second), at(second));
            timeline.answered(at(second), at(second));
            assert!(timeline.waiting.len() <= 5, "{}", timeline.waiting.len());
        }
        timeline.written(at(1000), at(1000));
        assert_eq!(timeline.proven(), at(996));
    }
}
