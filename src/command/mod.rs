/*!
One file or folder per subcommand, and the code that several of them share.
*/

mod about;
pub(crate) mod acquire;
mod announcing;
pub(crate) mod barrier;
pub(crate) mod breaking;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod flock;
pub(crate) mod generate;
mod gripping;
pub(crate) mod held;
mod journal;
mod keeping;
pub(crate) mod latch;
pub(crate) mod list;
mod looking;
mod losing;
mod pace;
mod progress;
mod recording;
mod refusal;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
mod session;
pub(crate) mod status;
mod taking;
mod traces;
mod watch;
