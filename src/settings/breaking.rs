/*!
The settings of `dlock break`.
*/

use std::time::Duration;

use clap::ArgMatches;

use crate::backend::driver::Breaks;
use crate::cli::BreakArgs;
use crate::exit::Failure;
use crate::key::Key;
use crate::settings::key::one_key;
use crate::settings::layers::Layers;
use crate::settings::look::LookSettings;
use crate::settings::unknown;
use crate::settings::usage::usage;

/// How much of an owner's id must be given.
const SHORTEST: usize = 8;
/// What the ids of other programs begin with.
const FOREIGN: &str = "foreign:";

/// Everything that `dlock break` needs to know.
#[derive(Debug)]
pub(crate) struct BreakSettings {
    /// The lock's name.
    pub key: Key,
    /// How the id of the owner begins that is meant.
    pub owner: String,
    /// Why.
    pub reason: Option<String>,
    /// How long to wait; none for as long as the holder's lease suggests.
    pub wait: Option<Duration>,
    /// Whether the lock is taken away at once.
    pub now: bool,
    /// Whether nothing is asked on a terminal.
    pub yes: bool,
    /// The others.
    pub look: LookSettings,
}

impl BreakSettings {
    /// The settings of `dlock break`, from what the parser found. Reads the password file.
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
                "--now is not for {target}, where a lock ends with the last process of its command: leave it out, or end its \
                 command and all that this has started"
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

/// Whether so much of an id tells one owner from others.
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
