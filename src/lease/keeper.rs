/*!
The renewal loop. It reports what happens to the lease and stops no process.
*/

use std::time::Duration;

use crate::backend::contract::contender::{Contender, Lease, Renewal};
use crate::clock::{Instant, before, sleep_until};
use crate::holder::ask::Ask;
use crate::lease::renewal::{LeaseNews, Renewals, Turn};
use crate::lease::timing::Schedule;

/// Time limit for one look at a lock without a lease.
const LOOK: Duration = Duration::from_secs(2);

/// Keeps `lease` until it is lost; the server's lease is longer by `delay`. Calls `news` for every change; ends after a
/// loss. The future may be dropped at any time: a late renewal only extends a lock that this owner still holds.
pub(crate) async fn keep(
    contender: &mut dyn Contender,
    lease: Lease,
    kill_after: Duration,
    delay: Duration,
    mut news: impl FnMut(LeaseNews),
) {
    let mut requests = Requests::default();
    match lease {
        Lease::Until { sent, ttl, renew_every } => {
            let mut renewals = Renewals::new(Schedule { sent, ttl, kill_after }, renew_every);
            loop {
                rest(&mut renewals, contender).await;
                let now = Instant::now();
                let update = match renewals.turn(now) {
                    Turn::Ask(limit) => {
                        let answer = renew(contender, limit, delay).await;
                        requests.note(&answer);
                        renewals.answered(now, Instant::now(), answer)
                    }
                    Turn::GiveUp(lost) => Some(lost),
                };
                match update {
                    None => {}
                    Some(extended @ LeaseNews::Extended(_)) => {
                        news(extended);
                        requests.next().into_iter().for_each(|ask| news(LeaseNews::Asked(ask)));
                        contender.warnings().into_iter().for_each(|warning| news(LeaseNews::Warning(warning)));
                    }
                    Some(trouble @ LeaseNews::Trouble(_)) => news(trouble),
                    Some(lost) => return news(lost),
                }
            }
        }
        Lease::Unlimited { check } => loop {
            sleep_until(Instant::now() + check).await;
            // A look that fails proves nothing; there will be another one.
            let answer = renew(contender, Instant::now() + LOOK, delay).await;
            requests.note(&answer);
            requests.next().into_iter().for_each(|ask| news(LeaseNews::Asked(ask)));
            if let Ok(Renewal::NotMine(why)) = answer {
                return news(LeaseNews::NotMine(why));
            }
        },
    }
}

/// The received requests to stop: each is reported once, however often renewals repeat it.
#[derive(Debug, Default)]
struct Requests {
    last: Option<Ask>,
    is_new: bool,
}

impl Requests {
    fn note(&mut self, answer: &Result<Renewal, Option<String>>) {
        let Some(ask) = answer.as_ref().ok().and_then(Renewal::asked) else { return };
        if self.last.as_ref() != Some(ask) {
            (self.last, self.is_new) = (Some(ask.clone()), true);
        }
    }

    /// Returns the request that was not reported yet.
    fn next(&mut self) -> Option<Ask> {
        std::mem::take(&mut self.is_new).then(|| self.last.clone()).flatten()
    }
}

/// Waits until the next renewal is due, or until the service reports that something has happened to the lock.
async fn rest(renewals: &mut Renewals, contender: &mut dyn Contender) {
    if renewals.listens() {
        tokio::select! {
            biased;
            () = sleep_until(renewals.next()) => return,
            () = contender.disturbed() => renewals.disturbed(Instant::now()),
        }
    }
    sleep_until(renewals.next()).await;
}

/// Renews the lock before `limit`, and subtracts `delay` from the granted lease. The error is the backend's reason, or
/// `None` if there was no answer.
async fn renew(contender: &mut dyn Contender, limit: Instant, delay: Duration) -> Result<Renewal, Option<String>> {
    let answered = before(limit, async {
        contender.connect().await?;
        contender.renew().await
    })
    .await;
    match answered {
        Ok(Ok(Renewal::Extended(lease))) => Ok(Renewal::Extended(lease.less(delay))),
        Ok(Ok(Renewal::Asked(lease, ask))) => Ok(Renewal::Asked(lease.less(delay), ask)),
        Ok(Ok(lost @ Renewal::NotMine(_))) => Ok(lost),
        Ok(Err(error)) => Err(Some(error.to_string())),
        Err(_) => Err(None),
    }
}
