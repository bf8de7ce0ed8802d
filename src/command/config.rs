/*!
`dlock config`: the effective settings, and where each comes from.
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
    let all = effective(matches)?;
    let text = if matches.get_flag("json") { json(&all) } else { picture::settings(all.iter().filter_map(row)) };
    output::print(text.as_bytes())?;
    Ok(Exit::Success)
}

/// All settings, also those without a value.
fn json(all: &[Setting]) -> String {
    let row = |setting: &Setting| Row {
        option: setting.option.clone(),
        value: setting.value.clone(),
        origin: setting.origin.clone(),
    };
    settings(all.iter().map(row).collect())
}

/// A setting as a row of the table; none where it has no value, and for a switch that is off and that nothing has turned.
fn row(Setting { option, value, origin }: &Setting) -> Option<[&str; 3]> {
    let value = value.as_deref().filter(|value| *value != "false" || origin != "default")?;
    Some([option, value, origin])
}
