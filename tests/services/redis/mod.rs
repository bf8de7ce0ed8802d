//! Tests of what only redis has: names with several addresses, redis as it is run in production, and what it keeps of groups.

pub mod counters;
mod full;
mod groups;
mod looks;
mod names;
mod production;
mod rights;
mod sentinels;
