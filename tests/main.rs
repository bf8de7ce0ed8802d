//! All of dlock's integration tests, in one binary: it links once, and its tests share `support`.

// A test says what it expects by unwrapping it, and its name says what it proves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::print_stdout)]
#![allow(clippy::must_use_candidate, clippy::return_self_not_must_use, clippy::needless_pass_by_value)]
#![allow(missing_docs, unreachable_pub)]

// What tests stand on: starting dlock, servers, faults, and waiting for events. No test lives here.
mod support;

// Does the support itself keep its word? Servers, rendezvous and `/proc`; needs no working dlock.
mod support_selftest;

// The same for the tools that break things: proxy, terminal, witness, network namespaces.
mod support_faults_selftest;

// Man pages and completions: current, clean, complete.
mod generated;

// Which part of the source may know which.
mod layers;

// README and Cargo.toml: what they claim holds.
mod project;
