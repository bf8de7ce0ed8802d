/*!
Requests of a session that have nothing to do with a lock.
*/

use ::zookeeper_client::{Client, Error as ZkError};

use crate::backend::zookeeper::session::Session;

impl Session {
    /// What the servers answer to `request`. One that is given up is noted as overdue, so that another server is asked next.
    pub(in crate::backend::zookeeper) async fn ask<T, F>(
        &mut self,
        request: impl FnOnce(Client) -> F,
    ) -> Result<T, ZkError>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        let client = self.client.clone();
        let sent = self.traffic.begin();
        let answer = request(client).await;
        self.traffic.end(sent, false, &answer);
        answer
    }
}
