/*!
The arithmetic of a lease, as pure functions of instants.

```text
sent            sent+ttl/3          expiry-kill_after        expiry = sent + ttl - margin
 |---------------|--- renew, retry ---|--- SIGTERM ------------|--- SIGKILL; after this the server may end the lease
```

Everything counts from the moment the last successful acquire or renew request was *sent*: the server cannot have
started to count before that.
*/

use std::time::Duration;

use crate::clock::Instant;

/// The longest time that any one request may take.
const MAX_REQUEST: Duration = Duration::from_secs(2);
/// The longest default time between SIGTERM and SIGKILL.
const MAX_DEFAULT_KILL_AFTER: Duration = Duration::from_secs(5);

/// How much time the command has between SIGTERM and SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grace {
    /// What the user asked for.
    pub asked: Option<Duration>,
    /// Which part of a lease it may take at most: one of so many.
    pub share: u32,
}

impl Grace {
    /// What a lease of `ttl` can afford: what was asked for, at most its share, or by default the smaller of 5 s and a
    /// quarter of it.
    #[must_use]
    pub(crate) fn within(&self, ttl: Option<Duration>) -> Duration {
        match (self.asked, ttl) {
            (Some(asked), Some(ttl)) => asked.min(ttl / self.share),
            (Some(asked), None) => asked,
            (None, Some(ttl)) => MAX_DEFAULT_KILL_AFTER.min(ttl / 4),
            (None, None) => MAX_DEFAULT_KILL_AFTER,
        }
    }
}

/// How long one request may take while a lock of `ttl` is being acquired.
#[must_use]
pub(crate) fn acquire_timeout(ttl: Duration) -> Duration {
    MAX_REQUEST.min(ttl / 3)
}

/// One lease as last confirmed: when the confirming request was sent, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// When the request that the server confirmed was sent.
    pub sent: Instant,
    /// The length that the server granted.
    pub ttl: Duration,
    /// The time between SIGTERM and SIGKILL.
    pub kill_after: Duration,
}

impl Term {
    /// When the command must be dead: `sent + ttl` less a margin for clock rates and scheduling (ttl/50 + 50 ms).
    #[must_use]
    pub(crate) fn expiry(&self) -> Instant {
        self.sent + self.ttl.saturating_sub(self.ttl / 50 + Duration::from_millis(50))
    }

    /// When the command is told to end; from here on no renewal rescues it.
    #[must_use]
    pub(crate) fn term_at(&self) -> Instant {
        self.expiry() - self.kill_after
    }

    /// How long to wait between retries of a failed renewal.
    #[must_use]
    pub(crate) fn retry_every(&self) -> Duration {
        self.ttl / 20
    }

    /// How long a renewal sent at `now` may take: a third of what is left, at most 2 s.
    #[must_use]
    pub(crate) fn request_timeout(&self, now: Instant) -> Duration {
        (self.term_at().since(now) / 3).min(MAX_REQUEST)
    }

    /// Whether so much has gone by that a lock granted only `now` should be given back: less than a third of
    /// the time until SIGTERM is left.
    #[must_use]
    pub(crate) fn too_little_left(&self, now: Instant) -> bool {
        let whole = self.term_at().since(self.sent);
        self.term_at().since(now) < whole / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    fn term(ttl: Duration, asked: Option<Duration>) -> Term {
        let sent = Instant::from_nanos(0) + 100 * S;
        Term { sent, ttl, kill_after: Grace { asked, share: 2 }.within(Some(ttl)) }
    }

    fn after(term: &Term, at: Instant) -> Duration {
        at.since(term.sent)
    }

    #[test]
    fn a_default_lease() {
        let term = term(30 * S, None);
        assert_eq!(after(&term, term.expiry()), 29_350 * MS);
        assert_eq!(after(&term, term.term_at()), 24_350 * MS);
        assert_eq!(term.retry_every(), 1_500 * MS);
    }

    #[test]
    fn the_shortest_lease_still_has_room() {
        let term = term(S, None);
        assert_eq!(after(&term, term.expiry()), 930 * MS);
        assert_eq!(after(&term, term.term_at()), 680 * MS);
        assert!(term.ttl / 3 < after(&term, term.term_at()));
    }

    #[test]
    fn kill_after_is_bounded_by_the_granted_lease() {
        for (asked, ttl, expected) in [
            (None, Some(30 * S), 5 * S),
            (None, Some(8 * S), 2 * S),
            (None, None, 5 * S),
            (Some(7 * S), None, 7 * S),
            (Some(7 * S), Some(10 * S), 5 * S),
            (Some(S), Some(10 * S), S),
            (Some(Duration::ZERO), Some(10 * S), Duration::ZERO),
        ] {
            assert_eq!(Grace { asked, share: 2 }.within(ttl), expected);
        }
    }

    #[test]
    fn requests_never_outlast_a_third_of_what_is_left() {
        let term = term(30 * S, None);
        assert_eq!(term.request_timeout(term.sent), 2 * S);
        assert_eq!(term.request_timeout(term.term_at() - 3 * S), S);
        assert_eq!(term.request_timeout(term.expiry()), Duration::ZERO);
    }

    #[test]
    fn a_late_grant_is_not_worth_keeping() {
        let term = term(10 * S, None);
        assert!(!term.too_little_left(term.sent));
        assert!(!term.too_little_left(term.sent + 4 * S));
        assert!(term.too_little_left(term.sent + 5 * S));
        assert!(term.too_little_left(term.sent + 20 * S));
    }
}
