/*!
Requests to run a script.
*/

use std::time::Duration;

use ::redis::Cmd;

/// A script without its comments and indentation: a server reads and hashes the whole text of every request.
pub(in crate::backend) fn condensed(text: &str) -> String {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The request to run a script with these keys and arguments.
pub(in crate::backend) fn script(text: &str, keys: &[String], arguments: &[&str]) -> Cmd {
    let mut command = ::redis::cmd("EVAL");
    command.arg(condensed(text)).arg(keys.len()).arg(keys).arg(arguments);
    command
}

/// In whole milliseconds, as text.
pub(in crate::backend) fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
