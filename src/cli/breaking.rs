/*!
The options of `dlock break`.
*/

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::duration::duration;
use crate::cli::options::{CONNECTION, Place, Reach, connects, switch};

/// The long description of `dlock break`.
pub(super) const BREAK_ABOUT: &str = "\
Asks the holder of the lock KEY to stop its command and to release the lock, and waits until it has. The holder stops everything \
that its command started (SIGTERM, then SIGKILL after its --kill-after), releases the lock and exits with 79; then the next \
waiter gets the lock. Two commands never run at once. A keeper of dlock acquire --while-pid stops only the process for which it \
keeps the lock, and the runs under its handle; anything else that this process started may run on while somebody else has the \
lock. --owner names the holder to stop: if another one holds the lock by now, nothing is done.

If the holder is frozen or unreachable, --now takes the lock away at once. Until the holder notices, two commands can run.

For a week, dlock status shows who broke the lock, when and why, and so do -v and --events of the runs that get it. The name is \
the user and host that dlock found, which anybody can claim.

Exits with 0 when that owner no longer holds the lock, and with 79 if somebody else holds it. Exits with 75 if the lock is still \
held when the wait is over, or if its holder cannot be asked: another program, an older dlock, or a dlock acquire without a \
keeper.";

/// `dlock break`.
#[derive(Debug, Args)]
#[command(override_usage = "dlock break --key <KEY> --owner <ID> [OPTIONS]")]
pub(crate) struct BreakArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters
    #[arg(short, long, value_name = "KEY", required = true)]
    pub key: Vec<OsString>,

    /// The owner id that dlock status shows (holder.id in JSON), or at least its first 8 characters
    #[arg(long, value_name = "ID", required = true)]
    pub owner: Option<String>,

    /// The reason: the holder reports it, and dlock status shows it for a week
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,

    /// Wait at most this long for the lock to be released; default: the length of the holder's lease plus 15s
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub wait: Option<Duration>,

    /// Take the lock away at once. Until its holder notices, two commands can run. Not for file:
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

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,
}

connects!(BreakArgs);
