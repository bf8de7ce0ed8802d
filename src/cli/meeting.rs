/*!
The options of latches and barriers. A field is set only if a value was given; defaults in this file are for the help.
*/

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::cli::duration::{duration, positive, ttl};
use crate::cli::options::{CONNECTION, Durability, Messages, Place, Reach, between, connects, exit_code, switch};

/// Maximum number of names to wait for.
const MOST_NAMES: u32 = 1000;
/// Maximum number of parties that can meet: etcd takes at most 128 changes at once.
const MOST_PARTIES: u32 = 100;

/// The long description of `dlock latch`.
pub(super) const LATCH_ABOUT: &str = "\
A latch opens when enough names have been reported as done, for example by all build jobs of a pipeline that a deployment waits for. It \
remembers the names for a day (--keep), so the order does not matter, and a name that is reported twice counts once. A latch has \
nothing to do with a lock of the same name. Options may come before or after the action.";

/// The long description of `dlock barrier`.
pub(super) const BARRIER_ABOUT: &str = "\
Waits until N parties wait at the barrier at the same moment, and then exits with 0 for each of them. Nothing is remembered: the \
same key can be used again at once, even in a loop. A barrier has nothing to do with a lock of the same name.

If a waiting party leaves (its --wait ran out, or a signal ended it) or dies, the others exit with 79, unless they are \
--patient. A newer process with the same --as NAME takes the place of an older one, which exits with 79.";

/// The options for the wait and for the reports.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Waits {
    /// Wait at most this long, including for the backend; 0 means do not wait. By default, the wait has no limit, and an error of the
    /// backend ends it
    #[arg(short, long, value_name = "DURATION", env = "DLOCK_WAIT", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub wait: Option<Duration>,

    /// Exit code when the wait ran out
    #[arg(
        short = 'E',
        long,
        value_name = "N",
        env = "DLOCK_CONFLICT_EXIT_CODE",
        hide_env_values = true,
        default_value = "75",
        value_parser = exit_code,
        allow_hyphen_values = true
    )]
    pub conflict_exit_code: Option<u8>,

    #[command(flatten)]
    pub messages: Messages,
}

/// An action on a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LatchAction {
    /// Report that the name of --as is done
    #[value(alias = "down")]
    Done,
    /// Wait until --count names are done
    Wait,
    /// Mark the latch as failed: all who wait, now or later, exit with 79
    Fail,
    /// Show which names are done, and whether the latch has failed
    Show,
    /// Forget the names and the failure
    Forget,
}

/// `dlock latch`.
#[derive(Debug, Args)]
#[command(
    override_usage = "dlock latch --key <KEY> [OPTIONS] done --as <NAME>\n       dlock latch --key <KEY> [OPTIONS] wait --count <N>\n       dlock latch --key <KEY> [OPTIONS] fail [--reason <TEXT>]\n       dlock latch --key <KEY> [OPTIONS] show [--json]\n       dlock latch --key <KEY> [OPTIONS] forget"
)]
pub(crate) struct LatchArgs {
    /// What to do
    #[arg(value_enum, value_name = "ACTION", required = true)]
    pub action: Option<LatchAction>,

    /// The latch's name: 1 to 512 bytes of UTF-8 without control characters
    #[arg(short, long, value_name = "KEY", required = true)]
    pub key: Vec<OsString>,

    #[command(flatten)]
    pub place: Place,

    /// done: the name that is done; fail: who reports the failure (default: this host)
    #[arg(long = "as", value_name = "NAME", env = "DLOCK_AS", hide_env_values = true)]
    pub name: Option<String>,

    /// wait: how many names must be done, from 1 to 1000
    #[arg(long, value_name = "N", env = "DLOCK_COUNT", hide_env_values = true, value_parser = names, allow_hyphen_values = true)]
    pub count: Option<u32>,

    /// fail: the reason, shown to those who wait
    #[arg(long, value_name = "TEXT", env = "DLOCK_REASON", hide_env_values = true)]
    pub reason: Option<String>,

    /// done and fail: how long this is remembered
    #[arg(long, value_name = "DURATION", env = "DLOCK_KEEP", hide_env_values = true, default_value = "24h", value_parser = positive, allow_hyphen_values = true)]
    pub keep: Option<Duration>,

    /// show: print one JSON document, see dlock-json(7)
    #[arg(long, action = ArgAction::SetTrue)]
    pub json: Option<bool>,

    #[command(flatten)]
    pub waits: Waits,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

/// `dlock barrier`.
#[derive(Debug, Args)]
#[command(override_usage = "dlock barrier --key <KEY> --parties <N> [OPTIONS]")]
pub(crate) struct BarrierArgs {
    /// The barrier's name: 1 to 512 bytes of UTF-8 without control characters
    #[arg(short, long, value_name = "KEY", required = true)]
    pub key: Vec<OsString>,

    #[command(flatten)]
    pub place: Place,

    /// How many parties must be there, from 1 to 100
    #[arg(long, value_name = "N", env = "DLOCK_PARTIES", hide_env_values = true, value_parser = parties, allow_hyphen_values = true)]
    pub parties: Option<u32>,

    /// This party's name, which must be unique; default: the name of the host, on file: the process id
    #[arg(long = "as", value_name = "NAME", env = "DLOCK_AS", hide_env_values = true)]
    pub name: Option<String>,

    /// Keep waiting when others leave or die
    #[arg(long, env = "DLOCK_PATIENT", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub patient: Option<bool>,

    /// How long it takes to notice that a party died, at least 1s. etcd (at least 2s by default) and ZooKeeper (4s to 40s) have
    /// their own limits; file: notices at once
    #[arg(short, long, value_name = "DURATION", env = "DLOCK_TTL", hide_env_values = true, default_value = "30s", value_parser = ttl, allow_hyphen_values = true)]
    pub ttl: Option<Duration>,

    #[command(flatten)]
    pub waits: Waits,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

connects!(durably LatchArgs, BarrierArgs);

/// Reads the number of names to wait for.
fn names(text: &str) -> Result<u32, String> {
    between(text, &(1..=MOST_NAMES))
}

/// Reads the number of parties to wait for.
fn parties(text: &str) -> Result<u32, String> {
    between(text, &(1..=MOST_PARTIES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_can_be_waited_for() {
        for (text, count, party) in [
            ("1", Some(1), Some(1)),
            ("100", Some(100), Some(100)),
            ("101", Some(101), None),
            ("1000", Some(1000), None),
            ("1001", None, None),
            ("0", None, None),
            ("-1", None, None),
            ("", None, None),
            ("x", None, None),
        ] {
            assert_eq!((names(text).ok(), parties(text).ok()), (count, party), "{text}");
        }
    }
}
