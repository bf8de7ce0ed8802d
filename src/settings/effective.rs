/*!
The effective settings as texts, each with its origin: what `dlock config` shows of the layers that `dlock run` reads.
*/

use crate::backend::registry;
use crate::backend::url::password_in;
use crate::cli::defaults::{Kind, kind};
use crate::cli::{self, read_shown, settable};
use crate::exit::Failure;
use crate::settings::config::{FLOCK_PATHS, files};
use crate::settings::connection::ConnectionValues;
use crate::settings::layers::{Given, Layers, Secret, chosen};
use crate::settings::origin::Origin;
use crate::settings::password::check_exposure;
use crate::settings::run::RunValues;

/// The text shown instead of a password.
const HIDDEN: &str = "***";
/// The option for the password itself, which is only in config files and a variable.
const SECRET: &str = "password";

/// The value of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The option's long name.
    pub option: String,
    /// Its value as on the command line, `true` or `false` for a switch; `None` if it has none. Passwords are hidden.
    pub value: Option<String>,
    /// The origin of the value.
    pub origin: Origin,
}

/// Returns the settings of all subcommands, with the options of this `dlock config` or `dlock check`, in the order of
/// the help. Fails for settings that `dlock run` would refuse, but reads no file that settings name.
pub(crate) fn effective() -> Result<Vec<Setting>, Failure> {
    let matches = read_shown()?;
    let files = files(chosen(&matches))?;
    let mut shown = shown(&Layers::with(&matches, cli::shown, files.sections)?)?;
    if let (Some(chosen), Some(row)) = (files.profile, shown.iter_mut().find(|row| row.option == "profile")) {
        (row.value, row.origin) = (Some(chosen.name), chosen.origin);
    }
    Ok(shown)
}

/// Returns the settings of these layers, checked.
pub(super) fn shown(layers: &Layers) -> Result<Vec<Setting>, Failure> {
    let (way, run) = (ConnectionValues::settle(layers), RunValues::settle(layers));
    let reached = way.reached()?;
    let file = match &way.secret {
        Some(Given { value: Secret::File(path), origin }) => Some((path, origin)),
        _ => None,
    };
    if let Some((path, origin)) = file.filter(|_| reached.withheld.is_none()) {
        check_exposure(origin, path)?;
    }
    run.check(&reached.target)?;
    let secret =
        way.secret.filter(|given| matches!(given.value, Secret::Text(_))).map(|given| given.with(HIDDEN.to_owned()));
    let mut rows = Vec::new();
    for option in settable() {
        let Some(name) = option.get_long() else { continue };
        let given = layers.text(&option);
        let given = match name {
            "backend" => given.or_else(|| Some(Given::default(registry::DEFAULT.to_owned()))).map(without_password),
            "password-file" => {
                rows.push(setting(SECRET, secret.clone()));
                given.filter(|_| secret.is_none())
            }
            _ if kind(&option) == Kind::Switch => given.or_else(|| Some(Given::default(false.to_string()))),
            _ => given,
        };
        rows.push(setting(name, given));
    }
    rows.push(setting(FLOCK_PATHS, layers.in_files(FLOCK_PATHS)));
    Ok(rows)
}

fn setting(option: &str, given: Option<Given<String>>) -> Setting {
    let (value, origin) = given.map_or((None, Origin::Default), |Given { value, origin }| (Some(value), origin));
    Setting { option: option.to_owned(), value, origin }
}

/// Returns a URL with stars for its password.
fn without_password(url: Given<String>) -> Given<String> {
    let hidden =
        password_in(&url.value).map(|password| url.value.replacen(&format!(":{password}@"), &format!(":{HIDDEN}@"), 1));
    match hidden {
        Some(hidden) => url.with(hidden),
        None => url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_hidden() {
        for (url, shown) in [
            ("redis://u:secret@h", "redis://u:***@h"),
            ("redis://:secret@h/1", "redis://:***@h/1"),
            ("redis://u:a@b/c@h", "redis://u:***@h"),
            ("redis://u@h", "redis://u@h"),
            ("file:///a", "file:///a"),
        ] {
            assert_eq!(without_password(Given::default(url.to_owned())).value, shown);
        }
    }
}
