/*!
The options of `dlock check`.
*/

use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::duration::ttl;
use crate::cli::options::{CONNECTION, Durability, Place, Reach, connects, switch};

/// The long description of `dlock check`.
pub(super) const CHECK_ABOUT: &str = "\
Tests whether locks at this backend work, how fast it answers, and what could make them unsafe. Each line is one probe, with its \
result (ok, warn, fail or skip), what was found, and the remedy. A probe is skipped if this user lacks the right to ask.

dlock takes a lock as dlock run does: two contenders ask for a scratch key (dlock-check- and a random id, with a lease of 5s). \
One of them must get it, renew it and release it, and the other must be refused. Missing tables of a database are made, as by \
dlock run. Nothing else stays at the service, as far as the rights of this user allow; the counter of the tokens expires, as \
every counter does. Each probe takes at most 5s.

Exits with 0 if locks work, even with warnings, and otherwise with the code that dlock run would exit with. Settings that dlock \
run would refuse, also those of variables and config files, are refused with the same message (64 or 78).";

/// `dlock check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print one JSON document, see dlock-json(7)
    #[arg(long, action = ArgAction::SetTrue)]
    pub json: Option<bool>,

    /// Length of the lease that runs will ask for, to compare with what the service grants and how fast it answers
    #[arg(short, long, value_name = "DURATION", env = "DLOCK_TTL", hide_env_values = true, default_value = "30s", value_parser = ttl, allow_hyphen_values = true)]
    pub ttl: Option<Duration>,

    /// Print nothing unless --json is given; only the exit code tells
    #[arg(short, long, env = "DLOCK_QUIET", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub quiet: Option<bool>,

    #[command(flatten)]
    pub place: Place,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

connects!(durably CheckArgs);
