//! Locks that are kept while a process lives: `acquire --while-pid`, on every backend.

mod caller;
mod ending;
mod keeper;
mod refused;
mod runs;
pub mod ward;

use serde_json::Value;

use self::ward::Ward;
use crate::support::dlock::{Dlock, Outcome};
use crate::support::process;
use crate::support::rendezvous::eventually;
use crate::support::service::Service;

/// A lease that ends soon, where there are leases.
const SHORT: &str = "4s";

/// A lock that is kept.
struct Kept {
    handle: String,
    keeper: i32,
}

/// `dlock acquire --key job --while-pid` of this process.
fn acquire<S: Service>(service: &S, ward: i32) -> Dlock {
    acquire_for(service, ward, SHORT)
}

/// `dlock acquire --key job --while-pid` of this process, for leases of this length.
fn acquire_for<S: Service>(service: &S, ward: i32, ttl: &str) -> Dlock {
    let dlock = service.scratch().dlock().args(["acquire", "--key", "job", "--while-pid", &ward.to_string()]);
    dlock.args(["--ttl", ttl]).backend(service.url()).args(service.options())
}

/// Takes a lock that is free, with these options, for as long as the process lives.
#[track_caller]
fn taken<S: Service>(service: &S, ward: &Ward, options: &[&str]) -> Kept {
    kept(&acquire(service, ward.pid()).arg("--json").args(options).output())
}

/// The lock that was taken.
#[track_caller]
fn kept(outcome: &Outcome) -> Kept {
    outcome.code(0);
    let document: Value = serde_json::from_str(&outcome.stdout()).unwrap();
    let keeper = document["keeper"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap();
    let handle = document["handle"].as_str().unwrap().to_owned();
    assert_eq!(process::comm(keeper).as_deref(), Some("lock-keeper"));
    Kept { handle, keeper }
}

/// What `dlock status` says of the lock.
#[track_caller]
fn status<S: Service>(service: &S) -> Value {
    let look = service.scratch().dlock().args(["status", "--json", "--key", "job"]).backend(service.url());
    serde_json::from_str(&look.args(service.options()).output().stdout()).unwrap()
}

/// `dlock renew` or `dlock release` of this handle.
fn by<S: Service>(service: &S, what: &str, handle: &str) -> Dlock {
    service.scratch().dlock().args([what, handle]).args(service.options())
}

/// Whether commands can be run under a handle there, and the lock be renewed by it.
fn has_handles<S: Service>() -> bool {
    !matches!(S::KIND, "file" | "zookeeper")
}

/// Waits until nothing is left at the service but the counter of the lock.
#[track_caller]
fn nothing_is_left<S: Service>(service: &S) {
    eventually("nothing to be left", || service.litter(&["job"]).is_empty().then_some(()));
}
