/*!
The description that dlock publishes about itself, for those who wait for its lock.
*/

use std::time::Duration;

use crate::backend::url::without_password;
use crate::clock::millis;
use crate::here;
use crate::holder::About;

/// The published properties of a holder.
#[derive(Debug, Default)]
pub(super) struct Purpose {
    /// The name of the program that runs under the lock.
    pub program: String,
    /// The requested lease length; `None` for a lock without a lease.
    pub ttl: Option<Duration>,
    /// The part of the lease that the command does not count on.
    pub delay: Duration,
    /// The text shown to waiters.
    pub reason: Option<String>,
    /// The time that the command has to end; `None` without a command.
    pub kill_after: Option<Duration>,
    /// `true` if the holder honors requests to stop.
    pub stop: bool,
    /// `true` if the lock outlives this process.
    pub handle: bool,
    /// The process for which this one holds the lock; `None` if it holds it for itself.
    pub pid: Option<i32>,
}

/// Returns what dlock publishes about itself and about this purpose.
pub(super) fn about(purpose: Purpose) -> About {
    let Purpose { program, ttl, delay, reason, kill_after, stop, handle, pid } = purpose;
    let pid = pid.unwrap_or_else(|| nix::unistd::getpid().as_raw());
    About {
        host: here::host(),
        user: here::user_name(nix::unistd::geteuid().as_raw()),
        pid,
        program,
        ttl: ttl.map(millis),
        delay: Some(delay).filter(|delay| !delay.is_zero()).map(millis),
        reason,
        job: ci_job(),
        boot: here::boot(),
        ns: here::namespace(),
        start: here::start_of(pid),
        kill_after: kill_after.map(millis),
        stop,
        handle,
    }
    .fitted()
}

/// Returns the URL of the CI job that runs dlock, as the CI system sets it.
fn ci_job() -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let github = || {
        let (server, repository) = (variable("GITHUB_SERVER_URL")?, variable("GITHUB_REPOSITORY")?);
        Some(format!("{server}/{repository}/actions/runs/{}", variable("GITHUB_RUN_ID")?))
    };
    let azure = || {
        let (server, project) = (variable("SYSTEM_COLLECTIONURI")?, variable("SYSTEM_TEAMPROJECT")?);
        Some(format!("{server}{project}/_build/results?buildId={}", variable("BUILD_BUILDID")?))
    };
    let plain = [
        "CI_JOB_URL",
        "BUILD_URL",
        "BUILDKITE_BUILD_URL",
        "CIRCLE_BUILD_URL",
        "TRAVIS_JOB_WEB_URL",
        "DRONE_BUILD_LINK",
    ];
    github().or_else(azure).or_else(|| plain.into_iter().find_map(variable)).map(|url| without_password(&url))
}
