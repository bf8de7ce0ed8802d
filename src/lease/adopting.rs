/*!
Takes over a lock that another process has taken, to extend or release it. Every request has a time-out, and nothing
here takes a lock that is not held.
*/

use std::time::Duration;

use crate::backend::contract::contender::{Adopted, Contender, Released, Renewal, Used};
use crate::backend::error::{Error, ErrorKind};
use crate::clock::{Instant, before, sleep_until};
use crate::lease::taking::give_back_until;
use crate::lease::timing::acquire_timeout;
use crate::lease::waiting::{Failed, Trouble, Wait};

/// The least number of tries before a failure that may pass counts, and the pause between two tries.
const TRIES: usize = 2;
const BETWEEN_TRIES: Duration = Duration::from_millis(250);

/// Takes over the lock and extends it once, if it is still held. Connecting may take up to `connect`; failures that may
/// pass are retried as long as `wait` says.
pub(crate) async fn renew(
    contender: &mut dyn Contender,
    held: &Adopted,
    connect: Duration,
    wait: Wait,
) -> Result<Renewal, Failed> {
    retried(contender, wait, async |contender| {
        adopt(contender, held, connect).await?;
        answered(contender.claim().ttl, contender.renew()).await
    })
    .await
}

/// Takes over the lock and gives it back, if it is still held.
pub(crate) async fn release(
    contender: &mut dyn Contender,
    held: &Adopted,
    connect: Duration,
) -> Result<Released, Failed> {
    retried(contender, Wait::No, async |contender| adopt(contender, held, connect).await).await?;
    give_back_until(Instant::now() + connect, contender, Used::Yes, connect).await
}

/// Returns `true` if others have held the lock since its handle held it.
pub(crate) async fn passed_on(contender: &mut dyn Contender, held: &Adopted) -> Result<bool, Failed> {
    answered(contender.claim().ttl, contender.passed_on(held)).await
}

async fn adopt(contender: &mut dyn Contender, held: &Adopted, connect: Duration) -> Result<(), Failed> {
    let connected = before(Instant::now() + connect, contender.connect()).await;
    connected.map_err(|_| Failed { kind: ErrorKind::Unreachable, trouble: Trouble::Unreachable(connect) })??;
    answered(contender.claim().ttl, contender.adopt(held)).await
}

/// Does `work`, and repeats it if it fails in a way that may pass.
async fn retried<T>(
    contender: &mut dyn Contender,
    wait: Wait,
    mut work: impl AsyncFnMut(&mut dyn Contender) -> Result<T, Failed>,
) -> Result<T, Failed> {
    let mut tries = 0;
    loop {
        tries += 1;
        let failed = match work(contender).await {
            Err(failed) if failed.kind.is_transient() && failed.kind != ErrorKind::Mistaken => failed,
            done => return done,
        };
        if tries >= TRIES && !matches!(wait, Wait::Until(end) if Instant::now() < end) {
            return Err(failed);
        }
        sleep_until(Instant::now() + BETWEEN_TRIES).await;
    }
}

/// Returns the result of `work` on a lock of `ttl`, within the time limit of one request.
async fn answered<T>(ttl: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
    let limit = acquire_timeout(ttl);
    let unanswered = Failed { kind: ErrorKind::Unavailable, trouble: Trouble::Unanswered(limit) };
    before(Instant::now() + limit, work).await.map_or(Err(unanswered), |answer| answer.map_err(Failed::from))
}
