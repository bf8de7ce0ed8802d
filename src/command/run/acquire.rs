/*!
Acquiring the lock: an outer run that already holds it is found first; a refusal becomes a message and an exit code.
*/

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::backend::{Busy, Contender, ErrorKind, Grant, OtherSlots};
use crate::clock::{Instant, sleep_until};
use crate::command::run::{nested, wait};
use crate::exit::{Exit, Failure};
use crate::holder::Holder;
use crate::lease::taking::{Limits, take};
use crate::lease::waiting::{Failed, Refused, Wait, WaitNews, rides_out};
use crate::lock::admission::Mode;
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
    let (news, lock, outer) = (wait::LatestNews::default(), settings.lock(), nested::Outer::inherited());
    let mut acquiring = std::pin::pin!(async {
        if let Some(waited) = look(settings, contender, &outer, inherited, wait, limits, &news).await? {
            return Ok(waited);
        }
        loop {
            match take(contender, wait, limits, |heard| news.set(heard)).await {
                Ok(grant) => return Ok(Waited::Granted(grant)),
                // The look did not see that, perhaps because not every server answered it.
                Err(Refused::Around(holder)) => {
                    if let Some(cover) = nested::cover(&outer, inherited, &holder, settings).await? {
                        return Ok(Waited::Covered(cover));
                    }
                    contender.forget_around();
                }
                Err(failed) => return Err(refused(settings, failed)),
            }
        }
    });
    tokio::select! {
        biased;
        result = &mut acquiring => result,
        never = wait::announce(report, &lock, &news) => match never {},
    }
}

/// For a run inside of these `outer` ones: one look that leaves no trace, because a run must not wait for a lock that an
/// outer run holds for it. `None` if the lock is to be waited for.
async fn look(
    settings: &RunSettings,
    contender: &mut dyn Contender,
    outer: &[nested::Outer],
    inherited: &mut Option<OwnedFd>,
    wait: Wait,
    limits: Limits,
    news: &wait::LatestNews,
) -> Result<Option<Waited>, Failure> {
    if outer.is_empty() {
        return Ok(None);
    }
    loop {
        match take(contender, Wait::No, limits, |_| {}).await {
            Ok(grant) => return Ok(Some(Waited::Granted(grant))),
            Err(Refused::Around(holder)) => {
                if let Some(cover) = nested::cover(outer, inherited, &holder, settings).await? {
                    return Ok(Some(Waited::Covered(cover)));
                }
                // A stale variable, or an outer run that is about to end.
                contender.forget_around();
            }
            Err(Refused::Busy(busy)) => {
                if let Holder::Dlock(holder) = &busy.holder
                    && let Some(cover) = nested::cover(outer, inherited, holder, settings).await?
                {
                    return Ok(Some(Waited::Covered(cover)));
                }
                return if wait == Wait::No { Err(refused(settings, Refused::Busy(busy))) } else { Ok(None) };
            }
            Err(Refused::Failed(failed)) if rides_out(wait, failed.kind) && !wait.has_ended(Instant::now()) => {
                news.set(WaitNews::Trouble(failed.trouble));
                sleep_until(Instant::now() + LOOK_AGAIN).await;
            }
            Err(failed) => return Err(refused(settings, failed)),
        }
    }
}

/// Whether a run of this mode could hold the lock together with `holder` and the others `beside` it.
fn has_room(mode: Mode, holder: &Holder, beside: u64) -> bool {
    let is_alike = matches!(holder, Holder::Dlock(published) if published.mode() == Some(mode));
    is_alike && usize::try_from(beside.saturating_add(1)).is_ok_and(|holders| holders < mode.room())
}

/// The message and the exit code for a lock that was not acquired.
fn refused(settings: &RunSettings, refused: Refused) -> Failure {
    let lock = settings.lock();
    let within = match settings.patience {
        Patience::For(patience) => Some(patience),
        Patience::None | Patience::Endless => None,
    };
    let why = match refused {
        Refused::Busy(Busy { holder, beside, now, .. }) => {
            let queued = has_room(settings.mode, &holder, beside);
            Hindrance::Held { holder, beside, now, position: None, queued }
        }
        // The contender was told to forget the runs around this one, or there are none.
        Refused::Around(outer) => {
            Hindrance::Held { holder: Holder::Dlock(outer), beside: 0, now: 0, position: None, queued: false }
        }
        Refused::OtherSlots(OtherSlots { slots, holder, now }) => {
            let wanted = settings.mode.slots().unwrap_or_default();
            return Failure::new(Exit::Usage, Event::OtherSlots { lock, wanted, slots, holder, now });
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_run_out_where_there_is_room_are_others_ahead_of_it() {
        let mode = |name: &str| Mode::read(name).expect("a mode");
        let dlock = |mode: &str| Holder::read(format!(r#"{{"v":1,"id":"x","mode":"{mode}"}}"#).as_bytes());
        for (wanted, holder, beside, expected) in [
            ("shared", dlock("shared"), 2, true),
            ("slots3", dlock("slots3"), 1, true),
            ("slots3", dlock("slots3"), 2, false),
            ("slots3", dlock("slots2"), 0, false),
            ("exclusive", dlock("exclusive"), 0, false),
            ("shared", dlock("exclusive"), 0, false),
            ("exclusive", dlock("shared"), 0, false),
            ("shared", Holder::Process(7, "flock".to_owned()), 0, false),
        ] {
            assert_eq!(has_room(mode(wanted), &holder, beside), expected, "{wanted} {holder:?} {beside}");
        }
    }
}
