/*!
The life of a lease as a game of chance, played with the product's own decisions: when to renew, to retry and to give up
([`Renewals`]), what dlock tells its guard and when it acts itself ([`Backstop`]), and the guard's way down ([`Ladder`]).
Only the world around them is made up: a server whose clock is fast, a network that loses and delays, processes
that are late, frozen or killed, and a command that may not care about signals.

It holds that the command is dead before its lease can end at the server as long as dlock or its guard runs, or as soon
as one of them runs again; that no renewal rescues it after a SIGTERM because of the lease; and that it is left alone while
renewals are answered.
*/

use std::collections::VecDeque;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::backend::{Lease, Renewal};
use crate::cli::OnLost;
use crate::clock::Instant;
use crate::command::run::backstop::{Backstop, deadline};
use crate::lease::renewal::{LeaseNews, Renewals, Turn};
use crate::lease::timing::{Grace, Schedule};
use crate::property::{Holds, holds};
use crate::supervise::forwards::{Forwards, Sent};
use crate::supervise::protocol::Order;
use crate::supervise::stop::{Ladder, Step};

/// How late a process may be that is not frozen: what the margin of 50 ms has to bear.
const LATENESS: Duration = Duration::from_millis(20);
/// The part of a lease, one of so many, by which the server's clock is fast: what the margin of ttl/10 has to bear.
const FAST: u32 = 11;
/// How much may happen in one game.
const ROUNDS: usize = 10_000;
/// A signal that ends a command which does not ignore it.
const TERM: Sent = Sent { signal: libc::SIGTERM, sender: 42 };

/// What becomes of one renewal; times are in thousandths of the lease.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It is done after so long, and the answer takes so long.
    Answered(u32, u32),
    /// It is done after so long, and nobody hears of it.
    AnswerLost(u32),
    /// It does not arrive.
    Lost,
    /// The connection breaks after so long.
    Broken(u32),
}

/// What happens besides.
#[derive(Clone, Copy, Debug)]
enum Happening {
    FreezeDlock,
    /// dlock is frozen just when it has heard of its next renewal and told nobody.
    FreezeDlockWithNews,
    ThawDlock,
    FreezeGuard,
    ThawGuard,
    KillDlock,
    KillGuard,
    /// Somebody deletes the lock at the server.
    Delete,
    /// dlock is signalled, perhaps along with its group.
    Signal {
        group: bool,
    },
    /// The server grants longer leases from now on.
    Generous,
    /// The command ends by itself.
    Exit,
}

/// A game before it is played.
#[derive(Clone, Debug)]
struct Script {
    /// What the server grants, whatever was asked.
    ttl: Duration,
    grace: Grace,
    /// One of so many parts of the lease is between two renewals.
    renewals_per_lease: u32,
    on_lost: OnLost,
    /// When the grant is heard of, in thousandths of the lease.
    granted_after: u32,
    /// What becomes of the renewals, one after the other, and of all that follow.
    fates: Vec<Fate>,
    afterwards: Fate,
    /// Each so many thousandths of the lease after the one before it.
    happenings: Vec<(u32, Happening)>,
    /// How late the processes are, in turn, in milliseconds.
    lateness: Vec<u64>,
    /// How long the command takes to end after SIGTERM, in thousandths of the lease; for ever where it ignores it.
    ends_on_term: Option<u32>,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Request {
    sent: Instant,
    done_at: Option<Instant>,
    /// When dlock hears of it: its answer, or that the connection is broken.
    heard_at: Option<Instant>,
    /// What the server said: for how long it is ours, or that it is not.
    answer: Option<Result<Duration, ()>>,
}

/// Since when something runs; nothing when it is frozen.
type Running = Option<Instant>;

struct Dlock {
    running: Running,
    killed: bool,
    lateness: Duration,
    /// Over once the lease was lost.
    renewals: Option<Renewals>,
    /// The request that is waited for, and until when.
    asking: Option<(usize, Instant, Instant)>,
    backstop: Backstop,
    /// What the keeper has told, and the rest of dlock not heard yet.
    news: VecDeque<(Instant, LeaseNews)>,
    frozen_by_news: bool,
    /// When the guard's notice that it stops the command came.
    notice: Option<Instant>,
    /// When the news came that the guard was killed.
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
    /// When the line to dlock came to its end.
    line_ended: Option<Instant>,
    next: Option<Instant>,
}

/// A game in progress.
struct Game {
    script: Script,
    now: Instant,
    /// When the server may end the lease; counted by its own clock.
    expiry: Instant,
    granted: Duration,
    deleted: bool,
    requests: Vec<Request>,
    sent: usize,
    late: usize,
    dlock: Dlock,
    guard: Guard,
    ends_at: Option<Instant>,
    alive: bool,
    /// When it was told to end because of the lease.
    termed: Option<Instant>,
    passed_on: usize,
    kill_after: Duration,
}

impl Game {
    /// The lease is granted and the command starts; none where it does not.
    fn begin(script: Script) -> Option<Self> {
        let sent = Instant::from_nanos(0) + Duration::from_secs(1000);
        let ttl = script.ttl;
        let now = sent + ttl * script.granted_after / 1000;
        let schedule = Schedule { sent, ttl, kill_after: script.grace.within(Some(ttl)) };
        let deadline = deadline(&schedule, script.on_lost);
        // As the wait and the guard have it.
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

    /// The server counts the lease from `at`.
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
    fn play(&mut self, end: Instant) -> Holds {
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
            // What is outside comes first: it is what the processes find.
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
        Err(TestCaseError::fail("somebody goes round and round and does nothing"))
    }

    /// The command has been alive until `at`: whether it may.
    fn check(&self, at: Instant) -> Holds {
        if self.script.on_lost == OnLost::Ignore {
            return Ok(());
        }
        for since in [self.dlock.running, self.guard.running].into_iter().flatten() {
            let limit = self.expiry.max(since + LATENESS);
            prop_assert!(at <= limit, "alive {:?} after its lease could end", at.since(limit));
            if let Some(termed) = self.termed {
                // One hears it from the other.
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

    /// What has arrived at the server is done there.
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

    /// The command gets a SIGTERM.
    fn signal(&mut self) {
        if let Some(after) = self.script.ends_on_term {
            let at = self.now + self.share(after);
            self.ends_at = Some(self.ends_at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    fn dlock_runs_at(&self) -> Option<Instant> {
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

    /// dlock's loop, once round: what is due, what it hears, and its keeper.
    fn run_dlock(&mut self) {
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
                LeaseNews::Concern(_) => None,
                LeaseNews::NotMine(_) | LeaseNews::KeeperEnded | LeaseNews::Unrenewed { .. } => {
                    self.dlock.backstop.lose(now)
                }
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

    /// The keeper: an answer, the end of its patience, or a renewal that is due.
    fn keep(&mut self) {
        let now = self.now;
        let Some(mut renewals) = self.dlock.renewals.take() else { return };
        let news = if let Some((request, asked, until)) = self.dlock.asking {
            let Request { sent, heard_at, answer, .. } = self.requests[request];
            let heard = match (heard_at.filter(|at| *at <= now), answer) {
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
            renewals.heard(asked, now, heard)
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
        if matches!(news, None | Some(LeaseNews::Extended(_))) {
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

    fn guard_runs_at(&self) -> Option<Instant> {
        let guard = &self.guard;
        let since = guard.running?;
        let (inbox, seen) = (guard.inbox.front().map(|(at, _)| *at), guard.seen.front().copied());
        let due = [inbox, seen, guard.line_ended, guard.next].into_iter().flatten().min()?;
        Some(due.max(since) + guard.lateness)
    }

    /// The guard's loop, once round: its signals, its orders, and what is due.
    fn run_guard(&mut self) {
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

/// Mostly a moment; sometimes longer than any lease.
fn time() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 0..20_u32, 2 => 0..400_u32, 1 => 0..2500_u32]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => (time(), time()).prop_map(|(there, back)| Fate::Answered(there, back)),
        1 => time().prop_map(Fate::AnswerLost),
        1 => Just(Fate::Lost),
        1 => time().prop_map(Fate::Broken),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => select(vec![Happening::FreezeDlock, Happening::FreezeDlockWithNews, Happening::FreezeGuard]),
        4 => select(vec![Happening::ThawDlock, Happening::ThawGuard]),
        2 => any::<bool>().prop_map(|group| Happening::Signal { group }),
        1 => select(vec![Happening::KillDlock, Happening::KillGuard, Happening::Delete, Happening::Exit]),
        1 => Just(Happening::Generous),
    ]
}

fn happenings() -> impl Strategy<Value = Vec<(u32, Happening)>> {
    let any = || vec((time(), happening()), 0..12);
    // Each begins or stops to run while the other stops the command: too rare to be left to chance.
    let crossing = (0..300_u32, 300..1000_u32, 0..200_u32, any()).prop_map(|(first, second, third, rest)| {
        let crossing =
            [(first, Happening::FreezeDlockWithNews), (second, Happening::FreezeGuard), (third, Happening::ThawDlock)];
        crossing.into_iter().chain(rest).collect()
    });
    prop_oneof![4 => any(), 1 => crossing]
}

fn script() -> impl Strategy<Value = Script> {
    let ttl = prop_oneof![Just(1000), 1000..5000_u64, 1000..100_000_u64].prop_map(Duration::from_millis);
    let asked = option::of((0..20_000_u64).prop_map(Duration::from_millis));
    let grace = (asked, select(vec![2, 4])).prop_map(|(asked, share)| Grace { asked, share });
    let on_lost = prop_oneof![4 => Just(OnLost::Stop), 1 => Just(OnLost::Kill)];
    let kind = (ttl, grace, select(vec![3, 3, 6]), on_lost, prop_oneof![0..50_u32, 0..500_u32]);
    let network = (vec(fate(), 0..12), fate());
    let around = (happenings(), vec(0..=20_u64, 1..8), option::of(time()));
    (kind, network, around).prop_map(
        |((ttl, grace, renewals_per_lease, on_lost, granted_after), (fates, afterwards), around)| {
            let (happenings, lateness, ends_on_term) = around;
            Script {
                ttl,
                grace,
                renewals_per_lease,
                on_lost,
                granted_after,
                fates,
                afterwards,
                happenings,
                lateness,
                ends_on_term,
            }
        },
    )
}

#[test]
fn the_command_never_outlives_its_lease_and_nothing_rescues_it_after_sigterm() {
    holds(2000, script(), |script| {
        let end = 12 * script.ttl;
        match Game::begin(script) {
            Some(mut game) => {
                let end = game.now + end;
                game.play(end)
            }
            None => Ok(()),
        }
    });
}

/// Scripts in which every renewal is answered in time, but for at most every second one.
fn friendly() -> impl Strategy<Value = Script> {
    let moment = || 0..10_u32;
    let answered = move || (moment(), moment()).prop_map(|(there, back)| Fate::Answered(there, back));
    let failed = prop_oneof![moment().prop_map(Fate::AnswerLost), Just(Fate::Lost), moment().prop_map(Fate::Broken)];
    let pair = (option::of(failed), answered());
    let fates = vec(pair, 4..12).prop_map(|pairs| {
        pairs.into_iter().flat_map(|(failed, answered)| failed.into_iter().chain([answered])).collect::<Vec<_>>()
    });
    let signal = any::<bool>().prop_map(|group| Happening::Signal { group });
    let happenings = vec((time(), prop_oneof![4 => signal, 1 => Just(Happening::Generous)]), 0..6);
    (script(), fates, answered(), happenings, 5000..100_000_u64, moment()).prop_map(
        |(script, fates, afterwards, happenings, ttl, granted_after)| Script {
            ttl: Duration::from_millis(ttl),
            grace: Grace { share: if script.renewals_per_lease == 3 { 2 } else { 4 }, ..script.grace },
            on_lost: OnLost::Stop,
            granted_after,
            fates,
            afterwards,
            happenings,
            ends_on_term: None,
            ..script
        },
    )
}

#[test]
fn a_command_whose_renewals_are_answered_or_lost_only_one_at_a_time_is_left_alone() {
    holds(500, friendly(), |script| {
        let (alone, groups) = script.happenings.iter().fold((0, 0), |(alone, groups), (_, what)| match what {
            Happening::Signal { group: false } => (alone + 1, groups),
            Happening::Signal { group: true } => (alone, groups + 1),
            _ => (alone, groups),
        });
        let end = 30 * script.ttl;
        let Some(mut game) = Game::begin(script) else { return Err(TestCaseError::fail("not started")) };
        let end = game.now + end;
        game.play(end)?;
        prop_assert!(game.alive && game.termed.is_none(), "stopped at {:?}", game.now);
        prop_assert!(game.sent > 30, "only {} renewals", game.sent);
        // What went to dlock alone is passed on once, unless the command had the same signal with the group just before.
        prop_assert!(game.passed_on <= alone && (groups > 0 || game.passed_on == alone), "{}", game.passed_on);
        Ok(())
    });
}

#[test]
fn a_command_whose_lease_runs_out_is_told_to_end_in_good_time_before_it_is_killed() {
    let silent = script().prop_map(|script| Script {
        on_lost: OnLost::Stop,
        happenings: Vec::new(),
        afterwards: Fate::Lost,
        ends_on_term: None,
        ..script
    });
    holds(500, silent, |script| {
        let end = 40 * script.ttl;
        let Some(mut game) = Game::begin(script) else { return Ok(()) };
        let end = game.now + end;
        game.play(end)?;
        prop_assert!(!game.alive);
        // With next to no time between the two, whoever is less late may kill before the other tells.
        let given = game.termed.map_or(Duration::ZERO, |termed| game.now.since(termed));
        prop_assert!(given + LATENESS >= game.kill_after, "it had only {given:?}");
        Ok(())
    });
}

#[test]
fn a_command_that_is_to_ignore_a_loss_is_left_alone_whatever_happens() {
    let ignoring = script().prop_map(|mut script| {
        script
            .happenings
            .retain(|(_, what)| !matches!(what, Happening::KillGuard | Happening::KillDlock | Happening::Exit));
        Script { on_lost: OnLost::Ignore, ends_on_term: None, ..script }
    });
    holds(500, ignoring, |script| {
        let end = 12 * script.ttl;
        let Some(mut game) = Game::begin(script) else { return Ok(()) };
        let end = game.now + end;
        game.play(end)?;
        prop_assert!(game.alive && game.termed.is_none());
        Ok(())
    });
}
