/*!
How a wrong setting is refused.
*/

use std::fmt::Display;

use crate::exit::{Exit, Failure};
use crate::report::event::Event;

/// The failure of a run whose settings are wrong; `message` says which and what to do.
pub(super) fn usage(message: impl Display) -> Failure {
    Failure::new(Exit::Usage, Event::Settings(message.to_string()))
}
