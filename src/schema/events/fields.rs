/*!
The fields of the lines of `--events`, as dlock-json(7) lists them.
*/

/// The fields that all lines have: name, meaning.
pub(crate) const EVENT: &[(&str, &str)] = &[
    ("v", "the version of the format, 1"),
    ("event", "what has happened: the sections below, EVENT WAITING and so on, have the fields of each"),
    ("time", "when, by this host's clock"),
    ("boot_ms", "when, in milliseconds since this host was started, suspends included: for differences"),
    ("key", "the lock's name, as DLOCK_KEY has it: of several the first"),
    ("owner", "the owner's id, as DLOCK_OWNER has it: all lines of one run have the same"),
    ("backend", "the URL of the backend, without a password"),
    ("namespace", "the namespace"),
    ("pid", "the process id of dlock"),
    ("host", "the name of its host"),
    ("user", "the name of its user"),
    ("command", "the name of the program that is to run, without its directory and arguments; null for dlock acquire"),
    ("dropped", "how many lines before this one were lost, because they were not read or could not be written"),
];

/// A name and its meaning.
type Row = (&'static str, &'static str);

/// The events: name, when it is written, its fields with their meanings.
pub(crate) const EVENTS: &[(&str, &str, &[Row])] = &[
    (
        "waiting",
        "others hold the lock; again when others hold it, and after trouble",
        &[
            ("lock", "the name of the lock that is missing"),
            ("holder", "who holds it, see HOLDER OF AN EVENT; null where that is not known"),
            ("held_by", "how many hold it"),
            ("blocked_by", "what is in its way that is not a lock"),
            ("position", "the place in the queue, 1 for the next; null where there is no queue"),
            ("waited_ms", "how long the wait has lasted"),
        ],
    ),
    (
        "acquired",
        "the lock is held, or all of several are",
        &[
            ("token", "the fencing token; of several locks that of the first"),
            ("ttl_ms", "the length of lease that was granted; null for file:, and where an outer run holds the lock"),
            ("waited_ms", "how long it took to acquire the lock"),
            ("slot", "the number of the slot, with --slots"),
            ("keys", "the names of all locks of this run; without those that an outer run holds, unless it holds all"),
            ("tokens", "their fencing tokens, in the same order"),
            ("covered", "whether an outer dlock run holds the lock, and will release it"),
        ],
    ),
    (
        "last_break",
        "in the past seven days, somebody has asked an earlier holder of the lock to stop, or has taken the lock away (dlock break); \
         after acquired. Also, once the command has ended, if the lock was taken away from this run",
        &[
            ("lock", "its name"),
            ("by", "the user and the host that claim to have done that"),
            ("reason", "dlock break --reason"),
            ("at", "when, by the clock of that host"),
            ("holder", "who held the lock then, in words"),
            ("holder_id", "the id of that holder"),
            ("taken", "false if the holder was asked to stop, true if the lock was taken away (--now)"),
        ],
    ),
    (
        "refused",
        "the lock was not acquired; end follows",
        &[
            (
                "why",
                "held, done (a command has succeeded in the period of --once-per), slots (it is in use with another number of them), handle (that in DLOCK_HANDLE holds it) or backend",
            ),
            ("lock", "the name of the lock that was missing"),
            ("holder", "who holds it; null where nobody does or that is not known"),
            ("error", "the same in words"),
        ],
    ),
    (
        "started",
        "the command's process was made",
        &[("command_pid", "its process id"), ("program", "the command's name, without its directory and arguments")],
    ),
    ("renewed", "the lease was extended", &[("ttl_ms", "its length from the request on")]),
    (
        "trouble",
        "a request has failed, the first one of a row; it is tried again. Also a lock that could not be released",
        &[("error", "how, in words")],
    ),
    (
        "asked",
        "somebody has asked the holder to stop (dlock break)",
        &[("by", "the user and the host that claim to have asked"), ("reason", "dlock break --reason")],
    ),
    ("lost", "the lock is lost", &[("reason", "how that is known, in words")]),
    (
        "stopping",
        "the command and everything it started is sent a signal",
        &[
            ("signal", "TERM, and KILL if something is left after --kill-after; with --on-lost kill KILL alone"),
            (
                "cause",
                "lost, asked, max-run, leftovers, nested (a dlock run that the command left behind and that its lock covers) or \
                 guard (the guard was killed)",
            ),
        ],
    ),
    (
        "exited",
        "the command has ended",
        &[
            ("code", "its exit code; null if it has none"),
            ("signal", "the name of the signal that ended it, such as TERM"),
            ("error", "why it could not be executed"),
            ("ran_ms", "how long it ran"),
        ],
    ),
    ("released", "the lock was given back", &[("freed", "true; false if it stays taken for a time (--min-hold)")]),
    (
        "end",
        "dlock ends: the last line, unless dlock is killed by SIGKILL or crashes",
        &[
            ("exit", "its exit code; 128 and the number of the signal by which it ends"),
            ("error", "what it says of that; null if the command's own end, or an earlier line, says it"),
            (
                "outcome",
                "ran (the command came to its own end), failed (it could not be executed), lost, asked, max-run, acquired (dlock \
                 acquire), or the why of the event refused: held, done, slots, handle, backend; null if none of them says it",
            ),
            ("waited_ms", "how long it took to acquire the lock; null if it was not acquired"),
            ("ran_ms", "how long the command ran; null if it did not"),
            ("total_ms", "how long dlock ran"),
        ],
    ),
];

/// The fields of the holder in an event: name, meaning.
pub(crate) const EVENT_HOLDER: &[(&str, &str)] = &[
    ("kind", "dlock, foreign (another program) or process (one that holds a lock file, by the kernel)"),
    ("id", "the owner's id; null for another program"),
    ("token", "the fencing token, if it is published"),
    ("slot", "the number of its slot"),
    ("host", "the host's name"),
    ("user", "the user's name"),
    ("pid", "the process id of dlock, or of the process"),
    ("program", "the name of the program that runs under the lock, or of the process"),
    ("reason", "--reason"),
    ("job", "the address of the CI job"),
    ("since", "since when it holds the lock"),
    ("held_ms", "how long that is"),
    ("text", "what another program has written"),
];
