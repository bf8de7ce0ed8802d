/*!
Not there yet.
*/

use super::*;

/// The port that ZooKeeper listens on by default.
pub(crate) const DEFAULT_PORT: u16 = 2181;
/// The same for TLS.
pub(crate) const DEFAULT_TLS_PORT: u16 = 2281;
/// Not there yet.
#[derive(Debug)]
pub(crate) struct ZookeeperBackend;

impl ZookeeperBackend {
    /// Not there yet.
    pub(crate) fn new(_: location::Location, _: Option<wire::Tls>) -> Self {
        Self
    }
}

#[async_trait::async_trait(?Send)]
impl Backend for ZookeeperBackend {
    async fn connect(&mut self) -> Result<(), Error> {
        Err(Error::unavailable("not there yet"))
    }
    async fn attempt(&mut self, _: &Claim, _: Queue) -> Result<Attempt, Error> {
        Err(Error::unavailable("not there yet"))
    }
    async fn changed(&mut self, _: &Claim) -> Result<(), Error> {
        Err(Error::unavailable("not there yet"))
    }
    async fn renew(&mut self, _: &Claim) -> Result<Renewal, Error> {
        Err(Error::unavailable("not there yet"))
    }
    async fn release(&mut self, _: &Claim) -> Result<Released, Error> {
        Err(Error::unavailable("not there yet"))
    }
}
