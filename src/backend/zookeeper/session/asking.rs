/*!
Requests of a session that are independent of any lock.
*/

use ::zookeeper_client::{Client, Error as ZkError};

use crate::backend::zookeeper::session::Session;

impl Session {
    /// Sends `request`. If it is given up, it is noted as overdue, so that another server is asked next.
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
