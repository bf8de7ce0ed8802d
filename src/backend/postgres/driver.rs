/*!
The URL syntax of PostgreSQL databases: servers, of which the primary is looked for, or a socket.
*/

use crate::backend::contract::driver::{Abilities, Breaks, Driver, Follows, Form, Meetings, Scheme};
use crate::backend::postgres::statements::{QUOTE, Statements, setup};
use crate::backend::sql::place::{Database, Family};
use crate::backend::sql::service::SqlService;
use crate::backend::sql::table::Table;

/// The port that PostgreSQL listens on by default.
const PORT: u16 = 5432;

/// The properties that all PostgreSQL databases share.
static FAMILY: Family = Family {
    quote: QUOTE,
    is_named: false,
    has_auth: true,
    open: |location, database, table, tls, auth| {
        Box::new(SqlService::<Statements>::new(location, database, table, tls, auth))
    },
    setup,
};

/// The driver for a database of PostgreSQL.
pub(crate) static DRIVER: Driver = Driver {
    name: "postgres",
    forms: &[
        Form {
            schemes: &[
                Scheme::plain("postgres", PORT),
                Scheme::tls("postgress", PORT),
                Scheme::plain("postgresql", PORT),
            ],
            short: "postgres://host,host/database",
            full: "postgres://[user[:password]@]host[:port],host[:port],…/database[?sslmode=require][&table=NAME]",
            follows: Follows::ServersOrNothing,
            read: |scheme, rest, hint| Ok(Box::new(Database::servers(&FAMILY, scheme, rest, hint)?)),
        },
        Form {
            schemes: &[Scheme::local("postgres+unix")],
            short: "postgres+unix:///socket",
            full: "postgres+unix:///path[?db=NAME][&table=NAME]",
            follows: Follows::Servers,
            read: |scheme, rest, hint| Ok(Box::new(Database::socket(&FAMILY, scheme, rest, hint)?)),
        },
    ],
    meant: &[
        ("pg", "postgres://"),
        ("psql", "postgres://"),
        ("postgresqls", "postgress://"),
        ("shedlock", "postgres://, whose locks are ShedLock's"),
    ],
    kill_after_share: 2,
    delay_share: Some(0),
    has_lease: true,
    abilities: Abilities {
        replicas: false,
        strict_fencing: false,
        breaks: Breaks::Taking,
        handles: true,
        meetings: Meetings::Both,
    },
    setup: Some(|| setup(&Table::shedlock(QUOTE), None)),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::contract::driver::Endpoint;

    fn servers(rest: &str) -> Result<Database, String> {
        Database::servers(&FAMILY, &DRIVER.forms[0].schemes[0], rest, "HINT")
    }

    fn socket(rest: &str) -> Result<Database, String> {
        Database::socket(&FAMILY, &DRIVER.forms[1].schemes[0], rest, "HINT")
    }

    #[test]
    fn databases() {
        for (rest, shown, name, secure) in [
            ("h", "postgres://h:5432", None, None),
            ("h/", "postgres://h:5432", None, None),
            ("u:p%3F@h,[::1]:1/d%3Fb", "postgres://u@h:5432,[::1]:1/d%3Fb", Some("d?b"), None),
            ("h/d?sslmode=verify-full", "postgres://h:5432/d?sslmode=require", Some("d"), Some(true)),
            ("h/d?sslmode=disable", "postgres://h:5432/d?sslmode=disable", Some("d"), Some(false)),
            ("h/d?table=shedlock", "postgres://h:5432/d", Some("d"), None),
            ("h?table=a.b&sslmode=require", "postgres://h:5432?sslmode=require&table=a.b", None, Some(true)),
        ] {
            let database = servers(rest).expect(rest);
            assert_eq!((database.to_string(), database.name(), database.is_tls()), (shown.to_owned(), name, secure));
            let again = shown.strip_prefix("postgres://").expect("the scheme");
            assert_eq!(servers(again).expect(shown).to_string(), shown);
        }
        let database = socket("/run/r?db=a%26b&table=t").expect("valid");
        assert_eq!(
            (database.to_string(), database.name()),
            ("postgres+unix:///run/r?db=a%26b&table=t".to_owned(), Some("a&b"))
        );
        assert_eq!(socket("/run/r").expect("valid").to_string(), "postgres+unix:///run/r");
    }

    #[test]
    fn what_is_wrong_is_refused_without_its_secrets() {
        for bad in [
            "h,h",
            "h/d?sslmode=prefer",
            "h/d?sslmode=secret",
            "h/d?secret=1",
            "h/d?db=secret",
            "h/d?table=secret-",
            "u:pa?secret@h/d",
            "u:pa?x=secret@h/d",
            "h/a%00",
        ] {
            let error = servers(bad).expect_err(bad);
            assert!(error.ends_with("HINT") && !error.contains("secret"), "{bad}: {error}");
        }
        for bad in ["h", "/run/r?sslmode=require", "/run/r?db=a%00", "/run/r?db=%FF"] {
            assert!(socket(bad).is_err(), "{bad}");
        }
        let tls = &DRIVER.forms[0].schemes[1];
        assert!(Database::servers(&FAMILY, tls, "h?sslmode=disable", "HINT").is_err());
        assert_eq!(
            Database::servers(&FAMILY, tls, "h?sslmode=require", "HINT").expect("valid").to_string(),
            "postgress://h:5432"
        );
    }
}
