/*!
The command line. Help, man pages and completions are all made from these definitions.
*/

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{FalseyValueParser, Resettable, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::backend::registry::help;
use crate::backend::url::without_password;
use crate::exit::{Exit, Failure};

/// The longest duration that is accepted.
const MAX_DURATION: Duration = Duration::from_secs(315_576_000);

/// What `dlock run` does, at length.
const RUN_ABOUT: &str = "\
Takes the lock KEY from the backend, runs COMMAND while keeping the lock alive, and releases the lock when COMMAND has \
ended. Signals are passed on, and COMMAND's exit code is dlock's own.

The command never outlives its lease: when the lock cannot be kept (the server died or went silent, the network drops \
packets, dlock was frozen or killed), COMMAND and everything it started are told to end with SIGTERM and are killed \
before the server can give the lock to somebody else. Then dlock exits with 79. On file: there is no lease, and COMMAND \
holds the locked file itself: the lock lives as long as the work.";

/// flock(1) for clusters: run a command under a lock.
#[derive(Debug, Parser)]
#[command(
    name = "dlock",
    version,
    about = "flock(1) for clusters: run a command under a lock, and stop it before the lock can pass to someone else",
    disable_help_subcommand = true,
    arg_required_else_help = false
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What dlock can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold a lock while a command runs
    #[command(long_about = RUN_ABOUT)]
    Run(Box<RunArgs>),
    /// Print the man page or a completion script
    Generate(GenerateArgs),
}

/// `dlock generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// What to print
    #[arg(value_enum)]
    pub what: Generated,
    /// With man: the page of this subcommand
    #[arg(value_name = "SUBCOMMAND")]
    pub page: Option<String>,
}

/// What can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generated {
    /// The man page
    Man,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

impl Generated {
    /// The shell that the completions are for; none for the man page.
    #[must_use]
    pub(crate) fn shell(self) -> Option<Shell> {
        match self {
            Self::Man => None,
            Self::Bash => Some(Shell::Bash),
            Self::Zsh => Some(Shell::Zsh),
            Self::Fish => Some(Shell::Fish),
        }
    }
}

/// `dlock run`.
// Switches are what they are.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Args)]
#[command(
    override_usage = "dlock run --key <KEY> [OPTIONS] [--] <COMMAND> [ARG]...\n       dlock run --key <KEY> [OPTIONS] -c <STRING>"
)]
pub(crate) struct RunArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters
    #[arg(short, long, value_name = "KEY", required = true)]
    pub key: OsString,

    // Not parsed here: a message of the parser's would repeat a password.
    #[arg(short, long, value_name = "URL", env = "DLOCK_BACKEND", hide_env_values = true, help = help())]
    pub backend: Option<OsString>,

    /// What stands before every key on a server; empty for none; file: ignores it
    #[arg(long, value_name = "NS", env = "DLOCK_NAMESPACE", hide_env_values = true, default_value = "dlock")]
    pub namespace: String,

    /// Do not wait: exit with 75 when somebody else holds the lock
    #[arg(short, long, env = "DLOCK_NONBLOCK", hide_env_values = true, value_parser = flag())]
    pub nonblock: bool,

    /// Wait no longer than this for the lock; 0 is --nonblock; default: for ever
    #[arg(short, long, value_name = "DURATION", env = "DLOCK_WAIT", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub wait: Option<Duration>,

    /// Exit code when the lock was not acquired; 0 makes a skipped run a success
    #[arg(short = 'E', long, value_name = "N", env = "DLOCK_CONFLICT_EXIT_CODE", hide_env_values = true, default_value_t = crate::exit::CONFLICT, allow_hyphen_values = true)]
    pub conflict_exit_code: u8,

    /// Length of the lease, at least 1s: how long the lock outlives a dead holder. etcd (2s by default) and ZooKeeper (4s
    /// to 40s) have bounds of their own, and grant what is nearest
    #[arg(short, long, value_name = "DURATION", env = "DLOCK_TTL", hide_env_values = true, default_value = "30s", value_parser = ttl, allow_hyphen_values = true)]
    pub ttl: Duration,

    /// Time between SIGTERM and SIGKILL, at most half of the granted ttl (zk: a quarter); default: the smaller of 5s and a
    /// quarter of the ttl
    #[arg(long, value_name = "DURATION", env = "DLOCK_KILL_AFTER", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub kill_after: Option<Duration>,

    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, value_name = "ACTION", env = "DLOCK_ON_LOST", hide_env_values = true, default_value_t = OnLost::Stop)]
    pub on_lost: OnLost,

    /// Stop the command after this long, and exit with 124
    #[arg(long, value_name = "DURATION", env = "DLOCK_MAX_RUN", hide_env_values = true, value_parser = positive, allow_hyphen_values = true)]
    pub max_run: Option<Duration>,

    /// What to do with processes that the command left running; they are always stopped if a signal ended the command,
    /// or if it ended within --kill-after of being told to end
    #[arg(long, value_enum, value_name = "ACTION", env = "DLOCK_LEFTOVERS", hide_env_values = true, default_value_t = Leftovers::Leave)]
    pub leftovers: Leftovers,

    /// Run STRING with /bin/sh -c instead of a command
    #[arg(short = 'c', long = "command", value_name = "STRING", env = "DLOCK_COMMAND", hide_env_values = true)]
    pub shell: Option<OsString>,

    /// file: do not let the command inherit the locked descriptor
    #[arg(short = 'o', long, env = "DLOCK_CLOSE", hide_env_values = true, value_parser = flag())]
    pub close: bool,

    /// Shown to those who wait for the lock
    #[arg(long, value_name = "TEXT", env = "DLOCK_REASON", hide_env_values = true)]
    pub reason: Option<String>,

    /// Errors only
    #[arg(short, long, env = "DLOCK_QUIET", hide_env_values = true, value_parser = flag())]
    pub quiet: bool,

    /// Say when the lock is acquired and released
    #[arg(short, long, env = "DLOCK_VERBOSE", hide_env_values = true, value_parser = flag())]
    pub verbose: bool,

    /// How long connecting to the backend may take
    #[arg(long, value_name = "DURATION", env = "DLOCK_CONNECT_TIMEOUT", hide_env_values = true, default_value = "5s", value_parser = positive, allow_hyphen_values = true)]
    pub connect_timeout: Duration,

    /// User at the backend, where the URL names none
    #[arg(long, value_name = "NAME", env = "DLOCK_USER", hide_env_values = true)]
    pub user: Option<String>,

    /// Read the password for the backend from the first line of this file; - is standard input, fd:N an open descriptor
    #[arg(long, value_name = "FILE", env = "DLOCK_PASSWORD_FILE", hide_env_values = true)]
    pub password_file: Option<PathBuf>,

    /// TLS: trust these authorities (PEM) instead of the system's
    #[arg(long, value_name = "FILE", env = "DLOCK_TLS_CA", hide_env_values = true)]
    pub tls_ca: Option<PathBuf>,

    /// TLS: our certificate (PEM), for a server that wants one
    #[arg(long, value_name = "FILE", env = "DLOCK_TLS_CERT", hide_env_values = true)]
    pub tls_cert: Option<PathBuf>,

    /// TLS: the private key of our certificate (PEM)
    #[arg(long, value_name = "FILE", env = "DLOCK_TLS_KEY", hide_env_values = true)]
    pub tls_key: Option<PathBuf>,

    /// TLS: the name that the server's certificate must be for, where it is not the host in the URL
    #[arg(long, value_name = "NAME", env = "DLOCK_TLS_SERVER_NAME", hide_env_values = true)]
    pub tls_server_name: Option<String>,

    /// redis: count a grant or renewal only when this many replicas have confirmed it
    #[arg(
        long,
        value_name = "N",
        env = "DLOCK_REPLICAS",
        hide_env_values = true,
        default_value_t = 0,
        hide_default_value = true
    )]
    pub replicas: u32,

    /// redlock: refuse servers that could forget a fencing token (they need appendfsync always)
    #[arg(long, env = "DLOCK_STRICT_FENCING", hide_env_values = true, value_parser = flag())]
    pub strict_fencing: bool,

    /// The command to run, and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, num_args = 0..)]
    pub argv: Vec<OsString>,
}

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM, then SIGKILL
    Stop,
    /// SIGKILL at the time of the SIGTERM
    Kill,
    /// Leave the command alone and keep its exit code
    Ignore,
}

/// What happens to what the command left running when it ended normally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Leftovers {
    /// Leave it running, and release the lock
    Leave,
    /// Hold the lock until it has ended
    Wait,
    /// Stop it, then release the lock
    Kill,
}

/// A switch, whose variable may also say that it is off.
fn flag() -> impl TypedValueParser<Value = bool> {
    FalseyValueParser::new()
}

/// Reads a duration: a bare number is seconds, otherwise humantime.
fn duration(text: &str) -> Result<Duration, String> {
    const HINT: &str = "use seconds (10, 0.5) or units (1m30s, 500ms)";
    let is_number =
        text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && text.bytes().any(|b| b.is_ascii_digit());
    let duration = if is_number {
        text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    } else {
        humantime::parse_duration(text).ok()
    };
    match duration {
        Some(duration) if duration > MAX_DURATION => Err("it is longer than 10 years".to_owned()),
        Some(duration) => Ok(duration),
        None if is_number && text.bytes().filter(|&byte| byte == b'.').count() <= 1 => {
            Err("it is longer than 10 years".to_owned())
        }
        None => Err(format!("not a duration: {HINT}")),
    }
}

fn positive(text: &str) -> Result<Duration, String> {
    duration(text)
        .and_then(|duration| if duration.is_zero() { Err("it must be more than 0".to_owned()) } else { Ok(duration) })
}

fn ttl(text: &str) -> Result<Duration, String> {
    let shortest = Duration::from_secs(1);
    duration(text).and_then(|ttl| if ttl < shortest { Err("a lease lasts at least 1s".to_owned()) } else { Ok(ttl) })
}

/// Takes an empty variable for one that is not set, as shells and CI systems mean it. Only the namespace may be empty.
#[must_use]
pub(crate) fn unset_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &clap::Arg| {
        let variable = arg.get_env().filter(|_| arg.get_id() != "namespace");
        variable.and_then(std::env::var_os).is_some_and(|value| value.is_empty())
    };
    command.mut_subcommands(|subcommand| {
        subcommand.mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg })
    })
}

/// Turns what the parser found into output and an exit: help and version are answers, all else is one line.
pub(crate) fn explain(error: &clap::Error) -> Result<Exit, Failure> {
    if !error.use_stderr() {
        // A reader that went away needs no answer.
        let _ = error.print();
        return Ok(Exit::Success);
    }
    let text = error.to_string();
    // "error: what is wrong", perhaps with lines of detail, then hints, then the usage.
    let told: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let mut told = told.join("; ").replace(":; ", ": ").replace("; tip:", "; hint:");
    if let Some(rest) = told.strip_prefix("error: ") {
        told = rest.to_owned();
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        || error.kind() == clap::error::ErrorKind::MissingSubcommand
    {
        "there is no subcommand: use dlock run --key KEY -- COMMAND".clone_into(&mut told);
    }
    // A URL in the wrong place is repeated by the parser, and may hold a password.
    let told = without_password(&told);
    Err(Failure::told(Exit::Usage, format!("{told}; see dlock run --help")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, made_of};

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_but_key_has_its_variable() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").expect("run");
        for option in run.get_opts().filter(|option| option.get_id() != "key" && option.get_id() != "help") {
            let long = option.get_long().expect("every option has a long form");
            let variable = format!("DLOCK_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(option.get_env().and_then(|env| env.to_str()), Some(variable.as_str()));
            assert!(option.is_hide_env_values_set(), "--{long} would show its variable's value");
        }
    }

    #[test]
    fn durations() {
        for (text, expected) in [
            ("10", Some(Duration::from_secs(10))),
            ("0", Some(Duration::ZERO)),
            ("0.5", Some(Duration::from_millis(500))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("500ms", Some(Duration::from_millis(500))),
            ("10years", Some(MAX_DURATION)),
            ("10years 1s", None),
            ("315576001", None),
            ("99999999999999999999999999", None),
            ("-1", None),
            ("-1s", None),
            ("NaN", None),
            ("inf", None),
            ("1e3", None),
            ("1.2.3", None),
            (".", None),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(duration(text).ok(), expected, "{text}");
        }
        assert!(ttl("0").is_err() && ttl("0.9").is_err() && ttl("1").is_ok());
        assert!(positive("0").is_err());
    }

    #[test]
    fn any_text_is_a_duration_of_at_most_ten_years_or_none() {
        const PIECES: &str = "\
            1|10|0.5|.|-|+| |9999999999|18446744073709551616|315576000|ns|us|ms|s|m|min|h|d|days|w|M|months|y\
            |years|e3|inf|NaN|0x1|١";
        holds(3000, made_of(PIECES), |text| {
            let read = duration(&text);
            if let Ok(duration) = &read {
                prop_assert!(*duration <= MAX_DURATION, "{duration:?}");
            }
            prop_assert_eq!(positive(&text).is_ok(), read.as_ref().is_ok_and(|duration| !duration.is_zero()));
            prop_assert_eq!(ttl(&text).is_ok(), read.as_ref().is_ok_and(|duration| duration.as_secs() > 0));
            Ok(())
        });
    }

    #[test]
    fn a_duration_is_read_back_from_its_text_and_a_bare_number_is_seconds() {
        let limit = MAX_DURATION.as_secs();
        let seconds = prop_oneof![0..100_u64, 0..=limit, limit - 5..limit + 5, any::<u64>()];
        holds(2000, (seconds, 0..1_000_000_000_u32), |(seconds, nanos)| {
            let whole = Duration::from_secs(seconds);
            let fits = whole <= MAX_DURATION;
            prop_assert_eq!(duration(&seconds.to_string()).ok(), fits.then_some(whole));
            let precise = whole + Duration::from_nanos(nanos.into());
            let told = humantime::format_duration(precise).to_string();
            prop_assert_eq!(duration(&told).ok(), (precise <= MAX_DURATION).then_some(precise), "{}", told);
            if seconds < limit {
                let read = duration(&format!("{seconds}.{nanos:09}")).map_err(TestCaseError::fail)?;
                prop_assert!(read.abs_diff(precise) < Duration::from_micros(1), "{read:?}");
            }
            Ok(())
        });
    }
}
