/*!
The caller of a keeper: forks it, passes signals on to it, prints the handle, and exits as the keeper says.
*/

use nix::sys::signal::kill;
use nix::unistd::{ForkResult, Pid, fork};

use crate::clock::Instant;
use crate::command::keeping::line::{Channel, Word, ends, one_is_readable};
use crate::exit::{Exit, Failure};
use crate::key::Key;
use crate::output;
use crate::report::event::handle::HandleEvent;
use crate::report::event::{Event, Lack, Step};
use crate::supervise::signals::{Meaning, Signals, ends_waiting, meaning, suspend_self};

/// The side of the fork on which execution goes on.
pub(super) enum Side {
    /// The caller's side.
    Caller(Caller),
    /// The keeper, with its end of the line.
    Keeper(Channel),
}

/// The caller: the process that the user has started.
pub(super) struct Caller {
    keeper: Pid,
    signals: Signals,
    line: Channel,
}

/// Forks the keeper. Must run in the main thread, with nothing open and no other thread.
pub(super) fn fork_keeper() -> Result<Side, Failure> {
    let lacking = |step, reason| Failure::new(Exit::Unavailable, Event::Lacking { step, reason });
    let signals = Signals::block().map_err(|error| lacking(Step::Signals, Lack::System(error.to_string())))?;
    let no_process = |errno| lacking(Step::Keeper, Lack::NoProcess(errno as i32));
    let (caller, keeper) = ends().map_err(no_process)?;
    // The clock is initialised before the fork, so that both processes use the same one.
    let _ = Instant::now();
    // SAFETY: the process has one thread, so the child may do everything that this one may.
    match unsafe { fork() }.map_err(no_process)? {
        ForkResult::Parent { child } => Ok(Side::Caller(Caller { keeper: child, signals, line: caller })),
        // The caller's signal descriptor is its own: the keeper opens another one for its signals.
        ForkResult::Child => Ok(Side::Keeper(keeper)),
    }
}

impl Caller {
    /// Waits for the keeper; returns the outcome that it reports.
    pub(super) fn outcome(self, key: &Key) -> Result<Exit, Failure> {
        loop {
            one_is_readable(&self.signals, &self.line);
            while let Some(info) = self.signals.take() {
                if let Some(signal) = ends_waiting(&info) {
                    // It takes back what it has asked for, and then sends dlock's exit. It may have got the signal too.
                    let _ = kill(self.keeper, signal);
                } else if meaning(&info) == Meaning::Suspend {
                    suspend_self();
                }
            }
            if !self.line.has_said() {
                continue;
            }
            match self.line.hear() {
                // On failure the line ends with this process, and the keeper gives the lock back.
                Some(Word::Print(text)) => {
                    // A reader that does not read must not keep this process from ending.
                    let _ = Signals::let_through();
                    output::deliver(text.as_bytes())?;
                    self.line.say(&Word::Printed);
                }
                Some(Word::End(exit)) => return Ok(exit),
                Some(Word::Printed) | None => {
                    return Err(Failure::new(Exit::Internal, Event::Handle(HandleEvent::NotKept(key.clone()))));
                }
            }
        }
    }
}
