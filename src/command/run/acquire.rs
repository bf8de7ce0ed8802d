/*!
Acquiring the lock: an outer run that already holds it is found first; a refusal becomes a message and an exit code.
*/

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::backend::{Busy, Contender, ErrorKind, Grant};
use crate::clock::{Instant, sleep_until};
use crate::command::run::{nested, wait};
use crate::exit::{Exit, Failure};
use crate::lease::taking::{Limits, take};
use crate::lease::waiting::{Failed, Refused, Wait, WaitNews, rides_out};
use crate::report::event::{Event, Hindrance};
use crate::report::{Report, Verbosity};
use crate::settings::{Patience, RunSettings};

/// How long a look that failed is not repeated.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The result of the wait.
pub(super) enum Waited {
    /// The lock was granted.
    Granted(Grant),
    /// An outer `dlock run` holds the lock for this one.
    Covered(nested::Cover),
    /// A signal told dlock to stop; its number.
    Told(i32),
}

/// Takes the lock, or finds that an outer run holds it for this one. `inherited` is the locked file of an outer run.
pub(super) async fn acquire(
    settings: &RunSettings,
    report: &Report,
    contender: &mut dyn Contender,
    inherited: &mut Option<OwnedFd>,
) -> Result<Waited, Failure> {
    let limits = Limits { connect: settings.connection.connect_timeout, grace: settings.grace };
    let wait = match settings.patience {
        Patience::None => Wait::No,
        Patience::For(patience) => Wait::Until(Instant::now() + patience),
        Patience::Endless => Wait::Forever,
    };
    let (news, lock) = (wait::LatestNews::default(), settings.lock());
    let mut acquiring = std::pin::pin!(async {
        if let Some(waited) = look(settings, contender, inherited, wait, limits, &news).await? {
            return Ok(waited);
        }
        let taken = take(contender, wait, limits, |heard| news.set(heard)).await;
        taken.map(Waited::Granted).map_err(|failed| refused(settings, failed))
    });
    tokio::select! {
        biased;
        result = &mut acquiring => result,
        never = wait::announce(report, &lock, &news) => match never {},
    }
}

/// For a run inside of others: one look that leaves no trace, because a run must not wait for a lock that an outer run holds
/// for it. `None` if the lock is to be waited for.
async fn look(
    settings: &RunSettings,
    contender: &mut dyn Contender,
    inherited: &mut Option<OwnedFd>,
    wait: Wait,
    limits: Limits,
    news: &wait::LatestNews,
) -> Result<Option<Waited>, Failure> {
    let outer = nested::Outer::inherited();
    if outer.is_empty() {
        return Ok(None);
    }
    loop {
        match take(contender, Wait::No, limits, |_| {}).await {
            Ok(grant) => return Ok(Some(Waited::Granted(grant))),
            Err(Refused::Busy(busy)) => {
                let cover = nested::cover(&outer, inherited, &busy, settings.conflict).await?;
                return match (cover, wait) {
                    (Some(cover), _) => Ok(Some(Waited::Covered(cover))),
                    (None, Wait::No) => Err(refused(settings, Refused::Busy(busy))),
                    (None, Wait::Until(_) | Wait::Forever) => Ok(None),
                };
            }
            Err(Refused::Failed(failed)) if rides_out(wait, failed.kind) && !wait.has_ended(Instant::now()) => {
                news.set(WaitNews::Trouble(failed.trouble));
                sleep_until(Instant::now() + LOOK_AGAIN).await;
            }
            Err(failed) => return Err(refused(settings, failed)),
        }
    }
}

/// The message and the exit code for a lock that was not acquired.
fn refused(settings: &RunSettings, refused: Refused) -> Failure {
    let lock = settings.lock();
    let within = match settings.patience {
        Patience::For(patience) => Some(patience),
        Patience::None | Patience::Endless => None,
    };
    let why = match refused {
        Refused::Busy(Busy { holder, now, .. }) => Hindrance::Held { holder, now, position: None },
        Refused::Failed(Failed { kind, trouble }) => {
            let exit = match kind {
                ErrorKind::Unreachable | ErrorKind::Mistaken | ErrorKind::Unavailable | ErrorKind::Unusable => {
                    Exit::Unavailable
                }
                ErrorKind::Denied => Exit::Denied,
                ErrorKind::CannotCreate => Exit::CannotCreate,
            };
            let within = within.filter(|_| kind.may_pass() && kind != ErrorKind::Mistaken);
            return Failure::new(exit, Event::NotAcquired { lock, within, why: Hindrance::Trouble(trouble) });
        }
    };
    let exit = Exit::NotAcquired(settings.conflict);
    match settings.verbosity {
        Verbosity::Quiet => Failure::silent(exit),
        Verbosity::Normal | Verbosity::Verbose => Failure::new(exit, Event::NotAcquired { lock, within, why }),
    }
}
