/*!
The environment of the command, and what dlock publishes about itself for waiters.
*/

use std::ffi::{OsStr, OsString};

use crate::backend::url::{Target, without_password};
use crate::command::about::{self, Purpose};
use crate::command::losing::kill_after;
use crate::command::run::nested;
use crate::holder::{About, Owner};
use crate::report::journal::Sink;
use crate::settings::RunSettings;
use crate::variables::{
    BACKEND, BACKEND_KIND, EVENTS, HELD, KEY, LEASE_TTL, OF_ONE_RUN, OWNER, PASSWORD, SLOT, TOKEN, TOKENS,
};

/// Returns the command's environment: the inherited one without secrets and `OF_ONE_RUN`, plus variables for the
/// command, whose locks have these `owners` and whose guard has this name. Tokens and lease are added later.
pub(super) fn for_command(
    settings: &RunSettings,
    owners: &[Owner],
    guard: &str,
    kind: &str,
) -> Vec<(OsString, OsString)> {
    // A descriptor that the command does not inherit would fail a run inside this one.
    let closed = settings.events.as_ref().filter(|sink| matches!(sink, Sink::Descriptor(_))).map(Sink::to_string);
    let is_closed = |value: &OsStr| closed.as_ref().is_some_and(|closed| value == closed.as_str());
    let ours = [KEY, OWNER, BACKEND_KIND, HELD, TOKEN, TOKENS, SLOT, LEASE_TTL];
    let mut variables: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| !ours.iter().chain(&OF_ONE_RUN).any(|&our| name == our) && name != PASSWORD)
        .filter(|(name, value)| name != EVENTS || !is_closed(value))
        .filter_map(|(name, value)| {
            let value = if name == BACKEND { clean(&value)? } else { value };
            Some((name, value))
        })
        .collect();
    let held = nested::Outer::inherited_and(owners, guard);
    let owner = owners.first().map(Owner::as_str).unwrap_or_default();
    for (name, value) in [(KEY, settings.keys.first().as_str()), (OWNER, owner), (BACKEND_KIND, kind), (HELD, &held)] {
        variables.push((name.into(), value.into()));
    }
    variables
}

/// Returns a backend URL without its password; `None` if it is not understood, as the secret in it is then unknown.
fn clean(url: &OsStr) -> Option<OsString> {
    let url = url.to_str().filter(|url| url.is_empty() || Target::parse(url).is_ok())?;
    Some(without_password(url).into())
}

/// Returns what this run publishes about itself.
pub(super) fn about(settings: &RunSettings) -> About {
    let lease = settings.connection.target.has_lease().then_some(settings.ttl);
    about::about(Purpose {
        program: settings.program(),
        ttl: settings.connection.target.has_lease().then(|| settings.lease()),
        delay: settings.lock_delay.length,
        reason: settings.reason.clone(),
        kill_after: kill_after(settings.on_lost, settings.grace, lease),
        stop: true,
        handle: false,
        pid: None,
    })
}
