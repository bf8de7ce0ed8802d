/*!
One episode: somebody holds a lock, others wait for it, something goes wrong, and what came of it is checked.

A fault is a function of an [`Episode`]: it puts the actors on the scene, breaks something, mends it, and says how each
actor may end. What must hold always (the invariants) is checked by [`Episode::finish`].
*/

use std::time::Duration;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::stall;
use super::store::Store;
use super::world::{Column, World};
use crate::support::dlock::{Dlock, Outcome, Running};
use crate::support::process;
use crate::support::rendezvous::{CAP, Gate, Lifeline, boottime, eventually_within, last_until};
use crate::support::scratch::Scratch;
use crate::support::servers::Monitor;
use crate::support::tree::{Members, Tree};
use crate::support::witness::{OVERLAP_CODE, Witness};

/// The lock that everybody wants.
pub const KEY: &str = "job";

/// No dlock and no guard may ever be larger.
const MAX_RSS_KIB: u64 = 32 * 1024;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Invariant {
    /// Two commands never overlap.
    NoOverlap,
    /// Tokens strictly rise.
    TokensRise,
    /// A store that refuses smaller tokens takes no late write.
    NoLateWrite,
    /// The command is dead before its lease can end at the server.
    DeadInTime,
    /// Nothing is left behind.
    NothingLeft,
    /// It goes on: somebody holds the lock soon after it can be held again.
    GoesOn,
    /// The exit code and the last line are the right ones.
    EndsRight,
    /// Nothing leaks.
    NoLeak,
    /// Not one of dlock's: the episode itself could not be carried out.
    Harness,
}

impl Invariant {
    /// Whether it can be broken by nothing but the time that everything takes.
    fn is_of_time(self) -> bool {
        matches!(self, Self::NoOverlap | Self::DeadInTime) || self.is_of_pace()
    }

    /// Whether it can be broken by nothing but ordinary programs' waiting for their turn: the command's death does not.
    fn is_of_pace(self) -> bool {
        matches!(self, Self::GoesOn | Self::EndsRight | Self::Harness)
    }
}

/// How a dlock may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the command's own code.
    Own(i32),
    /// 79, and the last line says what was lost.
    Lost,
    /// 70, because the guard was killed.
    GuardKilled,
    /// By this signal.
    By(Signal),
    /// 69: the servers are out of reach.
    Unavailable,
    /// 75: somebody else has it.
    Busy,
    /// 73: there is no lock file to be had.
    CannotCreate,
}

impl Ending {
    fn fits(self, outcome: &Outcome) -> bool {
        use std::os::unix::process::ExitStatusExt;
        let (code, stderr) = (outcome.status().code(), outcome.stderr());
        let ours = stderr.lines().all(|line| line.starts_with("dlock: "));
        let last = stderr.lines().next_back().unwrap_or_default();
        ours && match self {
            Self::Own(wanted) => code == Some(wanted) && !last.contains("lost job at "),
            Self::Lost => code == Some(79) && last.contains("lost job at "),
            Self::GuardKilled => code == Some(70) && last.contains("guard"),
            Self::By(signal) => outcome.status().signal() == Some(signal as i32),
            Self::Unavailable => code == Some(69) && last.contains("did not get job"),
            Self::Busy => code == Some(75) && last.contains("did not get job"),
            Self::CannotCreate => code == Some(73) && last.contains("could not use the lock "),
        }
    }
}

/// Which way leads to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing is in between.
    Straight,
    /// Through the proxies.
    Detour,
    /// From this island, to servers that are on islands too.
    From(usize),
}

/// For how long a fault goes on that has no end of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Seconds.
    Brief,
    /// Minutes.
    Full,
}

/// What came of an episode.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What did not hold, and how it showed.
    pub violations: Vec<(Invariant, String)>,
    /// From the death of the command's last process to the end of its lease at the servers, where that could be told.
    pub margin: Option<Duration>,
    /// How many lost a lock that they could have kept.
    pub false_losses: u64,
    /// From the end of the fault until somebody held the lock.
    pub recovery: Option<Duration>,
    /// How often the lock was had.
    pub hand_overs: u64,
    /// How many things were broken.
    pub faults: u64,
    /// How many commands began while another one still ran.
    pub overlaps: u64,
    /// Writes with an old token that the store refused.
    pub late_refused: u64,
    /// The largest dlock or guard seen, in KiB.
    pub rss_kib: u64,
    /// For how long the machine itself stood still at most.
    pub stall: Duration,
    /// For how long ordinary programs waited for their turn at most.
    pub busy: Duration,
    /// Why the episode could not be carried out, where dlock has nothing to do with that.
    pub hindered: Option<&'static str>,
}

impl Report {
    /// Why it says nothing about dlock, if it does not, although something did not hold: that was not in time while the
    /// machine itself stood still, or is only that the episode could not be carried out.
    pub fn void(&self) -> Option<&'static str> {
        let all = |fits: fn(Invariant) -> bool| self.violations.iter().all(|(what, _)| fits(*what));
        if self.violations.is_empty() {
            None
        } else if self.stall > stall::LIMIT && all(Invariant::is_of_time) {
            Some("the machine stood still meanwhile")
        } else if self.busy > stall::BUSY && all(Invariant::is_of_pace) {
            Some("the machine was too busy meanwhile")
        } else {
            self.hindered.filter(|_| all(|what| what == Invariant::Harness))
        }
    }
}

/// One who has the lock.
pub struct Holder {
    pub running: Running,
    /// Its `DLOCK_OWNER`, where its command was seen to begin.
    owner: Option<String>,
    lifeline: Lifeline,
    gate: Option<Gate>,
    tree: Option<(Tree, Members)>,
}

impl Holder {
    /// Waits for the end of its last process: when that was.
    #[track_caller]
    pub fn died_at(&self) -> Duration {
        match &self.tree {
            Some((tree, _)) => tree.died_at(),
            None => self.lifeline.closed_at(),
        }
    }

    /// Whether a process of its command is left.
    pub fn is_alive(&self) -> bool {
        match &self.tree {
            Some((tree, _)) => tree.is_alive(),
            None => self.lifeline.is_open(),
        }
    }

    /// Lets its command end.
    pub fn let_go(&self) {
        match (&self.gate, &self.tree) {
            (Some(gate), _) => gate.open(),
            (None, Some((tree, _))) => tree.leave(),
            (None, None) => {}
        }
    }

    /// The processes of its command, where they are known one by one.
    pub fn members(&self) -> Vec<i32> {
        self.tree.as_ref().map(|(_, members)| members.all().to_vec()).unwrap_or_default()
    }
}

/// The `DLOCK_OWNER` that a command has.
fn owner_of(command: i32) -> Option<String> {
    process::environ(command).remove("DLOCK_OWNER")
}

/// See the [module](self).
pub struct Episode<'w> {
    pub world: &'w World,
    pub rng: fastrand::Rng,
    /// The lease that everybody asks for.
    pub ttl: Duration,
    pub witness: Witness,
    pub store: Store,
    pub report: Report,
    waiters: Vec<Running>,
    /// Whether those who come after the first holder may lose the lock too.
    pub waiters_may_lose: bool,
    monitors: Vec<Monitor<'w>>,
    holders: usize,
    /// Since when the lock can be held again by somebody else, if it cannot always.
    healed: Option<Duration>,
    /// How soon somebody must, if not within the usual time.
    pub recovers_within: Option<Duration>,
    /// How often the servers had chosen a leader by then.
    epoch: Option<u64>,
    /// Whether overlaps are expected, and only counted.
    documented: bool,
    /// Since when they are not any more: all that was broken is mended, and those who held the lock meanwhile have ended.
    closed: Option<Duration>,
    /// For how long what can go on for minutes does.
    pub length: Length,
    /// Somebody was cut short while he made or removed directories at the servers: empty ones may be left.
    pub cut_short: bool,
    // Last: before it goes all that works in it.
    pub scratch: Scratch,
}

impl<'w> Episode<'w> {
    /// An episode on `world`, whose choices are all made by `rng`. Where the fault is in a `documented` window of the
    /// algorithm, overlaps are counted and no violation.
    pub fn new(world: &'w World, mut rng: fastrand::Rng, documented: bool) -> Self {
        let scratch = Scratch::new();
        let ttl = Duration::from_secs(if world.column == Column::ZooKeeper { rng.u64(4..=5) } else { rng.u64(2..=3) });
        Self {
            world,
            rng,
            ttl,
            witness: Witness::in_dir(scratch.root()),
            store: Store::new(&scratch),
            report: Report::default(),
            waiters: Vec::new(),
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
            scratch,
        }
    }

    /// A random time up to `most`.
    pub fn some_time(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.f64())
    }

    /// Lets a random time go by, up to `most`: the moment of a fault must not depend on the rhythm of renewals.
    pub fn linger(&mut self, most: Duration) {
        let time = self.some_time(most);
        last_until(boottime() + time);
    }

    /// One time out of two.
    pub fn coin(&mut self) -> bool {
        self.rng.bool()
    }

    /// `dlock run` for the lock, with what everybody gives it.
    pub fn dlock(&self, way: Way) -> Dlock {
        let url = if way == Way::Detour { self.world.detour() } else { self.world.url() };
        let ttl = format!("{}s", self.ttl.as_secs());
        let dlock = self.scratch.dlock().run(KEY).backend(url).args(["-t", &ttl]);
        if let Way::From(island) = way { self.world.islands().all()[island].bring(dlock) } else { dlock }
    }

    /// A command line that does `work` (shell text) under the witness, after it has told the store that it begins.
    pub fn section(&self, work: &str) -> Vec<std::ffi::OsString> {
        let script = format!("{}; exec \"$@\"", self.store.start());
        let mut command: Vec<std::ffi::OsString> = ["/bin/sh", "-c", &script, "section"].map(Into::into).into();
        command.extend(self.witness.command(work));
        command
    }

    /// One whose command does all it can to survive: see [`Tree`]. Returns when all of it runs.
    #[track_caller]
    pub fn hold_stubbornly(&mut self, way: Way, options: &[&str]) -> Holder {
        let dlock = self.dlock(way).args(options);
        self.hold_stubbornly_by(dlock)
    }

    /// Has this `dlock` hold the lock with a command that does all it can to survive: see [`Tree`]. Returns when all of it
    /// runs.
    #[track_caller]
    pub fn hold_stubbornly_by(&mut self, dlock: Dlock) -> Holder {
        let mut tree = Tree::new(&self.scratch);
        let (lifeline, _) = Lifeline::pair();
        let dlock = dlock.command(self.section(&tree.work()));
        // A group of its own, so that all of it can be frozen.
        let running = dlock.new_process_group().lifeline(tree.end()).spawn();
        self.holders += 1;
        self.expect_begun(&running, |episode| episode.store.starts().len() >= episode.holders);
        let members = tree.wait_grown();
        let owner = owner_of(members.command);
        Holder { running, owner, lifeline, gate: None, tree: Some((tree, members)) }
    }

    /// One whose command runs until it is let go, and writes to the store all the time. Returns when it runs.
    #[track_caller]
    pub fn hold(&mut self, way: Way, options: &[&str]) -> Holder {
        let dlock = self.dlock(way).args(options);
        self.hold_by(dlock)
    }

    /// Has this `dlock` hold the lock with a command that writes to the store until it is let go. Returns when it runs.
    #[track_caller]
    pub fn hold_by(&mut self, dlock: Dlock) -> Holder {
        let mut holder = self.begin_to_hold(dlock);
        // All of it runs when its writer does.
        self.expect_begun(&holder.running, |episode| episode.store.has_written(episode.holders));
        holder.owner = owner_of(holder.running.command_pid());
        holder
    }

    /// Starts this `dlock` with a command that writes to the store until it is let go. Returns at once.
    #[track_caller]
    pub fn begin_to_hold(&mut self, dlock: Dlock) -> Holder {
        self.holders += 1;
        let gate = Gate::new(self.scratch.path(format!("gate-{}", self.holders)));
        let (lifeline, end) = Lifeline::pair();
        let (write_on, write) = (self.store.write_on(), self.store.write());
        // Nothing of it may be left when it ends.
        let work = format!("{write_on} & writer=$!; {}; kill $writer; wait $writer 2>/dev/null; {write}", gate.wait());
        let running = dlock.command(self.section(&work)).new_process_group().lifeline(end).spawn();
        Holder { running, owner: None, lifeline, gate: Some(gate), tree: None }
    }

    /// One whose command is what `dlock` was given, a [`Self::section`] or something around one. Returns when that has begun.
    #[track_caller]
    pub fn hold_as_told(&mut self, dlock: Dlock) -> Holder {
        let (lifeline, end) = Lifeline::pair();
        let running = dlock.lifeline(end).spawn();
        self.holders += 1;
        self.expect_begun(&running, |episode| episode.store.starts().len() >= episode.holders);
        let owner = owner_of(running.command_pid());
        Holder { running, owner, lifeline, gate: None, tree: None }
    }

    /// Waits until `running` has come so far. Panics if it does not.
    #[track_caller]
    pub fn expect_begun(&mut self, running: &Running, begun: impl Fn(&Self) -> bool) {
        let over = || if begun(self) { Some(true) } else { (!running.is_running()).then_some(false) };
        if eventually_within(CAP, over) != Some(true) {
            // Where a majority has to answer soon, one that comes to a busy machine can give up before.
            let gave_up = running.stderr_so_far().contains("did not answer within");
            if self.report.faults == 0 && self.world.column.is_redlock() && gave_up {
                self.report.hindered = Some("a majority did not answer in time before anything was broken");
            }
            panic!("it neither holds the lock nor waits for it:\n{running:?}");
        }
    }

    /// So many others, who reach the servers straight, wait for the lock to have it for a moment. Returns when they have
    /// said so.
    #[track_caller]
    pub fn queue(&mut self, count: usize) {
        self.queue_by(&vec![Way::Straight; count]);
    }

    /// One other by each of these ways waits for the lock to have it for a moment. Returns when they have said so.
    #[track_caller]
    pub fn queue_by(&mut self, ways: &[Way]) {
        let more: Vec<Running> =
            ways.iter().map(|&way| self.dlock(way).command(self.section(&self.store.write())).spawn()).collect();
        for waiter in &more {
            self.expect_begun(waiter, |_| waiter.stderr_so_far().contains("waiting for "));
        }
        self.waiters.extend(more);
    }

    /// So many others, who reach the servers straight, come for the lock, and may get it at once. Returns before they have
    /// said or done anything.
    pub fn come(&mut self, count: usize) {
        for _ in 0..count {
            let newcomer = self.dlock(Way::Straight).command(self.section(&self.store.write())).spawn();
            self.waiters.push(newcomer);
        }
    }

    /// One, two or three.
    #[track_caller]
    pub fn queue_some(&mut self) {
        let count = self.rng.usize(1..=3);
        self.queue(count);
    }

    /// The usual scene: one holds the lock as by [`Episode::hold`], some wait for it, and up to a lease's time has gone by.
    #[track_caller]
    pub fn scene(&mut self, way: Way) -> Holder {
        let holder = self.hold(way, &[]);
        self.queue_and_linger(&holder);
        holder
    }

    /// The same with a command that does all it can to survive: see [`Episode::hold_stubbornly`].
    #[track_caller]
    pub fn stubborn_scene(&mut self, way: Way) -> Holder {
        let holder = self.hold_stubbornly(way, &[]);
        self.queue_and_linger(&holder);
        holder
    }

    #[track_caller]
    fn queue_and_linger(&mut self, holder: &Holder) {
        self.queue_some();
        self.linger(self.ttl);
        self.look_at(&holder.running);
    }

    /// Another one of those who have their turn at the end.
    pub fn follow(&mut self, running: Running) {
        self.waiters.push(running);
    }

    /// Waits until the servers serve, which are all at work again.
    #[track_caller]
    pub fn wait_serving(&mut self) {
        let serving = self.world.wait_serving();
        self.come_back(serving);
    }

    /// The same, and all of them belong together again.
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

    /// Something is broken now.
    pub fn broken(&mut self) -> Duration {
        self.report.faults += 1;
        boottime()
    }

    /// Everything is mended: from now on somebody can hold the lock.
    pub fn mended(&mut self) {
        self.mended_at(boottime());
    }

    /// The same, and it has been so since `when`.
    pub fn mended_at(&mut self, when: Duration) {
        self.healed = Some(when);
        self.epoch = self.world.epoch();
    }

    /// Something does not hold.
    pub fn violation(&mut self, invariant: Invariant, what: impl Into<String>) {
        self.report.violations.push((invariant, what.into()));
    }

    /// Checks that `holder`, which cannot give its lock back, dies before its lease can end at the servers. Returns when it
    /// is dead.
    #[track_caller]
    pub fn dies_in_time(&mut self, holder: &Holder) -> Duration {
        let before = if self.monitors.is_empty() { self.world.holder(KEY) } else { None };
        self.dies_before(holder, before)
    }

    /// The same of one who was known to the servers by this name, where they have names.
    #[track_caller]
    pub fn dies_before(&mut self, holder: &Holder, name: Option<String>) -> Duration {
        let died = holder.died_at();
        let end = match name {
            // The servers tell only whether it is over.
            Some(name) => {
                let (mut last, world) = (None, self.world);
                let over = || {
                    let now = boottime();
                    if world.has(KEY, &name) {
                        last = Some(now);
                        None
                    } else {
                        Some(())
                    }
                };
                // Servers that hear only one another's silence take long to choose a leader, who ends leases.
                let patience = Duration::from_secs(if self.world.is_on_islands() { 30 } else { 5 });
                let over = eventually_within(self.ttl + patience, over);
                if over.is_none() {
                    self.violation(Invariant::NothingLeft, "the lock of somebody who is dead does not end");
                }
                last
            }
            None => holder.owner.as_ref().and_then(|owner| self.lease_end(owner, died)),
        };
        match end {
            Some(end) if end > died => self.margin(end.saturating_sub(died)),
            Some(end) => {
                self.violation(
                    Invariant::DeadInTime,
                    format!("the command lived {:?} after the lease's end", died - end),
                );
            }
            None if self.world.column.has_leases() => {
                self.violation(Invariant::DeadInTime, "when the command died, the lock was gone");
            }
            None => {}
        }
        died
    }

    /// When the lease of `owner` can end at the earliest, by what had been carried out at `until`: when so many servers can
    /// have forgotten it that somebody else finds a majority.
    fn lease_end(&self, owner: &str, until: Duration) -> Option<Duration> {
        let key = format!("dlock:{KEY}");
        // A server that never gave a lease can give one now.
        let mut ends: Vec<Duration> =
            self.monitors.iter().map(|monitor| monitor.lease_end_of(owner, &key, until).unwrap_or_default()).collect();
        ends.sort_unstable();
        ends.get(self.world.majority().checked_sub(1)?).copied().filter(|end| !end.is_zero())
    }

    fn margin(&mut self, margin: Duration) {
        self.report.margin = Some(self.report.margin.map_or(margin, |smallest| smallest.min(margin)));
    }

    /// Waits for the end of a dlock, which must be one of these; which one it was.
    #[track_caller]
    pub fn ends(&mut self, running: Running, allowed: &[Ending]) -> Option<Ending> {
        let outcome = running.wait();
        self.ended(&outcome, allowed)
    }

    /// The same of one that has ended.
    pub fn ended(&mut self, outcome: &Outcome, allowed: &[Ending]) -> Option<Ending> {
        let ending = allowed.iter().copied().find(|ending| ending.fits(outcome));
        if ending.is_none() {
            self.violation(Invariant::EndsRight, format!("none of {allowed:?}:\n{outcome:?}"));
        }
        ending
    }

    /// The holder lost its lock although it could have kept it, if it is lost.
    pub fn could_have_kept(&mut self, ending: Option<Ending>) {
        self.report.false_losses += u64::from(ending == Some(Ending::Lost));
    }

    /// Checks what `running` and its guard use.
    pub fn look_at(&mut self, running: &Running) {
        self.look_at_pid(running.dlock_pid());
    }

    /// The same of a dlock that somebody else started.
    pub fn look_at_pid(&mut self, dlock: i32) {
        for pid in [dlock].into_iter().chain(process::children(dlock)) {
            let (Some(rss), Some(threads)) = (process::peak_rss_kib(pid), process::status(pid, "Threads")) else {
                continue;
            };
            self.report.rss_kib = self.report.rss_kib.max(rss);
            let fds = process::fds(pid).len();
            // A library may have one more for a moment, to look names up.
            if rss > MAX_RSS_KIB || !matches!(threads.as_str(), "1" | "2") || fds > 16 + 3 * self.world.size() {
                let leak = format!("pid {pid}: {rss} KiB, {threads} threads, {fds} descriptors");
                self.violation(Invariant::NoLeak, leak);
            }
        }
    }

    /// Everybody who waits has their turn, and then everything is checked but what [`Self::into_report`] checks.
    pub fn finish(&mut self) {
        self.closed = Some(boottime());
        let healed = self.healed.unwrap_or_else(boottime);
        if self.waiters.is_empty() {
            let next = self.dlock(Way::Straight).command(self.section(&self.store.write())).spawn();
            self.waiters.push(next);
        }
        for waiter in std::mem::take(&mut self.waiters) {
            let overlap = Ending::Own(OVERLAP_CODE);
            let allowed: &[Ending] = match (self.documented, self.waiters_may_lose) {
                (false, _) => &[Ending::Own(0)],
                (true, false) => &[Ending::Own(0), overlap],
                (true, true) => &[Ending::Own(0), overlap, Ending::Lost],
            };
            // One that found another command has said so itself.
            let outcome = waiter.wait();
            if outcome.status().code() == Some(OVERLAP_CODE) && self.documented {
                let _ = outcome.stderr();
            } else {
                self.ended(&outcome, allowed);
            }
        }
        self.check_recovery(healed);
        self.check_litter(&[KEY]);
    }

    /// What came of it, also when it was given up half-way.
    pub fn into_report(mut self) -> Report {
        self.check_sections();
        self.report
    }

    fn check_sections(&mut self) {
        let starts = self.store.starts();
        self.report.hand_overs += starts.len() as u64;
        self.report.overlaps = self.witness.overlaps().len() as u64;
        if !starts.is_sorted_by(|(_, one), (_, next)| one < next) {
            self.violation(Invariant::TokensRise, format!("the tokens do not rise: {starts:?}"));
        }
        let verdict = if self.documented { self.witness.verdict_but_overlaps() } else { self.witness.verdict() };
        if let Err(wrong) = verdict {
            self.violation(Invariant::NoOverlap, format!("{wrong}\n{}", self.witness.log()));
        }
        if let Some(late) = self.witness.overlaps().into_iter().find(|&at| self.closed.is_some_and(|end| at > end)) {
            let what = format!("an overlap at {late:?}, when the window was closed\n{}", self.witness.log());
            self.violation(Invariant::NoOverlap, what);
        }
        match self.store.writes() {
            Ok(writes) => {
                self.report.late_refused = writes.late_refused;
                if writes.late_taken > 0 {
                    self.violation(Invariant::NoLateWrite, format!("{} late writes were taken", writes.late_taken));
                }
            }
            Err(wrong) => self.violation(Invariant::TokensRise, wrong),
        }
    }

    fn check_recovery(&mut self, healed: Duration) {
        let Some((at, token)) = self.store.starts().into_iter().find(|(at, _)| *at >= healed) else { return };
        let recovery = at.saturating_sub(healed);
        if self.epoch.is_some_and(|epoch| epoch != token >> 32) {
            // The servers did not stay together: they have chosen another leader since they were taken for mended.
            return;
        }
        self.report.recovery = Some(recovery);
        let usual = self.ttl + Duration::from_secs(2) + self.world.column.granularity();
        if recovery > self.recovers_within.unwrap_or(usual) {
            self.violation(Invariant::GoesOn, format!("nobody held the lock for {recovery:?}"));
        }
    }

    /// Checks that nothing is left of locks, all of which were of `keys`, and of those who had them.
    pub fn check_litter(&mut self, keys: &[&str]) {
        // What somebody who was killed had lasts as long as his lease.
        let patience = self.ttl + Duration::from_secs(5);
        let mut litter = Vec::new();
        let clean = eventually_within(patience, || {
            if self.cut_short {
                for key in keys {
                    self.world.remove_directories(key);
                }
            }
            litter = self.world.litter(keys);
            litter.is_empty().then_some(())
        });
        if clean.is_none() {
            self.violation(Invariant::NothingLeft, format!("left at the servers: {litter:?}"));
        }
        let scratch = &self.scratch;
        if eventually_within(Duration::from_secs(5), || scratch.processes().is_empty().then_some(())).is_none() {
            let left: Vec<_> = scratch.processes().into_iter().map(process::cmdline).collect();
            self.violation(Invariant::NothingLeft, format!("processes that are left: {left:?}"));
        }
    }
}
