/*!
The renewal loop. It reports what becomes of the lease and kills nobody.
*/

use std::time::Duration;

use crate::backend::{Contender, Lease, Renewal};
use crate::clock::{Instant, before, sleep_until};
use crate::lease::renewal::{LeaseNews, Renewals, Turn};
use crate::lease::timing::Schedule;

/// How long one look at a lock without a lease may take.
const LOOK: Duration = Duration::from_secs(2);

/// Keeps `lease` until it is lost, telling `news` of every change; ends after the news of a loss. Dropping it between
/// or within renewals is safe: a late renewal only extends what is still ours.
pub(crate) async fn keep(
    contender: &mut dyn Contender,
    lease: Lease,
    kill_after: Duration,
    mut news: impl FnMut(LeaseNews),
) {
    match lease {
        Lease::Until { sent, ttl, renew_every } => {
            let mut renewals = Renewals::new(Schedule { sent, ttl, kill_after }, renew_every);
            loop {
                rest(&mut renewals, contender).await;
                let now = Instant::now();
                let heard = match renewals.turn(now) {
                    Turn::Ask(limit) => {
                        let answer = renew(contender, limit).await;
                        renewals.heard(now, Instant::now(), answer)
                    }
                    Turn::GiveUp(lost) => Some(lost),
                };
                match heard {
                    None => {}
                    Some(extended @ LeaseNews::Extended(_)) => {
                        news(extended);
                        contender.concerns().into_iter().for_each(|concern| news(LeaseNews::Concern(concern)));
                    }
                    Some(lost) => return news(lost),
                }
            }
        }
        Lease::Unlimited { check } => loop {
            sleep_until(Instant::now() + check).await;
            // A look that fails says nothing; the next one may.
            if let Ok(Renewal::NotMine(why)) = renew(contender, Instant::now() + LOOK).await {
                return news(LeaseNews::NotMine(why));
            }
        },
    }
}

/// Waits until there is something to do: when the time for it has come, or as soon as the service says that something
/// has happened to the lock.
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

/// The error is what the backend said, if it said anything in time.
async fn renew(contender: &mut dyn Contender, limit: Instant) -> Result<Renewal, Option<String>> {
    let answered = before(limit, async {
        contender.connect().await?;
        contender.renew().await
    })
    .await;
    match answered {
        Ok(Ok(renewal)) => Ok(renewal),
        Ok(Err(error)) => Err(Some(error.to_string())),
        Err(_) => Err(None),
    }
}
