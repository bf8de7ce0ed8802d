//! What somebody deletes is lost to all who held it together, and those who come after it are others.

use std::time::Duration;

use super::{assert_clean, hold, let_go};
use crate::support::backends::on_every_backend;
use crate::support::rendezvous::boottime;
use crate::support::service::Gated;
use crate::support::taken::Taken;

on_every_backend! {
    all_who_held_it_are_stopped_and_the_next_ones_are_not
}

/// How soon everybody is stopped: a third of the lease after the loss, and SIGTERM suffices.
const SOON: Duration = Duration::from_secs(4);

fn all_who_held_it_are_stopped_and_the_next_ones_are_not<S: Taken>(service: &S) {
    let keys = [("readers", &["--ttl", "6s", "-s"][..]), ("slots", &["--ttl", "6s", "--slots", "3"])];
    let held: Vec<Gated> =
        keys.iter().flat_map(|(key, options)| (0..3).map(move |_| hold(service, key, *options))).collect();
    for (key, _) in keys {
        service.take_away(key);
    }
    let taken = boottime();
    let next: Vec<Gated> = keys.iter().map(|(key, options)| hold(service, key, *options)).collect();
    for holder in held {
        holder.running.wait().code(79).stderr_ends_with_line("lost ");
    }
    let passed = boottime() - taken;
    assert!(passed < SOON, "{passed:?}");
    // What the others did at their ends was none of theirs.
    for (key, _) in keys {
        service.assert_held(key);
    }
    let_go(next);
    assert_clean(service, &["readers", "slots"]);
}
