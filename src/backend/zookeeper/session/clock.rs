/*!
What time it is at the servers.
*/

use crate::clock::Instant;

/// The clock of the server that dates our nodes: what it said once, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    /// In milliseconds since 1970.
    pub millis: u64,
    /// An instant before the server said so.
    pub at: Instant,
}

impl ServerClock {
    /// What it shows now.
    pub(super) fn now(&self) -> u64 {
        let since = Instant::now().since(self.at).as_millis();
        self.millis.saturating_add(u64::try_from(since).unwrap_or_default())
    }
}
