/*!
A session with a lock service, for the subcommands that only look. It repeats a look that fails at once in a way that
may pass, and adds what this host knows of the processes that were found.
*/

use std::time::Duration;

use crate::backend::error::{Error, ErrorKind};
use crate::backend::survey::{Party, Snapshot, Survey};
use crate::clock::{Instant, within};
use crate::command::session;
use crate::exit::{Exit, Failure};
use crate::here;
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::key::Key;
use crate::report::Report;
use crate::report::event::{Event, Look, place_in};
use crate::schema::LookedAt;
use crate::settings::LookSettings;

/// Number of tries for a look that fails in a way that may pass.
const TRIES: usize = 2;
/// A look that fails within this time is made again: one that took longer has waited for an answer already.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A session of looks at a lock service.
pub(super) struct Session<'a> {
    settings: &'a LookSettings,
    survey: Box<dyn Survey>,
    /// The backend, the namespace and the table of the locks.
    pub place: LookedAt,
    /// The report that takes the messages.
    pub report: Report,
    here: Here,
}

/// Properties of this host that tell whether a holder's process is on it.
struct Here {
    boot: Option<String>,
    namespace: Option<u64>,
    user: String,
}

/// Runs `work` in a session with the service that the settings name.
pub(super) fn with<'a>(
    settings: &'a LookSettings,
    work: impl AsyncFnOnce(&mut Session<'a>) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let connection = &settings.connection;
    let report = Report::new(settings.verbosity);
    let service = session::service(connection, settings.unknown.as_ref(), &report)?;
    let namespace = connection.namespace.as_str().to_owned();
    let survey = service.survey(connection.namespace.clone());
    if !connection.chosen {
        report.tell(&Event::Look(Look::NoBackendChosen));
    } else if let Some(place) = survey.place() {
        report.tell(&Event::Look(Look::OnlyThisUser(place)));
    }
    let mut session = Session {
        settings,
        survey,
        place: LookedAt { backend: connection.target.to_string(), namespace, table: None },
        report,
        here: Here {
            boot: here::boot(),
            namespace: here::namespace(),
            user: here::user_name(nix::unistd::geteuid().as_raw()),
        },
    };
    let runtime = session::event_loop()?;
    let outcome = runtime.block_on(async {
        let done = work(&mut session).await;
        session.survey.close().await;
        done
    });
    // A name server that does not answer must not delay the end.
    runtime.shutdown_background();
    outcome
}

impl Session<'_> {
    /// Looks at one lock. Connecting and looking together take no longer than connecting may take.
    pub(super) async fn look_at(&mut self, key: &Key) -> Result<Snapshot, Error> {
        let limit = self.settings.connection.connect_timeout;
        let looked = within(limit, self.look(async |survey| survey.look(key).await)).await;
        looked.unwrap_or_else(|_| Err(self.silence(limit)))
    }

    /// Returns the last break of a lock, if it can be read: nothing depends on it.
    pub(super) async fn last_break(&mut self, key: &Key) -> Option<Ask> {
        let limit = self.settings.connection.connect_timeout;
        within(limit, self.survey.last_break(key)).await.ok()?.ok()?
    }

    /// Returns the last recorded success of a run with `--once-per` under a lock.
    pub(super) async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error> {
        let limit = self.settings.connection.connect_timeout;
        let looked = within(limit, self.look(async |survey| survey.last_success(key).await)).await;
        looked.unwrap_or_else(|_| Err(self.silence(limit)))
    }

    /// Makes a look that may take longer, and repeats it if it fails at once in a way that may pass.
    pub(super) async fn look<T>(
        &mut self,
        mut look: impl AsyncFnMut(&mut dyn Survey) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let begun = Instant::now();
            match self.once(&mut look).await {
                Err(error) if may_pass_at_once(&error) && tries < TRIES && Instant::now().since(begun) < AT_ONCE => {}
                done => return done,
            }
        }
    }

    async fn once<T>(&mut self, look: &mut impl AsyncFnMut(&mut dyn Survey) -> Result<T, Error>) -> Result<T, Error> {
        let limit = self.settings.connection.connect_timeout;
        within(limit, self.survey.connect()).await.unwrap_or_else(|_| Err(self.silence(limit)))?;
        let seen = look(self.survey.as_mut()).await;
        self.place.table = self.survey.table();
        seen
    }

    /// Returns a remark if the service may hide locks from this user.
    pub(super) fn hidden(&self) -> Option<Event> {
        self.survey.hides().then(|| Event::Look(Look::Hidden(self.exact_place())))
    }

    /// Returns the error for a service that did not answer within `limit`.
    fn silence(&self, limit: Duration) -> Error {
        let limit = humantime::format_duration(limit);
        Error::unavailable(format!("{} did not answer within {limit}", self.place.backend))
    }

    /// Returns the place for messages: with the directory if the URL of lock files names none.
    pub(super) fn exact_place(&self) -> String {
        self.survey.place().unwrap_or_else(|| place_in(&self.place.backend, self.place.table.as_deref()))
    }

    /// Returns the reason why the last break could not be recorded; `None` if it was.
    pub(super) fn untraced(&mut self) -> Option<Error> {
        self.survey.untraced()
    }

    /// Resolves when the service says that this lock has changed.
    pub(super) async fn changed(&mut self, key: &Key) {
        self.survey.changed(key).await;
    }

    /// Adds what this host knows of the processes that hold the lock or wait for it.
    pub(super) fn judge(&self, seen: &mut Snapshot) {
        for party in seen.holders.iter_mut().chain(&mut seen.queue) {
            self.here.judge(party);
        }
    }
}

/// Returns `true` if another try may help.
fn may_pass_at_once(error: &Error) -> bool {
    error.is_transient() && error.kind != ErrorKind::Mistaken
}

/// Returns the failure for a failed look at these locks.
pub(super) fn failed(what: &str, error: &Error) -> Failure {
    let event = Event::Look(Look::Failed { what: what.to_owned(), reason: error.to_string() });
    Failure::new(session::exit_of(error.kind), event)
}

impl Here {
    fn judge(&self, party: &mut Party) {
        match &party.who {
            Holder::Dlock(said) => {
                let about = &said.about;
                let is_here = about.boot.is_some() && about.boot == self.boot;
                let is_seen = is_here && about.ns.is_some() && about.ns == self.namespace;
                let start = about.start.filter(|_| is_seen && !about.handle);
                party.alive = start.map(|start| here::is_there(about.pid, start));
                party.is_own = is_seen && about.user == self.user;
            }
            Holder::Process(..) => party.is_own = party.user.as_deref() == Some(self.user.as_str()),
            _ => {}
        }
    }
}
