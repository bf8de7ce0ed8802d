/*!
Latches and barriers as a caller of a backend sees them: when to ask again, when a wait is over, and what came of it. Every
request has a time-out. Knows nothing about processes.
*/

pub(crate) mod barrier;
pub(crate) mod latch;
pub(crate) mod news;
mod tries;

pub(crate) use self::tries::Limits;
