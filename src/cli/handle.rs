/*!
The options of locks that outlive the process that took them: `dlock acquire`, `dlock renew` and `dlock release`. A field is
set only if a value was given; the defaults in this file are for the help.
*/

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::duration::{duration, handle_ttl};
use crate::cli::options::{Connects, Durability, OnLost, Patience, Place, Reach, Told, connects};
use crate::exit::Exit;
use crate::output;
use crate::variables::{HANDLE, HANDLE_SHELL, KEY, OWNER, TOKEN};

/// What `dlock acquire` does, at length.
pub(super) const ACQUIRE_ABOUT: &str = "\
Takes the lock KEY and prints its handle, one word with which later processes renew it, run commands under it and give it \
back. For the rest of one script, use --while-pid $$. For steps that are processes of their own, perhaps on several hosts, use \
--ttl, longer than the longest pause between two steps: nothing renews the lock then but dlock renew and dlock run --handle.

With --while-pid PID a process stays behind, the keeper, that renews the lock, and releases it when PID has ended, however it \
ends, and every dlock run --handle of this lock. If the lock is lost, or dlock break asks for it, the keeper stops PID and these \
runs first, and --events has the reason. Two commands can still overlap where they have no run of their own: what PID has \
started may run on while somebody else has the lock; and if the keeper itself is killed, PID runs on, and the lock ends with its \
lease (on file: at once). Where that must never happen, use dlock run, or dlock run --handle, which then stops its command (79) \
and is for the keeper's host only. On file: and zk:, where a lock ends with the process that holds it, there is only --while-pid, and a handle is for \
dlock release alone.

A handle is an address and not a key: whoever may write to the backend can release any lock there. No password is in it. \
The steps that use it need the same connection options (--password-file, --tls-ca and so on), but no --backend and no \
--namespace. A password from a variable or a config file is sent only to the servers of the backend that DLOCK_BACKEND or a \
config file names beside it, if one does: for a handle of other servers, use --password-file.";

/// What the help of `dlock acquire` ends with.
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

/// What `dlock renew` does, at length.
pub(super) const RENEW_ABOUT: &str = "\
Extends a lock by its handle, for as long as it was granted at first. Ends with 79 if the lock is not held by that handle any \
more. A lock that is gone is never made again.";

/// What `dlock release` does, at length.
pub(super) const RELEASE_ABOUT: &str = "\
Gives a lock back by its handle, and never one that somebody else holds by now. It may be repeated: a lock that was released \
before, or whose lease has ended, is a success. Ends with 79 if others hold it, or are known to have held it since. An empty \
HANDLE is a success too, so that a step that always runs can follow a dlock acquire that failed.

Without HANDLE, a shell releases what it has acquired itself by --shell. A script that has inherited DLOCK_HANDLE from it does \
not: dlock says so and exits with 0. If the lock is to be released there, use dlock release \"$DLOCK_HANDLE\".

While a dlock run under its handle goes on on this host, the lock is not released: dlock waits for that run, for as long as \
--connect-timeout, and then exits with 69. A run that is stopping its command, or whose command was told to end, is waited for as long \
as the lease can last, also if its dlock was killed. Runs on other hosts, and in other PID or network namespaces, are not seen: they \
hear of the release with their next renewal, within a third of --ttl, and until then two commands can run at the same time.

A lock that was taken with --while-pid is released on the host of its keeper, which ends then; its process runs on.";

/// Reads a process id.
fn pid(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err("a process id is a number from 1 on, such as $$ in a script".to_owned()),
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

    /// Length of the lease, from 1s to 24h: the lock is free that long after it was acquired or last renewed. It cannot be
    /// set by a variable, because it must fit the steps. Required without --while-pid; with it, 30s by default. etcd has a limit of
    /// its own (at least 2s by default) and grants the nearest length
    #[arg(short, long, value_name = "DURATION", value_parser = handle_ttl, allow_hyphen_values = true)]
    pub ttl: Option<Duration>,

    /// Leave a process behind, the keeper, that renews the lock until process PID has ended, and then releases it. In a script, PID
    /// is $$. If the lock is lost, the keeper stops PID, and what PID has started only under dlock run --handle. Works on every backend, but not for process 1,
    /// which no signal stops
    #[arg(long, value_name = "PID", value_parser = pid, allow_hyphen_values = true)]
    pub while_pid: Option<i32>,

    #[command(flatten)]
    pub patience: Patience,

    /// Exit code when the lock was not acquired; not 0: the next step would start without it. A 0 from a variable or config file,
    /// which is meant for dlock run, counts as 75
    #[arg(
        short = 'E',
        long,
        value_name = "N",
        env = "DLOCK_CONFLICT_EXIT_CODE",
        hide_env_values = true,
        default_value = "75",
        allow_hyphen_values = true
    )]
    pub conflict_exit_code: Option<u8>,

    /// Text shown to waiters, and by status and list
    #[arg(long, value_name = "TEXT", env = "DLOCK_REASON", hide_env_values = true)]
    pub reason: Option<String>,

    /// Append a JSON line for each thing that happens (waiting, acquired, trouble, refused, end) to this file, or write it to an
    /// open descriptor from fd:3 on: see dlock-json(7). Nothing waits for its reader. With --while-pid the keeper has it open until
    /// PID has ended: use a file, because the reader of a pipe would wait for that
    #[arg(long, value_name = "FILE", env = "DLOCK_EVENTS", hide_env_values = true)]
    pub events: Option<PathBuf>,

    /// Print a line for eval in a shell: it exports DLOCK_HANDLE, DLOCK_KEY, DLOCK_TOKEN and DLOCK_OWNER, and DLOCK_HANDLE_SHELL,
    /// by which dlock release knows that shell; or it unsets all of them, and fails with dlock's exit code
    #[arg(long, action = ArgAction::SetTrue)]
    pub shell: Option<bool>,

    /// Print one JSON document, see dlock-json(7)
    #[arg(long, action = ArgAction::SetTrue)]
    pub json: Option<bool>,

    #[command(flatten)]
    pub stopping: Stopping,

    #[command(flatten)]
    pub told: Told,

    #[command(flatten, next_help_heading = "Connection options")]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

/// How the process of `--while-pid` is stopped.
#[derive(Debug, Args)]
pub(crate) struct Stopping {
    /// With --while-pid: time between SIGTERM and SIGKILL, at most half of the ttl (zk: a quarter); default: the smaller of 5s and a
    /// quarter of the ttl. A shell runs a trap when the command has ended that it waits for: give it time
    #[arg(long, value_name = "DURATION", env = "DLOCK_KILL_AFTER", hide_env_values = true, value_parser = duration, allow_hyphen_values = true)]
    pub kill_after: Option<Duration>,

    /// With --while-pid: what happens to PID when the lock is lost, or dlock break asks for it
    #[arg(
        long,
        value_enum,
        value_name = "ACTION",
        env = "DLOCK_ON_LOST",
        hide_env_values = true,
        default_value = "stop"
    )]
    pub on_lost: Option<OnLost>,
}

/// `dlock renew` and `dlock release`.
#[derive(Debug, Args)]
pub(crate) struct HandleArgs {
    /// What dlock acquire has printed
    #[arg(value_name = "HANDLE", env = "DLOCK_HANDLE", hide_env_values = true)]
    pub handle: Option<OsString>,

    /// Use the values that the config files have for this profile
    #[arg(long, value_name = "NAME", env = "DLOCK_PROFILE", hide_env_values = true)]
    pub profile: Option<String>,

    #[command(flatten)]
    pub told: Told,

    #[command(flatten, next_help_heading = "Connection options")]
    pub reach: Reach,

    #[command(flatten)]
    pub durability: Durability,
}

/// A handle says where the lock is.
const NOWHERE: &Place = &Place { backend: None, namespace: None, profile: None, require_backend: None };

/// Whether these words are those of a `dlock acquire --shell`, right or wrong.
fn is_for_a_shell(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|word| word == "acquire") && words.iter().any(|word| word == "--shell")
}

/// The line that ends a shell's `eval` as dlock itself ends, where it ends without success: what is empty would be a success there.
fn failing(words: &[OsString], exit: Exit) -> Option<String> {
    // An outer script may have exported a lock of its own, which is not to be taken for this one.
    let unset = [HANDLE, HANDLE_SHELL, KEY, TOKEN, OWNER].join(" ");
    (is_for_a_shell(words) && exit != Exit::Success).then(|| format!("unset {unset}; (exit {})\n", exit.code()))
}

/// Prints what makes a shell's `eval` fail, if this is a `dlock acquire --shell` that ends without success.
pub(crate) fn fail_in_shell(exit: Exit) {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(line) = failing(&words, exit) {
        // Nobody is left to be told of a failure.
        let _ = output::print(line.as_bytes());
    }
}

connects!(waiting at patience, AcquireArgs);

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
