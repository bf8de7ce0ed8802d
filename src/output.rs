/*!
The only place that writes to standard output, for subcommands that print something. The standard output of `dlock run`
belongs to the command alone.
*/

use std::io::{self, Write};

use crate::exit::{Exit, Failure};
use crate::report::event::Event;

/// Writes `answer` to standard output. A reader that has closed the pipe is not an error.
pub(crate) fn print(answer: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(answer).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Unavailable, Event::OutputFailed(error.to_string())))
        }
        _ => Ok(()),
    }
}
