/*!
The servers' time.
*/

use crate::clock::Instant;

/// The clock of the server that dates our nodes, as it was read once.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    /// The time that was read, in milliseconds since 1970.
    pub millis: u64,
    /// An instant before it was read.
    pub at: Instant,
}

impl ServerClock {
    /// Returns the server's time now, in milliseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        let since = Instant::now().since(self.at).as_millis();
        self.millis.saturating_add(u64::try_from(since).unwrap_or_default())
    }
}
