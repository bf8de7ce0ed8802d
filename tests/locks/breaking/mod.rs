//! Breaking locks: the holder that is named is asked, stops and releases, and the next one gets the lock without an overlap;
//! nobody else is touched. With --now the lock is taken away.

mod asked;
mod odd;
mod rows;
mod taken;
mod terminal;
mod traces;

use std::time::Duration;

use serde_json::Value;

use crate::locks::looking::{look, status};
use crate::support::dlock::{Outcome, Running};
use crate::support::rendezvous::eventually;
use crate::support::service::Service;

/// `dlock break --key job --owner OWNER` with these words.
pub fn break_it<S: Service>(service: &S, owner: &str, words: &[&str]) -> Outcome {
    look(service, &[&["break", "--key", "job", "--owner", owner], words].concat()).output()
}

/// Starts `dlock break --key job --owner OWNER` with these words.
fn start_breaking<S: Service>(service: &S, owner: &str, words: &[&str]) -> Running {
    look(service, &[&["break", "--key", "job", "--owner", owner], words].concat()).spawn()
}

/// The holder of `job`, as status has it.
#[track_caller]
fn holder<S: Service>(service: &S) -> Value {
    status(service, "job")["holder"].clone()
}

/// The id of the holder of `job`.
#[track_caller]
pub fn owner<S: Service>(service: &S) -> String {
    holder(service)["id"].as_str().expect("it is held").to_owned()
}

/// A lease that is short, and renewed soon.
const fn short<S: Service>() -> &'static str {
    // ZooKeeper grants no shorter one.
    "4s"
}

/// Waits until the holder of `job` has renewed its lease; returns at once where there is none.
#[track_caller]
fn wait_renewed<S: Service>(service: &S) {
    if S::KIND == "file" {
        return;
    }
    let left = |holder: &Value| (holder["ttl_left_ms"].as_u64(), holder["renewed"].as_str().map(str::to_owned));
    let mut last = left(&holder(service));
    eventually("a renewal", || {
        let now = left(&holder(service));
        let renewed = match (&last.1, now.0, last.0) {
            (Some(before), ..) => Some(before) != now.1.as_ref(),
            (None, Some(now), Some(before)) => now > before,
            _ => false,
        };
        last = now;
        if !renewed {
            std::thread::sleep(Duration::from_millis(50));
        }
        renewed.then_some(())
    });
}

/// Of a lock that was broken, what tells of that is left a moment later, and nothing else.
#[track_caller]
fn only_the_trace_is_left<S: Service>(service: &S) {
    assert!(service.forget_break("job"), "nothing tells of the break");
    eventually("nothing to be left", || service.litter(&["job"]).is_empty().then_some(()));
}
