/*!
The command never outlives its lease, whatever happens to the server and to the network.

The server's own account is compared with the end of the last process of a stubborn tree ([`Tree`]): the lease can
expire at the server one ttl after it carried out the last acquire or renewal (`PTTL`, or `MONITOR` where the server
cannot be asked any more), and everything has to be dead by then. A waiter that reaches the server all the time, and the
witness, find out whether two commands ever overlapped.
*/

mod ladder;
mod network;
mod proxy;
mod server;
mod short_outage;
mod taken_away;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::dlock::Running;
use crate::support::netns::Netns;
use crate::support::process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rendezvous::{Fifo, Gate, Lifeline, boottime, eventually, last_until};
use crate::support::scene::{KEY, Scene, TTL, assert_in_time, assert_lost, assert_taken_over, behind};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need, runs_script};
use crate::support::tree::Tree;
use crate::support::witness::Witness;

/// A lease at the server: when it expires at the earliest, and how long it is.
#[derive(Clone, Copy)]
struct Lease {
    ends: Duration,
    ttl: Duration,
}

impl Lease {
    /// Waits for the end of a tree whose lock was taken away. The next renewal has to find out, a third of the lease
    /// after the last one: SIGTERM comes in the first half of the lease, and SIGKILL a quarter of a lease later, in its
    /// first three quarters.
    #[track_caller]
    fn ends_at_the_next_renewal(self, tree: &mut Tree) {
        let began = self.ends - self.ttl;
        let termed = tree.termed_at();
        assert!(termed < began + self.ttl / 2, "SIGTERM came {:?} after the last renewal", termed - began);
        let died = tree.died_at();
        assert!(died < began + self.ttl * 3 / 4, "SIGKILL came {:?} after the last renewal", died - began);
    }
}

/// Checks that a lock with a lease of twice [`TTL`] on `redis` at `url` survives `outage`, which begins just after a
/// renewal, and is renewed `renewals` times after it: nobody notices, and the command comes to its own end.
fn outlives_unnoticed(redis: &Redis, url: &str, renewals: usize, outage: impl FnOnce()) {
    let scratch = Scratch::new();
    let monitor = redis.monitor();
    let (mut words, gate) = (Fifo::new(scratch.path("words")), Gate::new(scratch.path("gate")));
    let script = format!("{}; {}; exit 5", words.say("running"), gate.wait());
    let dlock = scratch.dlock().run("job").backend(url).args(["-t", "2s"]).shell(script).spawn();
    words.expect("running");
    monitor.wait_renewed(KEY);
    let lease_before = monitor.expiry(KEY, boottime());
    outage();
    for _ in 0..renewals {
        monitor.wait_renewed(KEY);
    }
    // A renewal may have been sent before the outage ended and its answer given up. dlock knows of a renewal if the
    // command lives beyond the lease that it had before.
    last_until(lease_before);
    assert!(process::is_alive(dlock.command_pid()));
    gate.open();
    dlock.wait().code(5).quiet();
    assert_eq!(redis.get(KEY), None);
}

/// Runs `change` (Lua, `KEYS[1]` is the lock) on the server; returns when the lease would have expired, by
/// [`boottime`].
#[track_caller]
fn replace(redis: &Redis, change: &str) -> Duration {
    // In one script, so that no renewal comes in between.
    let script = format!("local left = redis.call('PTTL', KEYS[1]); {change}; return left");
    let now = boottime();
    let left: u64 = redis.cli(&["EVAL", &script, "1", KEY]).parse().expect("a lock that is held");
    now + Duration::from_millis(left - 1)
}
