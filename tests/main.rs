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

// What can be seen from the source and from what it generates: layers, pages, claims, and the patches of the mutations.
mod source;

// What a user types and reads: options, variables, files, exit codes, messages.
mod cli;

// What the words of the contract mean, on every service.
mod locks;

// What happens to the command: it never outlives its lease, whatever dies, freezes, is signalled or runs out.
mod supervise;

// What one service alone promises and suffers, with its servers in ways of their own.
mod services;

// The same locks taken by other programs, each by its own library, on every backend.
mod interop;
