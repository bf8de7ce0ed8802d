/*!
The guard process itself: one loop over orders, signals and its own alarm.

Everything that it needs is allocated before the first order comes; from then on it allocates nothing, and waits for
nothing that can hang. However much input comes in, it does not hold up what is due.
*/

mod hastening;
mod stopping;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, pid_t};
use nix::errno::Errno;
use nix::sys::socket::UnixAddr;

use crate::clock::{Alarm, Instant};
use crate::supervise::command::Command;
use crate::supervise::forwards::{Forwards, Sent};
use crate::supervise::guard::child::Child;
use crate::supervise::guard::covers::Covers;
use crate::supervise::guard::group::Group;
use crate::supervise::guard::line::{GuardEnd, Locks, Received};
use crate::supervise::guard::throttled::Throttled;
use crate::supervise::priority::{PRIORITY, go_first, step_back};
use crate::supervise::protocol::{Notice, Order, Spawn, Unfit};
use crate::supervise::reaping::{Collected, become_subreaper, collect};
use crate::supervise::signals::Signals;
use crate::supervise::stop::{Ladder, Step};
use crate::supervise::surroundings;
use crate::supervise::sweep::Sweep;
use crate::supervise::tokens::MOST_LOCKS;

/// The guard's name in process lists.
const NAME: &std::ffi::CStr = c"lockguard";
/// Pause before something that is not ready is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The number of descriptors that can be polled: those of the guard, and two for the covered runs.
const WAITED_FOR: usize = 8;

/// The state of the guard, allocated before the first order comes.
pub(super) struct Watch {
    command: Command,
    line: GuardEnd,
    group: Group,
    alarm: Alarm,
    sweep: Sweep,
    covers: Covers,
    farewell: Box<dyn Fn()>,
    dlock: pid_t,
    child: Option<Child>,
    ladder: Ladder,
    throttled: Throttled,
    forwards: Forwards,
    kill_again: Option<Instant>,
    unkillable: Option<pid_t>,
    dlock_suspended: bool,
    /// `true` if there are more ended children to reap at once.
    more: bool,
    /// The guard's exit code, once nothing is left to do but to deliver its notices.
    leaving: Option<c_int>,
}

impl Watch {
    /// Becomes the guard; does not return.
    pub(super) fn begin(
        command: Command,
        socket: OwnedFd,
        mut sweep: Sweep,
        address: &UnixAddr,
        farewell: Box<dyn Fn()>,
    ) -> ! {
        surroundings::rename_process(NAME);
        let mut line = GuardEnd::new(socket);
        let unfit = if become_subreaper().is_err() { Some(Unfit::Subreaper) } else { sweep.unfit() };
        let blocked = Signals::block_faults();
        let (group, alarm) = match (Group::new(), Alarm::new(), blocked, unfit) {
            (Ok(group), Ok(alarm), Ok(()), None) => (group, alarm),
            (_, _, _, unfit) => {
                line.tell(Notice::Unfit(unfit.unwrap_or(Unfit::Descriptors) as u64));
                exit(1);
            }
        };
        line.tell(Notice::Ready);
        let mut watch = Self {
            command,
            line,
            group,
            alarm,
            sweep,
            covers: Covers::listen(address),
            farewell,
            // SAFETY: getppid cannot fail.
            dlock: unsafe { libc::getppid() },
            child: None,
            ladder: Ladder::default(),
            throttled: Throttled::new(),
            forwards: Forwards::default(),
            kill_again: None,
            unkillable: None,
            dlock_suspended: false,
            more: false,
            leaving: None,
        };
        watch.run()
    }

    fn run(&mut self) -> ! {
        loop {
            self.hear_signals();
            self.hear_orders();
            self.reap();
            let next = self.act(Instant::now());
            self.line.flush();
            if let Some(code) = self.leaving.filter(|_| self.may_leave()) {
                exit(code);
            }
            self.alarm.set(next);
            self.wait();
        }
    }

    /// Returns `true` if dlock has received every notice, and no listener is left that another process would have to
    /// reap.
    fn may_leave(&self) -> bool {
        !self.line.is_waiting() && (self.line.is_gone() || self.group.is_closed())
    }

    /// Waits for an order, a signal, a covered run or the alarm.
    fn wait(&self) {
        let place_of =
            |descriptor: BorrowedFd<'_>, events| libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 };
        let answers = if self.line.is_waiting() { libc::POLLOUT } else { 0 };
        // A socket at end-of-file is always readable: leave it out.
        let line = (!self.line.is_gone()).then(|| place_of(self.line.as_fd(), libc::POLLIN | answers));
        let own = self.group.readable().into_iter().chain([self.alarm.as_fd()]).chain(self.covers.readable());
        let all = line.into_iter().chain(own.map(|descriptor| place_of(descriptor, libc::POLLIN)));
        let mut waiting = [libc::pollfd { fd: -1, events: 0, revents: 0 }; WAITED_FOR];
        let count = waiting.iter_mut().zip(all).map(|(place, entry)| *place = entry).count();
        let timeout = if self.more { 0 } else { -1 };
        // SAFETY: an array, and how much of it is in use.
        let ready = unsafe { libc::poll(waiting.as_mut_ptr(), count as libc::nfds_t, timeout) };
        // The kernel polls no more descriptors than may be opened, even if all of them are open already.
        if ready < 0 && Errno::last() != Errno::EINTR {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn hear_signals(&mut self) {
        let child = self.child.as_ref().map(|child| child.pid);
        if self.group.hear(&self.command, child, &mut self.forwards) {
            self.tell_to_end();
        }
    }

    fn tell_to_end(&mut self) {
        if let Some(child) = &mut self.child {
            child.told_to_end(Instant::now());
        }
    }

    fn hear_orders(&mut self) {
        while !self.line.is_gone() {
            match self.line.receive() {
                Received::Order(..) | Received::End if self.leaving.is_some() => {}
                Received::Order(Order::Spawn(spawn), locks) => self.spawn(spawn, locks),
                Received::Order(Order::Extend(deadline), _) => {
                    self.ladder.extend(deadline);
                    self.renewed();
                }
                Received::Order(Order::Stop(kill_at), _) => self.ladder.stop(kill_at),
                Received::Order(Order::Forward { signal, sender, read_at }, _) => {
                    self.forwards.ask(Sent { signal, sender }, read_at, Instant::now());
                }
                Received::Order(Order::Suspend, _) => self.suspend_dlock(),
                // The command would run without one of its locks.
                Received::NoRoom => self.give_up(Notice::NotSpawned(libc::EMFILE)),
                Received::Nothing => break,
                Received::End => self.lose_dlock(),
            }
        }
        // A guard that stays until all is gone keeps the lock as long.
        let keeps = |child: &Child| child.spawn.stay || !child.has_ended();
        let willing = self.child.as_ref().is_some_and(keeps) && !self.ladder.is_stopping();
        let is_told = self.child.as_ref().is_some_and(Child::was_told_to_end);
        self.covers.hear(willing, is_told);
    }

    fn give_up(&mut self, notice: Notice) {
        self.line.tell(notice);
        self.leaving = Some(1);
    }

    fn spawn(&mut self, spawn: Spawn, mut locks: Locks) {
        self.ladder = Ladder::new(spawn.lease);
        if spawn.lease.is_some_and(|lease| Instant::now() >= lease.stop_at) {
            return self.give_up(Notice::TooLate);
        }
        self.command.granted(&spawn.tokens, spawn.slot, spawn.ttl);
        // SAFETY: getpid cannot fail.
        let guard = (!spawn.outlives).then(|| unsafe { libc::getpid() });
        // Signals to the group before the fork did not reach the command.
        self.group.forget();
        self.forwards = Forwards::default();
        // SAFETY: the guard has one thread, and the child only executes what was prepared.
        match unsafe { libc::fork() } {
            0 => self.command.execute(guard, inherited(&locks, &spawn), spawn.lease.map(|lease| lease.stop_at)),
            -1 => self.give_up(Notice::NotSpawned(Errno::last_raw())),
            pid => {
                self.group.forked();
                self.command.go();
                self.group.leave();
                self.line.tell(Notice::Spawned(pid));
                // The guard must not keep locked what a command that outlives dlock holds itself.
                if spawn.outlives {
                    locks.iter_mut().take(spawn.inherit).for_each(|lock| *lock = None);
                }
                // On an overloaded machine the deadline must come before the load; where that is not allowed, only the
                // lease's margin helps. The command has been forked and keeps its own priority.
                go_first(0, PRIORITY);
                self.close_all_but(&locks);
                // More descriptors were just closed than this opens.
                let _ = self.sweep.reserve();
                self.child = Some(Child::new(pid, spawn, locks));
                self.granted();
            }
        }
    }

    /// Closes what the guard does not need, so that it keeps no pipe of the command open. Standard error stays: when
    /// dlock has been killed, only the guard can report what happens to the command.
    fn close_all_but(&self, locks: &Locks) {
        let [signals, reports, tells] = self.group.descriptors();
        let [line, alarm] = [self.line.as_raw_fd(), self.alarm.as_raw_fd()];
        let own = [line, alarm, signals, reports, tells, self.covers.descriptor().unwrap_or(2)];
        let mut keep: [RawFd; 6 + MOST_LOCKS] = [2; 6 + MOST_LOCKS];
        let kept = own.into_iter().chain(locks.iter().flatten().map(AsRawFd::as_raw_fd));
        keep.iter_mut().zip(kept).for_each(|(place, descriptor)| *place = descriptor);
        surroundings::close_all_but(&mut keep);
    }

    fn suspend_dlock(&mut self) {
        if self.child.as_ref().is_some_and(Child::is_stopped) {
            self.dlock_suspended = true;
            // SAFETY: dlock is our parent while its end of the socket is open.
            unsafe { libc::kill(self.dlock, libc::SIGSTOP) };
        }
    }

    fn resume_dlock(&mut self) {
        if std::mem::take(&mut self.dlock_suspended) && !self.line.is_gone() {
            // SAFETY: as above.
            unsafe { libc::kill(self.dlock, libc::SIGCONT) };
        }
    }

    fn lose_dlock(&mut self) {
        match &self.child {
            None => exit(0),
            Some(child) if !child.spawn.outlives => {
                self.ladder.stop(Instant::now() + child.spawn.kill_after);
                // In a separate process: a reader of standard error that has stopped reading must not block the guard.
                // SAFETY: the guard has one thread, and the child only writes; the sweep takes it along.
                if !child.has_ended() && unsafe { libc::fork() } == 0 {
                    (self.farewell)();
                    exit(0);
                }
            }
            // The command holds the lock itself.
            Some(child) if !child.has_locks() && !self.ladder.is_stopping() => exit(0),
            // The guard completes a stop, or holds the lock until everything is gone.
            Some(_) => {}
        }
    }

    /// Reaps ended children, and leaves once there is nothing left to do.
    fn reap(&mut self) {
        if self.child.is_none() {
            return;
        }
        let (group, mut own) = (&mut self.group, None);
        let command = self.child.as_ref().map(|child| child.pid);
        let collected = collect(libc::WUNTRACED | libc::WCONTINUED, |pid, status| {
            group.changed(pid, status);
            if command == Some(pid) {
                own = Some(status);
            }
        });
        if let Some(status) = own {
            self.child_changed(status);
        }
        self.more = collected == Collected::Some;
        self.conclude(collected == Collected::NoneLeft);
        if collected == Collected::NoneLeft {
            self.nothing_left();
        }
    }

    fn child_changed(&mut self, status: c_int) {
        let Some(child) = &mut self.child else { return };
        child.changed(status);
        if child.is_stopped() {
            self.line.tell(Notice::Suspended);
        } else {
            // A suspended command can be killed: then only the guard can continue dlock.
            self.resume_dlock();
        }
    }

    /// Decides what the command's end means, once it has ended and all signals to its group are known.
    fn conclude(&mut self, none_left: bool) {
        let now = Instant::now();
        // SAFETY: getpid cannot fail.
        let me = unsafe { libc::getpid() };
        let Some(child) = self.child.as_mut().filter(|child| !child.is_concluded()) else { return };
        let Some(status) = child.looked(now) else { return };
        let spared: [pid_t; 1] = [self.group.listener().unwrap_or(0)];
        let below = self.sweep.children(me);
        let alone = none_left || below.complete && below.listed.iter().all(|pid| spared.contains(pid));
        let executed = self.command.exec_errno() == 0;
        if !self.ladder.is_stopping() && executed && !alone {
            // The command can end before the listener has reported the signal that ended it.
            if !child.was_told_to_end() && !child.has_waited_for_listener(now) && !self.group.is_quiet() {
                return;
            }
            if child.ended_by_request() {
                self.ladder.stop(now + child.spawn.kill_after);
            } else if self.covers.is_any() && !child.spawn.stay {
                // Nested runs under this lock are stopped first: alone, or with everything else.
                match child.stop_covers(now) {
                    Step::Term { .. } => {
                        self.line.tell(Notice::Covering);
                        return self.covers.terminate();
                    }
                    Step::Wait(_) => return,
                    Step::Kill => self.ladder.stop(now),
                }
            }
        }
        child.conclude();
        self.group.close();
        let stopping = self.ladder.is_stopping() && !alone;
        self.line.tell(Notice::Exited { status, exec_errno: self.command.exec_errno(), stopping });
        let stays = child.spawn.stay || self.line.is_gone() && child.has_locks();
        if !stays && !self.ladder.is_stopping() {
            self.leave();
        }
    }

    fn nothing_left(&mut self) {
        self.line.tell(Notice::Gone);
        self.leave();
    }

    /// Leaves when the notices are delivered and the listener is reaped, which must not take the processor from dlock: it
    /// gives the lock back now.
    fn leave(&mut self) {
        self.resume_dlock();
        self.leaving = Some(0);
        step_back();
    }
}

/// Returns those of these descriptors that the command inherits.
fn inherited<'a>(locks: &'a Locks, spawn: &Spawn) -> &'a [Option<OwnedFd>] {
    &locks[..spawn.inherit.min(locks.len())]
}

/// Ends the guard at once, without the exit handlers of the process it was forked from.
fn exit(code: c_int) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}
