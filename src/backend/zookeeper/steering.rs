/*!
What whoever intervenes asks of an ensemble: that a request to stop is written into a node of the holder, or that its nodes are
deleted. The names of a dlock's nodes have its owner's id and numbers that never come again, so nobody else can be meant.
*/

use ::zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use crate::backend::survey::Party;
use crate::backend::zookeeper::names::{Directory, contender, contender_of, sequence};
use crate::backend::zookeeper::nodes::absent;
use crate::holder::Holder;
use crate::holder::ask::Ask;

/// The paths of the nodes of the dlock with this owner's id among the `children` of the lock's directory, in the order of
/// their numbers.
pub(super) fn nodes(directory: &Directory, children: &[String], owner: &str) -> Vec<String> {
    let id = contender_of(owner);
    let own = children.iter().filter(|child| contender(child) == id);
    let mut own: Vec<(i64, &String)> = own.filter_map(|child| Some((sequence(child)?, child))).collect();
    own.sort_unstable();
    own.into_iter().map(|(_, name)| directory.node(name)).collect()
}

/// The path of the node with requests: the one of three that the holder itself never writes to.
pub(super) fn heeded(nodes: &[String]) -> Option<&String> {
    match nodes {
        [_, middle, _] => Some(middle),
        _ => None,
    }
}

/// Writes the request into the node at this path; false where that is gone.
pub(super) async fn put(client: Client, path: &str, ask: &Ask) -> Result<bool, ZkError> {
    Ok(absent(client.set_data(path, ask.text().as_bytes(), None).await)?.is_some())
}

/// What there is of `party` at the lock: the paths of all its nodes, among which `children` are those in the directory.
pub(super) fn all_of(directory: &Directory, children: &[String], holds: &[String], party: &Party) -> Vec<String> {
    match &party.who {
        Holder::Dlock(said) => {
            let hold = holds.iter().filter(|name| **name == said.id).map(|name| directory.hold(name));
            nodes(directory, children, &said.id).into_iter().chain(hold).collect()
        }
        _ => std::str::from_utf8(&party.mark).map(|name| vec![directory.node(name)]).unwrap_or_default(),
    }
}

/// Deletes the nodes at these paths, all of them or none; false where one of them is gone.
pub(super) async fn take(client: Client, paths: Vec<String>) -> Result<bool, ZkError> {
    let mut writer = client.new_multi_writer();
    for path in &paths {
        writer.add_delete(path, None)?;
    }
    match writer.commit().await {
        Ok(_) => Ok(!paths.is_empty()),
        Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Claim;

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
        // Of a dlock that goes away, and of another program, there is none.
        assert_eq!(heeded(&nodes(&directory, &children, &other)), None);
        assert_eq!(heeded(&own[..2]), None);
    }
}
