/*!
The locks under which a command runs: those of this run, those of outer runs, or some of both.
*/

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::io::unix::AsyncFd;

use crate::backend::contract::contender::{Contender, Grant, Lease};
use crate::cli::Leftovers;
use crate::command::losing::deadline;
use crate::command::run::nested::{Cover, lines};
use crate::key::{Key, Keys};
use crate::lease::keeper;
use crate::lease::renewal::LeaseNews;
use crate::lease::timing::Schedule;
use crate::settings::RunSettings;
use crate::supervise::protocol::Spawn;
use crate::supervise::tokens::Tokens;

/// The right to run a command.
#[derive(Debug)]
pub(super) struct Tenure {
    /// This run's own lock, or several as one: kept alive, and released at the end. `None` if outer runs hold all.
    pub(super) own: Option<Grant>,
    /// The locks of outer runs, which keep and release them.
    pub(super) covers: Vec<Cover>,
    /// The connection to the keeper of a lock with a handle: it gives the lock back only once this is closed.
    pub(super) keeper: Option<AsyncFd<OwnedFd>>,
}

impl Tenure {
    /// Returns the lease that limits the time in which the command must end; `None` if no own lock has one.
    pub(super) fn ttl(&self) -> Option<Duration> {
        match self.own.as_ref()?.lease {
            Lease::Until { ttl, .. } => Some(ttl),
            Lease::Unlimited { .. } => None,
        }
    }

    /// Returns the lease as granted to this run, if there is one.
    pub(super) fn schedule(&self, kill_after: Duration) -> Option<Schedule> {
        match self.own.as_ref()?.lease {
            Lease::Until { sent, ttl, .. } => Some(Schedule { sent, ttl, kill_after }),
            Lease::Unlimited { .. } => None,
        }
    }

    /// Returns those of `keys` that name this run's own locks, with their fencing tokens; `None` if it has none.
    pub(super) fn own(&self, keys: &Keys, contender: &dyn Contender) -> Option<(Keys, Vec<u64>)> {
        self.own.as_ref()?;
        let is_own = |key: &Key| self.covers.iter().all(|cover| cover.key != *key);
        let tokens = self.tokens(contender);
        let (names, tokens): (Vec<Key>, Vec<u64>) =
            keys.iter().cloned().zip(tokens).filter(|(key, _)| is_own(key)).unzip();
        Some((Keys::of(names)?, tokens))
    }

    /// Returns the names of the locks that outer runs hold; `None` if there are none.
    pub(super) fn covered(&self) -> Option<Keys> {
        Keys::of(self.covers.iter().map(|cover| cover.key.clone()))
    }

    /// Returns the fencing tokens, in the user's order.
    pub(super) fn tokens(&self, contender: &dyn Contender) -> Vec<u64> {
        let tokens = contender.tokens();
        if !tokens.is_empty() {
            return tokens;
        }
        let own = self.own.iter().map(|grant| grant.token);
        own.chain(self.covers.iter().map(|cover| cover.token)).collect()
    }

    /// Returns the locked files of this run's own locks.
    fn locked<'a>(&self, contender: &'a dyn Contender) -> Vec<BorrowedFd<'a>> {
        if self.own.is_some() { contender.descriptors() } else { Vec::new() }
    }

    /// Returns the descriptors for the guard: the locked files, and the connections to outer guards and to a keeper,
    /// which it keeps open while any process of the command lives.
    pub(super) fn descriptors<'a>(&'a self, contender: &'a dyn Contender) -> Vec<BorrowedFd<'a>> {
        let mut descriptors = self.locked(contender);
        descriptors.extend(lines(&self.covers));
        descriptors.extend(self.keeper.iter().map(AsFd::as_fd));
        descriptors
    }

    /// Returns the order that starts the command, and travels with these [`descriptors`](Self::descriptors).
    pub(super) fn spawn(&self, settings: &RunSettings, kill_after: Duration, contender: &dyn Contender) -> Spawn {
        let lease = self.schedule(kill_after).and_then(|schedule| deadline(&schedule, settings.on_lost));
        let slots = self.own.iter().map(|grant| grant.slot).chain(self.covers.iter().map(|cover| cover.slot));
        let leases = self.ttl().into_iter().chain(self.covers.iter().filter_map(|cover| cover.ttl));
        Spawn {
            tokens: Tokens::new(&self.tokens(contender)),
            slot: slots.flatten().next(),
            ttl: leases.min(),
            lease,
            kill_after,
            // An outer run's lock ends with that run.
            outlives: lease.is_none() && self.own.is_some() && self.covers.is_empty(),
            inherit: if settings.close { 0 } else { self.locked(contender).len() },
            stay: settings.leftovers != Leftovers::Leave,
        }
    }

    /// Keeps the own locks, and watches the outer runs that keep the others; the server's lease is longer by `delay`.
    /// Calls `news` for every change; ends after a loss.
    pub(super) async fn keep(
        &self,
        contender: &mut dyn Contender,
        kill_after: Duration,
        delay: Duration,
        mut news: impl FnMut(LeaseNews),
    ) {
        let Some(grant) = &self.own else {
            return news(self.outer_end().await);
        };
        let ended = tokio::select! {
            biased;
            () = keeper::keep(contender, grant.lease, kill_after, delay, &mut news) => None,
            ended = self.outer_end() => Some(ended),
        };
        ended.into_iter().for_each(news);
    }

    /// Resolves when one of the outer runs, or the keeper, no longer keeps its lock.
    async fn outer_end(&self) -> LeaseNews {
        if let Some(keeper) = &self.keeper {
            // The keeper sends nothing before then.
            let _ = keeper.readable().await;
            return LeaseNews::KeeperEnded;
        }
        if self.covers.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.covers.iter().map(|cover| Box::pin(cover.ended()))).await;
        LeaseNews::OuterEnded
    }

    /// Returns `true` if one of the outer runs has ended or is about to end, and its lock with it.
    pub(super) fn outer_has_ended(&self) -> bool {
        self.covers.iter().any(Cover::has_ended)
    }
}
