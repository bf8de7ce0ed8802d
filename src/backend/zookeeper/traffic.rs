/*!
The requests of one session, and the evidence from their answers.
*/

use ::zookeeper_client::Error as ZkError;

use crate::backend::zookeeper::timeline::Timeline;
use crate::clock::Instant;

/// The requests of one session and their answers.
#[derive(Debug)]
pub(super) struct Traffic {
    /// The evidence that the session is alive, from the answers.
    pub timeline: Timeline,
    /// Set while an answer is pending, and left set if a request is given up.
    pub overdue: bool,
}

impl Traffic {
    /// Creates a record with this `timeline`, and nothing overdue.
    pub(super) fn new(timeline: Timeline) -> Self {
        Self { timeline, overdue: false }
    }

    /// Records that a request is about to be sent, and returns the time.
    pub(super) fn begin(&mut self) -> Instant {
        self.overdue = true;
        Instant::now()
    }

    /// Records that the request sent at `sent` was answered; `is_write` says whether it was a write.
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
