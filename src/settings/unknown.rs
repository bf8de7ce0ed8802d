/*!
Variables that look like dlock's and are not: a misspelt one would otherwise be ignored without a word.
*/

use std::ffi::OsString;

use crate::report::event::Event;
use crate::variables::{OF_NO_OPTION, OF_OPTIONS};

/// What all variables of dlock begin with.
const PREFIX: &str = "DLOCK_";
/// Names with more differences than this are not taken for each other.
const MOST_DIFFERENCES: usize = 2;

/// The warning about unknown variables in the environment; `None` if there are none.
pub(crate) fn variables() -> Option<Event> {
    unknown(std::env::vars_os().map(|(name, _)| name))
}

/// All variables of dlock.
fn known() -> impl Iterator<Item = &'static str> {
    OF_OPTIONS.into_iter().chain(OF_NO_OPTION)
}

fn unknown(names: impl Iterator<Item = OsString>) -> Option<Event> {
    let is_unknown =
        |name: &OsString| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && known().all(|known| name != known);
    let mut names: Vec<String> = names.filter(is_unknown).map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    let meant = match names.as_slice() {
        [] => return None,
        [name] => nearest(name),
        _ => None,
    };
    Some(Event::UnknownVariables { names, meant })
}

/// The known name that is most like `name`, if there is one that is like it.
fn nearest(name: &str) -> Option<String> {
    let (differences, nearest) = known().map(|known| (strsim::osa_distance(name, known), known)).min()?;
    (differences <= MOST_DIFFERENCES).then(|| nearest.to_owned())
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
        for (names, expected) in [
            (&["DLOCK_WIAT"][..], event(&["DLOCK_WIAT"], Some("DLOCK_WAIT"))),
            (&["DLOCK_TLL", "DLOCK_TTL"], event(&["DLOCK_TLL"], Some("DLOCK_TTL"))),
            (&["DLOCK_SOMETHING"], event(&["DLOCK_SOMETHING"], None)),
            (&["DLOCK_"], event(&["DLOCK_"], Some("DLOCK_AS"))),
            (&["DLOCK_WIAT", "DLOCK_A"], event(&["DLOCK_A", "DLOCK_WIAT"], None)),
        ] {
            assert_eq!(found(names), expected, "{names:?}");
        }
    }
}
