/*!
Property tests: properties are checked on random values, and a failing value is shrunk.

A failure prints its seed; `PROPTEST_RNG_SEED=… cargo test --bin dlock NAME` repeats it. Failures are not stored in
files: a value that has failed becomes a plain test. `PROPTEST_CASES=20000` checks more values.
*/

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};

/// The result of a property for one value.
pub(crate) type Holds = TestCaseResult;

/// Returns the number in the environment variable of this name.
pub(crate) fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Fails unless `property` holds for `cases` values of `strategy`, or for `PROPTEST_CASES` values if that is more.
pub(crate) fn holds<S: Strategy>(cases: u32, strategy: S, property: impl Fn(S::Value) -> Holds) {
    let seed = from_env("PROPTEST_RNG_SEED").unwrap_or_else(|| getrandom::u64().expect("random numbers"));
    let cases = from_env("PROPTEST_CASES").and_then(|asked| u32::try_from(asked).ok()).map_or(cases, |n| n.max(cases));
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(&strategy, property) {
        panic!("{error}\nthe same again: PROPTEST_RNG_SEED={seed}");
    }
}

/// Texts made of the given pieces (separated by `|`) and of random characters, so that they are close to valid input.
pub(crate) fn made_of(pieces: &'static str) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => one_of(pieces).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => "[ -~]{1,3}",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// One of the given words (separated by `|`).
pub(crate) fn one_of(words: &'static str) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(words.split('|').collect::<Vec<_>>())
}

#[test]
#[should_panic(expected = "PROPTEST_RNG_SEED=")]
fn a_property_that_does_not_hold_fails() {
    holds(256, 0..100_u32, |number| {
        prop_assert!(number < 50);
        Ok(())
    });
}
