/*!
The guard process itself: one loop over orders, signals and its own alarm.

Everything that it needs is made before the first order comes; from then on nothing is allocated, and nothing is waited
for that can hang.
*/

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, pid_t};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use super::super::command::Command;
use super::super::protocol::{LENGTH, Notice, Order, Spawn, Unfit};
use super::super::signals::{Meaning, Signals, meaning};
use super::super::stop::{Forwards, Ladder, Sent, Step};
use super::super::surroundings;
use super::super::sweep::{Sweep, become_subreaper, go_first};
use crate::clock::{Alarm, Instant};

/// The guard's name in process lists.
const NAME: &std::ffi::CStr = c"lockguard";
/// The guard's nice value once the command runs, where this user may set it.
const PRIORITY: c_int = -15;
/// How many signals are read before the guard looks at the time again.
const SIGNALS_AT_ONCE: usize = 64;
/// How long the guard waits between two passes of SIGKILL.
const KILL_AGAIN: Duration = Duration::from_millis(5);
/// The same, once a process was met that may not be killed.
const KILL_REFUSED_AGAIN: Duration = Duration::from_millis(200);

/// The command while it runs.
struct Child {
    pid: pid_t,
    ended: bool,
    stopped: bool,
    spawn: Spawn,
    /// Held until everything is gone, when the command itself does not hold it.
    lock: Option<OwnedFd>,
}

/// The guard's own state. Everything in it exists before the first order comes.
pub(super) struct Watch {
    command: Command,
    socket: OwnedFd,
    signals: Signals,
    alarm: Alarm,
    sweep: Sweep,
    farewell: Box<dyn Fn()>,
    dlock: pid_t,
    child: Option<Child>,
    ladder: Ladder,
    forwards: Forwards,
    kill_again: Option<Instant>,
    unkillable: Option<pid_t>,
    dlock_suspended: bool,
    dlock_gone: bool,
}

impl Watch {
    /// Becomes the guard; does not return.
    pub(super) fn begin(command: Command, socket: OwnedFd, mut sweep: Sweep, farewell: Box<dyn Fn()>) -> ! {
        surroundings::rename_process(NAME);
        let unfit = if become_subreaper().is_err() {
            Some(Unfit::Subreaper)
        } else if !sweep.works() {
            Some(Unfit::Proc)
        } else {
            None
        };
        let (signals, alarm) = match (Signals::listen(), Alarm::new(), unfit) {
            (Ok(signals), Ok(alarm), None) => (signals, alarm),
            (_, _, unfit) => {
                tell(&socket, Notice::Unfit(unfit.unwrap_or(Unfit::Descriptors) as u64));
                exit(1);
            }
        };
        tell(&socket, Notice::Ready);
        let mut watch = Self {
            command,
            socket,
            signals,
            alarm,
            sweep,
            farewell,
            // SAFETY: getppid cannot fail.
            dlock: unsafe { libc::getppid() },
            child: None,
            ladder: Ladder::default(),
            forwards: Forwards::default(),
            kill_again: None,
            unkillable: None,
            dlock_suspended: false,
            dlock_gone: false,
        };
        watch.run()
    }

    fn run(&mut self) -> ! {
        loop {
            self.hear_signals();
            self.hear_orders();
            self.reap();
            let next = self.act(Instant::now());
            self.alarm.set(next);
            self.wait();
        }
    }

    /// Waits for an order, a signal or the alarm.
    fn wait(&self) {
        let readable = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let mut waiting = [readable(self.signals.as_fd()), readable(self.alarm.as_fd()), readable(self.socket.as_fd())];
        // A socket at its end is readable for ever: leave it out then.
        let count = if self.dlock_gone { 2 } else { 3 };
        let _ = poll(&mut waiting[..count], PollTimeout::NONE);
    }

    fn hear_signals(&mut self) {
        // Not until there is none: a storm must not keep the guard from its deadline.
        for _ in 0..SIGNALS_AT_ONCE {
            let Some(info) = self.signals.take() else { return };
            if let Meaning::Forward(sent) = meaning(&info) {
                self.forwards.saw(sent, Instant::now());
            }
        }
    }

    fn hear_orders(&mut self) {
        while !self.dlock_gone {
            match receive(&self.socket) {
                Received::Order(Order::Spawn(spawn), lock) => self.spawn(spawn, lock),
                Received::Order(Order::Extend(window), _) => self.ladder.extend(window),
                Received::Order(Order::Stop(kill_at), _) => self.ladder.stop(kill_at),
                Received::Order(Order::Forward { signal, sender }, _) => {
                    self.forwards.ask(Sent { signal, sender }, Instant::now());
                }
                Received::Order(Order::Suspend, _) => self.suspend_dlock(),
                Received::NoRoom => {
                    // The command would run without its lock.
                    tell(&self.socket, Notice::NotSpawned(libc::EMFILE));
                    exit(1);
                }
                Received::Nothing => return,
                Received::End => self.lose_dlock(),
            }
        }
    }

    fn spawn(&mut self, spawn: Spawn, lock: Option<OwnedFd>) {
        self.ladder = Ladder::new(spawn.lease);
        if spawn.lease.is_some_and(|lease| Instant::now() >= lease.term_at) {
            tell(&self.socket, Notice::TooLate);
            exit(1);
        }
        self.command.granted(spawn.token, spawn.ttl);
        // SAFETY: getpid cannot fail.
        let guard = (!spawn.outlives).then(|| unsafe { libc::getpid() });
        let inherit = if spawn.inherit { lock.as_ref().map(AsFd::as_fd) } else { None };
        // What the group got before there was a command did not reach it.
        self.hear_signals();
        self.forwards = Forwards::default();
        // SAFETY: the guard has one thread, and the child only executes what was prepared.
        match unsafe { libc::fork() } {
            0 => self.command.execute(guard, inherit, spawn.lease.map(|lease| lease.term_at)),
            -1 => {
                tell(&self.socket, Notice::NotSpawned(Errno::last_raw()));
                exit(1);
            }
            pid => {
                tell(&self.socket, Notice::Spawned(pid));
                // What the command holds itself, the guard must not keep locked.
                let lock = lock.filter(|_| !spawn.inherit);
                // On an overloaded machine the deadline must come before the load; where that is not allowed, the
                // lease's margin has to do. The command has been forked and keeps its own priority.
                go_first(0, PRIORITY);
                self.close_all_but(lock.as_ref().map(AsRawFd::as_raw_fd));
                self.child = Some(Child { pid, ended: false, stopped: false, spawn, lock });
            }
        }
    }

    /// Closes what the guard does not need, so that nobody's pipe stays open for it. Standard error stays: when dlock
    /// has been killed, only the guard can say what becomes of the command.
    fn close_all_but(&self, lock: Option<RawFd>) {
        let own = [self.socket.as_raw_fd(), self.signals.as_raw_fd(), self.alarm.as_raw_fd()];
        surroundings::close_all_but([2, own[0], own[1], own[2], lock.unwrap_or(2)]);
    }

    fn suspend_dlock(&mut self) {
        if self.child.as_ref().is_some_and(|child| child.stopped) {
            self.dlock_suspended = true;
            // SAFETY: dlock is our parent while its end of the socket is open.
            unsafe { libc::kill(self.dlock, libc::SIGSTOP) };
        }
    }

    fn resume_dlock(&mut self) {
        if std::mem::take(&mut self.dlock_suspended) && !self.dlock_gone {
            // SAFETY: as above.
            unsafe { libc::kill(self.dlock, libc::SIGCONT) };
        }
    }

    fn lose_dlock(&mut self) {
        self.dlock_gone = true;
        match &self.child {
            None => exit(0),
            Some(child) if !child.spawn.outlives => {
                self.ladder.stop(Instant::now() + child.spawn.kill_after);
                // In a process of its own: a reader that has stopped reading must not stop the guard.
                // SAFETY: the guard has one thread, and the child only writes; the sweep takes it along.
                if !child.ended && unsafe { libc::fork() } == 0 {
                    (self.farewell)();
                    exit(0);
                }
            }
            // The command holds the lock itself.
            Some(child) if child.lock.is_none() && !self.ladder.is_stopping() => exit(0),
            // The guard sees a stop through, or holds the lock until everything is gone.
            Some(_) => {}
        }
    }

    /// Reaps what has ended, and ends the guard itself once there is nothing left to do.
    fn reap(&mut self) {
        let Some(child) = &mut self.child else { return };
        loop {
            let mut status: c_int = 0;
            let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
            // SAFETY: `status` is a valid place for the result.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, options) };
            if pid == -1 && Errno::last() == Errno::ECHILD {
                break self.nothing_left();
            }
            if pid <= 0 {
                return;
            }
            if pid != child.pid {
                continue;
            }
            if libc::WIFSTOPPED(status) {
                child.stopped = true;
                tell(&self.socket, Notice::Suspended);
            } else if libc::WIFCONTINUED(status) {
                child.stopped = false;
                if std::mem::take(&mut self.dlock_suspended) && !self.dlock_gone {
                    // SAFETY: dlock is our parent while its end of the socket is open.
                    unsafe { libc::kill(self.dlock, libc::SIGCONT) };
                }
            } else {
                child.ended = true;
                tell(&self.socket, Notice::Exited { status, exec_errno: self.command.exec_errno() });
                let holds = self.dlock_gone && child.lock.is_some();
                if !child.spawn.stay && !self.ladder.is_stopping() && !holds {
                    // A suspended command can be killed: then nobody else continues dlock.
                    self.resume_dlock();
                    exit(0);
                }
            }
        }
    }

    fn nothing_left(&mut self) {
        tell(&self.socket, Notice::Gone);
        self.resume_dlock();
        exit(0);
    }

    /// Does what is due at `now`; returns when to look again.
    fn act(&mut self, now: Instant) -> Option<Instant> {
        let child = self.child.as_ref()?;
        while let Some(signal) = self.forwards.due(now) {
            if !child.ended {
                // SAFETY: the command is our child and not reaped, so the pid is its own.
                unsafe { libc::kill(child.pid, signal) };
            }
        }
        let mut step = self.ladder.step(now);
        if let Step::Term { by_deadline } = step {
            if by_deadline {
                tell(&self.socket, Notice::Deadline);
            }
            step = self.ladder.step(now);
            // Where SIGKILL is due at the same time (`--on-lost kill`, a late thaw), SIGTERM would only be a race.
            if step != Step::Kill {
                // A suspended process takes SIGTERM only when it is continued.
                self.signal_all(&[libc::SIGTERM, libc::SIGCONT]);
            }
        }
        if step == Step::Kill && self.kill_again.is_none_or(|again| now >= again) {
            self.signal_all(&[libc::SIGKILL]);
            // What may not be killed can live for long.
            self.kill_again = Some(now + if self.unkillable.is_some() { KILL_REFUSED_AGAIN } else { KILL_AGAIN });
        }
        let next = match step {
            Step::Wait(next) => next,
            _ => self.kill_again,
        };
        [next, self.forwards.next()].into_iter().flatten().min()
    }

    fn signal_all(&mut self, signals: &[c_int]) {
        // SAFETY: getpid cannot fail.
        let me = unsafe { libc::getpid() };
        let tally = self.sweep.signal_below(me, signals, &[]);
        if let Some(pid) = tally.refused
            && self.unkillable.replace(pid).is_none()
        {
            tell(&self.socket, Notice::Unkillable(pid));
        }
    }
}

enum Received {
    Order(Order, Option<OwnedFd>),
    /// An order without the descriptor that came with it: this process may not open another one.
    NoRoom,
    Nothing,
    End,
}

/// Receives without `recvmsg` of the library, which allocates.
fn receive(socket: &OwnedFd) -> Received {
    #[repr(align(8))]
    struct Control([u8; 64]);
    let mut packet = [0; LENGTH];
    let mut control = Control([0; 64]);
    let mut place = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: LENGTH };
    // SAFETY: zeroed is a valid msghdr; all pointers outlive the call; the control message is read only when the
    // kernel says it is there and is one descriptor long.
    let (received, lock, lost) = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut place;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags);
        let header = if received > 0 { libc::CMSG_FIRSTHDR(&raw const message) } else { std::ptr::null_mut() };
        let is_descriptor = !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS;
        let lock =
            is_descriptor.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()));
        (received, lock, message.msg_flags & libc::MSG_CTRUNC != 0)
    };
    match received {
        0 => Received::End,
        -1 if matches!(Errno::last(), Errno::EAGAIN | Errno::EINTR) => Received::Nothing,
        -1 => Received::End,
        _ if lost => Received::NoRoom,
        _ => Order::decode(&packet).map_or(Received::Nothing, |order| Received::Order(order, lock)),
    }
}

/// Tells dlock. One that is gone shows by the end of the socket, and one that is frozen reads it later.
fn tell(socket: &OwnedFd, notice: Notice) {
    let _ = send(socket.as_raw_fd(), &notice.encode(), MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
}

/// Ends the guard at once, without the exit handlers of the process it was forked from.
fn exit(code: c_int) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}
