/*!
What one session has sent, and what the answers prove.
*/

use ::zookeeper_client::Error as ZkError;

use crate::backend::zookeeper::timeline::Timeline;
use crate::clock::Instant;

/// What was sent and answered.
#[derive(Debug)]
pub(super) struct Traffic {
    /// What the answers prove.
    pub timeline: Timeline,
    /// Whether a request's answer was not waited for to its end.
    pub overdue: bool,
}

impl Traffic {
    /// Nothing but what `timeline` says.
    pub(super) fn new(timeline: Timeline) -> Self {
        Self { timeline, overdue: false }
    }

    /// A request is about to be sent: when.
    pub(super) fn begin(&mut self) -> Instant {
        self.overdue = true;
        Instant::now()
    }

    /// The answer to the request that was sent at `sent`, a write or not, has come.
    pub(super) fn end<T>(&mut self, sent: Instant, is_write: bool, answer: &Result<T, ZkError>) {
        self.overdue = false;
        let now = Instant::now();
        match answer {
            Ok(_) if is_write => self.timeline.written(sent, now),
            Ok(_) | Err(ZkError::NoNode | ZkError::NodeExists | ZkError::NotEmpty | ZkError::NoAuth) => {
                self.timeline.answered(sent, now);
            }
            Err(_) => {}
        }
    }
}
