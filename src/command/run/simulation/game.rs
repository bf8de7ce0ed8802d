/*!
A game in progress: the world around dlock and its guard, and the promises that the two must keep.
*/

mod processes;

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use crate::cli::OnLost;
use crate::clock::Instant;
use crate::command::losing::deadline;
use crate::command::run::backstop::Backstop;
use crate::command::run::simulation::script::{Happening, Script};
use crate::lease::renewal::{LeaseNews, Renewals};
use crate::lease::timing::Schedule;
use crate::property::Holds;
use crate::supervise::forwards::Forwards;
use crate::supervise::protocol::Order;
use crate::supervise::stop::{Ladder, Step};

/// The maximum lateness of a process that is not frozen; the margin of 50 ms covers it.
pub(super) const LATENESS: Duration = Duration::from_millis(20);
/// The server's clock is fast by the lease divided by this; the margin of ttl/10 covers it.
const FAST: u32 = 11;
/// The maximum number of rounds in one game.
const ROUNDS: usize = 10_000;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Request {
    sent: Instant,
    done_at: Option<Instant>,
    /// The instant at which dlock learns of the answer, or that the connection is broken.
    heard_at: Option<Instant>,
    /// The server's answer: the length of the lease, or that the lock is not held.
    answer: Option<Result<Duration, ()>>,
}

/// The instant since which a process runs; `None` while it is frozen.
type Running = Option<Instant>;

struct Dlock {
    running: Running,
    killed: bool,
    lateness: Duration,
    /// `None` once the lease was lost.
    renewals: Option<Renewals>,
    /// The pending request, its start, and its time limit.
    asking: Option<(usize, Instant, Instant)>,
    backstop: Backstop,
    /// News from the keeper that the rest of dlock has not received yet.
    news: VecDeque<(Instant, LeaseNews)>,
    frozen_by_news: bool,
    /// The arrival of the guard's notice that it stops the command.
    notice: Option<Instant>,
    /// The arrival of the news that the guard was killed.
    orphaned: Option<Instant>,
    orphans: Option<Ladder>,
    orphans_next: Option<Instant>,
    signals: VecDeque<Instant>,
}

struct Guard {
    running: Running,
    killed: bool,
    lateness: Duration,
    ladder: Ladder,
    forwards: Forwards,
    inbox: VecDeque<(Instant, Order)>,
    seen: VecDeque<Instant>,
    /// The instant at which the line to dlock ended.
    line_ended: Option<Instant>,
    next: Option<Instant>,
}

/// A game in progress.
pub(super) struct Game {
    script: Script,
    pub now: Instant,
    /// The instant at which the server may end the lease; counted by its own clock.
    expiry: Instant,
    granted: Duration,
    deleted: bool,
    requests: Vec<Request>,
    pub sent: usize,
    late: usize,
    dlock: Dlock,
    guard: Guard,
    ends_at: Option<Instant>,
    pub alive: bool,
    /// The instant at which the command was told to end because of the lease.
    pub termed: Option<Instant>,
    pub passed_on: usize,
    pub kill_after: Duration,
}

impl Game {
    /// Grants the lease and starts the command; `None` if the command does not start.
    pub(super) fn begin(script: Script) -> Option<Self> {
        let sent = Instant::from_nanos(0) + Duration::from_secs(1000);
        let ttl = script.ttl;
        let now = sent + ttl * script.granted_after / 1000;
        let schedule = Schedule { sent, ttl, kill_after: script.grace.within(Some(ttl)) };
        let deadline = deadline(&schedule, script.on_lost);
        // As the wait and the guard do.
        if schedule.too_little_left(now) || deadline.is_some_and(|deadline| now >= deadline.stop_at) {
            return None;
        }
        let mut ladder = Ladder::new(deadline);
        let Step::Wait(next) = ladder.step(now) else { return None };
        let dlock = Dlock {
            running: Some(now),
            killed: false,
            lateness: Duration::ZERO,
            renewals: Some(Renewals::new(schedule, ttl / script.renewals_per_lease)),
            asking: None,
            backstop: Backstop::new(script.on_lost, schedule.kill_after, Some(schedule)),
            news: VecDeque::new(),
            frozen_by_news: false,
            notice: None,
            orphaned: None,
            orphans: None,
            orphans_next: None,
            signals: VecDeque::new(),
        };
        let guard = Guard {
            running: Some(now),
            killed: false,
            lateness: Duration::ZERO,
            ladder,
            forwards: Forwards::default(),
            inbox: VecDeque::new(),
            seen: VecDeque::new(),
            line_ended: None,
            next,
        };
        let mut game = Self {
            now,
            expiry: sent,
            granted: ttl,
            deleted: false,
            requests: Vec::new(),
            sent: 0,
            late: 0,
            dlock,
            guard,
            ends_at: None,
            alive: true,
            termed: None,
            passed_on: 0,
            kill_after: schedule.kill_after,
            script,
        };
        game.grant(sent);
        Some(game)
    }

    /// Makes the server count the lease from `at`.
    fn grant(&mut self, at: Instant) {
        self.expiry = self.expiry.max(at + self.granted * (FAST - 1) / FAST);
    }

    fn share(&self, thousandths: u32) -> Duration {
        self.script.ttl * thousandths / 1000
    }

    fn next_lateness(&mut self) -> Duration {
        self.late += 1;
        let late = self.script.lateness[self.late % self.script.lateness.len()];
        Duration::from_millis(late).min(LATENESS)
    }

    /// Plays until the command is dead or `end` has come; fails when a promise is broken.
    pub(super) fn play(&mut self, end: Instant) -> Holds {
        let mut script = std::mem::take(&mut self.script.happenings).into_iter();
        let mut happening = None;
        let mut then = self.now;
        for _ in 0..ROUNDS {
            if happening.is_none() {
                happening = script.next().map(|(after, what)| {
                    then = then + self.share(after);
                    (then, what)
                });
            }
            let arrival =
                self.requests.iter().filter(|request| request.answer.is_none()).filter_map(|r| r.done_at).min();
            let next = [happening.map(|(at, _)| at), arrival, self.ends_at, self.dlock_runs_at(), self.guard_runs_at()];
            let Some(next) = next.into_iter().flatten().min().filter(|next| *next < end) else {
                return self.check(end);
            };
            self.check(next)?;
            self.now = self.now.max(next);
            // Outside events come first: the processes find them.
            if let Some((at, what)) = happening
                && at <= next
            {
                happening = None;
                self.happen(what);
            }
            self.serve();
            if self.ends_at.is_some_and(|at| at <= self.now) {
                self.alive = false;
            }
            if !self.alive {
                return Ok(());
            }
            if self.guard_runs_at().is_some_and(|at| at <= self.now) {
                self.run_guard();
            }
            if self.alive && self.dlock_runs_at().is_some_and(|at| at <= self.now) {
                self.run_dlock();
            }
            if !self.alive {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("the game makes no progress"))
    }

    /// Checks that the command may have been alive until `at`.
    fn check(&self, at: Instant) -> Holds {
        if self.script.on_lost == OnLost::Ignore {
            return Ok(());
        }
        for since in [self.dlock.running, self.guard.running].into_iter().flatten() {
            let limit = self.expiry.max(since + LATENESS);
            prop_assert!(at <= limit, "alive {:?} after its lease could end", at.since(limit));
            if let Some(termed) = self.termed {
                // One of the two learns of it from the other.
                let limit = termed.max(since) + self.kill_after + LATENESS * 2;
                prop_assert!(at <= limit, "rescued after SIGTERM, alive {:?} too long", at.since(limit));
            }
        }
        Ok(())
    }

    fn happen(&mut self, what: Happening) {
        let now = self.now;
        match what {
            Happening::FreezeDlock => self.dlock.running = None,
            Happening::FreezeDlockWithNews => self.dlock.frozen_by_news = true,
            Happening::ThawDlock if !self.dlock.killed => {
                self.dlock.running = self.dlock.running.or(Some(now));
            }
            Happening::FreezeGuard => self.guard.running = None,
            Happening::ThawGuard if !self.guard.killed => {
                self.guard.running = self.guard.running.or(Some(now));
            }
            Happening::KillDlock if !self.guard.killed => {
                (self.dlock.killed, self.dlock.running) = (true, None);
                self.guard.line_ended = self.guard.line_ended.or(Some(now));
            }
            Happening::KillGuard if !self.dlock.killed => {
                (self.guard.killed, self.guard.running) = (true, None);
                self.dlock.orphaned = self.dlock.orphaned.or(Some(now));
            }
            Happening::Delete => self.deleted = true,
            Happening::Signal { group } => {
                self.dlock.signals.push_back(now);
                if group {
                    self.guard.seen.push_back(now);
                    self.signal();
                }
            }
            Happening::Generous => self.granted = self.script.ttl * 2,
            Happening::Exit => self.alive = false,
            Happening::ThawDlock | Happening::ThawGuard | Happening::KillDlock | Happening::KillGuard => {}
        }
    }

    /// Executes the requests that have arrived at the server.
    fn serve(&mut self) {
        for index in 0..self.requests.len() {
            let Request { done_at: Some(at), answer: None, .. } = self.requests[index] else { continue };
            if at > self.now {
                continue;
            }
            self.requests[index].answer = Some(if self.deleted { Err(()) } else { Ok(self.granted) });
            if !self.deleted {
                self.grant(at);
            }
        }
    }

    /// Sends the command a SIGTERM.
    fn signal(&mut self) {
        if let Some(after) = self.script.ends_on_term {
            let at = self.now + self.share(after);
            self.ends_at = Some(self.ends_at.map_or(at, |earlier| earlier.min(at)));
        }
    }
}
