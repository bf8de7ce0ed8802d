/*!
`dlock flock`, or dlock called as `flock`: behaves as flock(1), or with a backend as `dlock run`.
*/

mod local;

use std::ffi::OsString;

use self::local::{Stop, USAGE, lock, stopped};
use crate::cli::flock::{Misuse, Request, Timeout, read};
use crate::cli::help;
use crate::command::run::run;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings::flock::run_of_flock;

/// Does what a flock command line asks for.
pub(crate) fn flock(words: Vec<OsString>) -> Result<Exit, Failure> {
    let (options, object) = match read(words, std::env::var_os("SHELL")) {
        Ok(Request::Help) => return help(Some("flock"), None),
        Ok(Request::Version) => {
            let version = format!("flock from dlock {}, as in util-linux 2.38\n", env!("CARGO_PKG_VERSION"));
            return output::print(version.as_bytes()).map(|()| Exit::Success);
        }
        Ok(Request::Lock(options, object)) => (options, object),
        Err(Misuse { text, has_help }) => {
            let more = if has_help { "\nTry 'flock --help' for more information." } else { "" };
            return Ok(stopped(&Stop::new(USAGE, format!("{text}{more}"))));
        }
    };
    match run_of_flock(&options, &object)? {
        Some(_) if options.timeout == Some(Timeout::Impossible) => Ok(stopped(&Stop::no_timer())),
        Some(settings) => Ok(run(&settings)),
        None => Ok(lock(&options, &object)),
    }
}
