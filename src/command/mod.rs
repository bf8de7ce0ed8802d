/*!
One folder per subcommand, and what several of them share.
*/

pub(crate) mod barrier;
pub(crate) mod generate;
pub(crate) mod latch;
mod progress;
pub(crate) mod run;
mod session;
