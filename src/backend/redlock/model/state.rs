/*!
One state of the model of two attempts on three servers, and the states that may follow it.
*/

use crate::backend::redlock::quorum::{Ballot, Outcome, Verdict, Vote, holders, outcome, verdict};

/// The number of servers.
pub(super) const SERVERS: usize = 3;
/// The length of a lease in ticks, and the tick at which the clock stops.
const TTL: u8 = 2;
const LAST_TICK: u8 = 5;

/// The rule of the protocol that is broken, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// None.
    Kept,
    /// The largest count is the token, whether a majority holds it or not.
    NoWriteBack,
    /// A token is written back even where the attempt no longer holds the lock.
    WriteBackAnywhere,
    /// Between the two attempts, servers may come back empty.
    Forgetting,
    /// The lease is counted from the grant and not from the first request.
    CountedFromTheAnswer,
}

/// The parameters of a run of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    /// The broken rule.
    pub rules: Rules,
    /// `true` if keys expire by a clock; otherwise they may disappear at any moment.
    pub timed: bool,
    /// The initial counts of the servers.
    pub counts: [u8; SERVERS],
    /// The count that each attempt proposes.
    pub proposals: [u8; 2],
    /// `true` if each attempt may ask one server twice, because the first answer was lost.
    pub repeats: bool,
}

/// A request of one attempt to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Request {
    /// It was not sent.
    Unsent,
    /// It may arrive.
    OnItsWay,
    /// The server executed it, and the answer may have arrived.
    Done,
}

/// The exchange between one attempt and one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Exchange {
    acquire: Request,
    /// The count in the answer to `acquire`.
    count: u8,
    /// `true` if the server belongs to the majority that granted the attempt.
    counted: bool,
    write_back: Request,
    renew: Request,
}

/// One server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Server {
    /// The attempt that holds the key; without a clock, the key may have disappeared.
    holder: Option<u8>,
    count: u8,
    expires: u8,
    lines: [Exchange; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    Idle,
    Asking,
    Writing(u8),
    Held(u8),
}

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Attempt {
    phase: Phase,
    /// The tick at which the first request, or the last confirmed renewal, was sent.
    sent: u8,
    /// The tick at which the renewal was sent, if it was.
    renewed: Option<u8>,
    may_repeat: bool,
    /// The token that the other attempt had when this one began.
    after: Option<u8>,
}

impl Attempt {
    fn token(self) -> Option<u8> {
        match self.phase {
            Phase::Held(token) => Some(token),
            _ => None,
        }
    }
}

/// The whole state at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    now: u8,
    /// Sorted, because the servers are interchangeable.
    servers: [Server; SERVERS],
    attempts: [Attempt; 2],
}

/// A violation of the protocol's promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Violation {
    /// Both attempts got the same token.
    SameToken,
    /// The later attempt got the smaller token.
    SmallerToken,
    /// Both attempts held the lock at the same time.
    TwoHolders,
}

impl State {
    /// The initial state: one attempt has asked all servers.
    pub(super) fn first(world: World) -> Self {
        let line = Exchange {
            acquire: Request::Unsent,
            count: 0,
            counted: false,
            write_back: Request::Unsent,
            renew: Request::Unsent,
        };
        let server = |count| Server { holder: None, count, expires: 0, lines: [line; 2] };
        let attempt = Attempt { phase: Phase::Idle, sent: 0, renewed: None, may_repeat: world.repeats, after: None };
        let mut state = Self { now: 0, servers: world.counts.map(server), attempts: [attempt; 2] };
        // The attempts are interchangeable.
        state.begin(0);
        state
    }

    fn begin(&mut self, me: usize) {
        let after = self.attempts[1 - me].token();
        let attempt = &mut self.attempts[me];
        (attempt.phase, attempt.sent, attempt.after) = (Phase::Asking, self.now, after);
        for server in &mut self.servers {
            server.lines[me].acquire = Request::OnItsWay;
        }
    }

    /// Removes what no longer makes a difference, so that states that differ in nothing else are equal.
    pub(super) fn tidy(&mut self) {
        for server in &mut self.servers {
            for (line, attempt) in server.lines.iter_mut().zip(&self.attempts) {
                if attempt.token().is_some() {
                    (line.count, line.counted) = (0, false);
                }
            }
        }
        for attempt in &mut self.attempts {
            attempt.may_repeat &= attempt.token().is_none();
        }
        self.servers.sort_unstable();
    }

    /// Adds all states that may follow to `next`; fails with the violation in one of them.
    pub(super) fn steps(&self, world: World, next: &mut Vec<Self>) -> Result<(), Violation> {
        for me in 0..2 {
            match self.attempts[me].phase {
                Phase::Idle => {
                    let mut state = *self;
                    state.begin(me);
                    next.push(state);
                }
                Phase::Asking => self.decide(world, me, next)?,
                Phase::Writing(token) => self.confirm(world, me, token, next)?,
                Phase::Held(_) if world.timed => self.renew(me, next)?,
                Phase::Held(_) => {}
            }
            for index in 0..SERVERS {
                self.serve(world, me, index, next);
            }
        }
        if world.rules == Rules::Forgetting
            && self.attempts[0].token().is_some()
            && self.attempts[1].phase == Phase::Idle
        {
            for index in 0..SERVERS {
                let mut state = *self;
                let server = &mut state.servers[index];
                (server.holder, server.count) = (None, 0);
                next.push(state);
            }
        }
        if world.timed && self.now < LAST_TICK {
            let mut state = *self;
            state.now += 1;
            for server in state.servers.iter_mut().filter(|server| server.expires == self.now + 1) {
                (server.holder, server.expires) = (None, 0);
            }
            next.push(state);
        }
        Ok(())
    }

    /// Lets the attempt decide by the answers that have arrived, which may be any of those given.
    fn decide(&self, world: World, me: usize, next: &mut Vec<Self>) -> Result<(), Violation> {
        for seen in 1_u8..1 << SERVERS {
            let mut votes = [Vote::Pending; SERVERS];
            let mut arrived = 0;
            for (index, (vote, server)) in votes.iter_mut().zip(&self.servers).enumerate() {
                if seen & 1 << index != 0 && server.lines[me].acquire == Request::Done {
                    *vote = Vote::Granted(server.lines[me].count.into());
                    arrived |= 1 << index;
                }
            }
            if arrived != seen {
                continue;
            }
            match verdict(&votes) {
                Verdict::Granted(token) => self.hold(world, me, token, next)?,
                Verdict::WriteBack(token) if world.rules == Rules::NoWriteBack => self.hold(world, me, token, next)?,
                Verdict::WriteBack(token) => {
                    let mut state = *self;
                    state.attempts[me].phase = Phase::Writing(small(token));
                    let asked = holders(&votes, token);
                    for ((server, vote), asked) in state.servers.iter_mut().zip(votes).zip(asked) {
                        server.lines[me].counted = vote != Vote::Pending;
                        if asked == Ballot::Pending {
                            server.lines[me].write_back = Request::OnItsWay;
                        }
                    }
                    next.push(state);
                }
                Verdict::Impossible | Verdict::Undecided => {}
            }
        }
        Ok(())
    }

    /// Lets the attempt check whether a majority holds its token.
    fn confirm(&self, world: World, me: usize, token: u8, next: &mut Vec<Self>) -> Result<(), Violation> {
        let vote = |server: &Server| match server.lines[me] {
            Exchange { counted: true, count, .. } => Vote::Granted(count.into()),
            _ => Vote::Lost,
        };
        let mut ballots = holders(&self.servers.each_ref().map(vote), token.into());
        for (ballot, server) in ballots.iter_mut().zip(&self.servers) {
            if server.lines[me].write_back == Request::Done {
                *ballot = Ballot::Yes;
            }
        }
        if outcome(&ballots) == Outcome::Yes { self.hold(world, me, token.into(), next) } else { Ok(()) }
    }

    /// Grants the attempt, unless its lease has expired.
    fn hold(&self, world: World, me: usize, token: u64, next: &mut Vec<Self>) -> Result<(), Violation> {
        let mut state = *self;
        let other = &self.attempts[1 - me];
        let mine = &mut state.attempts[me];
        if world.rules == Rules::CountedFromTheAnswer {
            mine.sent = self.now;
        }
        if world.timed && self.now >= mine.sent + TTL {
            return Ok(());
        }
        let token = small(token);
        mine.phase = Phase::Held(token);
        if other.token() == Some(token) {
            return Err(Violation::SameToken);
        }
        if mine.after.is_some_and(|earlier| earlier >= token) {
            return Err(Violation::SmallerToken);
        }
        if world.timed && state.attempts.iter().all(|attempt| state.holds(*attempt)) {
            return Err(Violation::TwoHolders);
        }
        next.push(state);
        Ok(())
    }

    fn holds(&self, attempt: Attempt) -> bool {
        attempt.token().is_some() && self.now < attempt.sent + TTL
    }

    /// Lets a holder renew its lease once; used only with a clock.
    fn renew(&self, me: usize, next: &mut Vec<Self>) -> Result<(), Violation> {
        let mine = self.attempts[me];
        if !self.holds(mine) {
            return Ok(());
        }
        let mut state = *self;
        let Some(renewed) = mine.renewed else {
            state.attempts[me].renewed = Some(self.now);
            for server in &mut state.servers {
                server.lines[me].renew = Request::OnItsWay;
            }
            next.push(state);
            return Ok(());
        };
        let done = |server: &Server| server.lines[me].renew == Request::Done;
        let ballot = |server: &Server| if done(server) { Ballot::Yes } else { Ballot::Pending };
        if renewed > mine.sent && outcome(&self.servers.each_ref().map(ballot)) == Outcome::Yes {
            state.attempts[me].sent = renewed;
            if state.attempts.iter().all(|attempt| state.holds(*attempt)) {
                return Err(Violation::TwoHolders);
            }
            next.push(state);
        }
        Ok(())
    }

    /// Lets a server execute the requests of an attempt.
    fn serve(&self, world: World, me: usize, index: usize, next: &mut Vec<Self>) {
        let (attempt, server) = (&self.attempts[me], &self.servers[index]);
        let (line, id) = (&server.lines[me], u8::from(me == 1));
        let ours = server.holder == Some(id);
        let free = server.holder.is_none() || !world.timed;
        let mut with = |change: &dyn Fn(&mut Server)| {
            let mut state = *self;
            change(&mut state.servers[index]);
            next.push(state);
        };
        let expires = if world.timed { self.now + TTL } else { 0 };
        if line.acquire == Request::OnItsWay {
            let grant = |server: &mut Server, count: u8| {
                (server.holder, server.expires, server.count) = (Some(id), expires, count);
                (server.lines[me].acquire, server.lines[me].count) = (Request::Done, count);
            };
            if free {
                with(&|server| grant(server, (server.count + 1).max(world.proposals[me])));
            }
            if ours {
                with(&|server| grant(server, server.count));
            }
            // A server that never granted the attempt joins it.
            if let Phase::Held(token) = attempt.phase
                && free
                && (!world.timed || self.holds(*attempt))
            {
                with(&|server| grant(server, server.count.max(token)));
            }
        }
        if let (Request::OnItsWay, Phase::Writing(token) | Phase::Held(token)) = (line.write_back, attempt.phase)
            && (ours || world.rules == Rules::WriteBackAnywhere)
        {
            with(&|server| {
                server.count = server.count.max(token);
                server.lines[me].write_back = Request::Done;
            });
        }
        if line.renew == Request::OnItsWay && ours {
            with(&|server| {
                server.expires = expires;
                server.lines[me].renew = Request::Done;
            });
        }
        if line.acquire == Request::Done && attempt.may_repeat && attempt.phase == Phase::Asking {
            let mut state = *self;
            state.attempts[me].may_repeat = false;
            let line = &mut state.servers[index].lines[me];
            (line.acquire, line.count) = (Request::OnItsWay, 0);
            next.push(state);
        }
    }
}

fn small(number: u64) -> u8 {
    u8::try_from(number).expect("the counts begin small, and two attempts raise them a little")
}
