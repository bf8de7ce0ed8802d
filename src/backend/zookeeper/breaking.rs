/*!
Requests to stop and breaks at an ensemble: writes a request into a node of the holder, or deletes the holder's nodes.
The names of a dlock's nodes contain its owner's id and numbers that never come again, so no other holder is affected.
*/

use ::zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriter};

use crate::backend::survey::Party;
use crate::backend::zookeeper::names::{Directory, contender, contender_of, sequence};
use crate::backend::zookeeper::nodes::is_refusal;
use crate::backend::zookeeper::session::BROKEN;
use crate::holder::Holder;
use crate::holder::ask::Ask;

/// Returns the paths of the nodes of the dlock with this owner's id among the `children` of the lock's directory, in
/// the order of their numbers.
pub(super) fn nodes(directory: &Directory, children: &[String], owner: &str) -> Vec<String> {
    let id = contender_of(owner);
    let own = children.iter().filter(|child| contender(child) == id);
    let mut own: Vec<(i64, &String)> = own.filter_map(|child| Some((sequence(child)?, child))).collect();
    own.sort_unstable();
    own.into_iter().map(|(_, name)| directory.node(name)).collect()
}

/// Returns the path of the node for requests: the one of three that the holder itself never writes to.
pub(super) fn heeded(nodes: &[String]) -> Option<&String> {
    match nodes {
        [_, middle, _] => Some(middle),
        _ => None,
    }
}

/// The maximum number of attempts to write a record whose node or directory comes or goes meanwhile.
const TRIES: usize = 8;

/// A change to the nodes of a holder, all of it or nothing.
pub(super) enum Change<'a> {
    /// Writes the request into the node at this path.
    Ask(&'a str),
    /// Deletes the nodes at these paths.
    Take(&'a [String]),
}

impl Change<'_> {
    fn add(&self, writer: &mut MultiWriter<'_>, ask: &Ask) -> Result<(), ZkError> {
        match self {
            Self::Ask(path) => writer.add_set_data(path, ask.text().as_bytes(), None),
            Self::Take(paths) => paths.iter().try_for_each(|path| writer.add_delete(path, None)),
        }
    }
}

/// The result of a change.
pub(super) enum Changed {
    /// A node of the holder is gone, and nothing was done.
    Nothing,
    /// The change was made, and recorded.
    Done,
    /// The change was made, but not recorded, for this reason.
    Untraced(ZkError),
}

/// Makes the change, and records `ask` in a node next to those of minimum holds, if this user may do that. The node and
/// a new directory for it get the access list of the lock's directory: every contender lists that directory.
pub(super) async fn make(
    client: Client,
    directory: &Directory,
    change: Change<'_>,
    ask: &Ask,
) -> Result<Changed, ZkError> {
    // A lock with only minimum holds has no directory left but the one next to its own.
    let own = match client.get_acl(directory.path()).await {
        Err(ZkError::NoNode) => client.get_acl(&directory.beside()).await,
        own => own,
    };
    let acls = match own {
        Ok((acls, _)) => acls,
        Err(ZkError::NoNode) => return Ok(Changed::Nothing),
        Err(why) if is_refusal(&why) => return without_trace(client, change, ask, why).await,
        Err(error) => return Err(error),
    };
    let (beside, path, text) = (directory.beside(), directory.hold(BROKEN), ask.text());
    let options = CreateMode::Persistent.with_acls(Acls::new(&acls));
    let (mut makes_directory, mut makes_node) = (false, false);
    for _ in 0..TRIES {
        let mut writer = client.new_multi_writer();
        if makes_directory {
            writer.add_create(&beside, b"", &options)?;
        }
        if makes_node {
            writer.add_create(&path, text.as_bytes(), &options)?;
        } else {
            writer.add_set_data(&path, text.as_bytes(), None)?;
        }
        change.add(&mut writer, ask)?;
        let (index, why) = match writer.commit().await {
            Ok(_) => return Ok(Changed::Done),
            Err(MultiWriteError::OperationFailed { index, source }) => (index, source),
            Err(error) => return Err(error.into()),
        };
        let trace = usize::from(makes_directory);
        match why {
            ZkError::NodeExists if makes_directory && index == 0 => makes_directory = false,
            ZkError::NodeExists if index == trace => makes_node = false,
            ZkError::NoNode if index == trace && makes_node => makes_directory = true,
            ZkError::NoNode if index == trace => makes_node = true,
            ZkError::NoNode => return Ok(Changed::Nothing),
            why if index <= trace && is_refusal(&why) => return without_trace(client, change, ask, why).await,
            error => return Err(error),
        }
    }
    without_trace(client, change, ask, ZkError::NoNode).await
}

/// Makes the change without a record, because of `why`.
async fn without_trace(client: Client, change: Change<'_>, ask: &Ask, why: ZkError) -> Result<Changed, ZkError> {
    let mut writer = client.new_multi_writer();
    change.add(&mut writer, ask)?;
    match writer.commit().await {
        Ok(_) => Ok(Changed::Untraced(why)),
        Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => Ok(Changed::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Returns the paths of all nodes of `party`; `children` and `holds` are the names in the lock's two directories.
pub(super) fn all_of(directory: &Directory, children: &[String], holds: &[String], party: &Party) -> Vec<String> {
    match &party.who {
        Holder::Dlock(said) => {
            let hold = holds.iter().filter(|name| **name == said.id).map(|name| directory.hold(name));
            nodes(directory, children, &said.id).into_iter().chain(hold).collect()
        }
        _ => std::str::from_utf8(&party.mark).map(|name| vec![directory.node(name)]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::contract::claim::Claim;

    #[test]
    fn a_request_is_for_the_node_that_its_owner_never_writes_to() {
        let claim = Claim::example("dlock", "job").expect("names");
        let directory = Directory::of("", &claim).expect("a directory");
        let (id, other) = (format!("f{}", "1".repeat(31)), format!("f{}", "2".repeat(31)));
        let uuid = |digit: &str| format!("f{0}-{1}-{1}-{1}-{2}", digit.repeat(7), digit.repeat(4), digit.repeat(12));
        let children = [
            format!("{id}__lock__0000000007"),
            format!("_c_{}-lock-0000000005", uuid("1")),
            format!("_c_{}-lock-0000000002", uuid("2")),
            format!("_c_{}-__WRIT__0000000006", uuid("1")),
        ];
        let own = nodes(&directory, &children, &id);
        assert_eq!(own.len(), 3, "{own:?}");
        assert_eq!(heeded(&own), Some(&format!("/dlock/job/_c_{}-__WRIT__0000000006", uuid("1"))));
        // A dlock that goes away, and another program, have no such node.
        assert_eq!(heeded(&nodes(&directory, &children, &other)), None);
        assert_eq!(heeded(&own[..2]), None);
    }
}
