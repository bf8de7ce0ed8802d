/*!
The options of `dlock break`.
*/

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::duration::duration;
use crate::cli::options::{Place, Reach, connects, switch};

/// What `dlock break` does, at length.
pub(super) const BREAK_ABOUT: &str = "\
Asks the holder of the lock KEY to stop its command and to release the lock, and waits until it has. The holder stops \
everything that its command started (SIGTERM, then SIGKILL after its --kill-after), gives the lock back and exits with 79; \
then the next in line gets it. Two commands never run at once. A holder that dlock acquire --while-pid has left stops the one \
process for which it keeps the lock; what that has started may run on while somebody else has the lock. --owner names the holder that is meant: if another one holds \
the lock by now, nothing is done.

With --now the lock is taken away at once, for a holder that is frozen or unreachable: until it notices, two commands can run.

For a week, dlock status shows who has broken the lock, when and why, and so do -v and --events of the runs that get it. Who \
did that is the user and host that dlock found, which anybody can claim.

Ends with 0 when that owner does not hold the lock any more, with 79 if somebody else holds it, and with 75 if it is still \
held when the wait is over or its holder cannot be asked: another program, an older dlock, or one that dlock acquire has left.";

/// `dlock break`.
#[derive(Debug, Args)]
#[command(override_usage = "dlock break --key <KEY> --owner <ID> [OPTIONS]")]
pub(crate) struct BreakArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters
    #[arg(short, long, value_name = "KEY", required = true)]
    pub key: Vec<OsString>,

    /// The owner that dlock status shows; at least the first 8 characters of it
    #[arg(long, value_name = "ID", required = true)]
    pub owner: Option<String>,

    /// Why; the holder reports it, and dlock status shows it for a week
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,

    /// Wait no longer than this for the lock to be released; default: the length of the holder's lease and 15s
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub wait: Option<Duration>,

    /// Take the lock away at once: until its holder notices, two commands can run. Not for file:
    #[arg(long, action = ArgAction::SetTrue)]
    pub now: Option<bool>,

    /// Do not ask for confirmation on a terminal
    #[arg(short, long, action = ArgAction::SetTrue)]
    pub yes: Option<bool>,

    /// Errors only
    #[arg(short, long, env = "DLOCK_QUIET", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub quiet: Option<bool>,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = "Connection options")]
    pub reach: Reach,
}

connects!(BreakArgs);
