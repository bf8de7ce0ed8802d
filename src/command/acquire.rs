/*!
`dlock acquire`: takes a lock that outlives this process, and prints its handle.
*/

use std::fmt::Write;
use std::time::Duration;

use crate::backend::{Claim, Contender, Grant, Lease, NO_HANDLES, Renewal, Used};
use crate::clock::{Instant, before, wall_millis};
use crate::command::about::{Purpose, about};
use crate::command::announcing::{LatestNews, announce};
use crate::command::gripping::lost;
use crate::command::journal;
use crate::command::refusal::{Wish, held_by_own_handle, refused};
use crate::command::session::{play, random_id, refuse, service, told_to_stop};
use crate::exit::{Exit, Failure};
use crate::handle::Handle;
use crate::holder::Owner;
use crate::lease::taking::{Limits, TAKE_BACK, give_back, take};
use crate::lease::timing::{Delay, Grace, acquire_timeout};
use crate::lease::waiting::{Refused, Wait};
use crate::lock::admission::Mode;
use crate::output;
use crate::report::Report;
use crate::report::event::handle::HandleEvent;
use crate::report::event::{Event, Lack, Step};
use crate::schema;
use crate::settings::{AcquireSettings, Form, Patience, inherited_handle};
use crate::supervise::signals::Signals;
use crate::variables::{HANDLE, KEY, OWNER, TOKEN};

/// Takes the lock and prints its handle; returns how dlock ends.
pub(crate) fn acquire(settings: &AcquireSettings) -> Exit {
    let mut report = Report::new(settings.verbosity);
    let prepared = prepare(settings, &mut report);
    let exit = perform(settings, &report, prepared);
    report.close_journal(exit.code());
    exit
}

/// What exists before there is an event loop: the signals, which are blocked from now on, the contender, and the handle as far
/// as it is known.
type Prepared = (Signals, Box<dyn Contender>, Handle);

fn perform(settings: &AcquireSettings, report: &Report, prepared: Result<Prepared, Failure>) -> Exit {
    match prepared {
        Ok((signals, contender, handle)) => play(report, signals, |mut signals| async move {
            let mut taking = Taking { settings, report, contender };
            let outcome = tokio::select! {
                biased;
                signal = told_to_stop(&mut signals) => Ok(Err(signal)),
                taken = taking.take() => taken.map(Ok),
            };
            match outcome {
                Ok(Ok((grant, waited))) => taking.hand_over(handle, &grant, waited).await,
                Ok(Err(signal)) => {
                    report.keep();
                    // The queue is left at once; what could not be taken back will expire.
                    let _ = give_back(taking.contender.as_mut(), Used::No, TAKE_BACK).await;
                    Ok(Exit::Signal(signal))
                }
                Err(failure) => Err(failure),
            }
        }),
        Err(failure) => refuse(report, &failure),
    }
}

fn prepare(settings: &AcquireSettings, report: &mut Report) -> Result<Prepared, Failure> {
    let lacking = |step| {
        move |error: &dyn std::fmt::Display| {
            let reason = Lack::System(error.to_string());
            Failure::new(Exit::Unavailable, Event::Lacking { step, reason })
        }
    };
    let (connection, owner) = (&settings.connection, random_id()?);
    if let Some(sink) = &settings.events {
        journal::open(report, sink, connection, &settings.key, Some(&owner), "")?;
    }
    let signals = Signals::block().map_err(|error| lacking(Step::Signals)(&error))?;
    report.start_journal().map_err(|error| lacking(Step::Journal)(&error))?;
    let handle = Handle {
        backend: connection.target.to_string(),
        namespace: connection.namespace.clone(),
        key: settings.key.clone(),
        owner: owner.clone(),
        token: 0,
        ttl: settings.ttl,
        attempt: None,
    };
    if !handle.fits() {
        return Err(Failure::new(Exit::Usage, Event::Handle(HandleEvent::TooLong(settings.key.clone()))));
    }
    let service = service(connection, settings.unknown.as_ref(), report)?;
    Ok((signals, service.contend(claim(settings, owner)), handle))
}

fn claim(settings: &AcquireSettings, owner: Owner) -> Claim {
    let purpose =
        Purpose { ttl: Some(settings.ttl), reason: settings.reason.clone(), handle: true, ..Purpose::default() };
    Claim {
        key: settings.key.clone(),
        namespace: settings.connection.namespace.clone(),
        owner,
        mode: Mode::Exclusive,
        around: inherited_handle().into_iter().map(|handle| handle.owner.as_str().to_owned()).collect(),
        ttl: settings.ttl,
        min_hold: Duration::ZERO,
        once_per: None,
        about: about(purpose),
    }
}

/// The lock being taken.
struct Taking<'a> {
    settings: &'a AcquireSettings,
    report: &'a Report,
    contender: Box<dyn Contender>,
}

impl Taking<'_> {
    /// Takes the lock, or waits for it; also returns how long that took.
    async fn take(&mut self) -> Result<(Grant, Duration), Failure> {
        let (settings, begun) = (self.settings, Instant::now());
        let wait = match settings.patience {
            Patience::None => Wait::No,
            Patience::For(patience) => Wait::Until(begun + patience),
            Patience::Endless => Wait::Forever,
        };
        let grace = Grace { asked: None, share: settings.connection.target.kill_after_share() };
        let limits = Limits { connect: settings.connection.connect_timeout, grace, delay: Delay::default() };
        let lock = settings.lock();
        let news = LatestNews::new(self.report, lock.place.clone());
        let taken = tokio::select! {
            biased;
            taken = take(self.contender.as_mut(), wait, limits, |key, heard| news.set(key, heard)) => taken,
            never = announce(&news) => match never {},
        };
        let waited = Instant::now().since(begun);
        match taken {
            Ok(grant) => {
                self.report.replace(&Event::GotIt { key: lock.key, waited });
                Ok((grant, waited))
            }
            Err(why) => {
                let (patience, conflict, verbosity) = (settings.patience, settings.conflict, settings.verbosity);
                let wish = Wish { lock, mode: Mode::Exclusive, patience, conflict, verbosity };
                Err(if matches!(why, Refused::Around(_)) { held_by_own_handle(wish) } else { refused(wish, why) })
            }
        }
    }

    /// Prints the handle, and gives the lock back if nobody reads it.
    async fn hand_over(&mut self, handle: Handle, grant: &Grant, waited: Duration) -> Result<Exit, Failure> {
        let Lease::Until { sent, ttl, .. } = grant.lease else {
            let _ = give_back(self.contender.as_mut(), Used::No, TAKE_BACK).await;
            return Err(Failure::new(Exit::Usage, Event::Settings(NO_HANDLES.to_owned())));
        };
        let handle = Handle { token: grant.token, ttl, attempt: self.contender.granted_attempt(), ..handle };
        // What the service is told after a wait, of its holder and since when, goes before this request, and is not to end with
        // this process. No answer proves nothing.
        let renewed = before(Instant::now() + acquire_timeout(ttl), self.contender.renew()).await;
        if let Ok(Ok(Renewal::NotMine(why))) = renewed {
            return Err(lost(&handle, why));
        }
        let lock = self.settings.lock();
        for concern in self.contender.concerns() {
            self.report.tell(&Event::Concern { lock: lock.clone(), concern });
        }
        let acquired = wall_millis().saturating_sub(millis(Instant::now().since(sent)));
        let text = match self.settings.form {
            Form::Word => handle.text() + "\n",
            Form::Shell => shell(&handle),
            Form::Json => schema::acquired(&handle, acquired, millis(waited)),
        };
        if let Err(failure) = output::deliver(text.as_bytes()) {
            let _ = give_back(self.contender.as_mut(), Used::No, TAKE_BACK).await;
            return Err(failure);
        }
        let (tokens, mode, slot, ttl) = (vec![handle.token], Mode::Exclusive, None, Some(ttl));
        self.report.tell(&Event::Acquired { lock, tokens, mode, slot, ttl, waited });
        Ok(Exit::Success)
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The line that exports what is known of the lock, for `eval` in a shell.
fn shell(handle: &Handle) -> String {
    let token = handle.token.to_string();
    let variables =
        [(HANDLE, handle.text().as_str()), (KEY, handle.key.as_str()), (TOKEN, &token), (OWNER, handle.owner.as_str())]
            .into_iter()
            .fold("export".to_owned(), |mut line, (name, value)| {
                // Writing to a String cannot fail.
                let _ = write!(line, " {name}={}", quoted(value));
                line
            });
    variables + "\n"
}

/// A text that stands for itself in a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_reads_is_quoted() {
        for (text, expected) in [("", "''"), ("a b", "'a b'"), ("it's $(x)", r"'it'\''s $(x)'"), ("''", r"''\'''\'''")]
        {
            assert_eq!(quoted(text), expected, "{text}");
        }
    }
}
