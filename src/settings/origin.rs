/*!
The origin of an option's value, as the user spells it.
*/

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::variables::of_option;

/// The origin of a value. Options are named by their long form, without the dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The flag of this option.
    Flag(Cow<'static, str>),
    /// The variable of this option.
    Variable(Cow<'static, str>),
    /// A line of a config file.
    File {
        /// The option.
        option: Arc<str>,
        /// The file, the line and the profile.
        place: Arc<str>,
    },
    /// No value was given.
    Default,
}

impl Origin {
    /// Returns the place where the option was given: `flag`, `DLOCK_TTL`, `/etc/dlock/config.toml:3` or `default`.
    #[must_use]
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Flag(_) => "flag".to_owned(),
            Self::File { place, .. } => place.as_ref().to_owned(),
            Self::Variable(_) | Self::Default => self.to_string(),
        }
    }
}

/// Writes the origin as messages name it: `--ttl`, `DLOCK_TTL`, `ttl (/etc/dlock/config.toml:3)` or `default`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(option) => write!(f, "--{option}"),
            Self::Variable(option) => f.write_str(&of_option(option)),
            Self::File { option, place } => write!(f, "{option} ({place})"),
            Self::Default => f.write_str("default"),
        }
    }
}
