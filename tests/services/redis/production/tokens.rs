//! Tokens that rise whatever the clocks say.

use super::*;
use crate::services::redis::counters::micros_ahead;

/// As after a step of its clock, or a failover to a server that is behind.
#[test]
fn rise_also_when_the_servers_clock_is_behind_the_last_one() {
    const FENCE: &str = "{dlock:k}\u{1}fence";
    // Half a year ahead.
    let high = micros_ahead(183);
    let (redis, scratch) = (Redis::start(), Scratch::new());
    redis.cli(&["SET", FENCE, &high.to_string()]);
    for token in [high + 1, high + 2] {
        let outcome = run(&scratch, redis.url()).shell("echo $DLOCK_TOKEN").output();
        outcome.success().stdout_is(&format!("{token}\n"));
    }
}
