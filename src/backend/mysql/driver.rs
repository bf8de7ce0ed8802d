/*!
The URL syntax of MySQL and MariaDB databases: servers, of which the one that takes writes is looked for, or a socket.
*/

use crate::backend::contract::driver::{Abilities, Breaks, Driver, Follows, Form, Meetings, Scheme};
use crate::backend::mysql::statements::{QUOTE, Statements, setup};
use crate::backend::sql::place::{Database, Family};
use crate::backend::sql::service::SqlService;
use crate::backend::sql::table::Table;

/// The port that MySQL listens on by default.
const PORT: u16 = 3306;

/// The common properties of MySQL and MariaDB databases.
static FAMILY: Family = Family {
    quote: QUOTE,
    is_named: true,
    has_auth: false,
    open: |location, database, table, tls, auth| {
        Box::new(SqlService::<Statements>::new(location, database, table, tls, auth))
    },
    setup,
};

/// The driver for a database of MySQL or MariaDB.
pub(crate) static DRIVER: Driver = Driver {
    name: "mysql",
    forms: &[
        Form {
            schemes: &[
                Scheme::plain("mysql", PORT),
                Scheme::tls("mysqls", PORT),
                Scheme::plain("mariadb", PORT),
                Scheme::tls("mariadbs", PORT),
            ],
            short: "mysql://host,host/database",
            full: "mysql://[user[:password]@]host[:port],host[:port],…/database[?sslmode=require][&table=NAME]",
            follows: Follows::Servers,
            read: |scheme, rest, hint| Ok(Box::new(Database::servers(&FAMILY, scheme, rest, hint)?)),
        },
        Form {
            schemes: &[Scheme::local("mysql+unix")],
            short: "mysql+unix:///socket?db=NAME",
            full: "mysql+unix:///path?db=NAME[&table=NAME]",
            follows: Follows::Servers,
            read: |scheme, rest, hint| Ok(Box::new(Database::socket(&FAMILY, scheme, rest, hint)?)),
        },
    ],
    meant: &[("mariadb+unix", "mysql+unix://"), ("percona", "mysql://")],
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

    #[test]
    fn a_database_is_named() {
        let [mysql, _, mariadb, _] = DRIVER.forms[0].schemes else { panic!("four schemes") };
        let unix = &DRIVER.forms[1].schemes[0];
        let servers = |scheme, rest| Database::servers(&FAMILY, scheme, rest, "HINT").map(|one| one.to_string());
        let socket = |rest| Database::socket(&FAMILY, unix, rest, "HINT").map(|one| one.to_string());
        assert_eq!(servers(mysql, "u:p@h,i:1/d?table=a.b"), Ok("mysql://u@h:3306,i:1/d?table=a.b".to_owned()));
        assert_eq!(servers(mariadb, "h/d?sslmode=require"), Ok("mariadb://h:3306/d?sslmode=require".to_owned()));
        assert_eq!(socket("/run/s?db=d"), Ok("mysql+unix:///run/s?db=d".to_owned()));
        for unnamed in [servers(mysql, "h"), servers(mysql, "h/?table=t"), socket("/run/s"), socket("/run/s?db=")] {
            assert_eq!(unnamed, Err("name the database; HINT".to_owned()));
        }
    }
}
