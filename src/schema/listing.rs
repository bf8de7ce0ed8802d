/*!
The document of `dlock list`, which is written in parts as the locks are read.
*/

use std::collections::BTreeSet;

use crate::backend::survey::{Location, Meetings, Snapshot, Successes};
use crate::schema::{LookedAt, MeetingAt, SuccessAt, VERSION, json, lock, moment};

/// A document that is being written.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The start of the list, in milliseconds since 1970.
    begun: u64,
    parts: usize,
    locks: usize,
}

impl Listing {
    /// A list that was begun at this time, in milliseconds since 1970.
    #[must_use]
    pub(crate) fn new(begun: u64) -> Self {
        Self { begun, parts: 0, locks: 0 }
    }

    /// The next part of it, with these locks at this place.
    #[must_use]
    pub(crate) fn part(&mut self, locks: &[Snapshot], place: &LookedAt) -> String {
        let mut text = String::new();
        if self.parts == 0 {
            let (backend, namespace) = (json(&place.backend), json(&place.namespace));
            let time = json(&moment(self.begun));
            text = format!(r#"{{"v":{VERSION},"backend":{backend},"namespace":{namespace},"time":{time},"locks":["#);
        }
        for seen in locks {
            if self.locks > 0 {
                text.push(',');
            }
            text.push_str(&json(&lock(seen, place, false)));
            self.locks += 1;
        }
        self.parts += 1;
        text
    }

    /// The last part of it: the number of locks, whether there are more than were listed, and the last successes,
    /// latches and barriers, if they could be read.
    #[must_use]
    pub(crate) fn end(
        &mut self,
        place: &LookedAt,
        last: Option<&Successes>,
        met: Option<&Meetings>,
        total: Option<u64>,
        cut: bool,
    ) -> String {
        let begin = if self.parts == 0 { self.part(&[], place) } else { String::new() };
        let last: Option<Vec<SuccessAt<'_>>> = last.map(|last| last.iter().map(SuccessAt::of).collect());
        let (total, last) = (json(&total), json(&last));
        let locations = |locations: Option<&BTreeSet<Location>>| {
            json(&locations.map(|locations| locations.iter().map(MeetingAt::of).collect::<Vec<_>>()))
        };
        let latches = locations(met.map(|met| &met.latches));
        let barriers = locations(met.and_then(|met| met.barriers.as_ref()));
        let others = format!(r#""last_successes":{last},"latches":{latches},"barriers":{barriers}"#);
        format!(r#"{begin}],"total":{total},"cut":{cut},{others}}}"#) + "\n"
    }
}
