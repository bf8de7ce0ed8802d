/*!
The options and subcommands that have a meaning at the backend that a URL names.
*/

use crate::backend::contract::driver::Breaks;
use crate::backend::url::Target;

impl Target {
    /// Returns `true` if `--replicas` applies to it.
    #[must_use]
    pub(crate) fn has_replicas(&self) -> bool {
        self.driver.abilities.replicas
    }

    /// Returns `true` if `--strict-fencing` applies to it: a majority of independent servers keeps the locks.
    #[must_use]
    pub(crate) fn is_redlock(&self) -> bool {
        self.driver.abilities.strict_fencing
    }

    /// Returns `true` if a lock there can outlive the process that took it.
    #[must_use]
    pub(crate) fn has_handles(&self) -> bool {
        self.driver.abilities.handles
    }

    /// Returns what `dlock break` can do there.
    #[must_use]
    pub(crate) fn breaks(&self) -> Breaks {
        self.driver.abilities.breaks
    }
}
