/*!
What the locks of all databases promise and suffer alike: a row that is ShedLock's too, hands that change it, tables and rights,
few connections, transactions that are in the way, and a server that dies, falls silent or lies.
*/

mod crowds;
mod faults;
pub mod hostile;
mod login;
mod meetings;
mod shared;
mod shedlock;
pub mod tables;
mod taken_away;

use crate::support::dlock::Outcome;

/// Makes a module of tests for each database, each test a function of its engine's type.
macro_rules! on_databases {
    ($($(#[$attribute:meta])* $test:ident)*) => {
        mod postgres {
            $(#[test] $(#[$attribute])* fn $test() {
                super::$test::<crate::support::postgres::PostgreSql>();
            })*
        }

        mod mysql {
            $(#[test] $(#[$attribute])* fn $test() {
                super::$test::<crate::support::mysql::MariaDb>();
            })*
        }
    };
}
pub(crate) use on_databases;

/// Asserts exit code 79, and one line that says what was lost and why.
#[track_caller]
pub fn assert_lost(outcome: &Outcome, why: &str) {
    outcome.code(79).stderr_is_one_line(why);
    assert!(outcome.stderr().starts_with("dlock: lost 'job' at "), "{outcome:?}");
}
