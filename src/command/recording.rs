/*!
Entries about a command that go only to the journal: its start and its end, each renewal, and each step of stopping it.
Of a process that is watched, only the latter two.
*/

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::cli::OnLost;
use crate::clock::Instant;
use crate::report::Report;
use crate::schema::events::{Cause, Entry, millis};
use crate::supervise::command::Ended;

/// The record of one command.
pub(super) struct Recording<'a> {
    report: &'a Report,
    program: String,
    on_lost: OnLost,
    /// The time at which the guard was told to start it: on a busy machine, dlock learns of the start itself late.
    begun: Instant,
    /// The reason why the command is being stopped.
    cause: Option<Cause>,
    /// `true` if the guard stops it on its own, and the reason was not reported yet.
    is_due: bool,
    termed: bool,
    killed: bool,
}

impl<'a> Recording<'a> {
    /// Begins the record of a command that the guard was just told to start, or of a process that relies on the lock.
    pub(super) fn new(report: &'a Report, program: String, on_lost: OnLost) -> Self {
        let begun = Instant::now();
        Self { report, program, on_lost, begun, cause: None, is_due: false, termed: false, killed: false }
    }

    /// Records that the command's process was created.
    pub(super) fn started(&self, command_pid: i32) {
        self.report.record(|| Some(Entry::Started { command_pid, program: self.program.clone() }));
    }

    /// Records that the lease was extended to this length.
    pub(super) fn renewed(&self, ttl: Duration) {
        self.report.record(|| Some(Entry::Renewed { ttl_ms: millis(ttl) }));
    }

    /// Notes that the guard has begun to stop the command, because the lease is about to end. The keeper of the lock
    /// reports the loss at the same time.
    pub(super) fn deadline(&mut self) {
        self.is_due = true;
    }

    /// Records that the command is stopped. Only the first time counts: it is told to end once.
    pub(super) fn stop(&mut self, cause: Cause) {
        self.is_due = false;
        self.cause.get_or_insert(cause);
        let is_lost = matches!(cause, Cause::Lost | Cause::Asked);
        // With `--on-lost kill`, SIGKILL is the first signal.
        if is_lost && self.on_lost == OnLost::Kill || std::mem::replace(&mut self.termed, true) {
            return;
        }
        self.report.record(|| Some(Entry::Stopping { signal: "TERM", cause }));
    }

    /// Records that what is left of the command is killed.
    pub(super) fn kill(&mut self) {
        self.catch_up();
        let cause = *self.cause.get_or_insert(Cause::Lost);
        if !std::mem::replace(&mut self.killed, true) {
            self.report.record(|| Some(Entry::Stopping { signal: "KILL", cause }));
        }
    }

    /// Records that the command has ended, or could not be executed for this errno.
    pub(super) fn exited(&mut self, ended: Ended, exec_errno: i32) {
        self.catch_up();
        let ran = Instant::now().since(self.begun);
        self.report.record(|| {
            let error = (exec_errno != 0).then(|| Errno::from_raw(exec_errno).desc().to_owned());
            let (code, signal) = match ended {
                _ if error.is_some() => (None, None),
                Ended::Code(code) => (Some(code), None),
                Ended::Signal(signal) => (None, Some(name(signal))),
            };
            Some(Entry::Exited { code, signal, error, ran_ms: millis(ran) })
        });
    }

    /// Records the stop that the guard has begun on its own.
    fn catch_up(&mut self) {
        if self.is_due {
            self.stop(Cause::Lost);
        }
    }
}

/// Returns the name of a signal without the common prefix, or its number if it has no name.
fn name(signal: i32) -> String {
    let known = Signal::try_from(signal).ok().map(Signal::as_str);
    known.and_then(|name| name.strip_prefix("SIG")).map_or_else(|| signal.to_string(), str::to_owned)
}
