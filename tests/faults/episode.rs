/*!
One episode: a holder, waiters, a fault, and the checks of what came of it.

A fault is a function of an [`Episode`]: it starts the actors, breaks something, repairs it, and says how each actor may
end. The invariants are checked by [`Episode::finish`].
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

/// The key that every contender wants.
pub const KEY: &str = "job";

/// No dlock and no guard may ever have more resident memory.
const MAX_RSS_KIB: u64 = 32 * 1024;

/// What must hold in every episode, whatever the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Invariant {
    /// No two commands overlap.
    NoOverlap,
    /// Tokens strictly increase from holder to holder.
    TokensRise,
    /// A store that refuses smaller tokens accepts no late write.
    NoLateWrite,
    /// The command is dead before its lease can expire at the server.
    DeadInTime,
    /// Nothing is left behind: no lock, no queue entry, no process, no file.
    NothingLeft,
    /// Somebody holds the lock soon after it can be held again.
    GoesOn,
    /// Exit code and last line on stderr are right.
    EndsRight,
    /// dlock and its guard leak neither memory nor descriptors.
    NoLeak,
    /// Not one of dlock's: the episode itself could not be carried out.
    Harness,
}

impl Invariant {
    /// Whether nothing but a slow machine could break it.
    fn is_of_time(self) -> bool {
        matches!(self, Self::NoOverlap | Self::DeadInTime) || self.is_of_pace()
    }

    /// Whether nothing but ordinary programs waiting for their turn could break it. That does not excuse a command that
    /// dies too late.
    fn is_of_pace(self) -> bool {
        matches!(self, Self::GoesOn | Self::EndsRight | Self::Harness)
    }
}

/// How a dlock may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the command's own exit code.
    Own(i32),
    /// With 79, and a last line that says what was lost.
    Lost,
    /// With 70, because the guard was killed.
    GuardKilled,
    /// By this signal.
    By(Signal),
    /// With 69: the servers are out of reach.
    Unavailable,
    /// With 75: somebody else holds the lock.
    Busy,
    /// With 73: no lock file can be had.
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

/// The result of an episode.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The invariants that were violated, each with its symptom.
    pub violations: Vec<(Invariant, String)>,
    /// From the death of the command's last process to the end of its lease at the servers, where that is known.
    pub margin: Option<Duration>,
    /// How many holders lost a lock that they could have kept.
    pub false_losses: u64,
    /// From the end of the fault until somebody held the lock again.
    pub recovery: Option<Duration>,
    /// How often the lock was held.
    pub hand_overs: u64,
    /// How many things were broken.
    pub faults: u64,
    /// How many commands began while another one was still running.
    pub overlaps: u64,
    /// Writes with an old token that the store refused.
    pub late_refused: u64,
    /// The largest resident memory of a dlock or a guard, in KiB.
    pub rss_kib: u64,
    /// The longest time for which the machine itself stood still.
    pub stall: Duration,
    /// The longest time for which ordinary programs waited for their turn.
    pub busy: Duration,
    /// Why the episode could not be carried out, for a reason that is not dlock's.
    pub hindered: Option<&'static str>,
}

impl Report {
    /// Why a failed episode says nothing about dlock, if so: the machine stood still and something was late, or the
    /// episode could not be carried out.
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

/// A dlock that holds the lock, and its command.
pub struct Holder {
    pub running: Running,
    /// Its `DLOCK_OWNER`, if its command was seen to begin.
    owner: Option<String>,
    lifeline: Lifeline,
    gate: Option<Gate>,
    tree: Option<(Tree, Members)>,
}

impl Holder {
    /// Waits for its command's last process to end, and returns the time of that.
    #[track_caller]
    pub fn died_at(&self) -> Duration {
        match &self.tree {
            Some((tree, _)) => tree.died_at(),
            None => self.lifeline.closed_at(),
        }
    }

    /// Whether any process of its command is left.
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

    /// The processes of its command, where they are known individually.
    pub fn members(&self) -> Vec<i32> {
        self.tree.as_ref().map(|(_, members)| members.all().to_vec()).unwrap_or_default()
    }
}

/// The `DLOCK_OWNER` in the environment of a command.
fn owner_of(command: i32) -> Option<String> {
    process::environ(command).remove("DLOCK_OWNER")
}

/// One episode in progress; see the [module](self).
pub struct Episode<'w> {
    pub world: &'w World,
    pub rng: fastrand::Rng,
    /// The lease that every contender asks for.
    pub ttl: Duration,
    pub witness: Witness,
    pub store: Store,
    pub report: Report,
    waiters: Vec<Running>,
    /// Whether those that come after the first holder may lose the lock too.
    pub waiters_may_lose: bool,
    monitors: Vec<Monitor<'w>>,
    holders: usize,
    /// The moment from which somebody else can hold the lock again, if there was one at which nobody could.
    healed: Option<Duration>,
    /// How soon somebody must hold it then, if not within the usual time.
    pub recovers_within: Option<Duration>,
    /// How often the servers had elected a leader by then.
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
    // Dropped last: everything that works in it goes first.
    pub scratch: Scratch,
}

impl<'w> Episode<'w> {
    /// Begins an episode on `world` with all choices made by `rng`. If the fault is in a `documented` window of the
    /// algorithm, overlaps are counted and are no violation.
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

    /// `dlock run` for the lock, with the options that every contender gets.
    pub fn dlock(&self, way: Way) -> Dlock {
        let url = if way == Way::Detour { self.world.detour() } else { self.world.url() };
        let ttl = format!("{}s", self.ttl.as_secs());
        let dlock = self.scratch.dlock().run(KEY).backend(url).args(["-t", &ttl]);
        if let Way::From(island) = way { self.world.islands().all()[island].bring(dlock) } else { dlock }
    }

    /// The argument vector of a command that tells the store that it begins and then does `work` (shell text) under the
    /// witness.
    pub fn section(&self, work: &str) -> Vec<std::ffi::OsString> {
        let script = format!("{}; exec \"$@\"", self.store.start());
        let mut command: Vec<std::ffi::OsString> = ["/bin/sh", "-c", &script, "section"].map(Into::into).into();
        command.extend(self.witness.command(work));
        command
    }

    /// Starts a holder whose command does everything it can to survive: see [`Tree`]. Returns once the whole tree runs.
    #[track_caller]
    pub fn hold_stubbornly(&mut self, way: Way, options: &[&str]) -> Holder {
        let dlock = self.dlock(way).args(options);
        self.hold_stubbornly_by(dlock)
    }

    /// Makes this `dlock` hold the lock with a command that does everything it can to survive: see [`Tree`]. Returns
    /// once the whole tree runs.
    #[track_caller]
    pub fn hold_stubbornly_by(&mut self, dlock: Dlock) -> Holder {
        let mut tree = Tree::new(&self.scratch);
        let (lifeline, _) = Lifeline::pair();
        let dlock = dlock.command(self.section(&tree.work()));
        // In a process group of its own, so that all of it can be frozen.
        let running = dlock.new_process_group().lifeline(tree.end()).spawn();
        self.holders += 1;
        self.expect_begun(&running, |episode| episode.store.starts().len() >= episode.holders);
        let members = tree.wait_grown();
        let owner = owner_of(members.command);
        Holder { running, owner, lifeline, gate: None, tree: Some((tree, members)) }
    }

    /// Starts a holder whose command writes to the store all the time until it is let go. Returns once it runs.
    #[track_caller]
    pub fn hold(&mut self, way: Way, options: &[&str]) -> Holder {
        let dlock = self.dlock(way).args(options);
        self.hold_by(dlock)
    }

    /// Makes this `dlock` hold the lock with a command that writes to the store until it is let go. Returns once it
    /// runs.
    #[track_caller]
    pub fn hold_by(&mut self, dlock: Dlock) -> Holder {
        let mut holder = self.begin_to_hold(dlock);
        // When its writer runs, all of it does.
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
        // Nothing of the command may be left when dlock ends.
        let work = format!("{write_on} & writer=$!; {}; kill $writer; wait $writer 2>/dev/null; {write}", gate.wait());
        let running = dlock.command(self.section(&work)).new_process_group().lifeline(end).spawn();
        Holder { running, owner: None, lifeline, gate: Some(gate), tree: None }
    }

    /// Starts a holder whose command is the one that `dlock` was given: a [`Self::section`] or something around one.
    /// Returns once that section has begun.
    #[track_caller]
    pub fn hold_as_told(&mut self, dlock: Dlock) -> Holder {
        let (lifeline, end) = Lifeline::pair();
        let running = dlock.lifeline(end).spawn();
        self.holders += 1;
        self.expect_begun(&running, |episode| episode.store.starts().len() >= episode.holders);
        let owner = owner_of(running.command_pid());
        Holder { running, owner, lifeline, gate: None, tree: None }
    }

    /// Waits until `running` has got this far. Panics if it does not.
    #[track_caller]
    pub fn expect_begun(&mut self, running: &Running, begun: impl Fn(&Self) -> bool) {
        let over = || if begun(self) { Some(true) } else { (!running.is_running()).then_some(false) };
        if eventually_within(CAP, over) != Some(true) {
            // Where a majority has to answer quickly, a contender on a busy machine can give up first.
            let gave_up = running.stderr_so_far().contains("did not answer within");
            if self.report.faults == 0 && self.world.column.is_redlock() && gave_up {
                self.report.hindered = Some("a majority did not answer in time before anything was broken");
            }
            panic!("it neither holds the lock nor waits for it:\n{running:?}");
        }
    }

    /// Starts `count` waiters that reach the servers directly and want the lock for a moment. Returns once all have
    /// said that they wait.
    #[track_caller]
    pub fn queue(&mut self, count: usize) {
        self.queue_by(&vec![Way::Straight; count]);
    }

    /// Starts one waiter by each of these ways that wants the lock for a moment. Returns once all have said that they
    /// wait.
    #[track_caller]
    pub fn queue_by(&mut self, ways: &[Way]) {
        let more: Vec<Running> =
            ways.iter().map(|&way| self.dlock(way).command(self.section(&self.store.write())).spawn()).collect();
        for waiter in &more {
            self.expect_begun(waiter, |_| waiter.stderr_so_far().contains("waiting for "));
        }
        self.waiters.extend(more);
    }

    /// Starts `count` contenders that reach the servers directly and may get the lock immediately. Returns before they
    /// have said or done anything.
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

    /// The usual scene: one holder as by [`Episode::hold`], some waiters, and a random time of up to a lease.
    #[track_caller]
    pub fn scene(&mut self, way: Way) -> Holder {
        let holder = self.hold(way, &[]);
        self.queue_and_linger(&holder);
        holder
    }

    /// The usual scene with a holder whose command does everything it can to survive, as by
    /// [`Episode::hold_stubbornly`].
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

    /// Adds a contender that must get its turn at the end.
    pub fn follow(&mut self, running: Running) {
        self.waiters.push(running);
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
        self.healed = Some(when);
        self.epoch = self.world.epoch();
    }

    /// Notes a violation of `invariant`.
    pub fn violation(&mut self, invariant: Invariant, what: impl Into<String>) {
        self.report.violations.push((invariant, what.into()));
    }

    /// Checks that `holder`, which cannot release its lock, dies before its lease can expire at the servers. Returns
    /// once it is dead.
    #[track_caller]
    pub fn dies_in_time(&mut self, holder: &Holder) -> Duration {
        let before = if self.monitors.is_empty() { self.world.holder(KEY) } else { None };
        self.dies_before(holder, before)
    }

    /// Checks that `holder`, which cannot release its lock and which the servers knew by this name if they know names,
    /// dies before its lease can expire at the servers. Returns once it is dead.
    #[track_caller]
    pub fn dies_before(&mut self, holder: &Holder, name: Option<String>) -> Duration {
        let died = holder.died_at();
        let end = match name {
            // The servers only tell whether the lease is over.
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
                // Servers that hear nothing of one another take long to elect a leader, which ends leases.
                let patience = Duration::from_secs(if self.world.is_on_islands() { 30 } else { 5 });
                let over = eventually_within(self.ttl + patience, over);
                if over.is_none() {
                    self.violation(Invariant::NothingLeft, "the lock of a killed contender does not expire");
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

    /// When the lease of `owner` can expire at the earliest, going by what had been carried out at `until`: when enough
    /// servers can have forgotten it for another contender to find a majority.
    fn lease_end(&self, owner: &str, until: Duration) -> Option<Duration> {
        let key = format!("dlock:{KEY}");
        // A server that never granted a lease can grant one now.
        let mut ends: Vec<Duration> =
            self.monitors.iter().map(|monitor| monitor.lease_end_of(owner, &key, until).unwrap_or_default()).collect();
        ends.sort_unstable();
        ends.get(self.world.majority().checked_sub(1)?).copied().filter(|end| !end.is_zero())
    }

    fn margin(&mut self, margin: Duration) {
        self.report.margin = Some(self.report.margin.map_or(margin, |smallest| smallest.min(margin)));
    }

    /// Waits for a dlock to end in one of these ways, and returns which.
    #[track_caller]
    pub fn ends(&mut self, running: Running, allowed: &[Ending]) -> Option<Ending> {
        let outcome = running.wait();
        self.ended(&outcome, allowed)
    }

    /// Checks that a dlock that has ended did so in one of these ways, and returns which.
    pub fn ended(&mut self, outcome: &Outcome, allowed: &[Ending]) -> Option<Ending> {
        let ending = allowed.iter().copied().find(|ending| ending.fits(outcome));
        if ending.is_none() {
            self.violation(Invariant::EndsRight, format!("none of {allowed:?}:\n{outcome:?}"));
        }
        ending
    }

    /// Counts a lost lock that the holder could have kept, if `ending` is a loss.
    pub fn could_have_kept(&mut self, ending: Option<Ending>) {
        self.report.false_losses += u64::from(ending == Some(Ending::Lost));
    }

    /// Checks the memory and the descriptors of `running` and its guard.
    pub fn look_at(&mut self, running: &Running) {
        self.look_at_pid(running.dlock_pid());
    }

    /// Checks the memory and the descriptors of a dlock that was started elsewhere, and of its guard.
    pub fn look_at_pid(&mut self, dlock: i32) {
        for pid in [dlock].into_iter().chain(process::children(dlock)) {
            let (Some(rss), Some(threads)) = (process::peak_rss_kib(pid), process::status(pid, "Threads")) else {
                continue;
            };
            self.report.rss_kib = self.report.rss_kib.max(rss);
            let fds = process::fds(pid).len();
            // A library may use one more for a moment, for name resolution.
            if rss > MAX_RSS_KIB || !matches!(threads.as_str(), "1" | "2") || fds > 16 + 3 * self.world.size() {
                let leak = format!("pid {pid}: {rss} KiB, {threads} threads, {fds} descriptors");
                self.violation(Invariant::NoLeak, leak);
            }
        }
    }

    /// Lets all waiters have their turn, and then checks everything but what [`Self::into_report`] checks.
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
            // A command that found another one running has said so itself.
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

    /// The result, also of an episode that was given up half-way.
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
            // The cluster fell apart: the servers elected another leader after everything was considered repaired.
            return;
        }
        self.report.recovery = Some(recovery);
        let usual = self.ttl + Duration::from_secs(2) + self.world.column.granularity();
        if recovery > self.recovers_within.unwrap_or(usual) {
            self.violation(Invariant::GoesOn, format!("nobody held the lock for {recovery:?}"));
        }
    }

    /// Checks that nothing is left of the locks `keys` and of their contenders.
    pub fn check_litter(&mut self, keys: &[&str]) {
        // What a killed contender held lasts until its lease expires.
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
