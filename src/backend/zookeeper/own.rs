/*!
Notices at once the removal of our nodes, the end of our session, and requests to stop.
*/

use std::fmt;
use std::pin::Pin;

use ::zookeeper_client::{Client, Error as ZkError};

/// Watches on our nodes, for their end, and for requests to stop in the one that we never write to.
///
/// The others are set on the nodes' children: an ephemeral node never has any, so unlike a watch on its data these are
/// not used up by our own writes.
pub(super) struct OwnWatch(Pin<Box<dyn Future<Output = ()>>>);

impl fmt::Debug for OwnWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnWatch")
    }
}

impl OwnWatch {
    /// Watches the nodes at these paths, of which the middle one was last seen in this `known` version. Fails with
    /// [`ZkError::NoNode`] if one of them is missing.
    pub(super) async fn set(client: &Client, paths: &[String; 3], known: Option<i32>) -> Result<Self, ZkError> {
        let [one, middle, other] = paths;
        let set = tokio::try_join!(
            client.get_and_watch_children(one),
            client.get_and_watch_data(middle),
            client.get_and_watch_children(other)
        );
        let ((_, _, one), (_, stat, middle), (_, _, other)) = set?;
        let is_news = known.is_some_and(|known| known != stat.version);
        Ok(Self(Box::pin(async move {
            if is_news {
                return;
            }
            tokio::select! {
                _ = one.changed() => {}
                _ = middle.changed() => {}
                _ = other.changed() => {}
            }
        })))
    }

    /// Resolves when something has happened to one of them, or the session has ended. Not to be called again then.
    pub(super) async fn event(&mut self) {
        self.0.as_mut().await;
    }
}
