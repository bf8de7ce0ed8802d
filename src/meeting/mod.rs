/*!
Latches and barriers, on top of a backend: when to ask again, when a wait is over, and with which outcome. Every request
has a time-out. Knows nothing about processes.
*/

pub(crate) mod barrier;
pub(crate) mod latch;
mod tries;

pub(crate) use self::tries::Limits;
