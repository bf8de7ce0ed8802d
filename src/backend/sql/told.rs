/*!
A server's report about itself, for checks.
*/

use crate::backend::contract::probing::Finding;

/// A server's report about itself.
#[derive(Debug)]
pub(crate) struct ServerReport {
    /// The findings of the check.
    pub findings: Vec<Finding>,
    /// The number of the process that answered, if servers have such numbers.
    pub process: Option<i32>,
}

/// Parses a number in an answer.
#[must_use]
pub(crate) fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// Returns the finding about `used` connections of at most `most`; `None` if that is unknown.
#[must_use]
pub(crate) fn connections(used: Option<u64>, most: Option<u64>) -> Option<Finding> {
    let (used, most) = (used?, most?);
    let text = format!("{used} of {most} in use");
    if used.saturating_mul(10) < most.saturating_mul(9) {
        return Some(Finding::ok("connections", text));
    }
    Some(Finding::warn("connections", text, "raise max_connections: each run needs one, and each of the first waiters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_connections_are_remarked_on() {
        for (used, most, verdict) in [(0, 100, "ok"), (89, 100, "ok"), (90, 100, "warn"), (100, 100, "warn")] {
            let finding = connections(Some(used), Some(most)).map(|finding| finding.verdict.name());
            assert_eq!(finding, Some(verdict), "{used}");
        }
        assert_eq!((connections(None, Some(1)), connections(Some(1), None)), (None, None));
    }
}
