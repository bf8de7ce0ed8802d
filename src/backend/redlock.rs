/*!
Not there yet.
*/

use super::*;

/// Not there yet.
#[derive(Debug)]
pub(crate) struct RedlockBackend;

impl RedlockBackend {
    /// Not there yet.
    pub(crate) fn new(_: Vec<redis::Server>, _: bool) -> Self {
        Self
    }
}

#[async_trait::async_trait(?Send)]
impl Backend for RedlockBackend {
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
