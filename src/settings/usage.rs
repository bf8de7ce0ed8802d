/*!
Refusing wrong settings.
*/

use std::fmt::Display;

use crate::exit::{Exit, Failure};
use crate::report::event::Event;
use crate::settings::origin::Origin;

/// Returns the failure for a value that comes from `origin`; `message` says what is wrong and what to do.
pub(super) fn refused(origin: &Origin, message: impl Display) -> Failure {
    let exit = match origin {
        Origin::File { .. } => Exit::Config,
        Origin::Flag(_) | Origin::Variable(_) | Origin::Default => Exit::Usage,
    };
    Failure::new(exit, Event::Settings(message.to_string()))
}

/// Returns the failure for wrong settings; `message` says what is wrong and what to do.
pub(super) fn usage(message: impl Display) -> Failure {
    Failure::new(Exit::Usage, Event::Settings(message.to_string()))
}
