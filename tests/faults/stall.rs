/*!
Whether the machine itself stood still, or it or its disk was too busy.

A lease's margin is a quarter of a second or more here. If nothing at all runs for a good part of that, not even what
has real-time priority, no program can keep its promises, and the episode says nothing about dlock. If only ordinary
programs wait that long for their turns, the command still has to die in time, but a renewal or a hand-over may be late.
*/

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::support::rendezvous::{boottime, go_first, last_until};

/// How long the machine may stand still in an episode that counts.
pub const LIMIT: Duration = Duration::from_millis(30);
/// How long ordinary programs may wait for the turns of one renewal in an episode whose renewals and hand-overs count.
pub const BUSY: Duration = Duration::from_millis(200);

/// How often the watching threads wake up.
const TICK: Duration = Duration::from_millis(5);
/// As much as the processes of a hand-over compute, with those of the command, and how often that is tried.
const HAND_OVER: Duration = Duration::from_millis(40);
const SOMETIMES: Duration = Duration::from_secs(1);
/// Shorter delays are not remembered.
const NOTICED: Duration = Duration::from_millis(10);
/// How many delays are remembered.
const REMEMBERED: usize = 4096;

/// How late a thread was: for each delay, when it ended and how long it was.
struct Watch(Mutex<VecDeque<(Duration, Duration)>>);

/// One thread runs before all others where that is allowed, and one has ordinary priority. The second also waits for the
/// answer of another process and for a change to a file each time, as a renewal does: each may get its turn soon, and
/// the three turns come late. The third computes: a scheduler lets a program that mostly sleeps run soon, and makes one that
/// computes wait again and again.
static FIRST: Watch = Watch(Mutex::new(VecDeque::new()));
static ORDINARY: Watch = Watch(Mutex::new(VecDeque::new()));
static COMPUTING: Watch = Watch(Mutex::new(VecDeque::new()));

/// Starts watching.
pub fn watch() {
    thread::spawn(|| {
        go_first();
        FIRST.watch(TICK, Duration::ZERO, || ());
    });
    thread::spawn(|| {
        let mut echo = Echo::start();
        ORDINARY.watch(TICK, Duration::ZERO, || echo.ask())
    });
    thread::spawn(|| COMPUTING.watch(SOMETIMES, HAND_OVER, compute));
}

/// Computes for the time of a hand-over.
fn compute() {
    let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let begun = used();
    while used() - begun < HAND_OVER {}
}

/// A process that answers, and a file.
struct Echo(Child, File);

impl Echo {
    fn start() -> Self {
        let process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self(process, tempfile::tempfile().unwrap())
    }

    /// Asks once, and waits for the answer. Ctrl-C ends the process before the last episodes are finished.
    fn ask(&mut self) {
        if let (Some(to), Some(from)) = (&mut self.0.stdin, &mut self.0.stdout) {
            drop(to.write_all(b".").and_then(|()| from.read_exact(&mut [0])));
        }
        self.1.set_len(0).and_then(|()| self.1.write_all_at(b".", 0)).unwrap();
    }
}

/// The longest time for which the machine has stood still since `start`, by [`boottime`].
pub fn worst_since(start: Duration) -> Duration {
    FIRST.worst_since(start)
}

/// The longest time for which ordinary programs have waited for their turns since `start`, by [`boottime`].
pub fn busiest_since(start: Duration) -> Duration {
    ORDINARY.worst_since(start).max(COMPUTING.worst_since(start))
}

/// Waits until ordinary programs get their turn quickly, up to a limit.
pub fn wait_calm() {
    let patience = boottime() + Duration::from_secs(10);
    loop {
        let begun = boottime();
        last_until(begun + Duration::from_millis(300));
        if busiest_since(begun) <= 2 * NOTICED || boottime() > patience {
            return;
        }
    }
}

impl Watch {
    /// Does `work` again and again, with a `pause` in between. It `takes` this long where nothing else runs.
    fn watch(&self, pause: Duration, takes: Duration, mut work: impl FnMut()) -> ! {
        let mut last = boottime();
        loop {
            thread::sleep(pause);
            work();
            let now = boottime();
            let late = (now - last).saturating_sub(pause + takes);
            if late >= NOTICED {
                let mut stalls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                stalls.push_back((now, late));
                if stalls.len() > REMEMBERED {
                    stalls.pop_front();
                }
            }
            last = now;
        }
    }

    fn worst_since(&self, start: Duration) -> Duration {
        let stalls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stalls.iter().filter(|(at, _)| *at >= start).map(|(_, late)| *late).max().unwrap_or_default()
    }
}
