//! Tests of what only redis has: names with several addresses, and redis as it is run in production.

pub mod counters;
mod full;
mod looks;
mod names;
mod production;
mod rights;
mod sentinels;
