//! What the words of the contract mean, on every service.

// Exclusion, waiting, order and endings: one suite, run on every backend.
mod contract;

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
pub(crate) mod handles;

// Locks that a keeper renews while a process lives.
pub(crate) mod kept;

// Latches and barriers: who is let through, who is told what, and what is left behind.
mod meetings;

// What is taken from a holder is noticed at once where the service can tell.
mod watched;

// Several locks in one run: all or none, in one order.
mod several;

// A run inside a run of the same lock: it passes through where it may, and never otherwise.
mod nested;

// Who holds a lock and who waits for it, as `status` and `list` tell: for all to see, and without a trace.
pub(crate) mod looking;

// The holder of a lock is asked to stop, or the lock is taken away: who stops, who does not, and who is told what.
pub(crate) mod breaking;
