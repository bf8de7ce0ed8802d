/*!
Acquiring the lock: an outer run that already holds it is found first; a refusal becomes a message and an exit code.
*/

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::backend::{Busy, Contender, ErrorKind, Grant, OtherSlots};
use crate::clock::{Instant, sleep_until};
use crate::command::run::tenure::Tenure;
use crate::command::run::{nested, wait};
use crate::exit::{Exit, Failure};
use crate::holder::{Holder, Published};
use crate::key::Key;
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
    /// All locks are held, by this run or by outer runs for it.
    Held(Tenure),
    /// A signal told dlock to stop; its number.
    Told(i32),
}

/// A run, and the runs around it.
struct Inside<'a> {
    settings: &'a RunSettings,
    outer: Vec<nested::Outer>,
    /// The locked files of outer runs.
    inherited: &'a mut Vec<OwnedFd>,
    /// The locks that outer runs hold for this one.
    covers: Vec<nested::Cover>,
}

impl Inside<'_> {
    /// Whether the run that has published this holds, for this one, the lock to which `contender` has come. Then that lock is
    /// not asked for any more.
    async fn is_covered(&mut self, contender: &mut dyn Contender, published: &Published) -> Result<bool, Failure> {
        let key = contender.claim().key.clone();
        let cover = nested::cover(&self.outer, self.inherited, published, key, self.settings, &self.covers).await?;
        let Some(cover) = cover else { return Ok(false) };
        contender.pass_over(cover.token);
        self.covers.push(cover);
        Ok(true)
    }

    /// What there is once no lock is missing: the outer runs' locks, and the `own` ones.
    fn held(&mut self, own: Option<Grant>) -> Waited {
        Waited::Held(Tenure { own, covers: std::mem::take(&mut self.covers) })
    }

    /// The same if outer runs hold all locks.
    fn held_by_others(&mut self) -> Option<Waited> {
        (self.covers.len() == self.settings.keys.count()).then(|| self.held(None))
    }

    /// What `contender` does after it has met a run around this one: nothing more if no lock is missing.
    async fn meet(&mut self, contender: &mut dyn Contender, published: &Published) -> Result<Option<Waited>, Failure> {
        if self.is_covered(contender, published).await? {
            return Ok(self.held_by_others());
        }
        // A stale variable, or an outer run that is about to end.
        contender.forget_around();
        Ok(None)
    }
}

/// Takes the locks, or finds that outer runs hold them for this one. `inherited` are the locked files of outer runs.
pub(super) async fn acquire(
    settings: &RunSettings,
    report: &Report,
    contender: &mut dyn Contender,
    inherited: &mut Vec<OwnedFd>,
) -> Result<Waited, Failure> {
    let (connect, grace, delay) = (settings.connection.connect_timeout, settings.grace, settings.lock_delay);
    let limits = Limits { connect, grace, delay };
    let wait = match settings.patience {
        Patience::None => Wait::No,
        Patience::For(patience) => Wait::Until(Instant::now() + patience),
        Patience::Endless => Wait::Forever,
    };
    let news = wait::LatestNews::default();
    let mut inside = Inside { settings, outer: nested::Outer::inherited(), inherited, covers: Vec::new() };
    let mut acquiring = std::pin::pin!(async {
        if let Some(waited) = look(&mut inside, contender, wait, limits, &news).await? {
            return Ok(waited);
        }
        loop {
            match take(contender, wait, limits, |key, heard| news.set(key, heard)).await {
                Ok(grant) => return Ok(inside.held(Some(grant))),
                // The look did not see that, perhaps because not every server answered it, or because it did not come to this
                // lock.
                Err(Refused::Around(outer)) => {
                    if let Some(waited) = inside.meet(contender, &outer).await? {
                        return Ok(waited);
                    }
                }
                Err(failed) => return Err(refused(settings, &contender.claim().key, failed)),
            }
        }
    });
    tokio::select! {
        biased;
        result = &mut acquiring => result,
        never = wait::announce(report, settings, &news) => match never {},
    }
}

/// For a run inside of others: a look that leaves no trace, because a run must not wait for a lock that an outer run holds for
/// it. `None` if a lock is to be waited for.
async fn look(
    inside: &mut Inside<'_>,
    contender: &mut dyn Contender,
    wait: Wait,
    limits: Limits,
    news: &wait::LatestNews,
) -> Result<Option<Waited>, Failure> {
    if inside.outer.is_empty() {
        return Ok(None);
    }
    loop {
        match take(contender, Wait::No, limits, |_, _| {}).await {
            Ok(grant) => return Ok(Some(inside.held(Some(grant)))),
            Err(Refused::Around(outer)) => {
                if let Some(waited) = inside.meet(contender, &outer).await? {
                    return Ok(Some(waited));
                }
            }
            Err(Refused::Busy(busy)) => {
                if let Holder::Dlock(holder) = &busy.holder
                    && inside.is_covered(contender, holder).await?
                {
                    if let Some(waited) = inside.held_by_others() {
                        return Ok(Some(waited));
                    }
                    continue;
                }
                if wait == Wait::No {
                    return Err(refused(inside.settings, &contender.claim().key, Refused::Busy(busy)));
                }
                return Ok(None);
            }
            Err(Refused::Failed(failed)) if rides_out(wait, failed.kind) && !wait.has_ended(Instant::now()) => {
                news.set(&contender.claim().key, WaitNews::Trouble(failed.trouble));
                sleep_until(Instant::now() + LOOK_AGAIN).await;
            }
            Err(failed) => return Err(refused(inside.settings, &contender.claim().key, failed)),
        }
    }
}

/// Whether a run of this mode could hold the lock together with `holder` and the others `beside` it.
fn has_room(mode: Mode, holder: &Holder, beside: u64) -> bool {
    let is_alike = matches!(holder, Holder::Dlock(published) if published.mode() == Some(mode));
    is_alike && usize::try_from(beside.saturating_add(1)).is_ok_and(|holders| holders < mode.room())
}

/// The message and the exit code for the lock `key`, which was not acquired.
fn refused(settings: &RunSettings, key: &Key, refused: Refused) -> Failure {
    let lock = settings.lock_of(key.clone());
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
        Refused::Done(done) => return not_acquired(settings, Event::AlreadyDone { lock, done }),
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
    not_acquired(settings, Event::NotAcquired { lock, within, why })
}

/// The exit of a run that does not get the lock, with its reason unless it is to be quiet.
fn not_acquired(settings: &RunSettings, reason: Event) -> Failure {
    let exit = Exit::NotAcquired(settings.conflict);
    match settings.verbosity {
        Verbosity::Quiet => Failure::silent(exit),
        Verbosity::Normal | Verbosity::Verbose => Failure::new(exit, reason),
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
