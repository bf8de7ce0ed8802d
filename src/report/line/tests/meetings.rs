//! One event of latches and barriers: the sentences for the others are tested where they are made.

use super::{lock, named};
use crate::report::event::Event;
use crate::report::event::meeting::{Kind, MeetingEvent, Point};

pub(super) fn sentences() -> Vec<(Event, &'static str)> {
    let point = Point { kind: Kind::Barrier, key: named("k"), place: lock().place, flags: String::new() };
    let event = Event::Meeting(MeetingEvent::NotHere { point, reason: "WHY" });
    vec![(event, "redis://h:6379 has no barriers: WHY")]
}
