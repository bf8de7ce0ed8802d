//! All of dlock's integration tests, in one binary: it links once, and its tests share `support`.

// A test says what it expects by unwrapping it, and its name says what it proves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::print_stdout)]
#![allow(clippy::must_use_candidate, clippy::return_self_not_must_use, clippy::needless_pass_by_value)]
#![allow(missing_docs, unreachable_pub)]
// ZooKeeper is a name and not code.
#![allow(
    clippy::disallowed_methods,
    reason = "only dlock has to count time as leases do; tests measure it by other clocks"
)]
// A time that is earlier than it must be is a failure, and a panic says so.
#![allow(clippy::unchecked_time_subtraction)]

// What tests stand on: starting dlock, servers, faults, and waiting for events. No test lives here.
mod support;

// Does the support itself keep its word? All that the other tests stand on, tried by itself.
mod selftest;

// Man pages and completions: current, clean, complete.
mod generated;

// Which part of the source may know which.
mod layers;

// README and Cargo.toml: what they claim holds.
mod project;

// The recipes in examples/, as far as this machine can run them.
mod recipes;

// The ways of breaking dlock that `tests/run mutations` has the other tests notice: they fit the source as it is.
mod mutations;

// What the words of the contract mean: one suite, run on every backend.
mod config;
mod contract;

// Which exit code means what, and that the one line on stderr is the right one.
mod exit_codes;

// What is said while dlock waits and when it is refused, and what waiting costs.
mod waiting;

// A lock that stays taken for a time after it was granted.
mod min_hold;

// A lock that stays taken for a time after its holder has vanished.
mod lock_delay;

// Of all runs for a lock, one succeeds per period.
mod once_per;

// Locks that several hold together: readers next to each other, writers alone, slots with their numbers.
mod modes;

// Locks that outlive the process that took them, and their handles.
mod handles;

// Locks that a keeper renews while a process lives.
mod kept;

// --events: a line for each thing that happens to a run, whoever reads it.
mod events;

// Latches and barriers: who is let through, who is told what, and what is left behind.
mod meetings;

// The first contact with a server: how long it may take, and which failures are retried.
mod first_contact;

// What is taken from a holder is noticed at once where the service can tell.
mod watched;

// Several locks in one run: all or none, in one order.
mod several;

// What a hand-over costs the servers, by their own count, for a few and for many who wait.
mod scaling;

// A run inside a run of the same lock: it passes through where it may, and never otherwise.
mod nested;

// Such a run in the background: the lock around it is not given back while it lives.
mod covered;

// The command line of flock(1): as util-linux has it on this host, and with a backend as a run.
mod flock;

// Whether a process runs inside a run, and scripts that lock themselves; variables that do not reach the command.
mod held;

// Signals that reach dlock, from whomever and whenever, and what the command and the lock have of them.
mod signals;

// What hits the whole process group of the caller: the guard is not in it, and job control does not see that. Signals to
// it are heard once, wherever the command is by then; and what is sent to the guard itself.
mod group;

// What a command leaves behind: nothing when a signal ended it, all that it wants to otherwise.
mod leftovers;

// What only a terminal does: Ctrl-C, job control, hang-up, and the line that is kept up to date.
mod terminal;

// What the command sees of the world is what it would see without dlock.
mod surroundings;

// The command never outlives its lease: what happens to the server, to the network, and to the key.
mod lost;

// Commands that fork faster than they can be counted, and thousands of processes: they die in time like any other.
mod storms;

// Wall clocks of servers and of dlock itself that are moved by an hour, or run at other rates: what is lost, what is said,
// and the tokens.
mod clocks;

// No single death or freeze breaks the first promise: of dlock, its guard, the command, or all of them; on file too.
mod crash;

// Processes that cannot be seen, listed or ended: what is not known to be gone keeps the lock.
mod unseen;

// What users and scripts hand to dlock: odd input that is right works to the letter, wrong input is refused in one line
// before anything happens. Arguments, variables, URLs, lock directories and what may lie in them.
mod input;

// Servers and lock holders that lie: bounded time, bounded memory, one line, and nothing raw on the terminal.
mod hostile;

// A majority of redis servers: who counts, what a minority may do, what is left where, and the tokens.
mod redlock;

// The same locks taken by other programs, each by its own library, on every backend.
mod interop;

// Who holds a lock and who waits for it, as `status` and `list` tell: for all to see, and without a trace.
mod looking;

// Whether locks work at a backend, and what could make them unsafe.
mod checking;

// The holder of a lock is asked to stop, or the lock is taken away: who stops, who does not, and who is told what.
mod breaking;

// No room on the disk, no descriptor, no process: of dlock, of its guard, and of servers.
mod exhausted;

// Too little memory and too few processes from the start: which is said as a reason.
mod scarce;

// Lock files: damaged counters, directories that a group shares, files that are locked by their path, readers and slots.
mod files;

// Passwords and other users: what ps and /proc show, and password files that are not as they should be.
mod passwords;

// Passwords: every way in works, and none of them leads out again.
mod secrets;

// TLS on every backend: who is trusted, who we are, no way to plain text, and passwords that are refused.
mod tls;

// Alerts in plain text: they prove nothing.
mod alerts;

// Redis in production: sentinels, replicas, local sockets, settings that lose locks, and every way in which it says no.
mod redis;

// What etcd alone has: its keys, leases, revisions and watches, what other hands do to them, and who may use it. etcd
// that fails: members that die, freeze or cannot be reached, leaders that change, and answers that are lost. Servers that
// are no etcd, or lie as one.
mod etcd;

// What the locks of all databases promise and suffer: a table that others use, hands that change it.
mod databases;

// What only MySQL's locks promise and suffer: user locks, engines and collations, few connections.
mod mysql;

// What only PostgreSQL's locks promise and suffer: a table that others use, privileges, few connections.
mod postgres;

// What only ZooKeeper's locks promise and suffer: two spellings, sessions that outlive connections, servers that follow.
mod zookeeper;
