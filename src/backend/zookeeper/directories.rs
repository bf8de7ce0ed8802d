/*!
The directories of locks: creates missing ones, counts nodes in them, and removes them with the last dlock that leaves,
unless another client may still rely on them.

A user's namespace stays: once removed with its last lock, it would belong to whoever creates it next. ZooKeeper lets
anybody who may change the parent remove an empty node, so a node in the namespace keeps it.
*/

use ::zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, Stat};

use crate::backend::zookeeper::names::Directory;
use crate::backend::zookeeper::nodes::EACH;
use crate::backend::zookeeper::traffic::Traffic;

/// The data of a directory that dlock created and that is not a lock's own; the last dlock to leave it removes it.
pub(super) const MADE_BY_DLOCK: &[u8] = b"made by dlock, which removes it when it is empty";
/// The data of a lock's directory that dlock created. The last dlock to leave it removes it, unless the number of nodes
/// that were ever created there differs from the number that dlocks have counted.
///
/// Earlier releases wrote [`MADE_BY_DLOCK`] there, and counted pairs of nodes. Neither counts in or removes a directory
/// of the other, so no mixture of their nodes and foreign ones looks like nodes of one release alone.
pub(super) const OF_LOCK: &[u8] = b"made by dlock, which counts its nodes in threes and removes it when it is empty";

/// The data of the node that keeps a namespace.
const KEEPS: &[u8] = b"made by dlock: this namespace stays, and belongs to its user";

/// Creates the missing directories among `paths`, from the root downwards; the last one gets the data `last`. Also
/// creates the node at `keeper`, if given. All requests are sent before this returns.
pub(super) fn make<'a>(
    client: &'a Client,
    paths: &'a [String],
    last: &'static [u8],
    keeper: Option<&str>,
    acls: Acls<'static>,
) -> impl Future<Output = Result<(), ZkError>> + 'a {
    let options = CreateMode::Persistent.with_acls(acls);
    let data = |index: usize| if index + 1 == paths.len() { last } else { MADE_BY_DLOCK };
    let asked: Vec<_> =
        paths.iter().enumerate().map(|(index, path)| client.create(path, data(index), &options)).collect();
    if let Some(keeper) = keeper {
        // The answer does not matter: the next lock sends the request again.
        drop(client.create(keeper, KEEPS, &options));
    }
    async move {
        let (mut refused, mut result) = (None, Ok(()));
        for made in asked {
            // A directory that may not be created may exist: only the last one's absence is a failure.
            result = match made.await {
                Ok(_) | Err(ZkError::NodeExists) => Ok(()),
                Err(ZkError::NoNode) => Err(refused.clone().unwrap_or(ZkError::NoNode)),
                Err(error) => Err(refused.get_or_insert(error).clone()),
            };
        }
        result
    }
}

/// Removes the directories that dlock created, from `directory` upwards, as long as they are empty; only `directory`
/// itself if those above it are to be `kept`.
///
/// The lock's own directory stays if another client has had a node in it: a `Lock` of kazoo that was used once relies
/// on its directory and fails without it. See [`count`].
pub(super) async fn remove(client: &Client, directory: &Directory, kept: bool, traffic: &mut Traffic) {
    let most = if kept { 1 } else { usize::MAX };
    for path in directory.ancestry().iter().rev().take(most) {
        let sent = traffic.begin();
        let read = client.get_data(path).await;
        traffic.end(sent, false, &read);
        let is_ours = |data: &[u8], stat: &Stat| {
            let is_counted = nodes_made(stat) == i64::from(EACH) * i64::from(stat.version);
            if path == directory.path() { data == OF_LOCK && is_counted } else { data == MADE_BY_DLOCK }
        };
        if !read.is_ok_and(|(data, stat)| stat.num_children == 0 && is_ours(&data, &stat)) {
            return;
        }
        let sent = traffic.begin();
        let removed = client.delete(path, None).await;
        traffic.end(sent, true, &removed);
        if removed.is_err() {
            return;
        }
    }
}

/// Counts three more nodes that a dlock has created in `directory`: the version of a lock's directory that dlock
/// created is the number of such triples. If the count is too low, the directory merely stays.
pub(super) async fn count(client: &Client, directory: &Directory, counted: &mut bool, traffic: &mut Traffic) {
    let sent = traffic.begin();
    let read = client.get_data(directory.path()).await;
    traffic.end(sent, false, &read);
    // From here on it may have been counted, even if nobody waits for the answer.
    *counted = true;
    if read.is_ok_and(|(data, _)| data == OF_LOCK) {
        let sent = traffic.begin();
        let counted = client.set_data(directory.path(), OF_LOCK, None).await;
        traffic.end(sent, true, &counted);
    }
}

/// Returns `true` if a directory's data are as long as [`OF_LOCK`]; nobody else is likely to write that length there.
pub(super) fn may_be_ours(directory: &Stat) -> bool {
    usize::try_from(directory.data_length) == Ok(OF_LOCK.len())
}

/// Returns the number of nodes ever created in a directory, whose `cversion` counts creations and deletions.
fn nodes_made(directory: &Stat) -> i64 {
    i64::midpoint(directory.cversion.into(), directory.num_children.into())
}
