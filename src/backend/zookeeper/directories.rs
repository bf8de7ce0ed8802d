/*!
The directories that locks are in: made where they are missing, counted in, and removed by whoever is the last to leave,
unless another client may still rely on them.

A namespace that a user has made stays: with its last lock gone, it would belong to whoever comes next. ZooKeeper lets those
remove an empty node who may change the one above it, so a node in the namespace keeps it.
*/

use ::zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, Stat};

use crate::backend::zookeeper::names::Directory;
use crate::backend::zookeeper::nodes::EACH;
use crate::backend::zookeeper::traffic::Traffic;

/// What stands in a directory that a dlock made and that has no locks in it: whichever dlock is the last to leave it removes it.
pub(super) const MADE_BY_DLOCK: &[u8] = b"made by dlock, which removes it when it is empty";
/// What stands in a lock's directory that a dlock made: whichever dlock is the last to leave it removes it, unless it counts
/// more nodes there than dlocks made.
///
/// Earlier releases wrote the same as [`MADE_BY_DLOCK`] there, and counted pairs of nodes. Neither counts in a directory of the other
/// or removes it, so that no mixture of their nodes and those of foreign clients looks like nodes of one release alone.
pub(super) const OF_LOCK: &[u8] = b"made by dlock, which counts its nodes in threes and removes it when it is empty";

/// What the node says that keeps a namespace.
const KEEPS: &[u8] = b"made by dlock: this namespace stays, and belongs to its user";

/// Makes the directories at `paths`, from the root downwards, that are not there; the last one says `last`. Makes the node at
/// `keeper` too, if there is to be one. All are asked for at once, before this returns.
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
        // Nothing hangs on the answer: it is asked for again with the next lock.
        drop(client.create(keeper, KEEPS, &options));
    }
    async move {
        let (mut refused, mut result) = (None, Ok(()));
        for made in asked {
            // What may not be made there may exist: only the last one's absence is a failure.
            result = match made.await {
                Ok(_) | Err(ZkError::NodeExists) => Ok(()),
                Err(ZkError::NoNode) => Err(refused.clone().unwrap_or(ZkError::NoNode)),
                Err(error) => Err(refused.get_or_insert(error).clone()),
            };
        }
        result
    }
}

/// Removes the directories that a dlock made, from `directory` upwards, as far as they are empty; only that one where
/// those above it are to be `kept`.
///
/// The lock's own is kept when somebody else had a node there: a `Lock` of kazoo that was used once relies on its
/// directory and fails without it. See [`count`].
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

/// Counts three nodes more that a dlock has made in `directory`: the version of a lock's directory that a dlock has made is
/// the number of such triples. What is missing in the count only keeps a directory.
pub(super) async fn count(client: &Client, directory: &Directory, counted: &mut bool, traffic: &mut Traffic) {
    let sent = traffic.begin();
    let read = client.get_data(directory.path()).await;
    traffic.end(sent, false, &read);
    // From here on it may have been done, whether or not anybody waits for the answer.
    *counted = true;
    if read.is_ok_and(|(data, _)| data == OF_LOCK) {
        let sent = traffic.begin();
        let counted = client.set_data(directory.path(), OF_LOCK, None).await;
        traffic.end(sent, true, &counted);
    }
}

/// Whether a directory of this status says [`OF_LOCK`], as far as its status shows: nobody else is likely to write as much there.
pub(super) fn may_be_ours(directory: &Stat) -> bool {
    usize::try_from(directory.data_length) == Ok(OF_LOCK.len())
}

/// How many nodes were ever made in a directory: its `cversion` counts each twice, less those that are still there.
fn nodes_made(directory: &Stat) -> i64 {
    i64::midpoint(directory.cversion.into(), directory.num_children.into())
}
