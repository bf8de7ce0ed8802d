//! Tests of what only redis has: names with several addresses, and redis as it is run in production.

mod full;
mod names;
mod production;
mod sentinels;
