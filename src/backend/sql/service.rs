/*!
The locks in one database, for contenders and for looks.
*/

use std::marker::PhantomData;

use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::Contender;
use crate::backend::contract::probing::{CheckParameters, Probes};
use crate::backend::contract::service::Service;
use crate::backend::meeting::Meeting;
use crate::backend::meeting::records::Records;
use crate::backend::net::location::Location;
use crate::backend::net::tls::Tls;
use crate::backend::sql::connection::Connection;
use crate::backend::sql::contender::SqlContender;
use crate::backend::sql::dialect::Dialect;
use crate::backend::sql::inspect::SqlSurvey;
use crate::backend::sql::link::{Auth, Purpose, Servers};
use crate::backend::sql::probes::SqlProbes;
use crate::backend::sql::records::SqlRecords;
use crate::backend::sql::table::Table;
use crate::backend::survey::{Kind, Survey};
use crate::here;
use crate::key::Namespace;

/// The locks in one database.
#[derive(Debug)]
pub(crate) struct SqlService<D> {
    location: Location,
    database: Option<String>,
    table: Table,
    tls: Option<Tls>,
    auth: Option<Auth>,
    dialect: PhantomData<D>,
}

impl<D: Dialect> SqlService<D> {
    /// Returns the locks in `table` of the `database` (or else the role's own) at `location`, not connected yet.
    #[must_use]
    pub(crate) fn new(
        location: Location,
        database: Option<String>,
        table: Table,
        tls: Option<Tls>,
        auth: Option<Auth>,
    ) -> Self {
        Self { location, database, table, tls, auth, dialect: PhantomData }
    }

    /// Returns a connection that is not made yet, as the URL's user, or else as this one.
    fn connection(&self, user: impl FnOnce() -> String, purpose: Purpose) -> Connection<D::Link> {
        let location = self.location.clone();
        let user = location.login.user.clone().unwrap_or_else(user);
        let database = self.database.clone().unwrap_or_else(|| user.clone());
        // Every statement names the schema of its tables.
        let table = self.table.clone().assumed_in(D::HOME.unwrap_or(&database));
        let servers = Servers { location, user, database, tls: self.tls.clone(), auth: self.auth, purpose };
        Connection::new(servers, table)
    }
}

impl<D: Dialect> Service for SqlService<D> {
    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let connection = self.connection(|| claim.about.user.clone(), Purpose::Locks);
        Box::new(SqlContender::<D>::new(claim, connection))
    }

    fn records(&self, meeting: Meeting, kind: Kind) -> Option<Box<dyn Records>> {
        let user = || here::user_name(nix::unistd::geteuid().as_raw());
        let what = if kind == Kind::Latch { "latch" } else { "barrier" };
        Some(Box::new(SqlRecords::<D>::new(meeting, what, self.connection(user, Purpose::Meetings))))
    }

    fn survey(&self, namespace: Namespace) -> Box<dyn Survey> {
        let user = || here::user_name(nix::unistd::geteuid().as_raw());
        let connection = self.connection(user, Purpose::Looks);
        Box::new(SqlSurvey::<D>::new(connection, namespace))
    }

    fn probes(&self, parameters: CheckParameters) -> Box<dyn Probes> {
        let user = || here::user_name(nix::unistd::geteuid().as_raw());
        let connection = self.connection(user, Purpose::Locks);
        Box::new(SqlProbes::<D>::new(&connection, parameters.namespace))
    }
}
