/*!
The list of backends. All that users see of them comes from here: the schemes, the hints, the help text, the man page.

A backend is one folder with a `DRIVER`, its `mod` line in [`crate::backend`] and its line in this list.
*/

pub(crate) use crate::backend::contract::driver::Meetings;
use crate::backend::contract::driver::{Driver, Follows, Form, Scheme};
use crate::backend::{etcd, file, mysql, postgres, redis, redlock, zookeeper};

/// All backends, in the order in which they are listed for users.
pub(crate) static DRIVERS: &[&Driver] = &[
    &file::DRIVER,
    &redis::DRIVER,
    &redlock::DRIVER,
    &etcd::DRIVER,
    &zookeeper::DRIVER,
    &postgres::DRIVER,
    &mysql::DRIVER,
];

/// The URL of the locks if the user gives none.
pub(crate) const DEFAULT: &str = "file:";

/// Lists every scheme, with its form and its backend.
pub(crate) fn schemes() -> impl Iterator<Item = (&'static Driver, &'static Form, &'static Scheme)> {
    forms().flat_map(|(driver, form)| form.schemes.iter().map(move |scheme| (driver, form, scheme)))
}

fn forms() -> impl Iterator<Item = (&'static Driver, &'static Form)> {
    DRIVERS.iter().flat_map(|driver| driver.forms.iter().map(move |form| (*driver, form)))
}

/// Lists the beginnings of URLs, one for each form of each backend and for each scheme, for completions.
pub(crate) fn beginnings() -> impl Iterator<Item = String> {
    schemes().map(|(_, form, scheme)| match form.follows {
        Follows::Anything => format!("{}:", scheme.name),
        Follows::ServersOrNothing | Follows::Servers => format!("{}://", scheme.name),
    })
}

/// Lists the backends for the man pages: the name of each, and all forms of its URLs.
pub(crate) fn table() -> impl Iterator<Item = (&'static str, String)> {
    DRIVERS.iter().map(|driver| {
        let forms: Vec<&str> = driver.forms.iter().map(|form| form.full).collect();
        (driver.name, listed(&forms, " or "))
    })
}

/// Lists the backends that may need a setup by an administrator, with the function that makes its text.
pub(crate) fn setups() -> impl Iterator<Item = (&'static str, fn() -> String)> {
    DRIVERS.iter().filter_map(|driver| Some((driver.name, driver.setup?)))
}

/// Returns what to use instead of a scheme of other clients.
#[must_use]
pub(crate) fn meant(scheme: &str) -> Option<&'static str> {
    let meant = DRIVERS.iter().flat_map(|driver| driver.meant);
    meant.copied().find(|(written, _)| *written == scheme).map(|(_, meant)| meant)
}

/// Lists the schemes, for the unknown-scheme error.
#[must_use]
pub(crate) fn choice() -> String {
    let names = |anything: bool, end: &str| {
        let schemes = schemes().filter(|(_, form, _)| (form.follows == Follows::Anything) == anything);
        schemes.map(|(.., scheme)| format!("{}{end}", scheme.name)).collect::<Vec<_>>()
    };
    listed(&[names(true, ":"), vec![names(false, "://").join(" ")]].concat(), " or ")
}

/// Lists the names of all backends, in words.
#[must_use]
pub(crate) fn names() -> String {
    listed(&DRIVERS.iter().map(|driver| driver.name).collect::<Vec<_>>(), " or ")
}

/// Returns the help text of `--backend`, for a subcommand that needs at least these meeting points.
#[must_use]
pub(crate) fn help(least: Meetings) -> String {
    let fits = |driver: &Driver| driver.abilities.meetings >= least;
    let short: Vec<&str> = forms().filter(|(driver, _)| fits(driver)).map(|(_, form)| form.short).collect();
    let secure = schemes().filter(|(driver, _, scheme)| fits(driver) && scheme.tls == Some(true));
    let tls: Vec<&str> = secure.map(|(.., scheme)| scheme.name).collect();
    format!("The backend: {}; with TLS {}; default {DEFAULT}", listed(&short, " or "), listed(&tls, " or "))
}

/// Joins `items` with commas, and with `last` before the last one.
fn listed(items: &[impl AsRef<str>], last: &str) -> String {
    let mut text = String::new();
    for (index, item) in items.iter().enumerate() {
        let between = match index {
            0 => "",
            _ if index + 1 == items.len() => last,
            _ => ", ",
        };
        text.push_str(between);
        text.push_str(item.as_ref());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_backends_share_a_name_or_a_scheme() {
        let names: BTreeSet<&str> = DRIVERS.iter().map(|driver| driver.name).collect();
        assert_eq!(names.len(), DRIVERS.len());
        let known: BTreeSet<&str> = schemes().map(|(.., scheme)| scheme.name).collect();
        assert_eq!(known.len(), schemes().count());
        for (written, _) in DRIVERS.iter().flat_map(|driver| driver.meant) {
            assert!(!known.contains(written), "{written} is a scheme");
        }
    }

    #[test]
    fn every_driver_can_be_chosen() {
        for driver in DRIVERS {
            assert!(driver.forms.iter().any(|form| !form.schemes.is_empty()), "{}", driver.name);
            assert!(driver.kill_after_share >= 2, "{}: a command must have time to work", driver.name);
            assert_eq!(driver.delay_share.is_some(), driver.has_lease, "{}: only a lease can be longer", driver.name);
        }
        assert!(schemes().any(|(.., scheme)| DEFAULT.strip_suffix(':') == Some(scheme.name)));
    }

    #[test]
    fn what_users_read_of_backends() {
        assert_eq!(names(), "file, redis, redlock, etcd, zookeeper, postgres or mysql");
        assert_eq!(
            choice(),
            "file: or redis:// rediss:// valkey:// valkeys:// redis+unix:// redis+sentinel:// redis-sentinel:// \
             rediss+sentinel:// redlock:// redlocks:// etcd:// etcds:// zk:// zks:// postgres:// postgress:// postgresql:// \
             postgres+unix:// mysql:// mysqls:// mariadb:// mariadbs:// mysql+unix://"
        );
        assert_eq!(
            help(Meetings::Latches),
            "The backend: file: (this host and this user: /run/dlock or /run/lock/dlock-UID), file:///dir, \
             file:///dir/file?path (that file, as flock takes it), redis://[user[:password]@]host[:port][/database], redis+unix:///socket, redis+sentinel://host,host/NAME, \
             redlock://host,host,host, etcd://host,host,host, zk://host,host,host[/chroot], \
             postgres://host,host/database, postgres+unix:///socket, mysql://host,host/database or \
             mysql+unix:///socket?db=NAME; with TLS rediss, valkeys, rediss+sentinel, redlocks, etcds, zks, postgress, \
             mysqls or mariadbs; default file:"
        );
    }

    #[test]
    fn lists_read_as_sentences() {
        for (items, expected) in
            [(&[][..], ""), (&["a"], "a"), (&["a", "b"], "a or b"), (&["a", "b", "c"], "a, b or c")]
        {
            assert_eq!(listed(items, " or "), expected);
        }
    }
}
