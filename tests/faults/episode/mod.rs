/*!
One episode: a holder, waiters, a fault, and the checks of what came of it.

A fault is a function of an [`Episode`]: it starts the actors, breaks something, repairs it, and says how each actor may
end. The invariants are checked by [`Episode::finish`].
*/

mod actors;
mod checks;
mod company;
mod ends;
mod report;

use std::cell::Cell;
use std::time::Duration;

pub use actors::Holder;
pub use ends::Ending;
pub use report::{Invariant, Report};

use crate::held::Held;
use crate::store::Store;
use crate::support::dlock::Running;
use crate::support::mode_witness::ModeWitness;
use crate::support::rendezvous::{boottime, last_until};
use crate::support::scratch::Scratch;
use crate::support::servers::Monitor;
use crate::support::witness::Witness;
use crate::world::{Column, World};

use company::Company;

/// The key that every contender wants.
pub const KEY: &str = "job";

/// The way from a dlock to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Directly.
    Straight,
    /// Through the proxies.
    Detour,
    /// From this island; the servers are on islands too.
    From(usize),
}

/// How long a fault lasts that has no end of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Seconds.
    Brief,
    /// Minutes.
    Full,
}

/// One episode in progress; see the [module](self).
pub struct Episode<'w> {
    pub world: &'w World,
    pub rng: fastrand::Rng,
    /// The lease that every contender asks for.
    pub ttl: Duration,
    /// How it is held.
    pub held: Held,
    witness: Witness,
    mode_witness: ModeWitness,
    pub store: Store,
    pub report: Report,
    company: Company,
    waiters: Vec<Running>,
    /// The URL that dlocks are told instead of the servers' own one, unless they take a detour.
    pub backend: Option<String>,
    /// Whether those that come after the first holder may lose the lock too.
    pub waiters_may_lose: bool,
    monitors: Vec<Monitor<'w>>,
    holders: usize,
    /// The moment from which somebody else can hold the lock again, if there was one at which nobody could.
    healed: Option<Duration>,
    /// How soon somebody must hold it then, if not within the usual time.
    pub recovers_within: Option<Duration>,
    /// What [`Cluster::epoch`](crate::support::cluster::Cluster::epoch) was when everything was repaired.
    epoch: Option<u64>,
    /// Whether overlaps are expected and only counted.
    documented: bool,
    /// When overlaps are no longer expected: everything is repaired, and whoever held the lock meanwhile has ended.
    closed: Option<Duration>,
    /// How long faults last that can go on for minutes.
    pub length: Length,
    /// Whether a dlock was killed while it created or removed directories at the servers, so that empty ones may be
    /// left.
    pub cut_short: bool,
    /// Whether somebody has asked a holder to stop, so that something tells of that at the servers.
    pub is_traced: Cell<bool>,
    // Dropped last: everything that works in it goes first.
    pub scratch: Scratch,
}

impl<'w> Episode<'w> {
    /// Begins an episode on `world`, in which the lock is `held` like this, with all choices made by `rng`. If the fault is
    /// in a `documented` window of the algorithm, overlaps are counted and are no violation.
    pub fn new(world: &'w World, mut rng: fastrand::Rng, held: Held, documented: bool) -> Self {
        let scratch = Scratch::new();
        let ttl = Duration::from_secs(if world.column == Column::ZooKeeper { rng.u64(4..=5) } else { rng.u64(2..=3) });
        Self {
            world,
            rng,
            ttl,
            held,
            witness: Witness::in_dir(scratch.root()),
            mode_witness: ModeWitness::in_dir(scratch.root()),
            store: Store::new(&scratch),
            report: Report::default(),
            company: Company::default(),
            waiters: Vec::new(),
            backend: None,
            waiters_may_lose: false,
            monitors: world.monitors(),
            holders: 0,
            healed: None,
            recovers_within: None,
            epoch: None,
            documented,
            closed: None,
            length: Length::Brief,
            cut_short: false,
            is_traced: Cell::new(false),
            scratch,
        }
    }

    /// A random time of at most `most`.
    pub fn some_time(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.f64())
    }

    /// Waits for a random time of at most `most`: when a fault comes must not depend on the rhythm of renewals.
    pub fn linger(&mut self, most: Duration) {
        let time = self.some_time(most);
        last_until(boottime() + time);
    }

    /// A fair coin.
    pub fn coin(&mut self) -> bool {
        self.rng.bool()
    }

    /// Waits until the servers, all at work again, serve clients.
    #[track_caller]
    pub fn wait_serving(&mut self) {
        let serving = self.world.wait_serving();
        self.come_back(serving);
    }

    /// Waits until the servers, all at work again, serve clients and form one cluster.
    #[track_caller]
    pub fn wait_together(&mut self) {
        let together = self.world.wait_together();
        self.come_back(together);
    }

    #[track_caller]
    fn come_back(&mut self, are_back: bool) {
        if !are_back {
            self.report.hindered = Some("the servers did not come back");
            panic!("the servers do not serve");
        }
    }

    /// Notes that something is broken from now on.
    pub fn broken(&mut self) -> Duration {
        self.report.faults += 1;
        boottime()
    }

    /// Notes that everything is repaired and that the lock can be held from now on.
    pub fn mended(&mut self) {
        self.mended_at(boottime());
    }

    /// Notes that everything has been repaired, and that the lock could be held, since `when`.
    pub fn mended_at(&mut self, when: Duration) {
        self.dismiss();
        self.healed = Some(when);
        self.epoch = self.world.epoch();
    }

    /// Notes a violation of `invariant`.
    pub fn violation(&mut self, invariant: Invariant, what: impl Into<String>) {
        self.report.violations.push((invariant, what.into()));
    }
}
