/*!
The lock under which a command runs: its own, or that of an outer run.
*/

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::backend::{Contender, Grant, Lease};
use crate::cli::Leftovers;
use crate::command::run::backstop::deadline;
use crate::command::run::nested::Cover;
use crate::lease::keeper;
use crate::lease::renewal::LeaseNews;
use crate::lease::timing::Schedule;
use crate::settings::RunSettings;
use crate::supervise::protocol::Spawn;

/// The right to run a command.
#[derive(Debug)]
pub(super) enum Tenure {
    /// This run's own lock: it is kept alive, and released at the end.
    Own(Grant),
    /// The lock of an outer run, which keeps and releases it.
    Outer(Cover),
}

impl Tenure {
    /// The lease that limits how long the command may take to end; `None` for a lock without one and for an outer run's lock.
    pub(super) fn ttl(&self) -> Option<Duration> {
        match self {
            Self::Own(Grant { lease: Lease::Until { ttl, .. }, .. }) => Some(*ttl),
            Self::Own(Grant { lease: Lease::Unlimited { .. }, .. }) | Self::Outer(_) => None,
        }
    }

    /// The lease as granted to this run, if there is one.
    pub(super) fn schedule(&self, kill_after: Duration) -> Option<Schedule> {
        match self {
            Self::Own(Grant { lease: Lease::Until { sent, ttl, .. }, .. }) => {
                Some(Schedule { sent: *sent, ttl: *ttl, kill_after })
            }
            Self::Own(Grant { lease: Lease::Unlimited { .. }, .. }) | Self::Outer(_) => None,
        }
    }

    /// What the guard keeps open while any process of the command lives: the locked file, or the connection to the outer
    /// guard.
    pub(super) fn descriptor<'a>(&'a self, contender: &'a dyn Contender) -> Option<BorrowedFd<'a>> {
        match self {
            Self::Own(_) => contender.descriptor(),
            Self::Outer(cover) => cover.line(),
        }
    }

    /// How the command is started; `has_descriptor` says whether the guard gets a locked descriptor.
    pub(super) fn spawn(&self, settings: &RunSettings, kill_after: Duration, has_descriptor: bool) -> Spawn {
        let stay = settings.leftovers != Leftovers::Leave;
        match self {
            Self::Own(grant) => {
                let lease = self.schedule(kill_after).and_then(|schedule| deadline(&schedule, settings.on_lost));
                Spawn {
                    token: grant.token,
                    slot: grant.slot,
                    ttl: self.ttl(),
                    lease,
                    kill_after,
                    outlives: lease.is_none(),
                    inherit: has_descriptor && !settings.close,
                    stay,
                }
            }
            Self::Outer(cover) => Spawn {
                token: cover.token,
                slot: cover.slot,
                ttl: cover.ttl,
                lease: None,
                kill_after,
                outlives: false,
                inherit: false,
                stay,
            },
        }
    }

    /// Keeps the lock, or watches the outer run that keeps it. Calls `news` for every change; ends after a loss.
    pub(super) async fn keep(
        &self,
        contender: &mut dyn Contender,
        kill_after: Duration,
        mut news: impl FnMut(LeaseNews),
    ) {
        match self {
            Self::Own(grant) => keeper::keep(contender, grant.lease, kill_after, news).await,
            Self::Outer(cover) => {
                cover.ended().await;
                news(LeaseNews::KeeperEnded);
            }
        }
    }
}
