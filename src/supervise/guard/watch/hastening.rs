/*!
The guard in a control group with a CPU quota: it measures how late it is woken up and how much there is to stop, and
begins a stop that much earlier. Without a quota it looks for one only after each renewal, when it is awake anyway.
*/

use std::time::Duration;

use crate::clock::Instant;
use crate::supervise::guard::throttled::{OFTEN, in_step};
use crate::supervise::guard::watch::Watch;
use crate::supervise::priority::rank;
use crate::supervise::protocol::Notice;
use crate::supervise::quota::{Load, Quota};

/// Divisor of the lease for the time between two looks, and the longest such time.
const PART: u32 = 20;
const SELDOM: Duration = Duration::from_secs(1);
/// The alarm goes off early by a tenth of the time until a look; a look due within this part of the interval is made.
const EARLY: u32 = 8;
/// The processes are counted at most this many times during a lease, because that costs processor time.
const COUNTS: u32 = 5;
/// The longest time for counting, if the guard gets a processor.
const COUNTING: Duration = Duration::from_millis(50);
/// The part by which a lateness that was seen counts less with each look.
const FADING: u32 = 32;

impl Watch {
    /// Notes that the command was started under a lease; the first look is due soon.
    pub(super) fn granted(&mut self) {
        self.throttled.renewed = Instant::now();
        self.throttled.look_at = self.is_leased().then(|| self.throttled.renewed + self.look_every());
    }

    /// Notes that the lease was renewed. If there was no quota, one is looked for now that the guard is awake.
    pub(super) fn renewed(&mut self) {
        self.throttled.renewed = Instant::now();
        self.throttled.look_at = self.throttled.look_at.or(Some(self.throttled.renewed));
    }

    /// Looks at the quota if that is due. Returns the time of the next look, and whether time has passed meanwhile.
    pub(super) fn look_at_quota(&mut self, now: Instant) -> (Option<Instant>, bool) {
        let every = self.look_every();
        let due = self.throttled.look_at.filter(|&at| now + every / EARLY >= at);
        if due.is_none() || !self.is_leased() || self.kill_again.is_some() {
            return (self.throttled.look_at.filter(|_| self.kill_again.is_none()), false);
        }
        let late = due.map_or(Duration::ZERO, |due| now.since(due));
        let quota = self.sweep.with_descriptors(|_| Quota::read());
        let before = std::mem::replace(&mut self.throttled.quota, quota).map(|quota| quota.exhausted);
        let Some(quota) = quota else {
            self.throttled.look_at = None;
            self.throttled.load = Load::default();
            self.hasten(Duration::ZERO);
            return (None, true);
        };
        let seen = self.throttled.load.late;
        let faded = seen.saturating_sub(seen / FADING);
        if before == Some(quota.exhausted) {
            self.throttled.load = Load { late: faded, ..Load::default() };
            self.throttled.counted = None;
            self.hasten(self.throttled.earlier(&quota, self.lease_length()));
        } else {
            self.throttled.load.late = faded.max(late);
            self.hasten(self.throttled.earlier(&quota, self.lease_length()));
            // Counting can take as long as a pass. SIGTERM can wait for it.
            if self.ladder.kill_at().is_some_and(|at| now < at) {
                self.count(now);
                self.hasten(self.throttled.earlier(&quota, self.lease_length()));
            }
        }
        self.throttled.look_at = Some(Instant::now() + in_step(every, quota.period));
        (self.throttled.look_at, true)
    }

    /// Makes a stop begin this much earlier, and tells dlock if that has changed much.
    fn hasten(&mut self, earlier: Duration) {
        self.ladder.hasten(earlier, self.throttled.renewed);
        if earlier.abs_diff(self.throttled.told) > OFTEN {
            self.throttled.told = earlier;
            self.line.tell(Notice::Throttled(earlier));
        }
    }

    /// Counts the command's processes, unless that was done a moment ago.
    fn count(&mut self, now: Instant) {
        let pause = self.lease_length() / COUNTS;
        if self.throttled.counted.is_some_and(|counted| now < counted + pause) {
            return;
        }
        // SAFETY: getpid cannot fail.
        let me = unsafe { libc::getpid() };
        let spared = [self.group.listener().unwrap_or(0)];
        let (processes, busy) = self.sweep.busy_below(me, &spared, now + COUNTING);
        let load = &mut self.throttled.load;
        (load.processes, load.busy, load.rank) = (processes, busy, rank());
        // A wait during the count is no shorter than a wait during a pass.
        let waited = Instant::now().since(now);
        if waited > COUNTING {
            load.late = load.late.max(waited);
        }
        self.throttled.counted = Some(now);
    }

    fn is_leased(&self) -> bool {
        self.child.as_ref().is_some_and(|child| child.spawn.lease.is_some())
    }

    fn lease_length(&self) -> Duration {
        self.child.as_ref().and_then(|child| child.spawn.ttl).unwrap_or_default()
    }

    fn look_every(&self) -> Duration {
        (self.lease_length() / PART).clamp(OFTEN, SELDOM)
    }
}
