/*!
The fields of the JSON documents, as dlock-json(7) lists them.
*/

/// The fields of a lock: name, meaning.
pub(crate) const LOCK: &[(&str, &str)] = &[
    ("v", "the version of the format, 1"),
    ("backend", "the URL of the backend, without a password"),
    ("namespace", "the namespace"),
    ("table", "the table that has the lock, with its schema (databases); null on other backends"),
    (
        "time",
        "when this was seen: by the clock of the service where it tells one (redis, databases), else of this host",
    ),
    ("key", "the lock's name; null where it cannot be told from the lock's place (long names of file:)"),
    (
        "place",
        "the exact name at the service: a redis key, what etcd's keys begin with, a ZooKeeper directory, a row of a table, a file",
    ),
    (
        "state",
        "free, held, blocked (by something that is not a lock), contested (redlock: held by nobody with a majority) or \
         unknown (the service does not tell)",
    ),
    ("blocked_by", "what is in the way of a lock that is blocked"),
    ("mode", "how it is held: exclusive, shared or slots"),
    ("slots", "the number of slots, of a lock that is held in slots"),
    ("holder", "the first one of holders"),
    ("held_by", "how many hold it"),
    ("holders", "those who hold it, at most 1000, the oldest first; see HOLDERS"),
    ("waiting", "how many wait for it; null for redlock, where waiters are in no queue"),
    ("queue", "the waiters, at most 1000, the next one first; see WAITERS. Null for redlock. Not in a list"),
    ("queue_cut", "whether more wait than queue has; null for redlock. Not in a list"),
    (
        "last_break",
        "the last break of the lock (dlock break) in the past seven days, with the fields by, reason, at, holder (in words), \
         holder_id and taken (true with --now); null if there was none, or while the holder that was asked still uses the lock. \
         Not in a list",
    ),
    (
        "last_success",
        "the last success of a run with --once-per, with the fields host, user, pid, at and period_ms (the length of its period); \
         null if none is recorded: it is for 30 days or two periods, whichever is longer. Not in a list",
    ),
    ("votes", "redlock: what each server says, with the fields server, state and id"),
];

/// The fields of a holder: name, meaning.
pub(crate) const HOLDER: &[(&str, &str)] = &[
    ("kind", "dlock, foreign (another program) or process (one that holds a lock file, by the kernel)"),
    ("id", "the owner's id; of another program foreign: and 12 digits that are made of what it has written"),
    ("token", "the fencing token"),
    ("slot", "the number of its slot"),
    ("host", "the host's name"),
    ("user", "the user's name"),
    ("pid", "the process id of dlock, or of the process"),
    ("program", "the name of the program that runs under the lock, or of the process"),
    ("reason", "--reason"),
    ("job", "the address of the CI job"),
    ("since", "since when it holds the lock"),
    ("held_ms", "how long that is"),
    ("kept_until", "until when the lock stays taken at least (--min-hold)"),
    ("finished", "whether it has finished, and the lock is only kept until then"),
    ("ttl_ms", "the length of lease that it asked for"),
    ("delay_ms", "how much of it the command does not count on (--lock-delay); null without such a part"),
    ("ttl_left_ms", "how long the lease lasts unless it is renewed; null for file: and zk:"),
    ("expires", "false if the lock stays until somebody deletes it"),
    ("renewed", "when it was renewed last, where only that is known (zk:)"),
    ("alive", "whether its process exists; null where that cannot be told from this host and PID namespace"),
    ("self", "whether it is of this user, on this host and in this PID namespace"),
    ("handle", "whether the lock is held by its handle alone (dlock acquire): the process that took it has ended"),
    ("text", "what another program has written"),
    ("asked", "the last request to stop that was made to it (dlock break), with the fields by, reason and at"),
    ("can_be_asked", "whether it heeds such requests: not if its process is gone"),
];

/// The fields of a waiter: name, meaning.
pub(crate) const WAITER: &[(&str, &str)] = &[
    ("position", "its place in the queue, 1 for the next"),
    ("kind", "as for holders"),
    ("id", "as for holders"),
    ("mode", "how it wants to hold the lock: exclusive, shared or slots; null where that is not known"),
    ("host", "as for holders"),
    ("user", "as for holders"),
    ("pid", "as for holders"),
    ("program", "as for holders"),
    ("reason", "as for holders"),
    ("job", "as for holders"),
    ("since", "since when it waits"),
    ("waiting_ms", "how long that is"),
    ("alive", "as for holders"),
    ("self", "as for holders"),
    ("text", "as for holders"),
];

/// The fields of a list: name, meaning.
pub(crate) const LIST: &[(&str, &str)] = &[
    ("v", "the version of the format, 1"),
    ("backend", "the URL of the backend, without a password"),
    ("namespace", "the namespace"),
    ("time", "when the list was begun, by this host's clock"),
    (
        "locks",
        "the locks, sorted by key, each with the fields of dlock status but queue, queue_cut, last_break and last_success",
    ),
    ("total", "how many there are; null where counting them would cost a request for each (etcd, zk:)"),
    ("cut", "whether there are more than locks has"),
    (
        "last_successes",
        "the last success under each lock that begins with PREFIX, held or free, whatever --limit is: with the fields key, place and \
         those of last_success of dlock status; null if they cannot be read",
    ),
    (
        "latches",
        "the latches whose names begin with PREFIX and that have a name that is done, or have failed, whatever --limit is: each with \
         the fields key and place; null if they cannot be read",
    ),
    (
        "barriers",
        "the barriers whose names begin with PREFIX and where parties wait, with the same fields; null if they cannot be read, and on \
         redlock, which has none",
    ),
];
