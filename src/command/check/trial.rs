/*!
A trial of the lock: two contenders for a scratch key, like those of `dlock run`, show that locks work.
*/

use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Contender, Released, Renewal, Used};
use crate::backend::contract::probing::{Finding, PROBE, Probes, SCRATCH, Verdict};
use crate::backend::contract::service::Service;
use crate::backend::error::ErrorKind;
use crate::clock::{Instant, before, within};
use crate::command::about::{Purpose, about};
use crate::command::session::random_id;
use crate::exit::{Exit, Failure};
use crate::key::Key;
use crate::lease::taking::{Limits, TAKE_BACK, give_back, take};
use crate::lease::timing::{Delay, Grace};
use crate::lease::waiting::{Failed, Refused, Trouble, Wait};
use crate::lock::admission::Mode;
use crate::report::event::Event;
use crate::report::{picture, trouble};
use crate::schema::middle_and_worst;
use crate::settings::CheckSettings;

/// The lease length to ask for.
const TTL: Duration = Duration::from_secs(5);
/// Number of renewals to time.
const SAMPLES: usize = 20;
/// Time limit for removing leftovers.
const CLEAN: Duration = Duration::from_secs(2);
/// Limits for the longest renewal, as fractions of the lease: above a twentieth, too few renewals fit into the lease;
/// above a sixth, a lock could not be kept.
const SLOW: u32 = 20;
const TOO_SLOW: u32 = 6;

/// A lock taken on trial.
pub(super) struct Trial {
    key: Key,
    /// The URL of the backend, without a password.
    place: String,
    limits: Limits,
    first: Box<dyn Contender>,
    second: Box<dyn Contender>,
    has_lease: bool,
}

impl Trial {
    /// Makes two contenders for one scratch key, which have not asked for anything yet.
    pub(super) async fn new(
        settings: &CheckSettings,
        service: &dyn Service,
        probes: &mut dyn Probes,
    ) -> Result<Self, Failure> {
        let internal = |error: String| Failure::new(Exit::Internal, Event::Settings(error));
        let connection = &settings.connection;
        let name = format!("{SCRATCH}{}", random_id()?.as_str());
        let key = probes.scratch(Key::parse(name.as_ref()).map_err(internal)?).await;
        let has_lease = connection.target.has_lease();
        let contend = || -> Result<Box<dyn Contender>, Failure> {
            let purpose =
                Purpose { program: "dlock check".to_owned(), ttl: has_lease.then_some(TTL), ..Purpose::default() };
            Ok(service.contend(Claim {
                key: key.clone(),
                namespace: connection.namespace.clone(),
                owner: random_id()?,
                mode: Mode::Exclusive,
                outer: Vec::new(),
                ttl: TTL,
                min_hold: Duration::ZERO,
                once_per: None,
                about: about(purpose),
            }))
        };
        let grace = Grace { asked: None, share: connection.target.kill_after_share() };
        let limits = Limits { connect: connection.connect_timeout.min(PROBE), grace, delay: Delay::default() };
        let (first, second) = (contend()?, contend()?);
        Ok(Self { key, place: connection.target.to_string(), limits, first, second, has_lease })
    }

    /// Takes the lock, lets another contender ask for it, renews it and gives it back. Adds the duration of each
    /// renewal to `samples`, in microseconds.
    pub(super) async fn run(&mut self, samples: &mut Vec<u64>) -> Finding {
        let silent = || self::silent();
        match within(PROBE, self.exclude()).await.unwrap_or_else(|_| Err(silent())) {
            Ok(()) => {}
            Err(finding) => return finding,
        }
        if let Err(finding) = self.renew(samples).await {
            return finding;
        }
        match within(PROBE, give_back(self.first.as_mut(), Used::No, PROBE)).await {
            Ok(Ok(Released::Freed | Released::Kept)) => {
                Finding::ok("lock", "taken, refused to another contender, renewed and released")
            }
            Ok(Ok(Released::NotMine)) => lost("it was gone when it was given back"),
            Ok(Err(what)) => self.failed(ErrorKind::Unavailable, &what),
            Err(_) => silent(),
        }
    }

    /// Checks that the first contender gets the lock and the second one does not.
    async fn exclude(&mut self) -> Result<(), Finding> {
        match take(self.first.as_mut(), Wait::No, self.limits, |_, _| {}).await {
            Ok(_) => {}
            Err(Refused::Failed(Failed { kind, trouble })) => return Err(self.failed(kind, &trouble)),
            Err(_) => return Err(lost("somebody else holds it")),
        }
        match take(self.second.as_mut(), Wait::No, self.limits, |_, _| {}).await {
            Err(Refused::Failed(Failed { kind, trouble })) => Err(self.failed(kind, &trouble)),
            Err(_) => Ok(()),
            Ok(_) => {
                let text = "two contenders got it at the same time";
                Err(Finding::fail("lock", ErrorKind::Unusable, text, "do not use this service for locks"))
            }
        }
    }

    /// Renews the lock several times.
    async fn renew(&mut self, samples: &mut Vec<u64>) -> Result<(), Finding> {
        let begun = Instant::now();
        let mut sent = begun;
        while samples.len() < SAMPLES && sent.since(begun) < PROBE {
            match before(begun + PROBE, self.first.renew()).await {
                Ok(Ok(Renewal::NotMine(why))) => return Err(lost(&why)),
                Ok(Err(error)) => return Err(Finding::failed("lock", &error)),
                Ok(Ok(_)) if !self.has_lease => break,
                // If some renewals were answered, the service is slow, not silent.
                Err(_) if samples.is_empty() => return Err(silent()),
                Ok(Ok(Renewal::Extended(_) | Renewal::Asked(..))) | Err(_) => {}
            }
            let now = Instant::now();
            samples.push(u64::try_from(now.since(sent).as_micros()).unwrap_or(u64::MAX));
            sent = now;
        }
        Ok(())
    }

    fn failed(&self, kind: ErrorKind, what: &Trouble) -> Finding {
        Finding::said("lock", Verdict::Fail(kind), &trouble(&self.place, what))
    }

    /// Returns the contenders' warnings: what could make locks unsafe.
    pub(super) fn warnings(&mut self) -> Vec<String> {
        let mut warnings = self.first.warnings();
        // Both may have noticed the same.
        warnings.extend(self.second.warnings());
        warnings.sort_unstable();
        warnings.dedup();
        warnings
    }

    /// Gives back whatever either contender may have at the service.
    pub(super) async fn give_back(&mut self) {
        for contender in [&mut self.first, &mut self.second] {
            // What cannot be given back will expire.
            let _ = give_back(contender.as_mut(), Used::No, TAKE_BACK).await;
        }
    }

    /// Removes what a lock leaves behind after it was given back.
    pub(super) async fn clean(&self, probes: &mut dyn Probes) {
        let _ = within(CLEAN, probes.clean(&self.key)).await;
    }
}

/// Returns the finding for a missing answer.
fn silent() -> Finding {
    let text = format!("no answer within {}s", PROBE.as_secs());
    Finding::fail("lock", ErrorKind::Unavailable, text, "is it stopped or out of reach?")
}

/// Returns the finding for a lock that was not kept.
fn lost(why: &str) -> Finding {
    let text = format!("it was taken and could not be kept: {why}");
    Finding::fail("lock", ErrorKind::Unavailable, text, "does something else delete or overwrite keys there?")
}

/// Judges these renewal times, in microseconds, for leases of this length; `None` without samples.
pub(super) fn latency(samples: &[u64], ttl: Duration) -> Option<Finding> {
    let (median, worst) = middle_and_worst(samples)?;
    let text = picture::latency(samples, median, worst);
    let length = Duration::from_micros(worst);
    let (wanted, remedy) = (humantime::format_duration(ttl), "use a longer --ttl, or a backend that is nearer");
    Some(match () {
        () if length > ttl / TOO_SLOW => {
            let text = format!("{text}: too slow for a --ttl of {wanted}");
            Finding::fail("latency", ErrorKind::Unavailable, text, remedy)
        }
        () if length > ttl / SLOW => Finding::warn("latency", format!("{text}: slow for a --ttl of {wanted}"), remedy),
        () => Finding::ok("latency", text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_renewal_decides_and_the_length_of_leases() {
        for (worst, ttl, expected) in [
            (1_500_000, 30, "ok"),
            (1_500_001, 30, "warn"),
            (5_000_000, 30, "warn"),
            (5_000_001, 30, "fail"),
            (200_000, 1, "fail"),
            (200_000, 3600, "ok"),
        ] {
            let samples = [300, worst, 200];
            let finding = latency(&samples, Duration::from_secs(ttl)).expect("samples");
            assert_eq!(finding.verdict.name(), expected, "{worst} {ttl}");
        }
        assert_eq!(latency(&[], Duration::from_secs(1)), None);
    }
}
