/*!
A barrier: arriving, waiting for the others, and leaving.
*/

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::backend::meeting::Turnout;
use crate::backend::meeting::{Barrier, Gathering};
use crate::clock::{Instant, before, sleep_until};
use crate::lease::waiting::Trouble;
use crate::lease::waiting::{Failed, Wait};
use crate::meeting::tries::{Limits, Tries, random};

/// Time limit for one try to leave a barrier, and the number of tries.
const LEAVING: Duration = Duration::from_millis(500);
const LEAVING_TRIES: usize = 2;
/// The time between two looks, by any of the parties.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// The end of a wait at a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All parties are there.
    Open,
    /// Parties that waited with this one have gone; their names.
    Broken(Vec<String>),
    /// A newer process waits under the name of this one.
    Replaced,
    /// This process was counted as dead.
    CountedDead,
    /// Others wait for another number of parties.
    OtherParties {
        /// The number of parties that they wait for.
        parties: u32,
        /// Their names.
        names: Vec<String>,
    },
    /// The wait ran out.
    RanOut(Turnout),
    /// The backend failed: at once, or when the wait had run out.
    Unusable(Failed),
}

/// The manner in which a party waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// `true` to go on waiting when others have gone.
    pub patient: bool,
    /// The time for which its mark outlives it.
    pub lease: Duration,
    /// The limit of its wait.
    pub wait: Wait,
}

/// The wait of one party.
#[derive(Clone, Debug, Default)]
struct Party {
    patient: bool,
    /// `true` if its arrival was answered.
    arrived: bool,
    /// The time of the first request to arrive that may have been executed, and its failure, while none was answered.
    doubtful: Option<(Instant, Failed)>,
    /// The names that waited at the last look.
    present: BTreeSet<String>,
}

impl Party {
    /// Judges the result of a look: returns the end of the wait, or the turnout if it goes on. `is_over` says that its
    /// time was over before.
    fn judge(&mut self, gathering: Gathering, is_over: bool) -> ControlFlow<Outcome, Turnout> {
        self.arrived = true;
        let names = match gathering {
            Gathering::Waiting(names) => names,
            Gathering::Open => return ControlFlow::Break(Outcome::Open),
            Gathering::Replaced => return ControlFlow::Break(Outcome::Replaced),
            Gathering::Gone => return ControlFlow::Break(Outcome::CountedDead),
            Gathering::OtherParties { parties, names } => {
                return ControlFlow::Break(Outcome::OtherParties { parties, names });
            }
        };
        let present: BTreeSet<String> = names.iter().cloned().collect();
        // A party whose name is still there was replaced by a newer process.
        let gone: Vec<String> = self.present.difference(&present).cloned().collect();
        self.present = present;
        if !gone.is_empty() && !self.patient {
            return ControlFlow::Break(Outcome::Broken(gone));
        }
        if is_over {
            ControlFlow::Break(Outcome::RanOut(Turnout::of(names)))
        } else {
            ControlFlow::Continue(Turnout::of(names))
        }
    }

    /// Returns `true` if an arrival that was requested at `asked` and failed may be requested again at `now`. One that
    /// may have been executed a lease ago may have been opened, and have gone: a new one would be another round's.
    fn may_arrive_again(&mut self, failed: &Failed, lease: Duration, asked: Instant, now: Instant) -> bool {
        if !self.arrived && !failed.kind.is_unsent() {
            self.doubtful.get_or_insert_with(|| (asked, failed.clone()));
        }
        self.overdue(now, lease).is_none()
    }

    /// Returns the failure of an arrival that may have been executed a lease before `now`.
    fn overdue(&self, now: Instant, lease: Duration) -> Option<&Failed> {
        let (since, failed) = self.doubtful.as_ref().filter(|_| !self.arrived)?;
        (now >= *since + lease).then_some(failed)
    }
}

/// Waits at the barrier for the others. Calls `news` with every look and for every failure that another try follows. On
/// return, this party's mark no longer waits, as far as the service could be asked. Dropping the future leaves it;
/// [`withdraw`] removes it.
pub(crate) async fn meet(
    barrier: &mut dyn Barrier,
    manner: Manner,
    limits: Limits,
    news: impl FnMut(Result<Turnout, Trouble>),
) -> Outcome {
    let outcome = wait_for_all(barrier, manner, limits, news).await;
    let may_be_there = matches!(outcome, Outcome::Broken(_) | Outcome::RanOut(_) | Outcome::Unusable(_));
    // It may have opened in the meantime: then the others have gone on, and count on this one.
    if may_be_there && withdraw(barrier).await { Outcome::Open } else { outcome }
}

async fn wait_for_all(
    barrier: &mut dyn Barrier,
    manner: Manner,
    limits: Limits,
    mut news: impl FnMut(Result<Turnout, Trouble>),
) -> Outcome {
    let mut tries = Tries::new(manner.wait, limits);
    let mut party = Party { patient: manner.patient, ..Party::default() };
    loop {
        let asked = Instant::now();
        let is_over = tries.is_over(asked);
        let failed = match look(barrier, &tries, &party, manner.lease).await {
            Ok(gathering) => {
                tries.answered();
                match party.judge(gathering, is_over) {
                    ControlFlow::Break(outcome) => return outcome,
                    ControlFlow::Continue(turnout) => news(Ok(turnout)),
                }
                // Limits the looks of all parties together: not each of them looks whenever one comes.
                let calm = asked + BETWEEN_LOOKS.saturating_mul(party.present.len().try_into().unwrap_or(u32::MAX));
                let changed = async {
                    let changed = barrier.changed().await;
                    sleep_until(calm).await;
                    changed
                };
                match tries.until(changed).await {
                    Some(Err(error)) => Failed::from(error),
                    Some(Ok(())) | None => continue,
                }
            }
            Err(failed) => failed,
        };
        let now = Instant::now();
        let again = party.may_arrive_again(&failed, manner.lease, asked, now);
        let pause = tries.failed(&failed, now, random()).filter(|_| again);
        let Some(pause) = pause else { return Outcome::Unusable(failed) };
        news(Err(failed.trouble));
        tries.pause(pause).await;
    }
}

async fn look(barrier: &mut dyn Barrier, tries: &Tries, party: &Party, lease: Duration) -> Result<Gathering, Failed> {
    tries.connect(barrier.connect()).await?;
    // Pauses and connecting take time.
    match party.overdue(Instant::now(), lease) {
        Some(failed) => Err(failed.clone()),
        None if party.arrived => tries.ask(barrier.look()).await,
        None => tries.ask(barrier.arrive()).await,
    }
}

/// Removes this party's mark if it waits; returns `true` if the barrier has opened for it instead.
pub(crate) async fn withdraw(barrier: &mut dyn Barrier) -> bool {
    for _ in 0..LEAVING_TRIES {
        match before(Instant::now() + LEAVING, barrier.withdraw()).await {
            Ok(Ok(is_open)) => return is_open,
            Ok(Err(error)) if !error.is_transient() => break,
            Ok(Err(_)) | Err(_) => {}
        }
    }
    false
}

/// Removes this party's mark, open or not, and ends its session at the service. Best effort.
pub(crate) async fn leave(barrier: &mut dyn Barrier) {
    let _ = before(Instant::now() + LEAVING, barrier.close()).await;
}

#[cfg(test)]
mod tests {
    use ControlFlow::{Break, Continue};

    use super::*;
    use crate::backend::error::ErrorKind;
    use crate::lease::waiting::Trouble;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn waiting(text: &str) -> ControlFlow<Outcome, Turnout> {
        Continue(Turnout::of(names(text)))
    }

    #[test]
    fn who_was_seen_and_is_gone_breaks_it_unless_it_was_replaced_or_one_is_patient() {
        for (patient, looks) in [
            (false, vec![("a", waiting("a")), ("a b", waiting("a b")), ("a b c", waiting("a b c"))]),
            (false, vec![("a b", waiting("a b")), ("a", Break(Outcome::Broken(names("b"))))]),
            (false, vec![("a b c", waiting("a b c")), ("a d", Break(Outcome::Broken(names("b c"))))]),
            (true, vec![("a b", waiting("a b")), ("a", waiting("a")), ("a c", waiting("a c"))]),
            // The same names: others may have come under them.
            (false, vec![("a b", waiting("a b")), ("b a", waiting("b a"))]),
        ] {
            let mut party = Party { patient, ..Party::default() };
            for (seen, expected) in looks {
                assert_eq!(party.judge(Gathering::Waiting(names(seen)), false), expected, "{seen}, patient: {patient}");
            }
        }
    }

    #[test]
    fn what_a_look_says_ends_the_wait() {
        let other = || (3, names("b"));
        for (gathering, expected) in [
            (Gathering::Open, Outcome::Open),
            (Gathering::Replaced, Outcome::Replaced),
            (Gathering::Gone, Outcome::CountedDead),
            (
                Gathering::OtherParties { parties: other().0, names: other().1 },
                Outcome::OtherParties { parties: other().0, names: other().1 },
            ),
        ] {
            assert_eq!(Party::default().judge(gathering, true), Break(expected));
        }
        let last = Party::default().judge(Gathering::Waiting(names("a")), true);
        assert_eq!(last, Break(Outcome::RanOut(Turnout::of(names("a")))));
    }

    #[test]
    fn an_arrival_that_may_have_been_done_a_lease_ago_is_not_asked_for_again() {
        let (lease, second) = (Duration::from_secs(30), Duration::from_secs(1));
        let start = Instant::from_nanos(0) + 100 * second;
        let failed = |kind| Failed { kind, trouble: Trouble::Silent };
        let mut party = Party::default();
        let mut again = |kind, seconds: u32| {
            let asked = start + second * seconds;
            party.may_arrive_again(&failed(kind), lease, asked, asked + second)
        };
        assert!(again(ErrorKind::Unreachable, 0), "nothing was sent");
        assert!(again(ErrorKind::Unreachable, 500));
        assert!(again(ErrorKind::Unavailable, 500));
        assert!(again(ErrorKind::Unreachable, 528));
        assert!(!again(ErrorKind::Unreachable, 529));
        let overdue = |party: &Party, seconds: u32| party.overdue(start + second * seconds, lease).map(|it| it.kind);
        assert_eq!((overdue(&party, 529), overdue(&party, 530)), (None, Some(ErrorKind::Unavailable)));
        party.arrived = true;
        assert_eq!(overdue(&party, 530), None);
        assert!(party.may_arrive_again(&failed(ErrorKind::Unavailable), lease, start, start + lease * 9));
    }
}
