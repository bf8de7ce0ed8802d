/*!
Hearing at once when our nodes or our session are taken away.
*/

use std::fmt;
use std::pin::Pin;

use ::zookeeper_client::{Client, Error as ZkError};

/// Watches on our nodes, for their end alone.
///
/// They are set on the nodes' children: an ephemeral node never has any, so unlike a watch on its data these are not
/// used up by our own writing.
pub(super) struct OwnWatch(Pin<Box<dyn Future<Output = ()>>>);

impl fmt::Debug for OwnWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnWatch")
    }
}

impl OwnWatch {
    /// Watches the nodes at these paths. That one is not there is the error [`ZkError::NoNode`].
    pub(super) async fn set(client: &Client, one: &str, other: &str) -> Result<Self, ZkError> {
        let set = tokio::try_join!(client.get_and_watch_children(one), client.get_and_watch_children(other));
        let ((_, _, one), (_, _, other)) = set?;
        Ok(Self(Box::pin(async move {
            tokio::select! {
                _ = one.changed() => {}
                _ = other.changed() => {}
            }
        })))
    }

    /// Resolves when something has happened to one of them, or the session has ended; not to be called again then.
    pub(super) async fn event(&mut self) {
        self.0.as_mut().await;
    }
}
