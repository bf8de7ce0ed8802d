//! No memory is left in the address space.

use crate::support::service::{Service, ZooKeeperService};

use super::{assert_nothing_left, run};

/// Above this limit there is room for everything.
const PLENTY: u64 = 1 << 30;
const STEP: u64 = 256 * 1024;

/// The client library for ZooKeeper has its own thread, and panics when there is no memory for its stack.
#[test]
fn too_little_of_it_is_no_panic() {
    let service = ZooKeeperService::fresh();
    let run = |bytes: u64| {
        let dlock = run(&service).command(["echo", "ran"]);
        dlock.wrapped_by(["prlimit", &format!("--as={bytes}")]).output()
    };
    // The smallest address space in which it runs.
    let (mut low, mut high) = (STEP, PLENTY);
    while high - low > STEP {
        let middle = low.midpoint(high);
        let outcome = run(middle);
        let _ = outcome.stderr();
        *(if outcome.status().success() { &mut high } else { &mut low }) = middle;
    }
    let mut plain = 0;
    for step in 1..20 {
        let outcome = run(high.saturating_sub(step * STEP));
        let stderr = outcome.stderr();
        assert!(!stderr.contains("panicked"), "{outcome:?}");
        assert!(!outcome.status().success() || outcome.stdout() == "ran\n", "{outcome:?}");
        plain += usize::from(outcome.status().code() == Some(69) && stderr.contains("could not "));
    }
    assert!(plain > 0, "never so little that it is refused for that");
    assert_nothing_left(&service);
}
