/*!
Finds our own nodes among all others: by their full names or, if the answer to the request that created them was lost,
by their names without numbers.
*/

use ::zookeeper_client::Error as ZkError;

use crate::backend::zookeeper::contender::ZookeeperContender;
use crate::backend::zookeeper::names::sequence;
use crate::backend::zookeeper::nodes::Placed;
use crate::clock::Instant;

impl ZookeeperContender {
    /// Finds our nodes among `children`, and removes older leftovers. Returns `false` if another look is needed.
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
            // One was removed, and foreign clients that look for its kind no longer see us: we have lost our place.
            session.placed = Placed::Nowhere;
            if !own.is_empty() {
                session.remove(&own).await?;
            }
            return Ok(false);
        }
        // This look came after the request, so it shows the result.
        session.placed = Placed::Nowhere;
        if own.is_empty() {
            return Ok(true);
        }
        // Either the answer to the request that created them was lost, or they belong to an earlier session. Those
        // never count as ours: they are about to disappear.
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
