/*!
A contender for a row of ShedLock's table, which ends by the database's clock. The row is never deleted.

Tokens and published holders are in a table next to it, which is changed in the same transaction. Another one has the
queue of waiters (first come, first served); a release wakes the head, and only the head looks at the end of the lease.
A waiter holds no snapshot and no transaction, so it blocks nobody. The queue and the wake-up are hints: exclusion rests
on the row.
*/

mod verdict;

use std::time::Duration;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{
    Adopted, Attempt, Busy, Contender, Grant, Lease, Queue, Released, Renewal, Used,
};
use crate::backend::error::Error;
use crate::backend::sql::answers::{self, Ahead, Look};
use crate::backend::sql::connection::{Connection, Outstanding, Unasked};
use crate::backend::sql::crowd::{Crowd, QueueView};
use crate::backend::sql::dialect::{Dialect, With};
use crate::backend::sql::link::Said;
use crate::backend::sql::session::{Asked, Session};
use crate::backend::sql::turn::{Watch, blocker, heartbeat_ttl, look_again};
use crate::backend::sql::{errors, owner};
use crate::clock::{Instant, before, sleep_until};
use crate::holder::Holder;
use crate::holder::ask::Ask;
use crate::lock::admission::Mode;

/// The minimum time between two looks at a lock, whatever the server says.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// The time-out for telling the server that a waiter hangs up.
const FAREWELL: Duration = Duration::from_secs(2);
/// The number of attempts if the row must be made first, while others may do the same.
const TRIES: usize = 4;
/// The most that another program's clock may be ahead of the server's, in milliseconds.
const AHEAD: u64 = 60_000;

/// One claim at one database.
#[derive(Debug)]
pub(super) struct SqlContender<D: Dialect> {
    claim: Claim,
    session: Session<D>,
    /// `true` if the table and the server have been inspected.
    inspected: bool,
    warnings: Vec<String>,
    queued: Queued,
    /// `true` if notifications are known not to arrive.
    is_poll_only: bool,
    /// The contender that was in the way and then seemed to be gone.
    gone: Option<String>,
    /// The watch that we wait for, and the start of that wait.
    since: Option<(Option<Watch>, Instant)>,
    crowd: Crowd,
    /// The last request to stop that was seen.
    asked: Option<Ask>,
    /// The next action of [`Contender::changed`].
    next: Next,
    /// The time at which the last attempt was sent.
    looked: Instant,
}

/// A contender's part in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queued {
    /// It is not there.
    No,
    /// It may be there.
    Yes,
    /// It may be there, and what it waited for has happened: the lock is probably free for it, so the next attempt
    /// leaves the queue alone.
    Woken,
}

/// The way in which a waiter waits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    /// Connected, for this long at most, until a notification or the watched event.
    Stay(Duration, Option<Watch>),
    /// Disconnected, for this long.
    Away(Duration),
}

/// The outcome of an attempt.
struct Tried {
    sent: Instant,
    look: Look,
    view: Option<QueueView>,
    ahead: Ahead,
}

impl<D: Dialect> SqlContender<D> {
    /// Creates a contender for `claim` on this connection, which need not be made yet.
    pub(super) fn new(claim: Claim, connection: Connection<D::Link>) -> Self {
        let session = Session::new(&claim, connection);
        Self {
            claim,
            session,
            inspected: false,
            warnings: Vec::new(),
            queued: Queued::No,
            is_poll_only: false,
            gone: None,
            since: None,
            crowd: Crowd::default(),
            asked: None,
            next: Next::Stay(BETWEEN_LOOKS, None),
            looked: Instant::now(),
        }
    }

    /// Sends a request of these statements.
    async fn ask(&mut self, text: impl Fn(&D) -> String, outstanding: Outstanding) -> Asked<D> {
        let uses = self.session.statements.uses();
        self.session.ask(text, uses, outstanding).await
    }

    /// Makes one attempt, and the row first if it is missing; `None` if a table is missing.
    async fn tried(&mut self, queue: bool) -> Result<Option<Tried>, Error> {
        let mut again = false;
        for _ in 0..TRIES {
            self.session.connection.forget_notifications();
            let listen = queue && !self.is_poll_only && !self.session.connection.is_listening();
            let with = With { queue, listen, inspect: !self.inspected };
            let sent = Instant::now();
            self.looked = sent;
            if queue {
                self.queued = Queued::Yes;
            }
            let rows = match self.ask(|statements| statements.attempt(with), Outstanding::Request).await {
                Ok(rows) => rows,
                Err(Unasked::Said(said, _)) if said.is_missing_table() => {
                    self.session.lacks(true);
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            self.session.lacks(false);
            if with.listen {
                self.session.connection.listens();
            }
            if let Some(warnings) = self.session.statements.inspected(&rows, &self.session.connection.name())? {
                self.inspected = true;
                let found = self.session.connection.found();
                self.warnings
                    .extend(found.map(|found| found.warnings(self.session.statements.table())).unwrap_or_default());
                self.warnings.extend(warnings);
            }
            if let Some(look) = answers::look(&rows).map_err(|_| self.session.malformed())? {
                if let Some(warning) = self.session.statements.renamed(&look) {
                    self.warnings.push(warning);
                    continue;
                }
                self.is_poll_only = self.session.connection.is_poll_only(&look);
                // Another client made the row after this one had looked for it. That client may be a reader, which is
                // not in the way of other readers.
                let is_read = owner::read_group(&look.columns.locked_by) == Some(Mode::Shared);
                // A waiter that was woken joins the queue again next, and need not look twice.
                let is_open = look.free || is_read && self.claim.mode == Mode::Shared;
                let is_news =
                    is_open && self.queued == Queued::No && !look.mine && look.damaged.is_none() && look.done.is_none();
                if is_news && !queue && !std::mem::replace(&mut again, true) {
                    continue;
                }
                let (view, ahead) = (answers::queue_view(&rows), answers::ahead(&rows));
                return Ok(Some(Tried { sent, look, view, ahead }));
            }
            self.ask(D::row, Outstanding::Request).await?;
        }
        Err(self.session.malformed())
    }

    /// Describes for waiters what is in the way, and decides when to look again.
    fn busy(&mut self, tried: Tried) -> Busy {
        let Tried { sent, look, view, ahead } = tried;
        let holder = if look.free { Holder::Nobody } else { look.columns.holder() };
        let is_foreign = matches!(holder, Holder::Foreign(_));
        if is_foreign && look.columns.since.is_some_and(|since| since > look.now.saturating_add(AHEAD)) {
            let warning = "a program that shares the lock counts by another clock than the database: ShedLock must run with \
                           usingDbTime()";
            if !self.warnings.iter().any(|known| known == warning) {
                self.warnings.push(warning.to_owned());
            }
        }
        let mut random = [0; 2];
        let _ = getrandom::fill(&mut random);
        let away = view.and_then(|view| self.crowd.looked(sent, view, u16::from_ne_bytes(random)));
        let watch = blocker(self.claim.mode, &look, &ahead).and_then(|blocker| self.session.statements.watch(blocker));
        // A contender that is in the way although it seemed to be gone cannot be watched: it has lost its connection,
        // or is connected to another server.
        let is_gone = |watch: &Watch| matches!(watch, Watch::Gone { entry, .. } if self.gone.as_ref() == Some(entry));
        let is_poll_only = self.is_poll_only || watch.as_ref().is_some_and(is_gone);
        let watch = watch.filter(|watch| !is_gone(watch));
        if self.since.as_ref().is_none_or(|(since, _)| *since != watch) {
            self.since = Some((watch.clone(), sent));
        }
        self.next = match away {
            Some(away) => Next::Away(away),
            None => Next::Stay(look_again(&look, view, is_poll_only, heartbeat_ttl(self.claim.ttl)), watch),
        };
        let position = view.map(|view| view.position).filter(|&position| position > 0);
        let beside = look.columns.member.as_ref().map_or(0, |member| member.beside);
        Busy { holder, beside, position, now: look.now }
    }

    /// Returns the grant of a lock that is ours.
    async fn granted(&mut self, sent: Instant, look: &Look) -> Result<Attempt, Error> {
        let token = answers::token(look).map_err(|_| self.session.malformed())?;
        let slot = look.columns.member.as_ref().and_then(|member| member.slot);
        self.queued = Queued::No;
        self.crowd = Crowd::default();
        (self.gone, self.since) = (None, None);
        let lease = self.lease(sent, look);
        // Only the first renewal, before the lock is used, extends the row to the minimum hold: an attempt that arrives
        // too late costs a lease and no more.
        let lease = if self.claim.min_hold.is_zero() { lease } else { self.hold_on().await? };
        Ok(Attempt::Held(Grant { token, slot: slot.filter(|_| self.claim.mode.slots().is_some()), lease }))
    }

    /// Returns the lease of a request sent at `sent`: no longer than requested, and no longer than stored in the table,
    /// whose columns may round.
    fn lease(&self, sent: Instant, look: &Look) -> Lease {
        let stored = self.session.statements.stored(look).unwrap_or(self.claim.ttl);
        Lease::until(sent, self.claim.ttl.min(stored))
    }

    /// Records that what the contender waited for has happened.
    fn wake(&mut self) {
        if self.queued == Queued::Yes {
            self.queued = Queued::Woken;
        }
    }

    async fn hold_on(&mut self) -> Result<Lease, Error> {
        match self.renew().await? {
            Renewal::Extended(lease) | Renewal::Asked(lease, _) => Ok(lease),
            Renewal::NotMine(why) => Err(Error::unavailable(why)),
        }
    }
}

#[async_trait::async_trait(?Send)]
impl<D: Dialect> Contender for SqlContender<D> {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn ignore_outer(&mut self) {
        self.claim.outer.clear();
        self.session.statements.ignore_outer();
    }

    fn kept_as(&self) -> Option<&str> {
        self.session.statements.kept_as()
    }

    fn table(&self) -> Option<String> {
        self.session.connection.located().then(|| self.session.connection.table().to_string())
    }

    async fn connect(&mut self) -> Result<(), Error> {
        self.session.connect().await
    }

    async fn adopt(&mut self, _held: &Adopted) -> Result<(), Error> {
        Ok(())
    }

    async fn passed_on(&mut self, _held: &Adopted) -> Result<bool, Error> {
        // The row keeps its last holder. Renewing a free lock changes nothing, and shows the row.
        let rows = match self.ask(|statements| statements.renew(false), Outstanding::Request).await {
            Ok(rows) => rows,
            Err(Unasked::Said(said, _)) if said.is_missing_table() => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let look = answers::look(&rows).map_err(|_| self.session.malformed())?;
        Ok(look.is_some_and(|look| look.columns.locked_by != owner::held(&self.claim.owner)))
    }

    async fn attempt(&mut self, queue: Queue) -> Result<Attempt, Error> {
        let joins = queue == Queue::Join;
        // An attempt that may succeed at once leaves the queue alone.
        let Some(mut tried) = self.tried(joins && self.queued == Queued::Yes).await? else {
            return Ok(Attempt::Unprepared);
        };
        let is_queued = tried.view.is_some();
        if !tried.look.mine && joins && !is_queued && self.decided(&tried).is_none() {
            let Some(queued) = self.tried(true).await? else { return Ok(Attempt::Unprepared) };
            tried = queued;
        }
        if tried.look.mine {
            return self.granted(tried.sent, &tried.look).await;
        }
        if let Some(decided) = self.decided(&tried) {
            if self.queued != Queued::No {
                self.release(Used::No).await?;
            }
            return Ok(decided);
        }
        if let Some(token) = tried.look.damaged {
            let table = self.session.statements.table();
            let remedy =
                format!("UPDATE {} SET token = 0 WHERE name = {};", table.holder(), self.session.statements.name());
            return Err(errors::damaged(&self.session.connection.name(), token, &remedy));
        }
        Ok(Attempt::Busy(self.busy(tried)))
    }

    async fn changed(&mut self) -> Result<(), Error> {
        match self.next.clone() {
            Next::Stay(wait, None) => {
                let until = Instant::now() + wait;
                self.session.connection.notified(until).await?;
                if Instant::now() < until {
                    self.wake();
                }
            }
            Next::Stay(wait, Some(watch)) => {
                let since = self.since.as_ref().map_or(self.looked, |(_, since)| *since);
                let happened = self.session.connection.watched(&watch, since, Instant::now() + wait).await?;
                if happened {
                    self.wake();
                }
                self.gone = match watch {
                    Watch::Gone { entry, .. } if happened => Some(entry),
                    _ => None,
                };
            }
            Next::Away(pause) => {
                let until = Instant::now() + pause;
                // If this fails, the place is dead for a while and counts again with the next heartbeat.
                let _ = before(Instant::now() + FAREWELL, self.ask(D::away, Outstanding::Blocker)).await;
                self.session.connection.hang_up();
                sleep_until(until).await;
            }
        }
        sleep_until(self.looked + BETWEEN_LOOKS).await;
        Ok(())
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        let sent = Instant::now();
        self.session.connection.forget_notifications();
        let listen = !self.is_poll_only && !self.session.connection.is_listening();
        let rows = match self.ask(|statements| statements.renew(listen), Outstanding::Request).await {
            Ok(rows) => rows,
            Err(Unasked::Said(said, _)) if said.is_missing_table() => {
                return Ok(Renewal::NotMine("its table is gone from the database".to_owned()));
            }
            Err(error) => return Err(error.into()),
        };
        if listen {
            self.session.connection.listens();
        }
        match answers::look(&rows).map_err(|_| self.session.malformed())? {
            Some(look) if look.mine => {
                let asked = look.ask.as_ref().and_then(|ask| Ask::read(ask.as_bytes(), self.claim.owner.as_str()));
                self.asked.clone_from(&asked);
                Ok(Renewal::of(self.lease(sent, &look), asked))
            }
            look => Ok(Renewal::NotMine(self.not_mine(look.as_ref()))),
        }
    }

    async fn disturbed(&mut self) {
        // Each request to stop is reported once. Errors are left to the next renewal.
        if self.asked.is_some() || !self.session.connection.asked(self.session.statements.asked().as_deref()).await {
            std::future::pending::<()>().await;
        }
    }

    async fn release(&mut self, used: Used) -> Result<Released, Error> {
        self.session.connect_in_order().await?;
        match self.ask(|statements| statements.release(used), Outstanding::Blocker).await {
            Ok(rows) => {
                self.queued = Queued::No;
                Ok(answers::released(&rows))
            }
            Err(Unasked::Said(said, _)) if said.is_missing_table() => Ok(Released::NotMine),
            Err(error) => Err(error.into()),
        }
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}
