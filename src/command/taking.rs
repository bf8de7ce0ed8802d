/*!
Takes a lock that outlives the process that takes it, and makes the output about it: for `dlock acquire`, and for the
keeper that `--while-pid` leaves behind.
*/

use std::fmt::Write;
use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Contender, Grant, Lease};
use crate::clock::{Instant, millis, wall_millis};
use crate::command::about::{Purpose, about};
use crate::command::announcing::{LatestNews, announce};
use crate::command::journal;
use crate::command::losing::kill_after;
use crate::command::refusal::{LockRequest, held_by_own_handle, refused};
use crate::command::session::{random_id, service};
use crate::command::traces::{self, Broken, Traces};
use crate::exit::{Exit, Failure};
use crate::handle::Handle;
use crate::here;
use crate::holder::Owner;
use crate::lease::taking::{Limits, take};
use crate::lease::timing::{Delay, Grace};
use crate::lease::waiting::{Refused, Wait};
use crate::lock::admission::Mode;
use crate::report::Report;
use crate::report::event::handle::HandleEvent;
use crate::report::event::{Event, Lack, Step};
use crate::schema;
use crate::settings::{AcquireSettings, Form, WaitLimit, inherited_handle};
use crate::supervise::signals::Signals;
use crate::supervise::surroundings::was_closed;
use crate::variables::{HANDLE, HANDLE_SHELL, KEY, OWNER, TOKEN};

/// The descriptor of standard output.
const STANDARD_OUTPUT: i32 = 1;

/// The results of the preparations, before there is an event loop.
pub(super) struct Prepared {
    /// The signals, which are blocked from now on.
    pub signals: Signals,
    /// The contender for the lock.
    pub contender: Box<dyn Contender>,
    /// The handle, as far as it is known.
    pub handle: Handle,
    /// The reader of the lock's last break.
    pub traces: Traces,
}

/// Makes the owner's id and opens the journal before anything else is opened, which could get the number of a
/// descriptor that is named but not open. Fails if nobody could get the handle.
pub(super) fn begin(settings: &AcquireSettings, report: &mut Report) -> Result<Owner, Failure> {
    if was_closed(STANDARD_OUTPUT) {
        return Err(Failure::new(Exit::NotWritten, Event::OutputFailed("it is closed".to_owned())));
    }
    let (connection, owner) = (&settings.connection, random_id()?);
    if let Some(sink) = &settings.events {
        let program = settings.keeping.map(|keeping| here::program_of(keeping.pid)).unwrap_or_default();
        journal::open(report, sink, connection, &settings.key, Some(&owner), &program)?;
    }
    Ok(owner)
}

/// Prepares everything for taking the lock as `owner`. No process may be forked from now on.
pub(super) fn prepare(settings: &AcquireSettings, report: &Report, owner: Owner) -> Result<Prepared, Failure> {
    let lacking = |step| {
        move |error: &dyn std::fmt::Display| {
            let reason = Lack::System(error.to_string());
            Failure::new(Exit::Unavailable, Event::Lacking { step, reason })
        }
    };
    let connection = &settings.connection;
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
        keeper: None,
    };
    if !handle.fits() {
        return Err(Failure::new(Exit::Usage, Event::Handle(HandleEvent::TooLong(settings.key.clone()))));
    }
    let service = service(connection, settings.unknown.as_ref(), report)?;
    let contender = service.contend(claim(settings, owner.clone()));
    let traces = Traces::new(report, service, connection.namespace.clone(), &[owner]);
    Ok(Prepared { signals, contender, handle, traces })
}

fn claim(settings: &AcquireSettings, owner: Owner) -> Claim {
    let (ttl, reason) = (Some(settings.ttl), settings.reason.clone());
    let purpose = match &settings.keeping {
        None => Purpose { ttl, reason, handle: true, ..Purpose::default() },
        Some(keeping) => {
            let ttl = ttl.filter(|_| settings.connection.target.has_lease());
            let kill_after = kill_after(keeping.on_lost, keeping.grace, ttl);
            let (program, pid) = (here::program_of(keeping.pid), keeping.pid);
            // A locked file is held by the process that has it open.
            let (program, pid) = match ttl {
                Some(_) => (program, Some(pid)),
                None => (format!("lock-keeper for pid {pid}, {program}"), None),
            };
            Purpose { program, ttl, reason, kill_after, stop: true, pid, ..Purpose::default() }
        }
    };
    Claim {
        key: settings.key.clone(),
        namespace: settings.connection.namespace.clone(),
        owner,
        mode: Mode::Exclusive,
        outer: inherited_handle().into_iter().map(|handle| handle.owner.as_str().to_owned()).collect(),
        ttl: settings.ttl,
        min_hold: Duration::ZERO,
        once_per: None,
        about: about(purpose),
    }
}

/// The lock being taken.
pub(super) struct Taking<'a> {
    /// The requested lock and its options.
    pub settings: &'a AcquireSettings,
    /// The report that takes the messages.
    pub report: &'a Report,
    /// The contender for the lock.
    pub contender: Box<dyn Contender>,
    /// The reader of the lock's last break.
    pub traces: Traces,
    /// The lock's last break, if somebody wants to know of it.
    broken: Vec<Broken>,
}

impl<'a> Taking<'a> {
    /// Starts with a `contender` that has taken nothing yet.
    pub(super) fn new(
        settings: &'a AcquireSettings,
        report: &'a Report,
        contender: Box<dyn Contender>,
        traces: Traces,
    ) -> Self {
        Self { settings, report, contender, traces, broken: Vec::new() }
    }

    /// Takes the lock, or waits for it; also returns the time that took.
    pub(super) async fn take(&mut self) -> Result<(Grant, Duration), Failure> {
        let (settings, begun) = (self.settings, Instant::now());
        let wait = match settings.wait_limit {
            WaitLimit::None => Wait::No,
            WaitLimit::For(wait_limit) => Wait::Until(begun + wait_limit),
            WaitLimit::Endless => Wait::Forever,
        };
        let share = settings.connection.target.kill_after_share();
        let grace = settings.keeping.map_or(Grace { asked: None, share }, |keeping| keeping.grace);
        let limits = Limits { connect: settings.connection.connect_timeout, grace, delay: Delay::default() };
        let lock = settings.lock();
        let news = LatestNews::new(self.report, lock.place.clone());
        let taken = tokio::select! {
            biased;
            taken = take(self.contender.as_mut(), wait, limits, |key, event| news.set(key, event)) => taken,
            never = announce(&news) => match never {},
        };
        let waited = Instant::now().since(begun);
        match taken {
            Ok(grant) => {
                self.broken = self.traces.of(&lock.key, grant.lease).await;
                self.report.replace(&Event::GotIt { key: lock.key, waited });
                Ok((grant, waited))
            }
            Err(why) => {
                let (wait_limit, conflict, verbosity) = (settings.wait_limit, settings.conflict, settings.verbosity);
                let request = LockRequest { lock, mode: Mode::Exclusive, wait_limit, conflict, verbosity };
                let runs = settings.connection.target.has_handles();
                Err(if matches!(why, Refused::Outer(_)) {
                    held_by_own_handle(request.lock, runs)
                } else {
                    refused(request, why)
                })
            }
        }
    }

    /// Completes the handle with the grant after `waited`, and returns the text to print.
    pub(super) fn granted(&self, handle: &mut Handle, grant: &Grant, waited: Duration) -> String {
        (handle.token, handle.attempt) = (grant.token, self.contender.granted_attempt());
        let (sent, lease) = match grant.lease {
            Lease::Until { sent, ttl, .. } => (sent, Some(ttl)),
            Lease::Unlimited { .. } => (Instant::now(), None),
        };
        handle.ttl = lease.unwrap_or(handle.ttl);
        let acquired = wall_millis().saturating_sub(millis(Instant::now().since(sent)));
        match self.settings.form {
            Form::Word => handle.text() + "\n",
            Form::Shell(own_id) => shell(handle, own_id),
            Form::Json => schema::acquired(handle, lease, acquired, millis(waited)),
        }
    }

    /// Reports that the lock was acquired, and warnings about its service.
    pub(super) fn tell_acquired(&mut self, handle: &Handle, grant: &Grant, waited: Duration) {
        let lock = self.settings.lock();
        for warning in self.contender.warnings() {
            self.report.tell(&Event::Warning { lock: lock.clone(), warning });
        }
        let ttl = matches!(grant.lease, Lease::Until { .. }).then_some(handle.ttl);
        let (tokens, mode, slot) = (vec![handle.token], Mode::Exclusive, None);
        self.report.tell(&Event::Acquired { lock, tokens, mode, slot, ttl, waited });
        traces::tell(std::mem::take(&mut self.broken), self.report, &self.settings.connection);
    }
}

/// Returns the line that exports the lock's variables, for `eval` in a shell.
fn shell(handle: &Handle, own_id: &str) -> String {
    let token = handle.token.to_string();
    let variables =
        [(HANDLE, handle.text().as_str()), (KEY, handle.key.as_str()), (TOKEN, &token), (OWNER, handle.owner.as_str())]
            .into_iter()
            .fold("export".to_owned(), |mut line, (name, value)| {
                // Writing to a String cannot fail.
                let _ = write!(line, " {name}={}", quoted(value));
                line
            });
    // Not quoted: the shell puts its own process id there.
    // In zsh, a letter after `$$:` would be a modifier.
    format!("{variables} {HANDLE_SHELL}={}:{own_id}\n", handle.owner.as_str())
}

/// Quotes a text for a shell.
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
