/*!
Refusing wrong settings.
*/

use std::fmt::Display;

use crate::exit::{Exit, Failure};
use crate::report::event::Event;
use crate::settings::layers::Origin;

/// A failure that begins with the name of `flag`, named by where the value comes from: a variable is called by its own name.
pub(super) fn named(mut failure: Failure, flag: &str, origin: Origin) -> Failure {
    if let Some(Event::Settings(text)) = failure.event.as_deref_mut()
        && let Some(rest) = text.strip_prefix(flag)
    {
        *text = format!("{origin}{rest}");
    }
    failure
}

/// The failure for wrong settings; `message` says what is wrong and what to do.
pub(super) fn usage(message: impl Display) -> Failure {
    Failure::new(Exit::Usage, Event::Settings(message.to_string()))
}
