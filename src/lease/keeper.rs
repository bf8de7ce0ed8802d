/*!
The renewal loop. It reports what becomes of the lease and kills nobody.
*/

use std::time::Duration;

use super::timing::Term;
use crate::backend::{Backend, Claim, Lease, Renewal};
use crate::clock::{Instant, before, sleep_until};

/// How long one look at a lock without a lease may take.
const LOOK: Duration = Duration::from_secs(2);
/// What the last renewal came to when the time for one went by unused.
const NOT_TRIED: &str = "it was not tried, because dlock itself was stopped";

/// What it came to when no answer came.
const SILENCE: &str = "the backend does not answer";

/// What became of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It was renewed.
    Extended(Term),
    /// The service says that the lock is not ours: final.
    NotMine(String),
    /// The time came to stop the command, and no renewal had been confirmed.
    Unrenewed {
        /// Since when there has been no confirmed request.
        since: Instant,
        /// What the last try came to.
        error: String,
    },
}

/// Keeps `lease` until it is lost, telling `news` of every change; ends after the news of a loss. Dropping it between
/// or within renewals is safe: a late renewal only extends what is still ours.
pub(crate) async fn keep(
    backend: &mut dyn Backend,
    claim: &Claim,
    lease: Lease,
    kill_after: Duration,
    mut news: impl FnMut(News),
) {
    match lease {
        Lease::Until { sent, ttl, mut renew_every } => {
            let mut term = Term { sent, ttl, kill_after };
            let mut error = NOT_TRIED.to_owned();
            let mut failures = 0;
            let mut due = sent + renew_every;
            loop {
                sleep_until(due.min(term.term_at())).await;
                let now = Instant::now();
                if now >= term.term_at() {
                    return news(News::Unrenewed { since: term.sent, error });
                }
                match renew(backend, claim, now + term.request_timeout(now)).await {
                    // An answer that comes after SIGTERM rescues nothing.
                    Ok(Renewal::Extended(Lease::Until { sent, ttl, renew_every: every }))
                        if Instant::now() < term.term_at() =>
                    {
                        renew_every = every;
                        term = Term { sent, ttl, kill_after };
                        failures = 0;
                        NOT_TRIED.clone_into(&mut error);
                        due = now + renew_every;
                        news(News::Extended(term));
                    }
                    Ok(Renewal::Extended(_)) => due = term.term_at(),
                    Ok(Renewal::NotMine(why)) => return news(News::NotMine(why)),
                    Err(reason) => {
                        // What was heard last says more than the silence of the last tries, which are short.
                        if let Some(reason) = reason.or((failures == 0).then(|| SILENCE.to_owned())) {
                            error = reason;
                        }
                        failures += 1;
                        // The first retry comes at once: most failures are a connection that broke.
                        due = if failures == 1 { now } else { Instant::now() + term.retry_every() };
                    }
                }
            }
        }
        Lease::Unlimited { check } => loop {
            sleep_until(Instant::now() + check).await;
            // A look that fails says nothing; the next one may.
            if let Ok(Renewal::NotMine(why)) = renew(backend, claim, Instant::now() + LOOK).await {
                return news(News::NotMine(why));
            }
        },
    }
}

/// The error is what the backend said, if it said anything in time.
async fn renew(backend: &mut dyn Backend, claim: &Claim, limit: Instant) -> Result<Renewal, Option<String>> {
    let answered = before(limit, async {
        backend.connect().await?;
        backend.renew(claim).await
    })
    .await;
    match answered {
        Ok(Ok(renewal)) => Ok(renewal),
        Ok(Err(error)) => Err(Some(error.to_string())),
        Err(_) => Err(None),
    }
}
