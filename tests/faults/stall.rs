/*!
Whether the machine itself stood still. A lease's margin is a quarter of a second and more here; where nothing at all runs for
a good part of that, also not what goes before everything else, no program can keep its promises, and what was seen
then says nothing about dlock.
*/

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::support::rendezvous::{boottime, go_first};

/// How long the machine may stand still in an episode that counts.
pub const LIMIT: Duration = Duration::from_millis(30);

/// How often it is looked at.
const TICK: Duration = Duration::from_millis(5);
/// Shorter ones are not remembered.
const NOTICED: Duration = Duration::from_millis(10);
/// How many are.
const REMEMBERED: usize = 4096;

/// When each was over, and how long it was.
static STALLS: Mutex<VecDeque<(Duration, Duration)>> = Mutex::new(VecDeque::new());

/// Begins to look, from a thread that runs before all others where that is allowed.
pub fn watch() {
    thread::spawn(|| {
        go_first();
        let mut last = boottime();
        loop {
            thread::sleep(TICK);
            let now = boottime();
            let late = (now - last).saturating_sub(TICK);
            if late >= NOTICED {
                let mut stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
                stalls.push_back((now, late));
                if stalls.len() > REMEMBERED {
                    stalls.pop_front();
                }
            }
            last = now;
        }
    });
}

/// The longest since `start`, by [`boottime`].
pub fn worst_since(start: Duration) -> Duration {
    let stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
    stalls.iter().filter(|(at, _)| *at >= start).map(|(_, late)| *late).max().unwrap_or_default()
}
