/*!
Tries several ways to the same thing, and takes the first that works. Each way starts a little later than the one before
it, so that a dead one costs little time, and the others need not start if one works.
*/

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::clock::{Instant, sleep_until};

/// The pace at which further ways are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// One way every `pause` after `begun`, whatever the outcome of those before it.
    Steady {
        /// The nominal start of the first way. An instant in the past brings the others forward.
        begun: Instant,
        /// The time from one start to the next.
        pause: Duration,
    },
    /// One way this long after the last one was started, and at once when one of them fails.
    Eager(Duration),
}

/// Tries `ways` with `attempt`, in their order and at this `pace`. Returns the first success, and drops the others.
///
/// If none succeeds, returns all errors in the order in which they came. A `decisive` error ends the race and is the
/// last one, because the others would say the same. There is no time limit but those of the attempts.
pub(crate) async fn race<W, T, E, F: Future<Output = Result<T, E>>>(
    ways: impl IntoIterator<Item = W>,
    pace: Pace,
    attempt: impl Fn(W) -> F,
    decisive: impl Fn(&E) -> bool,
) -> Result<T, Vec<E>> {
    let mut ways = ways.into_iter().peekable();
    let mut running: FuturesUnordered<F> = ways.next().map(&attempt).into_iter().collect();
    let mut errors = Vec::new();
    let mut due = match pace {
        Pace::Steady { begun, pause } => begun + pause,
        Pace::Eager(pause) => Instant::now() + pause,
    };
    loop {
        let more = ways.peek().is_some();
        tokio::select! {
            biased;
            Some(done) = running.next() => match done {
                Ok(won) => return Ok(won),
                Err(error) => {
                    let is_last = decisive(&error);
                    errors.push(error);
                    if is_last {
                        return Err(errors);
                    }
                    if let Pace::Eager(pause) = pace {
                        running.extend(ways.next().map(&attempt));
                        due = Instant::now() + pause;
                    }
                }
            },
            () = sleep_until(due), if more => {
                running.extend(ways.next().map(&attempt));
                due = match pace {
                    Pace::Steady { pause, .. } => due + pause,
                    Pace::Eager(pause) => Instant::now() + pause,
                };
            }
            else => return Err(errors),
        }
    }
}

/// The indices of `servers` servers, once each, beginning with `first`.
pub(crate) fn round(servers: usize, first: usize) -> impl Iterator<Item = usize> {
    (0..servers).map(move |step| (first + step) % servers)
}

/// A random first index among `servers` servers, of which there is at least one, so that no server gets all clients. If
/// the kernel gives no random numbers, it is 0.
#[must_use]
pub(crate) fn random_first(servers: usize) -> usize {
    let mut random = [0; 2];
    let _ = getrandom::fill(&mut random);
    usize::from(u16::from_ne_bytes(random)) % servers
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::clock::before;

    const SOON: Duration = Duration::from_millis(1);
    const NEVER: Duration = Duration::from_secs(3600);

    /// The behavior of a way.
    #[derive(Clone, Copy, Debug)]
    enum Way {
        Works,
        Fails,
        FailsForAll,
        Hangs,
    }

    /// The outcome of a race.
    #[derive(Debug, PartialEq, Eq)]
    enum Came {
        Won(usize),
        Lost(Vec<usize>),
        Waits,
    }

    /// Runs a race with the outcome `expected`. Returns its outcome, and the ways that it tried.
    fn run(ways: &[Way], pace: Pace, expected: &Came) -> (Came, Vec<usize>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let tried = RefCell::new(Vec::new());
        let attempt = |place: usize| {
            tried.borrow_mut().push(place);
            async move {
                match ways[place] {
                    Way::Works => Ok(place),
                    Way::Fails | Way::FailsForAll => Err(place),
                    Way::Hangs => std::future::pending().await,
                }
            }
        };
        let decisive = |place: &usize| matches!(ways[*place], Way::FailsForAll);
        let timeout = if *expected == Came::Waits { SOON * 20 } else { SOON * 20_000 };
        let came = runtime
            .block_on(async { before(Instant::now() + timeout, race(0..ways.len(), pace, attempt, decisive)).await });
        let came = match came {
            Ok(Ok(won)) => Came::Won(won),
            Ok(Err(errors)) => Came::Lost(errors),
            Err(_) => Came::Waits,
        };
        (came, tried.into_inner())
    }

    #[test]
    fn the_first_success_counts_and_nobody_is_tried_before_its_turn() {
        use Came::{Lost, Waits, Won};
        use Way::{Fails, FailsForAll, Hangs, Works};
        let now = Instant::now();
        let steady = |pause| Pace::Steady { begun: now, pause };
        // All ways are due already.
        let late = Pace::Steady { begun: now - Duration::from_secs(60), pause: SOON };
        let eager = Pace::Eager;
        for (ways, pace, expected, tried) in [
            (&[][..], steady(SOON), Lost(vec![]), &[][..]),
            (&[], eager(SOON), Lost(vec![]), &[]),
            (&[Works, Works], steady(SOON), Won(0), &[0]),
            (&[Works, Works], eager(SOON), Won(0), &[0]),
            // A way that hangs is joined by the next one when that is due, and not before.
            (&[Hangs, Hangs, Works], steady(SOON), Won(2), &[0, 1, 2]),
            (&[Hangs, Hangs, Works], eager(SOON), Won(2), &[0, 1, 2]),
            (&[Hangs, Hangs, Works], late, Won(2), &[0, 1, 2]),
            (&[Hangs, Works], steady(NEVER), Waits, &[0]),
            (&[Hangs, Works], eager(NEVER), Waits, &[0]),
            // After a failure, only the eager pace tries the next way at once.
            (&[Fails, Works], steady(NEVER), Waits, &[0]),
            (&[Fails, Works], eager(NEVER), Won(1), &[0, 1]),
            (&[Fails, Fails, Fails], steady(SOON), Lost(vec![0, 1, 2]), &[0, 1, 2]),
            (&[Fails, Fails, Fails], eager(NEVER), Lost(vec![0, 1, 2]), &[0, 1, 2]),
            (&[Hangs, Fails], steady(SOON), Waits, &[0, 1]),
            (&[FailsForAll, Works], steady(SOON), Lost(vec![0]), &[0]),
            (&[Fails, FailsForAll, Works], eager(NEVER), Lost(vec![0, 1]), &[0, 1]),
            (&[Hangs, FailsForAll, Works], steady(SOON), Lost(vec![1]), &[0, 1]),
        ] {
            let (came, order) = run(ways, pace, &expected);
            assert_eq!((came, order.as_slice()), (expected, tried), "{ways:?} {pace:?}");
        }
    }

    #[test]
    fn a_round_visits_every_server_once() {
        for (servers, first, expected) in [(1, 0, &[0][..]), (3, 0, &[0, 1, 2]), (3, 2, &[2, 0, 1]), (3, 4, &[1, 2, 0])]
        {
            assert_eq!(round(servers, first).collect::<Vec<_>>(), expected, "{servers} {first}");
        }
        assert!((0..100).all(|_| random_first(3) < 3));
    }
}
