//! What a user types and reads: options, variables, files, exit codes, messages.

// The config file, profiles, and what `dlock config` shows of them.
mod config;

// Which exit code means what, and that the one line on stderr is the right one.
mod exit_codes;

// What users and scripts hand to dlock: odd input that is right works to the letter, wrong input is refused in one line
// before anything happens. Arguments, variables, URLs, lock directories and what may lie in them.
mod input;

// --events: a line for each thing that happens to a run, whoever reads it.
pub(crate) mod events;

// Passwords: every way in works, and none of them leads out again.
pub(crate) mod secrets;

// Passwords and other users: what ps and /proc show, and password files that are not as they should be.
mod passwords;

// The command line of flock(1): as util-linux has it on this host, and with a backend as a run.
mod flock;

// Whether a process runs inside a run, and scripts that lock themselves; variables that do not reach the command.
pub(crate) mod held;

// Whether locks work at a backend, and what could make them unsafe.
pub(crate) mod checking;
