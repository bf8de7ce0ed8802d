/*!
What the user wants, from flags over environment over defaults, checked as a whole.
*/

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::path::Path;
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::backend::Options;
use crate::backend::tls::TlsFiles;
use crate::backend::url::Target;
use crate::cli::{Leftovers, OnLost, RunArgs};
use crate::exit::{Exit, Failure};
use crate::key::{Key, Namespace};
use crate::lease::timing::Grace;
use crate::report::Verbosity;

/// The longest password that is read from a file, in bytes.
const MAX_PASSWORD: usize = 64 * 1024;

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// This long.
    For(Duration),
    /// For ever.
    Endless,
}

/// Everything that `dlock run` needs to know.
#[derive(Debug)]
pub(crate) struct RunSettings {
    /// The lock's name.
    pub key: Key,
    /// What stands before it on a server.
    pub namespace: Namespace,
    /// Where the lock is.
    pub target: Target,
    /// What else is said about the way to it.
    pub options: Options,
    /// Whether somebody chose the backend.
    pub chosen: bool,
    /// How long to wait for the lock.
    pub patience: Patience,
    /// The exit code when it was not acquired.
    pub conflict: u8,
    /// The length of lease to ask for.
    pub ttl: Duration,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Grace,
    /// What to do when the lock is lost.
    pub on_lost: OnLost,
    /// How long the command may run.
    pub max_run: Option<Duration>,
    /// What to do with what it leaves running.
    pub leftovers: Leftovers,
    /// The program and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// Keep the locked descriptor from the command.
    pub close: bool,
    /// What to tell those who wait.
    pub reason: Option<String>,
    /// How much to say.
    pub verbosity: Verbosity,
    /// How long connecting may take.
    pub connect_timeout: Duration,
}

fn usage(message: impl std::fmt::Display) -> Failure {
    Failure::told(Exit::Usage, message)
}

impl RunSettings {
    /// Settles what `args` and their sources mean together; `matches` are those of the subcommand.
    pub(crate) fn new(args: RunArgs, matches: &ArgMatches) -> Result<Self, Failure> {
        let key = Key::parse(&args.key).map_err(|error| usage(format!("--key: {error}")))?;
        // Many clients of the same servers call the key of a certificate so.
        if args.key.as_encoded_bytes().to_ascii_lowercase().ends_with(b".pem") && Path::new(&args.key).exists() {
            return Err(usage("--key is the lock's name, and not a file: name a TLS key with --tls-key FILE"));
        }
        let namespace = Namespace::parse(&args.namespace).map_err(usage)?;
        let chosen = args.backend.is_some();
        let target = target(&args)?;
        let grace = grace(&args, &target)?;
        let options = options(&args, &target, matches)?;
        let command = command_line(args.shell, args.argv, matches)?;
        Ok(Self {
            key,
            namespace,
            target,
            options,
            chosen,
            patience: patience(args.nonblock, args.wait, matches),
            conflict: args.conflict_exit_code,
            ttl: args.ttl,
            grace,
            on_lost: args.on_lost,
            max_run: args.max_run,
            leftovers: args.leftovers,
            argv: command,
            close: args.close,
            reason: args.reason.filter(|reason| !reason.is_empty()),
            verbosity: verbosity(args.quiet, args.verbose, matches),
            connect_timeout: args.connect_timeout,
        })
    }
}

/// `--kill-after` within what the backend's leases can afford.
fn grace(args: &RunArgs, target: &Target) -> Result<Grace, Failure> {
    let grace = Grace { asked: args.kill_after, share: target.kill_after_share() };
    let most = args.ttl / grace.share;
    if args.kill_after.is_some_and(|kill_after| kill_after > most) {
        let part = if grace.share == 2 { "half" } else { "a quarter" };
        let (most, ttl) = (humantime::format_duration(most), humantime::format_duration(args.ttl));
        return Err(usage(format!(
            "--kill-after may be at most {part} of --ttl ({most} of {ttl}): lower it, or raise --ttl"
        )));
    }
    Ok(grace)
}

/// What concerns only some backends. A flag for another one is a mistake; a variable may stand for all of a user's
/// backends, and is an error only where leaving it out would send something in plain text.
fn options(args: &RunArgs, target: &Target, matches: &ArgMatches) -> Result<Options, Failure> {
    let tls = TlsFiles {
        ca: args.tls_ca.clone(),
        cert: args.tls_cert.clone(),
        key: args.tls_key.clone(),
        server_name: args.tls_server_name.clone(),
    };
    let named = ["tls_ca", "tls_cert", "tls_key", "tls_server_name"].into_iter().any(|id| is_flag(matches, id));
    if !tls.is_empty() && (target.is_tls() == Some(false) || named && target.is_tls().is_none()) {
        let remedy = if target.is_tls().is_none() {
            "leave it out"
        } else {
            "use the scheme for TLS, such as rediss:// or etcds://"
        };
        return Err(usage(format!("--tls-… is given, but {target} does not use TLS: {remedy}")));
    }
    let misplaced = |id: &str, option: &str, place: &str| {
        let message = format!("{option} is only for {place}, not for {target}: leave it out");
        if is_flag(matches, id) { Err(usage(message)) } else { Ok(()) }
    };
    if !target.has_replicas() {
        misplaced("replicas", "--replicas", "a redis server with replicas")?;
    }
    if !target.is_redlock() {
        misplaced("strict_fencing", "--strict-fencing", "redlock://")?;
    }
    Ok(Options { tls, replicas: args.replicas, strict_fencing: args.strict_fencing })
}

fn is_flag(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// `-n` and `-w`: a flag beats the environment also across the two.
fn patience(nonblock: bool, wait: Option<Duration>, matches: &ArgMatches) -> Patience {
    let wait_is_flag = is_flag(matches, "wait");
    let nonblock = nonblock && (is_flag(matches, "nonblock") || !wait_is_flag);
    match wait {
        _ if nonblock => Patience::None,
        Some(wait) if wait.is_zero() => Patience::None,
        Some(wait) => Patience::For(wait),
        None => Patience::Endless,
    }
}

/// `-q` and `-v`, likewise.
fn verbosity(quiet: bool, verbose: bool, matches: &ArgMatches) -> Verbosity {
    let quiet = quiet && (is_flag(matches, "quiet") || !is_flag(matches, "verbose"));
    match (quiet, verbose) {
        (true, _) => Verbosity::Quiet,
        (false, true) => Verbosity::Verbose,
        (false, false) => Verbosity::Normal,
    }
}

/// `-c` and a command, likewise.
fn command_line(shell: Option<OsString>, argv: Vec<OsString>, matches: &ArgMatches) -> Result<Vec<OsString>, Failure> {
    match (shell, argv) {
        (None, argv) if argv.is_empty() => {
            Err(usage("there is no command to run: add -- COMMAND, or -c 'SHELL COMMAND'"))
        }
        (Some(_), argv) if !argv.is_empty() && is_flag(matches, "shell") => {
            Err(usage("-c STRING and a command exclude each other: use one of them"))
        }
        (Some(shell), argv) if argv.is_empty() => Ok(vec!["/bin/sh".into(), "-c".into(), shell]),
        (_, argv) if argv[0].is_empty() => Err(usage("the command's name is empty: name a program")),
        (_, argv) => Ok(argv),
    }
}

fn target(args: &RunArgs) -> Result<Target, Failure> {
    let mut target = match &args.backend {
        None => Target::default_one().map_err(usage)?,
        Some(url) => {
            let url = url.to_str().ok_or_else(|| usage("--backend: the URL is not UTF-8: percent-encode it"))?;
            Target::parse(url).map_err(|error| usage(format!("--backend: {error}")))?
        }
    };
    let password = match &args.password_file {
        Some(path) => Some(read_password(path)?),
        None => match std::env::var_os("DLOCK_PASSWORD").filter(|password| !password.is_empty()) {
            Some(password) => Some(password.into_string().map_err(|_| usage("DLOCK_PASSWORD is not UTF-8"))?),
            None => None,
        },
    };
    target.add_credentials(args.user.clone().filter(|user| !user.is_empty()), password);
    Ok(target)
}

/// The first line of a file, of standard input (`-`) or of an open descriptor (`fd:N`).
fn read_password(path: &Path) -> Result<String, Failure> {
    let failed = |reason: &dyn std::fmt::Display| {
        usage(format!(
            "--password-file: could not read {}: {reason}; name a readable file that holds the password",
            path.display()
        ))
    };
    let mut source = match path.to_str() {
        Some("-" | "fd:0") => File::from(io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?),
        Some(text) if text.starts_with("fd:") => {
            let number: RawFd = text[3..].parse().map_err(|_| failed(&"fd: takes a number"))?;
            if number < 3 {
                return Err(failed(&"the standard descriptors are the command's own, use another"));
            }
            // SAFETY: F_GETFD only asks whether the descriptor is open.
            if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
                return Err(failed(&"that descriptor is not open"));
            }
            // SAFETY: it is open, was handed to us for this, and nothing else here uses it.
            unsafe { File::from_raw_fd(number) }
        }
        _ => File::open(path).map_err(|error| failed(&error))?,
    };
    let mut password = Vec::new();
    let mut byte = [0];
    // Byte by byte: what follows the first line of standard input is the command's.
    while password.len() < MAX_PASSWORD
        && source.read(&mut byte).map_err(|error| failed(&error))? == 1
        && byte != *b"\n"
    {
        password.push(byte[0]);
    }
    let password = String::from_utf8(password).map_err(|_| failed(&"its first line is not UTF-8"))?;
    let password = password.trim_end_matches('\r');
    if password.is_empty() { Err(failed(&"its first line is empty")) } else { Ok(password.to_owned()) }
}
