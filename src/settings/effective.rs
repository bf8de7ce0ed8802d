/*!
The effective settings as texts, each with its origin: what `dlock config` shows.
*/

use std::collections::BTreeMap;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};

use crate::backend::registry;
use crate::backend::url::{Target, password_in};
use crate::cli::defaults::{Kind, check, kind};
use crate::cli::{is_on, parser, settable};
use crate::exit::Failure;
use crate::settings::config::{Section, files};
use crate::settings::layers::chosen;
use crate::settings::origin::Origin;
use crate::settings::password::check_exposure;
use crate::settings::usage::{refused, usage};
use crate::variables::{PASSWORD, of_option};

/// What is shown instead of a password.
const HIDDEN: &str = "***";
/// The option for the password itself, which is only in config files and a variable.
const SECRET: &str = "password";
/// Options of which the ones that are given nearest to the command line count, and the others do not.
const GROUPS: &[&[&str]] =
    &[&["nonblock", "wait"], &["quiet", "verbose"], &["exclusive", "shared", "slots"], &[SECRET, "password-file"]];

/// The value of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The option's long name.
    pub option: String,
    /// Its value, as the command line would have it, `true` or `false` for an option without one; none where it has none.
    /// Passwords are hidden.
    pub value: Option<String>,
    /// Where the value comes from, as the user spells it: `flag`, `DLOCK_TTL`, `/etc/dlock/config.toml:3` or `default`.
    pub origin: String,
}

/// An option that may have a value.
struct Row {
    name: String,
    kind: Kind,
    default: Option<String>,
}

/// What is said in one place, by the names of the options: the value, and where it comes from.
type Place = BTreeMap<String, (String, Origin)>;

/// The settings of all subcommands with these options of `dlock config`, in the order of the help.
pub(crate) fn effective(matches: &ArgMatches) -> Result<Vec<Setting>, Failure> {
    let files = files(chosen(matches))?;
    let options = settable();
    let mut places = vec![on_the_command_line(&options, matches), in_variables(&options)?];
    places.extend(files.sections.iter().map(in_section));
    check_values(&places)?;
    keep_nearest(&mut places);
    if let Some(chosen) = files.profile {
        places[0].insert("profile".to_owned(), (chosen.name, chosen.origin));
    }
    Ok(rows(&options).into_iter().map(|row| setting(row, &places)).collect())
}

/// All options that may have a value, in the order of the help.
fn rows(options: &[Arg]) -> Vec<Row> {
    let row = |option: &Arg| {
        let name = option.get_long()?.to_owned();
        let default = match kind(option) {
            Kind::Switch => Some("false".to_owned()),
            Kind::Text if name == "backend" => Some(registry::DEFAULT.to_owned()),
            Kind::Path | Kind::Text => {
                option.get_default_values().first().map(|value| value.to_string_lossy().into_owned())
            }
        };
        Some(Row { name, kind: kind(option), default })
    };
    let mut rows: Vec<Row> = options.iter().filter_map(row).collect();
    let at = rows.iter().position(|row| row.name == "password-file").unwrap_or(rows.len());
    rows.insert(at, Row { name: SECRET.to_owned(), kind: Kind::Text, default: None });
    rows
}

fn setting(Row { name, kind, default }: Row, places: &[Place]) -> Setting {
    match places.iter().find_map(|place| place.get(&name)) {
        Some((value, origin)) => {
            let is_url = name == "backend" && kind == Kind::Text;
            let value = if is_url { without_password(value) } else { value.clone() };
            Setting { option: name, value: Some(value), origin: origin.place() }
        }
        None => Setting { option: name, value: default, origin: Origin::Default.place() },
    }
}

/// A URL with stars for its password.
fn without_password(url: &str) -> String {
    match password_in(url) {
        Some(password) => url.replacen(&format!(":{password}@"), &format!(":{HIDDEN}@"), 1),
        None => url.to_owned(),
    }
}

fn on_the_command_line(options: &[Arg], matches: &ArgMatches) -> Place {
    let given = |option: &&Arg| {
        let id = option.get_id().as_str();
        matches.ids().any(|known| known == id) && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let said = |option: &Arg| {
        let value = match kind(option) {
            Kind::Switch => "true".to_owned(),
            Kind::Path | Kind::Text => {
                matches.get_raw(option.get_id().as_str())?.next()?.to_string_lossy().into_owned()
            }
        };
        let name = option.get_long()?;
        Some((name.to_owned(), (value, Origin::Flag(name.to_owned().into()))))
    };
    options.iter().filter(given).filter_map(said).collect()
}

/// What the variables say. One that is empty is not set, but that of the namespace.
fn in_variables(options: &[Arg]) -> Result<Place, Failure> {
    let (parser, mut place) = (parser(), Place::new());
    for option in options {
        let Some(name) = option.get_long() else { continue };
        let variable = of_option(name);
        let Some(value) = std::env::var_os(&variable).filter(|value| !value.is_empty() || name == "namespace") else {
            continue;
        };
        let value = value.to_string_lossy().into_owned();
        let wrong = |why: &str| usage(format!("{variable}={value}: {why}; see dlock help run"));
        let value = if kind(option) == Kind::Switch {
            is_on(&value).map_err(wrong)?.to_string()
        } else {
            check(&parser, name, &value).map_err(|why| wrong(&why))?;
            value
        };
        place.insert(name.to_owned(), (value, Origin::Variable(name.to_owned().into())));
    }
    if std::env::var_os(PASSWORD).is_some_and(|password| !password.is_empty()) {
        place.insert(SECRET.to_owned(), (HIDDEN.to_owned(), Origin::Variable(SECRET.into())));
    }
    Ok(place)
}

/// What one place of a config file says.
fn in_section(section: &Section) -> Place {
    let values = section.values().into_iter();
    let mut place: Place = values.map(|(name, value)| (name.clone(), (value, section.origin(&name)))).collect();
    if section.password().is_some() {
        place.insert(SECRET.to_owned(), (HIDDEN.to_owned(), section.origin(SECRET)));
    }
    place
}

/// Fails for what would be refused by every subcommand: a URL that is none, and a password file that other users can read.
fn check_values(places: &[Place]) -> Result<(), Failure> {
    let nearest = |name: &str| places.iter().find_map(|place| place.get(name));
    if let Some((url, origin)) = nearest("backend") {
        Target::parse(url).map_err(|error| refused(origin, format!("{origin}: {error}")))?;
    }
    match nearest("password-file") {
        Some((path, origin)) => check_exposure(origin, Path::new(path)),
        None => Ok(()),
    }
}

/// Removes what does not count because something nearer to the command line says otherwise.
fn keep_nearest(places: &mut [Place]) {
    for at in 1..places.len() {
        let (nearer, farther) = places.split_at_mut(at);
        farther[0].retain(|name, _| nearer.iter().all(|place| !place.contains_key(name)));
    }
    for group in GROUPS {
        let is_said =
            |place: &Place| group.iter().any(|name| place.get(*name).is_some_and(|(value, _)| value != "false"));
        let Some(nearest) = places.iter().position(is_said) else { continue };
        for place in &mut places[nearest + 1..] {
            place.retain(|name, _| !group.contains(&name.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of these settings, and what is left of them: the option, its value and the number of its place.
    fn left(places: &[&[(&str, &str)]]) -> Vec<(String, String, usize)> {
        let place = |said: &[(&str, &str)]| -> Place {
            said.iter().map(|&(name, value)| (name.to_owned(), (value.to_owned(), Origin::Default))).collect()
        };
        let mut places: Vec<Place> = places.iter().map(|said| place(said)).collect();
        keep_nearest(&mut places);
        let of = |(at, place): (usize, Place)| place.into_iter().map(move |(name, (value, _))| (name, value, at));
        places.into_iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn what_is_nearer_counts_also_among_options_that_exclude_each_other() {
        for (places, expected) in [
            (&[&[("ttl", "1")][..], &[("ttl", "2"), ("user", "a")]][..], &[("ttl", "1", 0), ("user", "a", 1)][..]),
            (&[&[("wait", "1")], &[("nonblock", "true")]], &[("wait", "1", 0)]),
            (&[&[("nonblock", "true")], &[("wait", "1")]], &[("nonblock", "true", 0)]),
            // A switch that is off says nothing about the others of its group.
            (&[&[("nonblock", "false")], &[("wait", "1")]], &[("nonblock", "false", 0), ("wait", "1", 1)]),
            (
                &[&[("nonblock", "false")], &[("nonblock", "true")], &[("wait", "1")]],
                &[("nonblock", "false", 0), ("wait", "1", 2)],
            ),
            (&[&[("wait", "1")], &[("nonblock", "false")]], &[("wait", "1", 0)]),
            (&[&[("verbose", "true")], &[("quiet", "true")]], &[("verbose", "true", 0)]),
            (&[&[("exclusive", "true")], &[("slots", "3")], &[("shared", "true")]], &[("exclusive", "true", 0)]),
            (&[&[("password-file", "a")], &[("password", "***")]], &[("password-file", "a", 0)]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|&(name, value, at)| (name.to_owned(), value.to_owned(), at)).collect();
            assert_eq!(left(places), expected, "{places:?}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_hidden() {
        for (url, shown) in [
            ("redis://u:secret@h", "redis://u:***@h"),
            ("redis://:secret@h/1", "redis://:***@h/1"),
            ("redis://u:a@b/c@h", "redis://u:***@h"),
            ("redis://u@h", "redis://u@h"),
            ("file:///a", "file:///a"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
