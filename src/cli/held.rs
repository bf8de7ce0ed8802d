/*!
The options of `dlock held`.
*/

use std::ffi::OsString;

use clap::{ArgAction, Args};

use crate::cli::options::{Place, Reach, connects};

/// What `dlock held` does, at length.
pub(super) const HELD_ABOUT: &str = "\
Ends with 0 if it runs inside a dlock run that holds the lock KEY, and with 75 if it does not. Prints nothing but errors. This \
is found out as by a nested dlock run: the run in DLOCK_HELD must be around this process and alive, and the backend must say \
that it holds the lock. A variable alone, as a daemon may have inherited it, does not count. Takes no lock, and says nothing of \
what comes later.

Give it the --key, --backend and --namespace of the dlock run that is meant. If it cannot be told, it ends with 69.";

/// What the help of `dlock held` ends with.
pub(super) const HELD_EXAMPLES: &str = "\
Example, as the first line of a script that is to run once at a time:
  dlock held -k me || exec dlock run -n -k me -- \"$0\" \"$@\"";

/// `dlock held`.
#[derive(Debug, Args)]
#[command(override_usage = "dlock held --key <KEY> [OPTIONS]")]
pub(crate) struct HeldArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters. Repeat it to ask for several: all must be held
    #[arg(short, long, value_name = "KEY", required = true, action = ArgAction::Append)]
    pub key: Vec<OsString>,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = "Connection options")]
    pub reach: Reach,
}

connects!(HeldArgs);
