/*!
Variables that look like dlock's and are not: a misspelt one would otherwise be ignored without a word.
*/

use std::ffi::OsString;

use crate::printable::nearest;
use crate::report::event::Event;
use crate::variables::{OF_NO_OPTION, OF_OPTIONS};

/// The prefix of all variables of dlock.
const PREFIX: &str = "DLOCK_";
/// Names from other tools, or other names of options, each with the variable that is probably meant.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("CA", "TLS_CA"),
    ("CERT", "TLS_CERT"),
    ("DB", "BACKEND"),
    ("HOST", "BACKEND"),
    ("LEASE", "TTL"),
    ("NB", "NONBLOCK"),
    ("NS", "NAMESPACE"),
    ("SERVER", "BACKEND"),
    ("TIMEOUT", "WAIT"),
    ("URL", "BACKEND"),
    ("USERNAME", "USER"),
];

/// Returns the warning about unknown variables in the environment; `None` if there are none.
pub(crate) fn variables() -> Option<Event> {
    unknown(std::env::vars_os().map(|(name, _)| name))
}

/// Returns the end of a message that `wanted` is missing: a variable that is set and probably meant. It may be empty.
pub(super) fn hint(wanted: &str) -> String {
    let Some(Event::UnknownVariables { names, .. }) = variables() else { return String::new() };
    let name = names.iter().find(|name| meant(name).is_some_and(|meant| meant == wanted));
    name.map(|name| format!("; {name} is set: did you mean {wanted}?")).unwrap_or_default()
}

/// Returns all variables of dlock.
fn known() -> impl Iterator<Item = &'static str> {
    OF_OPTIONS.into_iter().chain(OF_NO_OPTION)
}

fn unknown(names: impl Iterator<Item = OsString>) -> Option<Event> {
    let is_unknown = |name: &OsString| {
        name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && known().all(|known| name != known)
            && !name.to_str().is_some_and(is_of_a_service)
    };
    let mut names: Vec<String> = names.filter(is_unknown).map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    let meant = match names.as_slice() {
        [] => return None,
        [name] => meant(name),
        _ => None,
    };
    Some(Event::UnknownVariables { names, meant })
}

/// Returns `true` if Kubernetes sets such a variable for a service whose name is `dlock` or begins with `dlock-`.
fn is_of_a_service(name: &str) -> bool {
    let is_port = |port: &str| {
        let mut parts = port.split('_');
        let number = parts.next().is_some_and(|number| number.parse::<u16>().is_ok());
        let protocol = parts.next().is_some_and(|protocol| ["TCP", "UDP", "SCTP"].contains(&protocol));
        number && protocol && matches!((parts.next(), parts.next()), (None | Some("PROTO" | "PORT" | "ADDR"), None))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT")
        || name.match_indices("_PORT_").any(|(at, begins)| is_port(&name[at + begins.len()..]))
}

/// Returns the variable that `name` was probably meant to be.
fn meant(name: &str) -> Option<String> {
    let typed = name.strip_prefix(PREFIX)?;
    let known = known().filter_map(|known| known.strip_prefix(PREFIX));
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == typed).map(|(_, known)| *known);
    other.or_else(|| nearest(typed, known)).map(|known| format!("{PREFIX}{known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_variable_of_dlock_and_is_none() {
        let found = |names: &[&str]| unknown(names.iter().map(OsString::from));
        let event = |names: &[&str], meant: Option<&str>| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            Some(Event::UnknownVariables { names, meant: meant.map(str::to_owned) })
        };
        assert_eq!(found(&["PATH", "DLOCK", "DLOCKS_X", "DLOCK_WAIT"]), None);
        for name in [
            "DLOCK_SERVICE_HOST",
            "DLOCK_SERVICE_PORT",
            "DLOCK_SERVICE_PORT_REDIS",
            "DLOCK_PORT",
            "DLOCK_PORT_6379_TCP",
            "DLOCK_PORT_6379_TCP_ADDR",
            "DLOCK_PORT_53_UDP_PROTO",
            "DLOCK_REDIS_SERVICE_HOST",
            "DLOCK_REDIS_PORT_6379_TCP_PORT",
        ] {
            assert_eq!(found(&[name]), None, "{name}");
        }
        for name in ["DLOCK_HOST", "DLOCK_PORT_TCP", "DLOCK_PORT_6379_TPC", "DLOCK_PORT_6379_TCP_X", "DLOCK_PORTS"] {
            assert!(found(&[name]).is_some(), "{name}");
        }
        for (names, expected) in [
            (&["DLOCK_WIAT"][..], event(&["DLOCK_WIAT"], Some("DLOCK_WAIT"))),
            (&["DLOCK_TLL", "DLOCK_TTL"], event(&["DLOCK_TLL"], Some("DLOCK_TTL"))),
            (&["DLOCK_SOMETHING"], event(&["DLOCK_SOMETHING"], None)),
            (&["DLOCK_"], event(&["DLOCK_"], None)),
            (&["DLOCK_TIMEOUT"], event(&["DLOCK_TIMEOUT"], Some("DLOCK_WAIT"))),
            (&["DLOCK_NB"], event(&["DLOCK_NB"], Some("DLOCK_NONBLOCK"))),
            (&["DLOCK_URL"], event(&["DLOCK_URL"], Some("DLOCK_BACKEND"))),
            (&["DLOCK_PASS"], event(&["DLOCK_PASS"], Some("DLOCK_PASSWORD"))),
            (&["DLOCK_REQUIRE"], event(&["DLOCK_REQUIRE"], Some("DLOCK_REQUIRE_BACKEND"))),
            (&["DLOCK_WIAT", "DLOCK_A"], event(&["DLOCK_A", "DLOCK_WIAT"], None)),
        ] {
            assert_eq!(found(names), expected, "{names:?}");
        }
    }
}
