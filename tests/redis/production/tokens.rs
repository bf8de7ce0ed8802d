//! Tokens that rise whatever the clocks say.

use super::*;

/// As after a step of its clock, or a failover to a server that is behind.
#[test]
fn rise_also_when_the_servers_clock_is_behind_the_last_one() {
    const FENCE: &str = "{dlock:k}\u{1}fence";
    // Far above what the clock says, and below 2^53.
    const HIGH: u64 = 5_000_000_000_000_000;
    let (redis, scratch) = (Redis::start(), Scratch::new());
    redis.cli(&["SET", FENCE, &HIGH.to_string()]);
    for token in [HIGH + 1, HIGH + 2] {
        let outcome = run(&scratch, redis.url()).shell("echo $DLOCK_TOKEN").output();
        outcome.success().stdout_is(&format!("{token}\n"));
    }
}
