//! What happens to the command: it never outlives its lease, whatever dies, freezes, is signalled or runs out.

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

// No single death or freeze breaks the first promise: of dlock, its guard, the command, or all of them; on file too.
mod crash;

// Processes that cannot be seen, listed or ended: what is not known to be gone keeps the lock.
mod unseen;

// Such a run in the background: the lock around it is not given back while it lives.
mod covered;

// No room on the disk, no descriptor, no process: of dlock, of its guard, and of servers.
mod exhausted;

// Too little memory and too few processes from the start: which is said as a reason.
mod scarce;
