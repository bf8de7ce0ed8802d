/*!
Acquires the locks, except those that an outer run already holds.
*/

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::backend::contract::contender::{Contender, Grant};
use crate::clock::{Instant, sleep_until};
use crate::command::announcing::{LatestNews, announce};
use crate::command::refusal::{LockRequest, held_by_own_handle, refused};
use crate::command::run::nested;
use crate::command::run::tenure::Tenure;
use crate::exit::Failure;
use crate::holder::{Holder, Published};
use crate::key::Key;
use crate::lease::taking::{Limits, take};
use crate::lease::waiting::{Refused, Wait, WaitNews, rides_out};
use crate::report::Report;
use crate::settings::{RunSettings, WaitLimit, inherited_handle};

/// Pause before a failed look is repeated.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The result of the wait.
pub(super) enum Waited {
    /// All locks are held, by this run or by outer runs for it.
    Held(Tenure),
    /// A signal told dlock to stop; its number.
    Stopped(i32),
}

/// A run and its outer runs.
struct Inside<'a> {
    settings: &'a RunSettings,
    outer: Vec<nested::Outer>,
    /// The owner that the handle in the environment names.
    own_handle: Option<String>,
    /// The locked files of outer runs.
    inherited: &'a mut Vec<OwnedFd>,
    /// The locks that outer runs hold for this one.
    covers: Vec<nested::Cover>,
}

impl Inside<'_> {
    /// Returns `true` if the run that published this holds the current lock of `contender` for this run. That lock is
    /// then no longer asked for.
    async fn is_covered(&mut self, contender: &mut dyn Contender, published: &Published) -> Result<bool, Failure> {
        let key = contender.claim().key.clone();
        let cover = nested::cover(&self.outer, self.inherited, published, key, self.settings, &self.covers).await?;
        let Some(cover) = cover else {
            return if self.own_handle.as_ref() == Some(&published.id) {
                let runs = self.settings.connection.target.has_handles();
                Err(held_by_own_handle(self.settings.lock_of(contender.claim().key.clone()), runs))
            } else {
                Ok(false)
            };
        };
        contender.skip_held_by_outer(cover.token);
        self.covers.push(cover);
        Ok(true)
    }

    /// Returns the result once no lock is missing: the locks of outer runs, and the `own` ones.
    fn held(&mut self, own: Option<Grant>) -> Waited {
        Waited::Held(Tenure { own, covers: std::mem::take(&mut self.covers), keeper: None })
    }

    /// Returns the result if outer runs hold all of this run's locks.
    fn held_by_others(&mut self) -> Option<Waited> {
        (self.covers.len() == self.settings.keys.count()).then(|| self.held(None))
    }

    /// Handles an outer run that `contender` has met; returns the result if no lock is missing.
    async fn meet(&mut self, contender: &mut dyn Contender, published: &Published) -> Result<Option<Waited>, Failure> {
        if self.is_covered(contender, published).await? {
            return Ok(self.held_by_others());
        }
        // A stale variable, or an outer run that is about to end.
        contender.ignore_outer();
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
    let wait = match settings.wait_limit {
        WaitLimit::None => Wait::No,
        WaitLimit::For(wait_limit) => Wait::Until(Instant::now() + wait_limit),
        WaitLimit::Endless => Wait::Forever,
    };
    let news = LatestNews::new(report, settings.connection.target.to_string());
    let own_handle = inherited_handle().map(|handle| handle.owner.as_str().to_owned());
    let mut inside = Inside { settings, outer: nested::Outer::inherited(), own_handle, inherited, covers: Vec::new() };
    let mut acquiring = std::pin::pin!(async {
        if let Some(waited) = look(&mut inside, contender, wait, limits, &news).await? {
            return Ok(waited);
        }
        loop {
            match take(contender, wait, limits, |key, event| news.set(key, event)).await {
                Ok(grant) => return Ok(inside.held(Some(grant))),
                // The look did not see the outer run, perhaps because not every server answered it, or because it did
                // not get as far as this lock.
                Err(Refused::Outer(outer)) => {
                    if let Some(waited) = inside.meet(contender, &outer).await? {
                        return Ok(waited);
                    }
                }
                Err(failed) => return Err(refused(request(settings, &contender.claim().key), failed)),
            }
        }
    });
    tokio::select! {
        biased;
        result = &mut acquiring => result,
        never = announce(&news) => match never {},
    }
}

/// Looks for locks of outer runs without leaving a trace, because a run must not wait for a lock that an outer run
/// holds for it. `None` if there are no outer runs, or if a lock must be waited for.
async fn look(
    inside: &mut Inside<'_>,
    contender: &mut dyn Contender,
    wait: Wait,
    limits: Limits,
    news: &LatestNews<'_>,
) -> Result<Option<Waited>, Failure> {
    if inside.outer.is_empty() {
        return Ok(None);
    }
    loop {
        match take(contender, Wait::No, limits, |_, _| {}).await {
            Ok(grant) => return Ok(Some(inside.held(Some(grant)))),
            Err(Refused::Outer(outer)) => {
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
                    return Err(refused(request(inside.settings, &contender.claim().key), Refused::Busy(busy)));
                }
                return Ok(None);
            }
            Err(Refused::Failed(failed)) if rides_out(wait, failed.kind) && !wait.has_ended(Instant::now()) => {
                news.set(&contender.claim().key, WaitNews::Trouble(failed.trouble));
                sleep_until(Instant::now() + LOOK_AGAIN).await;
            }
            Err(failed) => return Err(refused(request(inside.settings, &contender.claim().key), failed)),
        }
    }
}

/// Returns this run's request for the lock `key`, which it did not get.
fn request(settings: &RunSettings, key: &Key) -> LockRequest {
    LockRequest {
        lock: settings.lock_of(key.clone()),
        mode: settings.mode,
        wait_limit: settings.wait_limit,
        conflict: settings.conflict,
        verbosity: settings.verbosity,
    }
}
