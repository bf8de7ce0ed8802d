/*!
Probes of this host: commands can be supervised here, and its CPU quota lets them be stopped in time.
*/

use std::time::Duration;

use humantime::format_duration;

use crate::backend::contract::probing::Finding;
use crate::backend::error::ErrorKind;
use crate::lease::timing::dead_after;
use crate::report::event::Lack;
use crate::report::lack;
use crate::supervise::process::pidfd_open;
use crate::supervise::protocol::Unfit;
use crate::supervise::quota::Quota;
use crate::supervise::reaping::become_subreaper;
use crate::supervise::sweep::Sweep;

/// Checks the host's requirements of a run, other than the backend.
pub(super) fn host() -> Finding {
    let mut sweep = Sweep::new();
    let unfit = match sweep.unfit() {
        _ if become_subreaper().is_err() => Unfit::Subreaper,
        Some(unfit) => unfit,
        None if sweep.reserve().is_err() => Unfit::Descriptors,
        None => return watching(pidfd_open(nix::unistd::getpid().as_raw()).is_ok()),
    };
    let said = lack(&Lack::Unfit(unfit));
    let (text, remedy) = said.split_once(": ").unwrap_or((&said, ""));
    Finding::fail("host", ErrorKind::Unavailable, text, remedy)
}

/// Returns the finding for whether processes can be watched.
fn watching(is_possible: bool) -> Finding {
    if is_possible {
        return Finding::ok("host", "commands can be supervised here");
    }
    let text = "pidfd_open is refused: a run inside another one for the same lock cannot watch that";
    Finding::warn("host", text, "allow it in the container's seccomp profile")
}

/// Returns the finding on this control group's CPU quota for leases of `ttl`; `None` without a quota.
pub(super) fn quota(ttl: Duration) -> Option<Finding> {
    Quota::read().map(|quota| enough(&quota, ttl))
}

/// Judges whether a quota lets a lease of `ttl` be renewed, and its command be stopped, in time.
fn enough(quota: &Quota, ttl: Duration) -> Finding {
    let given = format!(
        "this control group gets {} of each {} of processor",
        format_duration(quota.granted),
        format_duration(quota.period)
    );
    if quota.is_too_little() {
        let text = format!("{given}: too little to stop a busy command in time, however long the lease is");
        return Finding::warn("cpu", text, "give it at least a twentieth of a processor");
    }
    let stoppable = quota.stoppable(dead_after(ttl).saturating_sub(ttl / 3));
    let text =
        format!("{given}: enough to stop up to {stoppable} busy processes in time with --ttl {}", format_duration(ttl));
    if stoppable < FEW {
        return Finding::warn("cpu", text, "use a longer --ttl, or give it more processor");
    }
    Finding::ok("cpu", text)
}

/// The number of busy processes that a command may well have.
const FEW: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_leaves_no_time_is_warned_about() {
        let quota = |granted| Quota {
            granted: Duration::from_millis(granted),
            period: Duration::from_millis(100),
            exhausted: 0,
        };
        for (granted, ttl, verdict, says) in [
            (4, 3600, "warn", "4ms of each 100ms of processor: too little"),
            (10, 2, "warn", "up to 10 busy processes in time with --ttl 2s"),
            (10, 30, "ok", "up to 199 busy processes in time with --ttl 30s"),
        ] {
            let found = enough(&quota(granted), Duration::from_secs(ttl));
            assert!(found.verdict.name() == verdict && found.text.contains(says), "{found:?}");
            assert_eq!(found.remedy.is_some(), verdict == "warn");
        }
    }

    #[test]
    fn this_host_will_do() {
        assert_eq!(watching(true).verdict.name(), "ok");
        assert_eq!(watching(false).verdict.name(), "warn");
    }
}
