/*!
Starts, signals and stops the command. Knows nothing of locks.
*/

pub(crate) mod command;
pub(crate) mod forwards;
pub(crate) mod guard;
pub(crate) mod keeper;
mod priority;
pub(crate) mod process;
pub(crate) mod protocol;
pub(crate) mod quota;
pub(crate) mod reaping;
mod signalling;
pub(crate) mod signals;
pub(crate) mod stop;
pub(crate) mod surroundings;
pub(crate) mod sweep;
pub(crate) mod tokens;
pub(crate) mod watched;
