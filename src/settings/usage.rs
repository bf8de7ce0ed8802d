/*!
Refusing wrong settings.
*/

use std::fmt::Display;

use crate::exit::{Exit, Failure};
use crate::report::event::Event;

/// The failure for wrong settings; `message` says what is wrong and what to do.
pub(super) fn usage(message: impl Display) -> Failure {
    Failure::new(Exit::Usage, Event::Settings(message.to_string()))
}
