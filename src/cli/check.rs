/*!
The options of `dlock check`.
*/

use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::duration::ttl;
use crate::cli::options::{Durability, Place, Reach, connects, switch};

/// What `dlock check` does, at length.
pub(super) const CHECK_ABOUT: &str = "\
Finds out whether locks at this backend work, how far away it is, and what could make them unsafe. Each line is one probe: ok, \
warn, fail or skip, what was found, and what to do about it. Skipped is what this user may not ask.

A lock is tried as dlock run takes it: two contenders ask for a scratch key (dlock-check- and a random id, with a lease of 5s), one of \
them must get it, renew it and give it back, and the other one must be refused. Missing tables of a database are made, as dlock run makes them. Nothing else stays at the service, as far as the \
rights of this user allow; the counter of its tokens expires, as every counter does. Each probe takes at most 5s.

Ends with 0 if locks work, whatever the warnings, and otherwise with the code that dlock run would end with.";

/// `dlock check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print one JSON document, see dlock-json(7)
    #[arg(long, action = ArgAction::SetTrue)]
    pub json: Option<bool>,

    /// Length of the lease that runs will ask for: what the service grants and how fast it answers are compared with it
    #[arg(short, long, value_name = "DURATION", env = "DLOCK_TTL", hide_env_values = true, default_value = "30s", value_parser = ttl, allow_hyphen_values = true)]
    pub ttl: Option<Duration>,

    /// Print nothing unless --json is given; the exit code tells
    #[arg(short, long, env = "DLOCK_QUIET", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub quiet: Option<bool>,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = "Connection options")]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

connects!(durably CheckArgs);
