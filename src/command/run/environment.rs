/*!
The environment of the command, and what dlock publishes about itself for waiters.
*/

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use crate::backend::url::{Target, without_password};
use crate::command::run::nested;
use crate::holder::{About, Owner};
use crate::key::Keys;
use crate::settings::RunSettings;
use crate::variables::{BACKEND, BACKEND_KIND, HELD, KEY, LEASE_TTL, OWNER, PASSWORD, SLOT, TOKEN, TOKENS};

/// The inherited environment without secrets, with the variables for the command, whose locks have these `keys` and `owners`;
/// tokens and lease are added later.
pub(super) fn for_command(keys: &Keys, owners: &[Owner], kind: &str) -> Vec<(OsString, OsString)> {
    let ours = [KEY, OWNER, BACKEND_KIND, HELD, TOKEN, TOKENS, SLOT, LEASE_TTL];
    let mut variables: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| !ours.iter().any(|&our| name == our) && name != PASSWORD)
        .filter_map(|(name, value)| {
            let value = if name == BACKEND { clean(&value)? } else { value };
            Some((name, value))
        })
        .collect();
    let held = nested::Outer::inherited_and(owners);
    let owner = owners.first().map(Owner::as_str).unwrap_or_default();
    for (name, value) in [(KEY, keys.first().as_str()), (OWNER, owner), (BACKEND_KIND, kind), (HELD, &held)] {
        variables.push((name.into(), value.into()));
    }
    variables
}

/// A backend URL without its password. None for one that no dlock understands: what in it is secret cannot be told.
fn clean(url: &OsStr) -> Option<OsString> {
    let url = url.to_str().filter(|url| url.is_empty() || Target::parse(url).is_ok())?;
    Some(without_password(url).into())
}

/// What dlock publishes about itself.
pub(super) fn about(settings: &RunSettings) -> About {
    About {
        host: nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        user: user(),
        pid: nix::unistd::getpid().as_raw(),
        program: settings.program(),
        ttl: settings.connection.target.has_lease().then(|| millis(settings.lease())),
        delay: Some(settings.lock_delay.length).filter(|delay| !delay.is_zero()).map(millis),
        reason: settings.reason.clone(),
        job: ci_job(),
    }
    .fitted()
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The user's name in `/etc/passwd`, or else the number. The system's other user databases may ask a server, which may not
/// answer.
fn user() -> String {
    let id = nix::unistd::geteuid().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    users
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == id).then(|| name.to_owned())
        })
        .unwrap_or(id)
}

/// The URL of the CI job that runs dlock, as the CI system sets it.
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
