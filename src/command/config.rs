/*!
`dlock config`: prints the effective settings, each with its origin.
*/

use clap::ArgMatches;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::report;
use crate::report::picture;
use crate::schema::settings::{Setting as Row, settings};
use crate::settings::{Setting, effective, unknown_variables};

/// Prints the settings.
pub(crate) fn config(matches: &ArgMatches) -> Result<Exit, Failure> {
    if let Some(unknown) = unknown_variables() {
        report::say(&unknown);
    }
    let of = |Setting { option, value, origin }| Row { option, value, origin: origin.place() };
    let rows: Vec<Row> = effective()?.into_iter().map(of).collect();
    let text = if matches.get_flag("json") { settings(rows) } else { picture::settings(rows.iter().filter_map(told)) };
    output::print(text.as_bytes())?;
    Ok(Exit::Success)
}

/// Returns a row of the table; `None` without a value, or for a switch that is off by default.
fn told(Row { option, value, origin }: &Row) -> Option<[&str; 3]> {
    let value = value.as_deref().filter(|value| *value != "false" || origin != "default")?;
    Some([option, value, origin])
}
