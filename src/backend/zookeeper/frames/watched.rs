/*!
What the library watches on one connection, as its requests say it.

A watch is used up by one event. So a server can make nothing of notifications that were not asked for, and of the others
no more than there were requests. A request counts even where the same path is watched already: the event of the earlier
watch may be on its way.
*/

use std::collections::HashMap;

use crate::backend::zookeeper::frames::body::Body;
use crate::backend::zookeeper::frames::operation;

/// What of a path is not watched any more, as it is numbered.
mod kind {
    pub(super) const CHILDREN: i32 = 1;
    pub(super) const NODE: i32 = 2;
}

/// What can happen to a node, as it is numbered.
mod event {
    pub(super) const CREATED: i32 = 1;
    pub(super) const DELETED: i32 = 2;
    pub(super) const DATA_CHANGED: i32 = 3;
    pub(super) const CHILDREN_CHANGED: i32 = 4;
}

/// The paths that are watched, and how many events each may have.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// For what is in the node, and for whether it is there.
    nodes: HashMap<String, u32>,
    /// For the node's children.
    children: HashMap<String, u32>,
}

impl Watched {
    /// Takes note of a request, of which `body` is what follows the operation: the path that it watches, if it does.
    pub(super) fn note(&mut self, operation: i32, body: &mut Body<'_>) -> Option<String> {
        match operation {
            operation::EXISTS | operation::GET_DATA | operation::GET_CHILDREN => {
                let (path, watches) = (body.text()?.to_owned(), body.take(1)?);
                if watches != [1] {
                    return None;
                }
                *self.those(operation).entry(path.clone()).or_default() += 1;
                Some(path)
            }
            operation::REMOVE_WATCHES => {
                let (path, removed) = (body.text()?, body.int()?);
                if removed != kind::CHILDREN {
                    self.nodes.remove(path);
                }
                if removed != kind::NODE {
                    self.children.remove(path);
                }
                None
            }
            // After another connection: for data, for existence, for children.
            operation::SET_WATCHES | operation::SET_WATCHES2 => {
                body.long()?;
                for operation in [operation::GET_DATA, operation::EXISTS, operation::GET_CHILDREN] {
                    for _ in 0..body.int()? {
                        let path = body.text()?.to_owned();
                        *self.those(operation).entry(path).or_default() += 1;
                    }
                }
                None
            }
            _ => None,
        }
    }

    /// The request to watch `path` by this operation was refused: only a node that is not there can be watched all the same.
    pub(super) fn refused(&mut self, operation: i32, path: &str) {
        if operation != operation::EXISTS {
            use_up(self.those(operation), path);
        }
    }

    /// Whether a watch waits for this event, which uses it up.
    pub(super) fn take(&mut self, event: i32, path: &str) -> bool {
        match event {
            event::CREATED | event::DATA_CHANGED => use_up(&mut self.nodes, path),
            event::CHILDREN_CHANGED => use_up(&mut self.children, path),
            event::DELETED => use_up(&mut self.nodes, path) | use_up(&mut self.children, path),
            _ => false,
        }
    }

    /// The paths that are watched by this operation.
    fn those(&mut self, operation: i32) -> &mut HashMap<String, u32> {
        if operation == operation::GET_CHILDREN { &mut self.children } else { &mut self.nodes }
    }
}

/// Takes one watch of `path` away; whether there was one.
fn use_up(watches: &mut HashMap<String, u32>, path: &str) -> bool {
    let Some(count) = watches.get_mut(path) else { return false };
    *count -= 1;
    if *count == 0 {
        watches.remove(path);
    }
    true
}
