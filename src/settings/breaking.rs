/*!
The settings of `dlock break`.
*/

use std::time::Duration;

use clap::ArgMatches;

use crate::backend::contract::driver::Breaks;
use crate::cli::BreakArgs;
use crate::exit::Failure;
use crate::key::Key;
use crate::settings::key::one_key;
use crate::settings::layers::Layers;
use crate::settings::look::LookSettings;
use crate::settings::unknown;
use crate::settings::usage::usage;

/// Minimum number of characters of an owner's id, not counting [`FOREIGN`].
const SHORTEST: usize = 8;
/// Prefix of the owner ids of other programs.
const FOREIGN: &str = "foreign:";

/// Everything that `dlock break` needs to know.
#[derive(Debug)]
pub(crate) struct BreakSettings {
    /// The lock's name.
    pub key: Key,
    /// The beginning of the owner's id.
    pub owner: String,
    /// The reason for the break, if one is given.
    pub reason: Option<String>,
    /// Longest time to wait; `None` for a time that depends on the holder's lease.
    pub wait: Option<Duration>,
    /// `true` to take the lock away at once.
    pub now: bool,
    /// `true` to skip the confirmation on a terminal.
    pub yes: bool,
    /// The settings of every look.
    pub look: LookSettings,
}

impl BreakSettings {
    /// Reads the settings of `dlock break` from the parsed arguments, and the password file.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let layers = Layers::<BreakArgs>::read(matches)?;
        let owner = layers.find("owner", |args| args.owner.clone()).map(|owner| owner.value).unwrap_or_default();
        let is_on = |name, value: fn(&BreakArgs) -> Option<bool>| layers.get(name, value).value;
        let (now, yes) = (is_on("now", |args| args.now), is_on("yes", |args| args.yes));
        let key = one_key(&layers, |args| &args.key)?;
        if !is_long_enough(&owner) {
            return Err(usage(format!(
                "--owner: give at least the first {SHORTEST} characters of the owner that dlock status shows"
            )));
        }
        let look = LookSettings::new(&layers, is_on("quiet", |args| args.quiet), unknown::variables())?;
        let target = &look.connection.target;
        if now && target.breaks() == Breaks::Asking {
            return Err(usage(format!(
                "--now is not for {target}, where a lock ends with the last process of its command: leave it out, or end \
                 its command and every process it has started"
            )));
        }
        Ok(Self {
            key,
            owner,
            reason: layers.find("reason", |args| args.reason.clone()).map(|reason| reason.value),
            wait: layers.find("wait", |args| args.wait).map(|wait| wait.value),
            now,
            yes,
            look,
        })
    }
}

/// Returns `true` if this part of an id is long enough to tell one owner from others.
fn is_long_enough(owner: &str) -> bool {
    owner.strip_prefix(FOREIGN).unwrap_or(owner).chars().count() >= SHORTEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_characters_tell_an_owner_from_others() {
        for (owner, expected) in [
            ("e457f1b7", true),
            ("e457f1b7a38ab51a0c8ce773f17aabeb", true),
            ("e457f1b", false),
            ("", false),
            ("foreign:", false),
            ("foreign:0123456", false),
            ("foreign:01234567", true),
        ] {
            assert_eq!(is_long_enough(owner), expected, "{owner}");
        }
    }
}
