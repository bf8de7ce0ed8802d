//! The actors of an episode: holders, waiters, and others who come for the lock.

use std::time::Duration;

use crate::held::Held;
use crate::support::dlock::{Dlock, Running};
use crate::support::process;
use crate::support::rendezvous::{CAP, Gate, Lifeline, eventually_within};
use crate::support::tree::{Members, Tree};

use super::{Episode, KEY, Way};

/// A dlock that holds the lock, and its command.
pub struct Holder {
    pub running: Running,
    /// Its `DLOCK_OWNER`, if its command was seen to begin.
    pub owner: Option<String>,
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

impl Episode<'_> {
    /// `dlock run` for the lock, with the options that every contender gets.
    pub fn dlock(&self, way: Way) -> Dlock {
        let straight = || self.backend.clone().unwrap_or_else(|| self.world.url());
        let url = if way == Way::Detour { self.world.detour() } else { straight() };
        let ttl = format!("{}s", self.ttl.as_secs());
        let dlock = self.scratch.dlock().run(KEY).backend(url).args(["-t", &ttl]);
        if let Way::From(island) = way { self.world.islands().all()[island].bring(dlock) } else { dlock }
    }

    /// The argument vector of a command that tells the store that it begins and then does `work` (shell text) under the
    /// witness.
    pub fn section(&self, work: &str) -> Vec<std::ffi::OsString> {
        let script = format!("{}; exec \"$@\"", self.store.start());
        let mut command: Vec<std::ffi::OsString> = ["/bin/sh", "-c", &script, "section"].map(Into::into).into();
        command.extend(self.witnessed(work));
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
        let dlock = self.held.wanted_by(dlock).command(self.section(&tree.work()));
        // In a process group of its own, so that all of it can be frozen.
        let running = dlock.new_process_group().lifeline(tree.end()).spawn();
        self.holders += 1;
        self.expect_begun(&running, |episode| episode.store.starts().len() >= episode.holders);
        let members = tree.wait_grown();
        let owner = owner_of(members.command);
        self.accompany();
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
        self.accompany();
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
        let dlock = self.held.wanted_by(dlock).command(self.section(&work));
        let running = dlock.new_process_group().lifeline(end).spawn();
        Holder { running, owner: None, lifeline, gate: Some(gate), tree: None }
    }

    /// Starts a holder whose command is the one that `dlock` was given: a [`Self::section`] or something around one.
    /// Returns once that section has begun.
    #[track_caller]
    pub fn hold_as_told(&mut self, dlock: Dlock) -> Holder {
        let (lifeline, end) = Lifeline::pair();
        let running = self.held.wanted_by(dlock).lifeline(end).spawn();
        self.holders += 1;
        self.expect_begun(&running, |episode| episode.store.starts().len() >= episode.holders);
        let owner = owner_of(running.command_pid());
        self.accompany();
        Holder { running, owner, lifeline, gate: None, tree: None }
    }

    /// Waits until `running` has got this far. Panics if it does not.
    #[track_caller]
    pub fn expect_begun(&mut self, running: &Running, begun: impl Fn(&Self) -> bool) {
        let over = || if begun(self) { Some(true) } else { (!running.is_running()).then_some(false) };
        if eventually_within(CAP, over) != Some(true) {
            // On a busy machine a contender can rightly give up on servers that have just been started.
            let said = running.stderr_so_far();
            let gave_up = ["not answer", "answers too slowly"].iter().any(|why| said.contains(why));
            if self.report.faults == 0 && self.world.column.has_leases() && gave_up {
                self.report.hindered = Some("the servers did not answer in time before anything was broken");
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
    /// wait. The first of them wants it alone, so that the others wait too, whatever they want.
    #[track_caller]
    pub fn queue_by(&mut self, ways: &[Way]) {
        let mut more: Vec<Running> = Vec::new();
        for (place, &way) in ways.iter().enumerate() {
            let is_first = self.waiters.is_empty() && place == 0;
            let dlock = if is_first { self.dlock(way) } else { self.contender(way) };
            more.push(dlock.command(self.section(&self.store.write())).spawn());
            if is_first && self.held != Held::Alone {
                let first = &more[0];
                self.expect_begun(first, |_| first.stderr_so_far().contains("waiting for "));
            }
        }
        for waiter in &more {
            self.expect_begun(waiter, |_| waiter.stderr_so_far().contains("waiting for "));
        }
        self.waiters.extend(more);
    }

    /// Starts `count` contenders that reach the servers directly and may get the lock immediately. Returns before they
    /// have said or done anything.
    pub fn come(&mut self, count: usize) {
        for _ in 0..count {
            let dlock = self.contender(Way::Straight);
            let newcomer = dlock.command(self.section(&self.store.write())).spawn();
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
}
