/*!
Signals that end the wait for a lock.
*/

use crate::supervise::reaping::reap;
use crate::supervise::signals::{Meaning, SignalStream, ends_waiting, meaning, suspend_self};

/// Waits for a signal that ends the wait, and returns its number. Continues a `guard` that was stopped.
pub(super) async fn told_to_stop(signals: &mut SignalStream, guard: libc::pid_t) -> i32 {
    loop {
        let info = signals.next().await;
        if let Some(signal) = ends_waiting(&info) {
            return signal as i32;
        }
        match meaning(&info) {
            Meaning::Suspend => suspend_self(),
            Meaning::Child => drop(reap(guard)),
            Meaning::Forward(_) | Meaning::Nothing => {}
        }
    }
}
