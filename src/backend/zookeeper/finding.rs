/*!
Our own nodes, found among all others: by what is known of them or, where the answer to the request that made them was lost,
by their names.
*/

use ::zookeeper_client::Error as ZkError;

use crate::backend::zookeeper::contender::ZookeeperContender;
use crate::backend::zookeeper::names::sequence;
use crate::backend::zookeeper::nodes::Placed;
use crate::clock::Instant;

impl ZookeeperContender {
    /// Finds our nodes among `children`, and removes what is left of earlier ones; false when another look is needed.
    pub(super) async fn find_own(&mut self, children: &[String]) -> Result<bool, ZkError> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let mut own: Vec<&str> =
            children.iter().map(String::as_str).filter(|name| session.names.are_of(name)).collect();
        own.sort_unstable_by_key(|name| sequence(name));
        if let Placed::At(triple) = session.placed.clone() {
            let is_ours = |name: &&str| triple.all().contains(name);
            if own.iter().filter(|name| is_ours(name)).count() == triple.all().len() {
                own.retain(|name| !is_ours(name));
                if !own.is_empty() {
                    session.remove(&own).await?;
                }
                return Ok(own.is_empty());
            }
            // Somebody removed one: what foreign clients of its kind do not see any more is no place.
            session.placed = Placed::Nowhere;
            if !own.is_empty() {
                session.remove(&own).await?;
            }
            return Ok(false);
        }
        // A look after the request shows what came of it.
        session.placed = Placed::Nowhere;
        if own.is_empty() {
            return Ok(true);
        }
        // The answer of the request that made them was lost, or they are an earlier session's. Those are never ours: they
        // are about to go.
        let sent = Instant::now();
        let first = |prefix: &str| own.iter().find(|name| name.starts_with(prefix)).map(|name| (*name).to_owned());
        let names: Vec<String> = session.names.all().into_iter().filter_map(first).collect();
        if let Ok(names) = <[String; 3]>::try_from(names) {
            let mut stats = Vec::new();
            for name in &names {
                stats.extend(session.stat(name).await?);
            }
            if let [one, two, three] = stats.as_slice()
                && one.czxid == two.czxid
                && two.czxid == three.czxid
            {
                session.placed = session.placed_at(sent, names, one);
            }
        }
        let Placed::At(triple) = session.placed.clone() else {
            session.remove(&own).await?;
            return Ok(false);
        };
        own.retain(|name| !triple.all().contains(name));
        if !own.is_empty() {
            session.remove(&own).await?;
        }
        Ok(own.is_empty())
    }
}
