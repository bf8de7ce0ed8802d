/*!
The options, in one struct for each concern. A field is set only if a value was given; flags and variables are read into
the same structs, and so are the values of config files and the defaults.
*/

use std::ffi::OsString;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{ArgAction, Args, ValueEnum};

use crate::backend::registry::{Meetings, help};
use crate::cli::duration::{duration, period, positive, ttl};
use crate::lock::admission::MOST_SLOTS;

/// The groups of mutually exclusive options, by their names.
pub(crate) const EXCLUSIONS: &[&[&str]] =
    &[&["nonblock", "wait"], &["quiet", "verbose"], &["exclusive", "shared", "slots"]];

/// The heading of the options for the place of a lock service and for reaching it.
pub(super) const CONNECTION: &str = "Connection options";

/// The heading of the options that few runs need.
pub(super) const RARE: &str = "Rarely needed options";

/// The options for the place of the lock.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Place {
    // Not parsed here, because an error message of the parser would repeat a password.
    #[arg(short, long, value_name = "URL", env = "DLOCK_BACKEND", hide_env_values = true, help = help(Meetings::Latches))]
    pub backend: Option<OsString>,

    /// Prefix for every key on a server; may be empty. Ignored by file:
    #[arg(long, value_name = "NS", help_heading = CONNECTION, env = "DLOCK_NAMESPACE", hide_env_values = true, default_value = "dlock")]
    pub namespace: Option<String>,

    /// Use the values of this profile in the config files
    #[arg(long, value_name = "NAME", help_heading = CONNECTION, env = "DLOCK_PROFILE", hide_env_values = true)]
    pub profile: Option<String>,

    /// If no backend is chosen, exit with 64 instead of using file:
    #[arg(long, help_heading = CONNECTION, env = "DLOCK_REQUIRE_BACKEND", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub require_backend: Option<bool>,

    /// Show times in UTC, or in the time zone of this host (or of TZ). JSON has UTC always
    #[arg(long, value_name = "ZONE", env = "DLOCK_TIME", hide_env_values = true, default_value = "utc")]
    pub time: Option<Zone>,
}

/// The options of a subcommand that uses a lock service.
pub(crate) trait Connects {
    /// Returns the options for the place of the service.
    fn place(&self) -> &Place;
    /// Returns the options for reaching the service.
    fn reach(&self) -> &Reach;
    /// Returns the options for the durability of grants; `None` for a subcommand that asks for no grant.
    fn durability(&self) -> Option<&Durability> {
        None
    }
    /// Returns the options for the wait for a lock; `None` for a subcommand that takes no lock.
    fn waiting(&self) -> Option<&Waiting> {
        None
    }
}

/// Implements [`Connects`] for arguments that have the fields `place` and `reach`; with `durably`, also `durability`;
/// with `waiting at`, also `durability` and the field that is named.
macro_rules! connects {
    (waiting at $($way:ident).+, $arguments:ty) => {
        connects!(@ $arguments, (durability Durability durability) (waiting Waiting $($way).+));
    };
    (durably $($arguments:ty),+) => { $(connects!(@ $arguments, (durability Durability durability));)+ };
    (@ $arguments:ty, $(($method:ident $options:ident $($way:ident).+))*) => {
        impl $crate::cli::options::Connects for $arguments {
            fn place(&self) -> &$crate::cli::options::Place {
                &self.place
            }

            fn reach(&self) -> &$crate::cli::options::Reach {
                &self.reach
            }

            $(fn $method(&self) -> Option<&$crate::cli::options::$options> {
                Some(&self.$($way).+)
            })*
        }
    };
    ($($arguments:ty),+) => { $(connects!(@ $arguments,);)+ };
}
pub(super) use connects;

/// The options for the wait for a lock.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Waiting {
    /// Do not wait: exit with 75 when the lock is held. Connecting may then take 2s at most
    #[arg(short, long, visible_alias = "nb", env = "DLOCK_NONBLOCK", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub nonblock: Option<bool>,

    /// Wait at most this long for the lock, or for a backend that cannot be reached; 0 means --nonblock. By default, the wait
    /// for the lock has no limit, and a backend that cannot be reached at first is an error at once
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION", env = "DLOCK_WAIT", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub wait: Option<Duration>,
}

/// The options for how much is reported.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Messages {
    /// Errors only
    #[arg(short, long, env = "DLOCK_QUIET", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub quiet: Option<bool>,

    /// Also report what was done
    #[arg(short, long, env = "DLOCK_VERBOSE", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub verbose: Option<bool>,
}

/// The options for running a command under a lock, and the command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub waiting: Waiting,

    /// Hold the lock alone, which is the default
    #[arg(short = 'x', short_alias = 'e', long, help_heading = RARE, env = "DLOCK_EXCLUSIVE", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub exclusive: Option<bool>,

    /// Hold the lock together with other --shared runs (readers), but never together with an --exclusive or --slots run. Waiters
    /// are served in order, so a stream of readers does not keep a writer out
    #[arg(short, long, env = "DLOCK_SHARED", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub shared: Option<bool>,

    /// Let up to N runs (1 to 1000) hold the lock at the same time. Each run finds its own number, from 0 to N-1, in
    /// DLOCK_SLOT. While the lock is in use with another N, exit with 64
    #[arg(long, value_name = "N", env = "DLOCK_SLOTS", hide_env_values = true, value_parser = slots, allow_hyphen_values = true)]
    pub slots: Option<NonZeroU32>,

    /// Exit code when the lock was not acquired; 0 makes a skipped run a success
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

    /// Length of the lease, at least 1s: how long the lock outlives a dead holder. etcd (at least 2s by default) and
    /// ZooKeeper (4s to 40s) have their own limits, and grant the nearest length
    #[arg(short, long, value_name = "DURATION", env = "DLOCK_TTL", hide_env_values = true, default_value = "30s", value_parser = ttl, allow_hyphen_values = true)]
    pub ttl: Option<Duration>,

    /// Keep the lock for at least this long after it was acquired, even if the command ends or fails sooner, or dlock is killed.
    /// With -n, a job that several hosts start at about the same time then runs once: make it longer than the clock skew between
    /// the hosts, but shorter than the interval between runs. A command that cannot be executed frees the lock. Ignored in a
    /// nested run for the same lock
    #[arg(long, value_name = "DURATION", env = "DLOCK_MIN_HOLD", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub min_hold: Option<Duration>,

    /// Keep the lock for this much longer if its holder vanishes without releasing it (its host died, dlock was killed), so that
    /// work that cannot check DLOCK_TOKEN can finish. The command still ends within --ttl, and a release frees the lock at once,
    /// also after the command was stopped. zk: at most a sixth of --ttl. Not for file:. Ignored in a nested run for the same lock
    #[arg(long, value_name = "DURATION", help_heading = RARE, env = "DLOCK_LOCK_DELAY", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub lock_delay: Option<Duration>,

    /// Let at most one run for this lock succeed (exit code 0) in each PERIOD, such as 1h. The other runs with the same PERIOD
    /// wait: if it succeeds they are skipped, with the exit code of a lock that was not acquired, and if it fails one of them
    /// takes over. With -n they do not wait. Periods are multiples of their length since 1970 in UTC, by the clock of this host.
    /// Not with --shared or --slots, nor in a nested run for the same lock
    #[arg(long, value_name = "PERIOD", env = "DLOCK_ONCE_PER", hide_env_values = true, value_parser = period, allow_hyphen_values = true)]
    pub once_per: Option<Duration>,

    /// Time between SIGTERM and SIGKILL where dlock stops the command (the lock is lost, --max-run, dlock break), at most half of the
    /// granted ttl (zk: a quarter); default: the smaller of 5s and a quarter of the ttl. A signal to dlock is only passed on
    #[arg(long, value_name = "DURATION", help_heading = RARE, env = "DLOCK_KILL_AFTER", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub kill_after: Option<Duration>,

    /// Action on the command when the lock is lost
    #[arg(
        long,
        value_enum,
        value_name = "ACTION",
        help_heading = RARE,
        env = "DLOCK_ON_LOST",
        hide_env_values = true,
        default_value = "stop"
    )]
    pub on_lost: Option<OnLost>,

    /// Stop the command after this long, and exit with 124
    #[arg(long, value_name = "DURATION", env = "DLOCK_MAX_RUN", hide_env_values = true, value_parser = positive, allow_hyphen_values = true)]
    pub max_run: Option<Duration>,

    /// Action on processes that the command leaves running. If a signal ended the command, or it was told to end and did so
    /// within --kill-after, they are always stopped
    #[arg(
        long,
        value_enum,
        value_name = "ACTION",
        help_heading = RARE,
        env = "DLOCK_LEFTOVERS",
        hide_env_values = true,
        default_value = "leave"
    )]
    pub leftovers: Option<Leftovers>,

    /// Run STRING with /bin/sh -c instead of a command
    #[arg(short = 'c', long = "command", value_name = "STRING", env = "DLOCK_COMMAND", hide_env_values = true)]
    pub shell: Option<OsString>,

    /// file: do not let the command inherit the locked descriptor
    #[arg(short = 'o', long, help_heading = RARE, env = "DLOCK_CLOSE", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub close: Option<bool>,

    /// Text shown to waiters, and by status and list
    #[arg(long, value_name = "TEXT", env = "DLOCK_REASON", hide_env_values = true)]
    pub reason: Option<String>,

    /// Append a JSON line for each event (waiting, acquired, started, renewed, lost, stopping, exited, released, end and more) to
    /// this file, or write it to an open descriptor, fd:3 or higher; see dlock-json(7). COMMAND does not inherit the descriptor,
    /// and dlock never waits for a reader
    #[arg(long, value_name = "FILE", help_heading = RARE, env = "DLOCK_EVENTS", hide_env_values = true)]
    pub events: Option<PathBuf>,

    /// Errors only
    #[arg(short, long, env = "DLOCK_QUIET", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub quiet: Option<bool>,

    /// Also report when the lock is acquired and released, and who broke it in the last week
    #[arg(short, long, env = "DLOCK_VERBOSE", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub verbose: Option<bool>,

    /// The command to run, and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, num_args = 0..)]
    pub argv: Vec<OsString>,
}

/// The options for the output of a look.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Showing {
    /// Print one JSON document, see dlock-json(7); with --watch, one line for each change
    #[arg(long, action = ArgAction::SetTrue)]
    pub json: Option<bool>,

    /// Keep the output up to date until Ctrl-C
    #[arg(long, action = ArgAction::SetTrue)]
    pub watch: Option<bool>,

    /// Print no remarks. With status, print nothing unless --json or --watch is given: only the exit code tells
    #[arg(short, long, env = "DLOCK_QUIET", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub quiet: Option<bool>,
}

/// The options for reaching the lock service.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Reach {
    /// How long connecting to the backend may take
    #[arg(long, value_name = "DURATION", env = "DLOCK_CONNECT_TIMEOUT", hide_env_values = true, default_value = "5s", value_parser = positive, allow_hyphen_values = true)]
    pub connect_timeout: Option<Duration>,

    /// User name at the backend, if the URL has none
    #[arg(long, value_name = "NAME", env = "DLOCK_USER", hide_env_values = true)]
    pub user: Option<String>,

    /// Read the password for the backend from the first line of this file; - is standard input, and fd:N an open descriptor. A
    /// FIFO must be opened for writing within --connect-timeout, and written within --connect-timeout or --wait, whichever is
    /// longer; if neither is given, within 2m
    #[arg(long, value_name = "FILE", env = "DLOCK_PASSWORD_FILE", hide_env_values = true)]
    pub password_file: Option<PathBuf>,

    /// TLS: trust these certificate authorities (PEM) instead of the system's
    #[arg(long, value_name = "FILE", env = "DLOCK_TLS_CA", hide_env_values = true)]
    pub tls_ca: Option<PathBuf>,

    /// TLS: the client certificate (PEM), for servers that require one
    #[arg(long, value_name = "FILE", env = "DLOCK_TLS_CERT", hide_env_values = true)]
    pub tls_cert: Option<PathBuf>,

    /// TLS: the private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", env = "DLOCK_TLS_KEY", hide_env_values = true)]
    pub tls_key: Option<PathBuf>,

    /// TLS: the name in the server's certificate, if it is not the host in the URL
    #[arg(long, value_name = "NAME", env = "DLOCK_TLS_SERVER_NAME", hide_env_values = true)]
    pub tls_server_name: Option<String>,
}

/// The options for the durability of grants.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Durability {
    /// redis: count a grant or renewal only when this many replicas have confirmed it
    #[arg(
        long,
        value_name = "N",
        help_heading = RARE,
        env = "DLOCK_REPLICAS",
        hide_env_values = true,
        default_value = "0",
        value_parser = replicas,
        allow_hyphen_values = true,
        hide_default_value = true
    )]
    pub replicas: Option<u32>,

    /// redlock: refuse servers that could forget a fencing token (appendfsync always is needed)
    #[arg(long, help_heading = RARE, env = "DLOCK_STRICT_FENCING", hide_env_values = true, action = ArgAction::SetTrue, value_parser = switch())]
    pub strict_fencing: Option<bool>,
}

/// The action on the command when the lock is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM, then SIGKILL
    #[default]
    Stop,
    /// SIGKILL at once, without SIGTERM
    Kill,
    /// Do not stop it; dlock run exits with the command's own exit code
    Ignore,
}

/// The time zone of the times that people are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Zone {
    /// UTC
    #[default]
    Utc,
    /// The time zone of this host, or of TZ
    Local,
}

/// The action on processes that the command left running when it ended normally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Leftovers {
    /// Leave them running, and release the lock
    #[default]
    Leave,
    /// Hold the lock until they have ended. A signal that asks dlock to end, and --max-run, stop them
    Wait,
    /// Stop them, then release the lock
    Kill,
}

/// Reads a number of slots.
fn slots(text: &str) -> Result<NonZeroU32, String> {
    between(text, &(1..=MOST_SLOTS)).map(|slots| NonZeroU32::new(slots).unwrap_or(NonZeroU32::MIN))
}

/// Reads the exit code of a lock that was not acquired.
pub(super) fn exit_code(text: &str) -> Result<u8, String> {
    between(text, &(0..=u8::MAX))
}

/// Reads the number of replicas that must confirm.
fn replicas(text: &str) -> Result<u32, String> {
    between(text, &(0..=u32::MAX))
}

/// Reads a number in this range.
pub(super) fn between<T: FromStr + PartialOrd + Display>(text: &str, range: &RangeInclusive<T>) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
}

/// Returns the parser for the variable of a switch, which may also turn the switch off.
pub(super) fn switch() -> impl TypedValueParser<Value = bool> {
    is_on
}

/// Returns `true` if the value of a switch's variable turns the switch on. The error says what to use.
pub(crate) fn is_on(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "t" | "true" | "on" => Ok(true),
        "0" | "n" | "no" | "f" | "false" | "off" => Ok(false),
        _ => Err("use 1, yes, true or on, or else 0, no, false or off"),
    }
}
