/*!
`dlock generate`: prints man pages and completion scripts, made from the same definitions as the help, and a backend's
setup for administrators.
*/

mod completion;
mod manual;

use std::ffi::OsStr;

use clap::CommandFactory;

use crate::backend::url::Target;
use crate::cli::{Cli, GenerateArgs, Generated};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::report::event::Event;
use crate::variables::BACKEND;

/// Prints the requested text on standard output. `is_flag` is `true` if the URL of the backend comes from a flag: a
/// variable may be set for everything that a user runs, and counts only if it names such a backend.
pub(crate) fn generate(args: &GenerateArgs, is_flag: bool) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    match (args.what, args.page.as_deref()) {
        (Generated::Man, page) => {
            let mut cli = Cli::command();
            cli.build();
            manual::page(&cli, page, &mut text)?;
        }
        (Generated::Completions(_) | Generated::Setup(..), Some(_)) => {
            return Err(Failure::new(Exit::Usage, Event::OnlyPagesHaveSubcommands));
        }
        (Generated::Completions(shell), None) => completion::script(Cli::command(), shell, &mut text),
        (Generated::Setup(name, default), None) => {
            let chosen = args.backend.as_deref().map_or(Ok(None), |url| setup_at(url, name, is_flag))?;
            text.extend(chosen.unwrap_or_else(default).into_bytes());
        }
    }
    output::print(&text)?;
    Ok(Exit::Success)
}

/// Returns the administrator's setup for this URL of backend `name`; `None` if a variable names another backend.
fn setup_at(url: &OsStr, name: &str, is_flag: bool) -> Result<Option<String>, Failure> {
    let usage = |what: &str| {
        let origin = if is_flag { "--backend" } else { BACKEND };
        Failure::new(Exit::Usage, Event::Settings(format!("{origin}: {what}")))
    };
    let url = url.to_str().ok_or_else(|| usage("the URL is not UTF-8: percent-encode it"))?;
    match Target::parse(url) {
        Ok(target) if target.kind() == name => Ok(target.setup()),
        Ok(_) if is_flag => Err(usage(&format!("the URL is not one of {name}: leave it out, or name one"))),
        Ok(_) => Ok(None),
        Err(error) => Err(usage(&error)),
    }
}
