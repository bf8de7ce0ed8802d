/*!
The meanings of each subcommand's exit codes, for users.
*/

/// A code and its meaning.
type Row = (&'static str, &'static str);

const UNREACHABLE: Row = ("69", "the backend is unreachable or too slow");
const REFUSED: Row = ("77", "the backend refused the credentials, or they lack a right");
const NOT_READABLE: Row = ("77", "the backend refused the credentials, or they lack the right to read");
const USAGE: Row = ("64", "wrong usage");
const NO_DIRECTORY: Row = ("73", "the directory of lock files does not exist, or cannot be used");
const NOT_WRITTEN: Row = ("74", "the result could not be written to standard output, as on a full disk");
const CONFIG_FILE: Row =
    ("78", "a config file is wrong or cannot be trusted, or has no such profile: see dlock-config(5)");
const BUG: Row = ("70", "a bug");
const SIGNAL: Row = ("by signal", "dlock was told to stop by that signal while it waited");
const OWN: Row = (
    "the command's own",
    "the command ran to its end under the lock; if a signal ended it, dlock ends by the same signal",
);
const INCOMPATIBLE: Row = (
    "64",
    "wrong usage; also if the lock is in use with another number of --slots, or if the outer dlock run holds it in a \
         weaker mode (shared, if this one is exclusive)",
);
const NOT_MADE: Row =
    ("73", "the lock file, or the tables of a database, cannot be made; or what --events names cannot be opened");
const GUARD: Row = ("70", "a bug, or the guard process was killed");
const MAX_RUN: Row = ("124", "--max-run ran out");
const NOT_RUN: Row = ("126, 127", "the command was found but cannot be executed; it was not found");
const BEFORE: Row = (
    "by signal",
    "dlock itself was told to stop by that signal while it waited (it left the queue, and holds nothing)",
);

/// The exit codes of dlock as a whole.
pub(crate) const ALL: &[Row] = &[
    OWN,
    (
        "75",
        "the lock was not acquired: busy with --nonblock, or --wait ran out; or the run was skipped, because another one has succeeded \
         in the period of --once-per (--conflict-exit-code changes the number); from dlock status: the lock is not free; from \
         dlock break: it is still held, or its holder cannot be asked",
    ),
    (
        "79",
        "the lock was lost while the command ran, or its holder was asked to stop (dlock break); the command was stopped; from \
         dlock break: somebody else holds the lock, and nothing was done; from dlock run --handle and dlock renew: the lock is not \
         held by the handle any more, and no command was started; from dlock release: others hold it, or have held it since",
    ),
    (
        "69",
        "the backend is unreachable or too slow, also when --wait ran out, or this host cannot supervise a command; \
         from dlock status also: the state of the lock cannot be told",
    ),
    REFUSED,
    INCOMPATIBLE,
    NOT_MADE,
    NOT_WRITTEN,
    CONFIG_FILE,
    GUARD,
    MAX_RUN,
    NOT_RUN,
    BEFORE,
];

/// The exit codes of `dlock run`.
pub(crate) const RUN: &[Row] = &[
    OWN,
    (
        "75",
        "the lock was not acquired: busy with --nonblock, or --wait ran out; or the run was skipped, because another one has succeeded \
         in the period of --once-per (--conflict-exit-code changes the number)",
    ),
    (
        "79",
        "the lock was lost while the command ran, or its holder was asked to stop (dlock break); the command was stopped; with \
         --handle also: the lock is not held by the handle any more, and no command was started",
    ),
    ("69", "the backend is unreachable or too slow, also when --wait ran out, or this host cannot supervise a command"),
    REFUSED,
    INCOMPATIBLE,
    NOT_MADE,
    CONFIG_FILE,
    GUARD,
    MAX_RUN,
    NOT_RUN,
    BEFORE,
];

/// The exit codes of `dlock flock`.
pub(crate) const FLOCK: &[Row] = &[
    (
        "the command's own",
        "the command ran to its end under the lock; 128+N if signal N ended it (with a backend, dlock ends by the same signal)",
    ),
    ("1", "the lock was not acquired: held with -n, or -w ran out (-E changes the number)"),
    ("64", "wrong usage; with a backend also a form that a server does not have"),
    ("65", "the descriptor cannot be locked"),
    ("66", "the file cannot be opened"),
    ("69", "the command cannot be executed; with a backend: the backend is unreachable or too slow"),
    ("71", "an error of the operating system, such as too little memory"),
    ("73", "the file cannot be created"),
    ("78", "a config file is wrong or cannot be trusted, also for a lock on this host: see dlock-config(5)"),
    ("70, 77, 79, 124, 126, 127", "with a backend: as from dlock run"),
];

/// The exit codes of `dlock generate`.
pub(crate) const GENERATE: &[Row] = &[("0", "success"), USAGE, NOT_WRITTEN, BUG];

/// The exit codes of latches and barriers.
pub(crate) const MEETINGS: &[Row] = &[
    (
        "0",
        "success: the report was recorded, the latch was cleared or shown, enough names are done, or all parties are there",
    ),
    ("75", "--wait ran out (--conflict-exit-code changes the number)"),
    (
        "79",
        "a wait: the latch has failed; or the barrier is broken: a waiting party left or died, a newer process took the name of this one, \
         or this one was taken for dead",
    ),
    ("69", "the backend is unreachable or too slow, also when --wait ran out"),
    REFUSED,
    NOT_WRITTEN,
    ("64", "wrong usage; the barrier is in use with another number of parties; or the backend has no barriers"),
    ("73", "the file cannot be created"),
    CONFIG_FILE,
    BUG,
    SIGNAL,
];

/// The exit codes of `dlock config`.
pub(crate) const CONFIG: &[Row] = &[
    ("0", "the settings were printed"),
    ("64", "wrong usage, or a variable is wrong"),
    NOT_WRITTEN,
    ("78", "a config file is wrong or cannot be trusted, or has no such profile"),
];

/// The exit codes of `dlock status`.
pub(crate) const STATUS: &[Row] = &[
    (
        "0",
        "the lock is free, even if the next waiter is about to take it; with --watch: ended by Ctrl-C, or its reader closed the pipe; \
         with --done-within: a run has succeeded within that time",
    ),
    (
        "75",
        "the lock is held, is blocked by something that is not a lock, or no holder has a majority (redlock); with --done-within: \
         no run has succeeded within that time",
    ),
    ("69", "the backend is unreachable or too slow, or does not tell whether the lock is held"),
    NOT_READABLE,
    USAGE,
    NO_DIRECTORY,
    NOT_WRITTEN,
    CONFIG_FILE,
    BUG,
];

/// The exit codes of `dlock held`.
pub(crate) const HELD: &[Row] = &[
    ("0", "an outer dlock run holds the lock"),
    ("75", "no outer dlock run holds it"),
    (
        "69",
        "it cannot be determined: the backend is unreachable or too slow, or the run that holds the lock cannot be watched from here",
    ),
    NOT_READABLE,
    USAGE,
    NO_DIRECTORY,
    CONFIG_FILE,
    BUG,
];

/// The exit codes of `dlock check`.
pub(crate) const CHECK: &[Row] = &[
    ("0", "locks work, whatever the warnings"),
    (
        "69",
        "the backend is unreachable, too slow for --ttl or not fit to keep locks, or this host cannot supervise a command",
    ),
    REFUSED,
    USAGE,
    ("73", "the lock file, or the tables of a database, cannot be made"),
    NOT_WRITTEN,
    CONFIG_FILE,
    BUG,
    ("by signal", "dlock was told to stop by that signal; the scratch lock was given back"),
];

/// The exit codes of `dlock list`.
pub(crate) const LIST: &[Row] = &[
    ("0", "the locks were listed; with --watch: ended by Ctrl-C, or its reader closed the pipe"),
    UNREACHABLE,
    NOT_READABLE,
    USAGE,
    NO_DIRECTORY,
    NOT_WRITTEN,
    CONFIG_FILE,
    BUG,
];

/// The exit codes of `dlock break`.
pub(crate) const BREAK: &[Row] = &[
    ("0", "that owner does not hold the lock any more, or nobody does"),
    (
        "75",
        "the lock was still held when the wait was over; or nothing was done, because the holder cannot be asked or is not known, \
         or the answer on the terminal was no",
    ),
    ("79", "somebody else holds the lock, and nothing was done"),
    UNREACHABLE,
    REFUSED,
    ("64", "wrong usage, or the ids of several holders begin with ID"),
    NO_DIRECTORY,
    CONFIG_FILE,
    BUG,
    ("by signal", "dlock was told to stop by that signal while it waited; the request stays in place"),
];

/// The exit codes of `dlock acquire`.
pub(crate) const ACQUIRE: &[Row] = &[
    ("0", "the lock was acquired, and its handle was printed"),
    (
        "75",
        "the lock was not acquired: busy with --nonblock, or --wait ran out (--conflict-exit-code changes the number)",
    ),
    ("69", "the backend is unreachable or too slow, also when --wait ran out"),
    REFUSED,
    ("64", "wrong usage, or a backend without handles"),
    ("73", "the tables of a database cannot be made, or what --events names cannot be opened"),
    NOT_WRITTEN,
    CONFIG_FILE,
    BUG,
    SIGNAL,
];

/// The exit codes of `dlock renew`.
pub(crate) const RENEW: &[Row] = &[
    ("0", "the lock was extended"),
    ("79", "the lock is not held by the handle any more"),
    UNREACHABLE,
    REFUSED,
    ("64", "wrong usage, or a damaged handle"),
    CONFIG_FILE,
    BUG,
];

/// The exit codes of `dlock release`.
pub(crate) const RELEASE: &[Row] = &[
    (
        "0",
        "the lock was released; or it was not held any more, and nobody is known to have held it since; or HANDLE is empty",
    ),
    ("79", "others hold the lock, or have held it since"),
    ("69", "the backend is unreachable or too slow; the lock ends by itself with its lease"),
    (
        "77",
        "the backend refused the credentials, or they lack a right; or the process that keeps the lock (--while-pid) belongs to \
         another user",
    ),
    ("64", "wrong usage, or a damaged handle"),
    CONFIG_FILE,
    BUG,
];
