/*!
`dlock generate`: man pages and completion scripts, made from the same definitions as the help.
*/

mod completion;
mod manual;

use clap::CommandFactory;

use crate::cli::{Cli, GenerateArgs};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::report::event::Event;

/// Prints what was asked for on standard output.
pub(crate) fn generate(args: &GenerateArgs) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    match (args.what.shell(), args.page.as_deref()) {
        (None, page) => {
            let mut cli = Cli::command();
            cli.build();
            manual::page(&cli, page, &mut text)?;
        }
        (Some(_), Some(_)) => {
            return Err(Failure::new(Exit::Usage, Event::OnlyPagesHaveSubcommands));
        }
        (Some(shell), None) => completion::script(Cli::command(), shell, &mut text),
    }
    output::print(&text)?;
    Ok(Exit::Success)
}
