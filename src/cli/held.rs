/*!
The options of `dlock held`.
*/

use std::ffi::OsString;

use clap::{ArgAction, Args};

use crate::cli::options::{CONNECTION, Place, Reach, connects};

/// The long description of `dlock held`.
pub(super) const HELD_ABOUT: &str = "\
Exits with 0 if this process runs inside a dlock run that holds the lock KEY, and with 75 if it does not. Prints nothing but \
errors. The check is that of a nested dlock run: the run that DLOCK_HELD names must be an ancestor of this process and alive, \
and the backend must confirm that it holds the lock. A variable alone, as a daemon may have inherited it, does not count. dlock \
held takes no lock, and the answer holds for this moment only.

Use the --key, --backend and --namespace of the dlock run in question. If this cannot be determined, the exit code is 69.";

/// The end of the help of `dlock held`.
pub(super) const HELD_EXAMPLES: &str = "\
Example: the first line of a script that must not overlap with itself:
  dlock held -k me || exec dlock run -n -k me -- \"$0\" \"$@\"";

/// `dlock held`.
#[derive(Debug, Args)]
#[command(override_usage = "dlock held --key <KEY> [OPTIONS]")]
pub(crate) struct HeldArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters. Repeat it to ask for several locks: all must be held
    #[arg(short, long, value_name = "KEY", required = true, action = ArgAction::Append)]
    pub key: Vec<OsString>,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,
}

connects!(HeldArgs);
