//! Readers hold a lock together, a writer alone, and neither keeps the other out for long.

use std::fs;
use std::time::Duration;

use super::{any_has_held, assert_clean, begin, let_go, refused, wait};
use crate::support::backends::{on_every_backend, on_file_and_redis, on_variant};
use crate::support::dlock::Running;
use crate::support::rendezvous::eventually;
use crate::support::service::{Gated, Service};

on_every_backend! {
    readers_run_together_and_a_writer_is_next_and_alone
}

on_file_and_redis! {
    a_stream_of_readers_lets_a_writer_in
    many_readers_at_once_are_not_refused
}

on_variant! { redis_replicas: redis_services::ReplicasService { readers_run_together_and_a_writer_is_next_and_alone } }

on_variant! { redis_sentinel: redis_services::SentinelService { readers_run_together_and_a_writer_is_next_and_alone } }

/// How many readers come before and after the writer.
const READERS: usize = 20;

fn readers_run_together_and_a_writer_is_next_and_alone<S: Service>(service: &S) {
    let first: Vec<Gated> = (0..READERS).map(|_| begin(service, "job", ["-s"])).collect();
    let before: Vec<u64> = first.iter().map(Gated::token).collect();
    refused(service, "job", &[]);
    let writer = wait(service, "job", ["-x"]);
    let later: Vec<Gated> = (0..READERS).map(|_| begin(service, "job", ["-s"])).collect();
    for reader in &later {
        reader.running.wait_stderr("waiting for ");
    }
    // Without waiting none passes the writer either.
    refused(service, "job", &["-s"]);
    assert!(!writer.has_held() && !any_has_held(&later));
    let_go(first);
    let token = writer.token();
    assert!(!any_has_held(&later), "a reader runs beside a writer");
    refused(service, "job", &["-s"]);
    assert!(before.iter().all(|earlier| *earlier < token), "{before:?} {token}");
    let_go([writer]);
    let after: Vec<u64> = later.iter().map(Gated::token).collect();
    assert!(after.iter().all(|later| *later > token), "{token} {after:?}");
    let_go(later);
    assert_clean(service, &["job"]);
}

/// How long a writer may wait for readers that come all the time and stay for [`READS_FOR`] each.
const PATIENCE: Duration = Duration::from_secs(5);
const READS_FOR: &str = "0.3";

fn a_stream_of_readers_lets_a_writer_in<S: Service>(service: &S) {
    let [stop, reads] = ["stop", "reads"].map(|name| service.scratch().path(name));
    let again = format!("while [ ! -e '{}' ]; do \"$@\" || exit; done", stop.display());
    let read = format!("echo read >> '{}'; sleep {READS_FOR}", reads.display());
    let stream = |_| {
        let dlock = service.run("job").args(["-q", "-s"]).wrapped_by(["sh", "-c", again.as_str(), "sh"]);
        dlock.shell(&read).spawn()
    };
    let streams: Vec<Running> = (0..4).map(stream).collect();
    eventually("readers", || {
        let reads = fs::read_to_string(&reads).unwrap_or_default().lines().count();
        (reads >= 12).then_some(())
    });
    let writer = service.run("job").args(["-q", "-x"]).command(["touch", "stop"]).output();
    writer.success();
    assert!(writer.elapsed() < PATIENCE, "{writer:?}");
    for stream in streams {
        stream.wait().success();
    }
    assert_clean(service, &["job"]);
}

fn many_readers_at_once_are_not_refused<S: Service>(service: &S) {
    let read = |_| service.run("job").args(["-n", "-s"]).command(["sleep", "0.2"]).spawn();
    let readers: Vec<Running> = (0..20).map(read).collect();
    for reader in readers {
        reader.wait().success();
    }
    assert_clean(service, &["job"]);
}
