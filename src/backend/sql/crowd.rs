/*!
Decides which waiters stay connected. A database has few connections, and they are for its applications: the first
waiters stay, and so do the first hundred while at most half of the connections are in use. The others keep their
places, hang up, and reconnect in time for their turn.
*/

use std::time::Duration;

use crate::clock::Instant;

/// The number of waiters that always stay connected: at most a quarter of the connections, but at least one.
const FIRST: u64 = 4;
/// The most waiters that stay connected: each sends heartbeats, and with each heartbeat counts the waiters before it.
const MOST: u64 = 100;
/// The first time away, if the pace is unknown.
const AT_FIRST: Duration = Duration::from_secs(1);
/// The shortest and the longest time away.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// A waiter's view of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueView {
    /// Its place in the queue, 1 for the first.
    pub position: u64,
    /// `true` if no connected waiter is before it.
    pub is_head: bool,
    /// The connections in use: at the server, for the database or of the role, whichever are scarcest.
    pub used: u64,
    /// The limit on these connections.
    pub most: u64,
}

/// Decides when one waiter hangs up and comes back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    /// The time of the last look, and the place in the queue then.
    last: Option<(Instant, u64)>,
    /// The last time away.
    away: Option<Duration>,
}

impl Crowd {
    /// Returns how long to hang up after a look at `now`; `None` to stay. `random` spreads waiters that left together.
    pub(crate) fn looked(&mut self, now: Instant, view: QueueView, random: u16) -> Option<Duration> {
        let last = self.last.replace((now, view.position));
        let first = FIRST.min(view.most / 4).max(1);
        let has_room = view.used.saturating_mul(2) <= view.most && view.position <= MOST;
        if view.is_head || view.position <= first || has_room {
            self.away = None;
            return None;
        }
        let moved = last.map_or(0, |(_, before)| before.saturating_sub(view.position));
        let away = match last {
            Some((then, _)) if moved > 0 => {
                // Half of the time after which, at this pace, it will be among the first.
                let ahead = u32::try_from(view.position - first).unwrap_or(u32::MAX);
                let moved = u32::try_from(moved).unwrap_or(u32::MAX);
                now.since(then).saturating_mul(ahead) / moved / 2
            }
            _ => self.away.map_or(AT_FIRST, |away| away.saturating_mul(2)),
        };
        let away = away.clamp(SHORTEST, LONGEST);
        self.away = Some(away);
        // 80 to 120 %.
        Some(away * 4 / 5 + away * 2 / 5 * u32::from(random) / u32::from(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    /// The random number that leaves a time as it is.
    const MIDDLE: u16 = u16::MAX / 2;

    fn at(seconds: u32) -> Instant {
        Instant::from_nanos(0) + S * seconds
    }

    fn queue_view(position: u64) -> QueueView {
        QueueView { position, is_head: false, used: 60, most: 100 }
    }

    /// Rounded, because the middle is half a step off.
    fn millis(away: Option<Duration>) -> Option<u128> {
        away.map(|away| (away.as_micros() + 500) / 1000)
    }

    #[test]
    fn the_first_stay_and_so_do_all_while_half_is_free() {
        for (view, stays) in [
            (queue_view(4), true),
            (queue_view(5), false),
            (QueueView { is_head: true, ..queue_view(50) }, true),
            (QueueView { used: 50, ..queue_view(50) }, true),
            (QueueView { used: 51, ..queue_view(50) }, false),
            (QueueView { used: 50, ..queue_view(100) }, true),
            (QueueView { used: 2, ..queue_view(101) }, false),
            (QueueView { used: u64::MAX, ..queue_view(50) }, false),
            (QueueView { used: 4, most: 5, ..queue_view(1) }, true),
            (QueueView { used: 4, most: 5, ..queue_view(2) }, false),
        ] {
            assert_eq!(Crowd::default().looked(at(0), view, MIDDLE).is_none(), stays, "{view:?}");
        }
    }

    #[test]
    fn a_waiter_is_away_for_half_of_what_it_takes_at_the_pace_that_it_saw() {
        let mut crowd = Crowd::default();
        // Nothing is known, and then nothing moves.
        assert_eq!(millis(crowd.looked(at(0), queue_view(100), MIDDLE)), Some(1000));
        assert_eq!(millis(crowd.looked(at(1), queue_view(100), MIDDLE)), Some(2000));
        assert_eq!(millis(crowd.looked(at(3), queue_view(100), MIDDLE)), Some(4000));
        // Ten in two seconds, and 86 to go.
        assert_eq!(millis(crowd.looked(at(5), queue_view(90), MIDDLE)), Some(8600));
        // Nothing moves again; and then all at once.
        assert_eq!(millis(crowd.looked(at(14), queue_view(90), MIDDLE)), Some(17_200));
        assert_eq!(millis(crowd.looked(at(31), queue_view(90), MIDDLE)), Some(30_000));
        assert_eq!(millis(crowd.looked(at(61), queue_view(5), MIDDLE)), Some(500));
        assert_eq!(crowd.looked(at(62), queue_view(4), MIDDLE), None);
        assert_eq!(millis(crowd.looked(at(63), queue_view(100), MIDDLE)), Some(1000));
    }

    #[test]
    fn those_who_left_together_do_not_come_back_together() {
        let away = |random| millis(Crowd::default().looked(at(0), queue_view(100), random));
        assert_eq!((away(0), away(u16::MAX)), (Some(800), Some(1200)));
    }
}
