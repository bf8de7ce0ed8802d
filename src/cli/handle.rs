/*!
The options of locks that outlive the process that took them: `dlock acquire`, `dlock renew` and `dlock release`. A
field is set only if a value was given; the defaults in this file are for the help.
*/

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::duration::{duration, handle_ttl};
use crate::cli::options::{
    CONNECTION, Connects, Durability, Messages, OnLost, Place, RARE, Reach, Waiting, connects, exit_code,
};
use crate::exit::Exit;
use crate::output;
use crate::variables::{HANDLE, HANDLE_SHELL, KEY, OWNER, TOKEN};

/// The long description of `dlock acquire`.
pub(super) const ACQUIRE_ABOUT: &str = "\
Takes the lock KEY and prints its handle: one word, with which later processes renew the lock, run commands under it and release \
it. For the rest of one script, use --while-pid $$. For steps that are separate processes, perhaps on several hosts, use a --ttl \
that is longer than the longest pause between two steps: only dlock renew and dlock run --handle renew the lock then.

With --while-pid PID, a process stays behind, the keeper. It renews the lock, and releases it when PID has ended, however it \
ends, and so has every dlock run --handle of this lock. If the lock is lost, or dlock break asks for it, the keeper first stops \
PID and these runs; --events has the reason. Commands that do not run under dlock run --handle can still overlap: what PID \
started may run on while somebody else has the lock, and if the keeper itself is killed, PID runs on, and the lock ends with its \
lease (on file: at once). Where that must never happen, use dlock run, or dlock run --handle, which then stops its command (79) \
and works on the keeper's host only. On file: and zk:, where a lock ends with the process that holds it, only --while-pid can be \
used, and a handle is for dlock release alone.

A handle is an address and not a key: whoever may write to the backend can release any lock there. It contains no password. The \
steps that use it need the same connection options (--password-file, --tls-ca and so on), but no --backend and no --namespace. \
If DLOCK_BACKEND or a config file names a backend, a password from a variable or config file is sent only to the servers of that \
backend; for a handle of other servers, use --password-file.";

/// The end of the help of `dlock acquire`.
pub(super) const ACQUIRE_EXAMPLES: &str = "\
Examples:
  h=$(dlock acquire -b redis://locks/ -k deploy --ttl 30m) || exit
  dlock run --handle \"$h\" -- ./deploy.sh
  dlock release \"$h\"

  s=$(dlock acquire -b redis://locks/ -k deploy --ttl 30m --shell) || exit; eval \"$s\"
  trap 'dlock release' EXIT

  dlock acquire -b redis://locks/ -k deploy --while-pid $$ >/dev/null || exit

The exit code of dlock is lost in export H=$(dlock acquire ...), in echo \"h=$(dlock acquire ...)\" and in \
eval \"$(dlock acquire ...)\", also with set -e: use a line of its own. With --shell, what is printed on failure unsets the \
variables and ends in the same code, (exit 75); nothing is printed where dlock cannot be started.";

/// The long description of `dlock renew`.
pub(super) const RENEW_ABOUT: &str = "\
Extends a lock by its handle, for as long as it was first granted. If the lock is no longer held by that handle, exits with 79. \
A lock that is gone is never taken again.";

/// The long description of `dlock release`.
pub(super) const RELEASE_ABOUT: &str = "\
Releases a lock by its handle, but never one that somebody else holds by now. It may be repeated: if the lock was released \
before, or its lease has ended, that is a success. If others hold the lock, or are known to have held it since, exits with 79. \
An empty HANDLE is a success too, so that a step that always runs can follow a dlock acquire that failed.

Without HANDLE, a shell releases what it acquired itself with --shell. A script that has inherited DLOCK_HANDLE from that shell \
does not: dlock says so and exits with 0. To release the lock there, use dlock release \"$DLOCK_HANDLE\".

While a dlock run under the handle goes on on this host, the lock is not released: dlock waits for that run as long as \
--connect-timeout, and then exits with 69. If the run is stopping its command, or its command was told to end, dlock waits as \
long as the lease can last, even if the dlock of that run was killed. Runs on other hosts, and in other PID or network \
namespaces, are not seen. They notice the release at their next renewal, within a third of --ttl; until then two commands can \
run at the same time.

A lock that was taken with --while-pid is released on the host of its keeper. The keeper then ends, and its process runs on.";

/// Reads a process id.
fn pid(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err("must be a process id, such as $$ in a script".to_owned()),
    }
}

/// `dlock acquire`.
#[derive(Debug, Args)]
pub(crate) struct AcquireArgs {
    /// The lock's name: 1 to 512 bytes of UTF-8 without control characters
    #[arg(short, long, value_name = "KEY", required = true)]
    pub key: Vec<OsString>,

    #[command(flatten)]
    pub place: Place,

    /// Length of the lease, from 1s to 24h: the lock is free that long after it was acquired or last renewed. No variable sets
    /// it, because it must fit the steps. Required without --while-pid; with it, 30s by default. etcd has its own limit (at least
    /// 2s by default), and grants the nearest length
    #[arg(short, long, value_name = "DURATION", value_parser = handle_ttl, allow_hyphen_values = true)]
    pub ttl: Option<Duration>,

    /// Leave a process behind, the keeper, that renews the lock until process PID has ended, and then releases it. In a script,
    /// PID is $$. If the lock is lost, the keeper stops PID, but of what PID started only the runs under dlock run --handle. Works
    /// on every backend, but not for process 1, which no signal stops
    #[arg(long, value_name = "PID", value_parser = pid, allow_hyphen_values = true)]
    pub while_pid: Option<i32>,

    #[command(flatten)]
    pub waiting: Waiting,

    /// Exit code when the lock was not acquired; not 0, because the next step would start without the lock. A 0 in a variable or
    /// config file is meant for dlock run, and counts as 75
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

    /// Text shown to waiters, and by status and list
    #[arg(long, value_name = "TEXT", env = "DLOCK_REASON", hide_env_values = true)]
    pub reason: Option<String>,

    /// Append a JSON line for each event (waiting, acquired, trouble, refused, end) to this file, or write it to an open
    /// descriptor, fd:3 or higher; see dlock-json(7). dlock never waits for a reader. With --while-pid the keeper has it open
    /// until PID has ended: use a file, because the reader of a pipe would wait that long
    #[arg(long, value_name = "FILE", help_heading = RARE, env = "DLOCK_EVENTS", hide_env_values = true)]
    pub events: Option<PathBuf>,

    /// Print a line for eval in a shell. It exports DLOCK_HANDLE, DLOCK_KEY, DLOCK_TOKEN and DLOCK_OWNER, and DLOCK_HANDLE_SHELL,
    /// by which dlock release knows that shell. On failure, it unsets all of them and fails with dlock's exit code
    #[arg(long, action = ArgAction::SetTrue)]
    pub shell: Option<bool>,

    /// Print one JSON document, see dlock-json(7)
    #[arg(long, action = ArgAction::SetTrue)]
    pub json: Option<bool>,

    #[command(flatten)]
    pub stopping: Stopping,

    #[command(flatten)]
    pub messages: Messages,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

/// The options for stopping the process of `--while-pid`.
#[derive(Debug, Args)]
pub(crate) struct Stopping {
    /// With --while-pid: time between SIGTERM and SIGKILL, at most half of the ttl (zk: a quarter); default: the smaller of 5s and a
    /// quarter of the ttl. A shell runs a trap only after the command that it waits for has ended: give it time
    #[arg(long, value_name = "DURATION", help_heading = RARE, env = "DLOCK_KILL_AFTER", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub kill_after: Option<Duration>,

    /// With --while-pid: what happens to PID when the lock is lost, or dlock break asks for it
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
}

/// `dlock renew` and `dlock release`.
#[derive(Debug, Args)]
pub(crate) struct HandleArgs {
    /// The handle that dlock acquire printed
    #[arg(value_name = "HANDLE", env = "DLOCK_HANDLE", hide_env_values = true)]
    pub handle: Option<OsString>,

    /// Use the values of this profile in the config files
    #[arg(long, value_name = "NAME", env = "DLOCK_PROFILE", hide_env_values = true)]
    pub profile: Option<String>,

    #[command(flatten)]
    pub messages: Messages,

    #[command(flatten, next_help_heading = CONNECTION)]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

/// No place: a handle names the place of the lock itself.
const NOWHERE: &Place = &Place { backend: None, namespace: None, profile: None, require_backend: None, time: None };

/// Returns `true` if these words are those of a `dlock acquire --shell`, right or wrong.
fn is_for_a_shell(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|word| word == "acquire") && words.iter().any(|word| word == "--shell")
}

/// Returns the line that makes a shell's `eval` fail as dlock itself fails: an empty line would be a success there.
fn failing(words: &[OsString], exit: Exit) -> Option<String> {
    // An outer script may have exported its own lock, which must not be taken for this one.
    let unset = [HANDLE, HANDLE_SHELL, KEY, TOKEN, OWNER].join(" ");
    (is_for_a_shell(words) && exit != Exit::Success).then(|| format!("unset {unset}; (exit {})\n", exit.code()))
}

/// Prints the line that makes a shell's `eval` fail, if this is a `dlock acquire --shell` that fails.
pub(crate) fn fail_in_shell(exit: Exit) {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(line) = failing(&words, exit) {
        // There is nobody left to report a failure to.
        let _ = output::print(line.as_bytes());
    }
}

connects!(waiting at waiting, AcquireArgs);

impl Connects for HandleArgs {
    fn place(&self) -> &Place {
        NOWHERE
    }

    fn reach(&self) -> &Reach {
        &self.reach
    }

    fn durability(&self) -> Option<&Durability> {
        Some(&self.durability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CONFLICT;

    #[test]
    fn an_acquire_for_a_shell_never_fails_without_a_word() {
        let failing = |words: &[&str], exit| failing(&words.iter().map(OsString::from).collect::<Vec<_>>(), exit);
        let acquire = &["dlock", "acquire", "-k", "job", "--shell"];
        for (exit, line) in [
            (Exit::NotAcquired(CONFLICT), "(exit 75)\n"),
            (Exit::NotAcquired(3), "(exit 3)\n"),
            (Exit::Usage, "(exit 64)\n"),
            (Exit::Internal, "(exit 70)\n"),
            (Exit::Signal(2), "(exit 130)\n"),
        ] {
            let line = format!("unset DLOCK_HANDLE DLOCK_HANDLE_SHELL DLOCK_KEY DLOCK_TOKEN DLOCK_OWNER; {line}");
            assert_eq!(failing(acquire, exit), Some(line), "{exit:?}");
        }
        assert_eq!(failing(acquire, Exit::Success), None);
        for words in [&["dlock"][..], &["dlock", "acquire"], &["dlock", "run", "-k", "job", "--", "x", "--shell"]] {
            assert_eq!(failing(words, Exit::Usage), None, "{words:?}");
        }
    }
}
