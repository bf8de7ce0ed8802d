/*!
A latch: arriving, waiting for names, making the latch fail, and forgetting it.
*/

use std::ops::ControlFlow;
use std::time::Duration;

use crate::backend::meeting::Turnout;
use crate::backend::meeting::{Arrivals, Latch, LatchFailure, TOLD};
use crate::clock::{Instant, before};
use crate::lease::waiting::Trouble;
use crate::lease::waiting::{Failed, Wait};
use crate::meeting::tries::{Limits, Tries, random};

/// Time limit for leaving a latch.
const LEAVING: Duration = Duration::from_millis(500);

/// The maximum number of names that `show` prints: no wait can be for more.
const SHOWN: usize = 1000;

/// An action at a latch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// This process's name arrives, and is remembered for this time.
    Arrive(Duration),
    /// The latch fails for this time.
    Fail(LatchFailure, Duration),
    /// Everything is forgotten.
    Forget,
    /// A look, and nothing else.
    Show,
}

/// The end of a wait at a latch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Enough names have arrived.
    Open(Turnout),
    /// It has failed.
    Failed(LatchFailure),
    /// The wait ran out.
    RanOut(Turnout),
    /// The backend failed: at once, or when the wait had run out.
    Unusable(Failed),
}

/// Does `action` within `wait`; returns the result of a look. Calls `news` for every failure that another try follows.
pub(crate) async fn perform(
    latch: &mut dyn Latch,
    action: &Action,
    wait: Wait,
    limits: Limits,
    mut news: impl FnMut(Result<Turnout, Trouble>),
) -> Result<Arrivals, Failed> {
    let mut tries = Tries::new(wait, limits);
    loop {
        let failed = match attempt(latch, action, &tries).await {
            Ok(arrivals) => return Ok(arrivals),
            Err(failed) => failed,
        };
        let Some(pause) = tries.failed(&failed, Instant::now(), random()) else { return Err(failed) };
        news(Err(failed.trouble));
        tries.pause(pause).await;
    }
}

async fn attempt(latch: &mut dyn Latch, action: &Action, tries: &Tries) -> Result<Arrivals, Failed> {
    tries.connect(latch.connect()).await?;
    let done = match action {
        Action::Arrive(keep) => tries.ask(latch.arrive(*keep)).await,
        Action::Fail(failure, keep) => tries.ask(latch.fail(failure, *keep)).await,
        Action::Forget => tries.ask(latch.forget()).await,
        Action::Show => return tries.ask(latch.look(SHOWN)).await,
    };
    done.map(|()| Arrivals::default())
}

/// Waits until `count` names have arrived. Calls `news` with every look and for every failure that another try follows.
pub(crate) async fn wait(
    latch: &mut dyn Latch,
    count: u64,
    wait: Wait,
    limits: Limits,
    mut news: impl FnMut(Result<Turnout, Trouble>),
) -> Outcome {
    let mut tries = Tries::new(wait, limits);
    loop {
        // Taken before the look: what is seen after the end still counts.
        let is_over = tries.is_over(Instant::now());
        let failed = match look(latch, &tries).await {
            Ok(arrivals) => {
                tries.answered();
                match judge(arrivals, count, is_over) {
                    ControlFlow::Break(outcome) => return outcome,
                    ControlFlow::Continue(turnout) => news(Ok(turnout)),
                }
                match tries.until(latch.changed()).await {
                    Some(Err(error)) => Failed::from(error),
                    Some(Ok(())) | None => continue,
                }
            }
            Err(failed) => failed,
        };
        let Some(pause) = tries.failed(&failed, Instant::now(), random()) else { return Outcome::Unusable(failed) };
        news(Err(failed.trouble));
        tries.pause(pause).await;
    }
}

async fn look(latch: &mut dyn Latch, tries: &Tries) -> Result<Arrivals, Failed> {
    tries.connect(latch.connect()).await?;
    tries.ask(latch.look(TOLD)).await
}

/// Judges the result of a look in a wait for `count` names: returns its end, or the turnout if it goes on. `is_over`
/// says that its time was over before.
fn judge(arrivals: Arrivals, count: u64, is_over: bool) -> ControlFlow<Outcome, Turnout> {
    let Arrivals { count: there, mut names, failure } = arrivals;
    names.sort_unstable();
    let turnout = Turnout { count: there, names };
    match failure {
        Some(failure) => ControlFlow::Break(Outcome::Failed(failure)),
        None if there >= count => ControlFlow::Break(Outcome::Open(turnout)),
        None if is_over => ControlFlow::Break(Outcome::RanOut(turnout)),
        None => ControlFlow::Continue(turnout),
    }
}

/// Ends a waiter's session at the service. Best effort.
pub(crate) async fn leave(latch: &mut dyn Latch) {
    let _ = before(Instant::now() + LEAVING, latch.close()).await;
}

#[cfg(test)]
mod tests {
    use ControlFlow::{Break, Continue};

    use super::*;

    #[test]
    fn a_failure_counts_before_all_else_and_what_is_seen_at_the_end_counts() {
        let failure = LatchFailure { by: "a".to_owned(), reason: "red".to_owned() };
        let turnout = |count| Turnout { count, names: vec!["a".to_owned()] };
        for (there, failed, is_over, expected) in [
            (0, false, false, Continue(turnout(0))),
            (1, false, false, Continue(turnout(1))),
            (1, false, true, Break(Outcome::RanOut(turnout(1)))),
            (2, false, false, Break(Outcome::Open(turnout(2)))),
            (2, false, true, Break(Outcome::Open(turnout(2)))),
            (3, false, false, Break(Outcome::Open(turnout(3)))),
            (0, true, false, Break(Outcome::Failed(failure.clone()))),
            (3, true, true, Break(Outcome::Failed(failure.clone()))),
        ] {
            let failure = failed.then(|| failure.clone());
            let arrivals = Arrivals { count: there, names: vec!["a".to_owned()], failure };
            assert_eq!(judge(arrivals, 2, is_over), expected, "{there} {failed} {is_over}");
        }
    }
}
