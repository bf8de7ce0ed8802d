/*!
The part of the last line of a run that sums up those before it.
*/

use crate::schema::events::entry::{Cause, Entry, Why};

/// The course of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Course {
    /// The outcome: `acquired`, `ran`, `failed`, `lost`, `asked`, `max-run`, `held`, `done`, `slots` or `backend`.
    pub outcome: Option<&'static str>,
    /// Time that it took to acquire the lock, in milliseconds.
    pub waited_ms: Option<u64>,
    /// Time that the command ran, in milliseconds.
    pub ran_ms: Option<u64>,
}

impl Course {
    /// Takes note of an entry.
    pub(crate) fn note(&mut self, entry: &Entry) {
        match entry {
            Entry::Acquired { waited_ms, .. } => {
                (self.outcome, self.waited_ms) = (Some("acquired"), Some(*waited_ms));
            }
            Entry::Refused { why, .. } => {
                self.outcome = Some(match why {
                    Why::Held => "held",
                    Why::Done => "done",
                    Why::Slots => "slots",
                    Why::Handle => "handle",
                    Why::Backend => "backend",
                });
            }
            Entry::Asked { .. } | Entry::Stopping { cause: Cause::Asked, .. } => self.outcome = Some("asked"),
            // A lock that is given up on request was not lost before.
            Entry::Lost { .. } | Entry::Stopping { cause: Cause::Lost, .. } if self.outcome != Some("asked") => {
                self.outcome = Some("lost");
            }
            Entry::Stopping { cause: Cause::MaxRun, .. } => self.outcome = Some("max-run"),
            Entry::Exited { error, ran_ms, .. } => {
                if self.outcome == Some("acquired") {
                    self.outcome = Some(if error.is_some() { "failed" } else { "ran" });
                }
                self.ran_ms = error.is_none().then_some(*ran_ms);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_says_how_it_came_about() {
        let acquired = || Entry::Acquired {
            token: None,
            ttl_ms: None,
            waited_ms: 7,
            slot: None,
            keys: Vec::new(),
            tokens: Vec::new(),
            covered: false,
        };
        let exited = |error: Option<&str>| {
            let error = error.map(str::to_owned);
            Entry::Exited { code: Some(0), signal: None, error, ran_ms: 9 }
        };
        let stopping = |cause| Entry::Stopping { signal: "TERM", cause };
        let lost = || Entry::Lost { reason: String::new() };
        let asked = || Entry::Asked { by: String::new(), reason: None };
        let refused = |why| Entry::Refused { why, lock: String::new(), holder: None, error: String::new() };
        for (entries, outcome, waited, ran) in [
            (vec![], None, None, None),
            (vec![acquired()], Some("acquired"), Some(7), None),
            (vec![acquired(), exited(None)], Some("ran"), Some(7), Some(9)),
            (vec![acquired(), exited(Some("not found"))], Some("failed"), Some(7), None),
            (vec![acquired(), lost(), stopping(Cause::Lost), exited(None)], Some("lost"), Some(7), Some(9)),
            (vec![acquired(), asked(), stopping(Cause::Asked), exited(None)], Some("asked"), Some(7), Some(9)),
            (vec![acquired(), asked(), lost(), exited(None)], Some("asked"), Some(7), Some(9)),
            (vec![acquired(), stopping(Cause::MaxRun), exited(None)], Some("max-run"), Some(7), Some(9)),
            (vec![acquired(), exited(None), stopping(Cause::Leftovers)], Some("ran"), Some(7), Some(9)),
            (vec![refused(Why::Held)], Some("held"), None, None),
            (vec![refused(Why::Done)], Some("done"), None, None),
            (vec![refused(Why::Slots)], Some("slots"), None, None),
            (vec![refused(Why::Handle)], Some("handle"), None, None),
            (vec![refused(Why::Backend)], Some("backend"), None, None),
        ] {
            let mut course = Course::default();
            for entry in &entries {
                course.note(entry);
            }
            assert_eq!(course, Course { outcome, waited_ms: waited, ran_ms: ran });
        }
    }
}
