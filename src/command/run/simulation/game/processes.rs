/*!
dlock and its guard in a game: one round of the loop of each, with the product's own decisions.
*/

use crate::backend::contract::contender::{Lease, Renewal};
use crate::clock::Instant;
use crate::command::run::simulation::game::{Game, Request};
use crate::command::run::simulation::script::Fate;
use crate::lease::renewal::{LeaseNews, Renewals, Turn};
use crate::supervise::forwards::Sent;
use crate::supervise::protocol::Order;
use crate::supervise::stop::Step;

/// A signal that ends a command which does not ignore it.
const TERM: Sent = Sent { signal: libc::SIGTERM, sender: 42 };

impl Game {
    pub(super) fn dlock_runs_at(&self) -> Option<Instant> {
        let dlock = &self.dlock;
        let since = dlock.running?;
        let keeper = match (dlock.asking, &dlock.renewals) {
            (Some((request, _, until)), _) => {
                self.requests[request].heard_at.map_or(Some(until), |at| Some(at.min(until)))
            }
            (None, renewals) => renewals.as_ref().map(Renewals::next),
        };
        let own = match dlock.orphans {
            Some(_) => dlock.orphans_next,
            None => dlock.backstop.kill_due(),
        };
        let news = dlock.news.front().map(|(at, _)| *at);
        let due = [keeper, own, news, dlock.notice, dlock.orphaned, dlock.signals.front().copied()];
        due.into_iter().flatten().min().map(|due| due.max(since) + dlock.lateness)
    }

    /// Runs dlock's loop once: what is due, what it receives, and its keeper.
    pub(super) fn run_dlock(&mut self) {
        let now = self.now;
        self.dlock.lateness = self.next_lateness();
        if self.dlock.orphans.is_none() && self.dlock.backstop.kill_due().is_some_and(|at| now >= at) {
            self.alive = false;
            return;
        }
        while self.dlock.signals.pop_front().is_some() {
            self.order(Some(Order::Forward { signal: TERM.signal, sender: TERM.sender, read_at: now }));
        }
        if self.dlock.notice.take().is_some() {
            self.dlock.backstop.begun(now);
        }
        while let Some((_, news)) = self.dlock.news.pop_front() {
            let order = match news {
                LeaseNews::Extended(schedule) => self.dlock.backstop.extend(schedule),
                LeaseNews::Trouble(_) | LeaseNews::Warning(_) => None,
                LeaseNews::Asked(_)
                | LeaseNews::NotMine(_)
                | LeaseNews::OuterEnded
                | LeaseNews::KeeperEnded
                | LeaseNews::Unrenewed { .. } => self.dlock.backstop.lose(now),
            };
            self.order(order);
        }
        if self.dlock.orphaned.take().is_some() {
            self.dlock.orphans = Some(self.dlock.backstop.take_over(now));
        }
        if let Some(ladder) = &mut self.dlock.orphans {
            let mut step = ladder.step(now);
            if let Step::Term { .. } = step {
                step = ladder.step(now);
                self.termed = self.termed.or(Some(now));
                self.signal();
            }
            match step {
                Step::Kill => self.alive = false,
                Step::Wait(next) => self.dlock.orphans_next = next,
                Step::Term { .. } => {}
            }
        }
        self.keep();
    }

    /// Runs the keeper: an answer, the end of its time-out, or a renewal that is due.
    fn keep(&mut self) {
        let now = self.now;
        let Some(mut renewals) = self.dlock.renewals.take() else { return };
        let news = if let Some((request, asked, until)) = self.dlock.asking {
            let Request { sent, heard_at, answer, .. } = self.requests[request];
            let outcome = match (heard_at.filter(|at| *at <= now), answer) {
                (Some(_), Some(Ok(ttl))) => {
                    let renew_every = ttl / self.script.renewals_per_lease;
                    Ok(Renewal::Extended(Lease::Until { sent, ttl, renew_every }))
                }
                (Some(_), Some(Err(()))) => Ok(Renewal::NotMine("it is gone".to_owned())),
                (Some(_), None) => Err(Some("the connection broke".to_owned())),
                (None, _) if now >= until => Err(None),
                (None, _) => {
                    self.dlock.renewals = Some(renewals);
                    return;
                }
            };
            self.dlock.asking = None;
            renewals.answered(asked, now, outcome)
        } else if now < renewals.next() {
            None
        } else {
            match renewals.turn(now) {
                Turn::Ask(until) => {
                    self.ask(until);
                    None
                }
                Turn::GiveUp(news) => Some(news),
            }
        };
        if matches!(news, None | Some(LeaseNews::Extended(_) | LeaseNews::Trouble(_))) {
            self.dlock.renewals = Some(renewals);
        }
        if news.is_some() && std::mem::take(&mut self.dlock.frozen_by_news) {
            self.dlock.running = None;
        }
        self.dlock.news.extend(news.map(|news| (now, news)));
    }

    /// Sends a renewal.
    fn ask(&mut self, until: Instant) {
        let now = self.now;
        let fate = self.script.fates.get(self.sent).copied().unwrap_or(self.script.afterwards);
        self.sent += 1;
        let (done_at, heard_at) = match fate {
            Fate::Answered(there, back) => {
                let done = now + self.share(there);
                (Some(done), Some(done + self.share(back)))
            }
            Fate::AnswerLost(there) => (Some(now + self.share(there)), None),
            Fate::Lost => (None, None),
            Fate::Broken(after) => (None, Some(now + self.share(after))),
        };
        self.dlock.asking = Some((self.requests.len(), now, until));
        self.requests.push(Request { sent: now, done_at, heard_at, answer: None });
        self.serve();
    }

    fn order(&mut self, order: Option<Order>) {
        let now = self.now;
        self.guard.inbox.extend(order.map(|order| (now, order)));
    }

    pub(super) fn guard_runs_at(&self) -> Option<Instant> {
        let guard = &self.guard;
        let since = guard.running?;
        let (inbox, seen) = (guard.inbox.front().map(|(at, _)| *at), guard.seen.front().copied());
        let due = [inbox, seen, guard.line_ended, guard.next].into_iter().flatten().min()?;
        Some(due.max(since) + guard.lateness)
    }

    /// Runs the guard's loop once: its signals, its orders, and what is due.
    pub(super) fn run_guard(&mut self) {
        let now = self.now;
        self.guard.lateness = self.next_lateness();
        while self.guard.seen.pop_front().is_some() {
            self.guard.forwards.saw(TERM, now);
        }
        while let Some((_, order)) = self.guard.inbox.pop_front() {
            match order {
                Order::Extend(deadline) => self.guard.ladder.extend(deadline),
                Order::Stop(kill_at) => {
                    self.guard.ladder.stop(kill_at);
                    self.termed = self.termed.or(Some(now));
                }
                Order::Forward { signal, sender, read_at } => {
                    self.guard.forwards.ask(Sent { signal, sender }, read_at, now);
                }
                Order::Spawn(_) | Order::Suspend => {}
            }
        }
        if self.guard.line_ended.take().is_some() {
            self.guard.ladder.stop(now + self.kill_after);
            self.termed = self.termed.or(Some(now));
        }
        while self.guard.forwards.due(now).is_some() {
            self.passed_on += 1;
            self.signal();
        }
        let mut step = self.guard.ladder.step(now);
        if let Step::Term { by_deadline } = step {
            if by_deadline {
                self.dlock.notice = Some(now);
            }
            self.termed = self.termed.or(Some(now));
            self.signal();
            step = self.guard.ladder.step(now);
        }
        self.guard.next = match step {
            Step::Wait(next) => [next, self.guard.forwards.next()].into_iter().flatten().min(),
            Step::Term { .. } => Some(now),
            Step::Kill => {
                self.alive = false;
                None
            }
        };
    }
}
