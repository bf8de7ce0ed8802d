/*!
The names of dlock's environment variables.
*/

/// Returns the variable of the `option` with this long name: `DLOCK_TTL` for `ttl`.
#[must_use]
pub(crate) fn of_option(option: &str) -> String {
    format!("DLOCK_{}", option.replace('-', "_").to_uppercase())
}

/// Set for the command: the fencing token.
pub(crate) const TOKEN: &str = "DLOCK_TOKEN";
/// Set for the command: the fencing tokens of all its locks.
pub(crate) const TOKENS: &str = "DLOCK_TOKENS";
/// Set for the command: the number of the slot, if the lock has slots.
pub(crate) const SLOT: &str = "DLOCK_SLOT";
/// Set for the command: the granted lease in seconds, 0 for a lock without one.
pub(crate) const LEASE_TTL: &str = "DLOCK_LEASE_TTL";
/// Set for the command: the lock's name; of several, that of the first.
pub(crate) const KEY: &str = "DLOCK_KEY";
/// Set for the command: the owner id; of several locks, that of the first.
pub(crate) const OWNER: &str = "DLOCK_OWNER";
/// Set for the command: the name of the backend's driver.
pub(crate) const BACKEND_KIND: &str = "DLOCK_BACKEND_KIND";
/// Set for nested runs in the command: the locks that are held by an outer run.
pub(crate) const HELD: &str = "DLOCK_HELD";
/// Read by dlock: the handle of a lock that outlives the process that took it. `dlock acquire --shell` sets it.
pub(crate) const HANDLE: &str = "DLOCK_HANDLE";
/// Read by dlock: the pid of the shell that got the handle of `dlock acquire --shell`, a colon, and the owner id.
pub(crate) const HANDLE_SHELL: &str = "DLOCK_HANDLE_SHELL";
/// Read by dlock: the password for the backend. Never passed on to the command.
pub(crate) const PASSWORD: &str = "DLOCK_PASSWORD";
/// Read by dlock: a config file that is read instead of those of the user and the system.
pub(crate) const CONFIG: &str = "DLOCK_CONFIG";
/// The variable of `--events`. One that names a descriptor is not passed on to the command, which does not inherit it.
pub(crate) const EVENTS: &str = "DLOCK_EVENTS";
/// Variables of options that say how a run takes its lock: for the run that reads them, not for the command.
pub(crate) const OF_ONE_RUN: [&str; 7] = [
    "DLOCK_SHARED",
    "DLOCK_EXCLUSIVE",
    "DLOCK_SLOTS",
    "DLOCK_ONCE_PER",
    "DLOCK_MIN_HOLD",
    "DLOCK_LOCK_DELAY",
    "DLOCK_CONFLICT_EXIT_CODE",
];
/// The variable of `--profile`.
pub(crate) const PROFILE: &str = "DLOCK_PROFILE";
/// The variable of `--require-backend`.
pub(crate) const REQUIRE_BACKEND: &str = "DLOCK_REQUIRE_BACKEND";
/// The variable of `--backend`. A password in it is not passed on to the command.
pub(crate) const BACKEND: &str = "DLOCK_BACKEND";
/// The variables of all options, sorted. A constant, because making the options of all subcommands takes longer than
/// the rest of a run's start.
pub(crate) const OF_OPTIONS: [&str; 40] = [
    "DLOCK_AS",
    "DLOCK_BACKEND",
    "DLOCK_CLOSE",
    "DLOCK_COMMAND",
    "DLOCK_CONFLICT_EXIT_CODE",
    "DLOCK_CONNECT_TIMEOUT",
    "DLOCK_COUNT",
    "DLOCK_EVENTS",
    "DLOCK_EXCLUSIVE",
    "DLOCK_HANDLE",
    "DLOCK_KEEP",
    "DLOCK_KILL_AFTER",
    "DLOCK_LEFTOVERS",
    "DLOCK_LOCK_DELAY",
    "DLOCK_MAX_RUN",
    "DLOCK_MIN_HOLD",
    "DLOCK_NAMESPACE",
    "DLOCK_NONBLOCK",
    "DLOCK_ONCE_PER",
    "DLOCK_ON_LOST",
    "DLOCK_PARTIES",
    "DLOCK_PASSWORD_FILE",
    "DLOCK_PATIENT",
    "DLOCK_PROFILE",
    "DLOCK_QUIET",
    "DLOCK_REASON",
    "DLOCK_REPLICAS",
    "DLOCK_REQUIRE_BACKEND",
    "DLOCK_SHARED",
    "DLOCK_SLOTS",
    "DLOCK_STRICT_FENCING",
    "DLOCK_TIME",
    "DLOCK_TLS_CA",
    "DLOCK_TLS_CERT",
    "DLOCK_TLS_KEY",
    "DLOCK_TLS_SERVER_NAME",
    "DLOCK_TTL",
    "DLOCK_USER",
    "DLOCK_VERBOSE",
    "DLOCK_WAIT",
];
/// The variables that belong to no option.
pub(crate) const OF_NO_OPTION: [&str; 11] =
    [KEY, TOKEN, TOKENS, SLOT, OWNER, LEASE_TTL, BACKEND_KIND, HELD, HANDLE_SHELL, PASSWORD, CONFIG];
