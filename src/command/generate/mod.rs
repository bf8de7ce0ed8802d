/*!
`dlock generate`: man pages and completion scripts, made from the same definitions as the help.
*/

mod manual;

use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::{Cli, GenerateArgs};
use crate::exit::{Exit, Failure};

/// Prints what was asked for on standard output.
pub(crate) fn generate(args: &GenerateArgs) -> Result<Exit, Failure> {
    let mut cli = Cli::command();
    cli.build();
    let mut text = Vec::new();
    match (args.what.shell(), args.page.as_deref()) {
        (None, page) => manual::page(&cli, page, &mut text)?,
        (Some(_), Some(_)) => {
            return Err(Failure::told(Exit::Usage, "only man pages are per subcommand: leave SUBCOMMAND out"));
        }
        (Some(shell), None) => clap_complete::generate(shell, &mut cli, "dlock", &mut text),
    }
    match io::stdout().write_all(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::told(Exit::Unavailable, format!("could not write to standard output: {error}")))
        }
        _ => Ok(Exit::Success),
    }
}
