/*!
The library's watches on one connection, according to its requests.

A watch is used up by one event. So a server cannot make up notifications that were not requested, and can send no more
of the others than there were requests. A request counts even if the same path is watched already: the event of the
earlier watch may be on its way.
*/

use std::collections::HashMap;

use crate::backend::zookeeper::frames::body::Body;
use crate::backend::zookeeper::frames::operation;

/// The numbers of the kinds of watches to remove.
mod kind {
    pub(super) const CHILDREN: i32 = 1;
    pub(super) const NODE: i32 = 2;
}

/// The numbers of the events.
mod event {
    pub(super) const CREATED: i32 = 1;
    pub(super) const DELETED: i32 = 2;
    pub(super) const DATA_CHANGED: i32 = 3;
    pub(super) const CHILDREN_CHANGED: i32 = 4;
}

/// The watched paths, and the number of events that each may have.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// For a node's data and its existence.
    nodes: HashMap<String, u32>,
    /// For a node's children.
    children: HashMap<String, u32>,
}

impl Watched {
    /// Records a request, where `body` follows the operation. Returns the path that it watches, if any.
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
            // After a reconnection: for data, for existence, for children.
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

    /// Records that a request to watch `path` was refused. Only `EXISTS` still sets a watch, on a missing node.
    pub(super) fn refused(&mut self, operation: i32, path: &str) {
        if operation != operation::EXISTS {
            use_up(self.those(operation), path);
        }
    }

    /// Uses up the watches that wait for this event. Returns `true` if there was one.
    pub(super) fn take(&mut self, event: i32, path: &str) -> bool {
        match event {
            event::CREATED | event::DATA_CHANGED => use_up(&mut self.nodes, path),
            event::CHILDREN_CHANGED => use_up(&mut self.children, path),
            event::DELETED => use_up(&mut self.nodes, path) | use_up(&mut self.children, path),
            _ => false,
        }
    }

    /// Returns the watches that this operation sets.
    fn those(&mut self, operation: i32) -> &mut HashMap<String, u32> {
        if operation == operation::GET_CHILDREN { &mut self.children } else { &mut self.nodes }
    }
}

/// Removes one watch of `path`. Returns `true` if there was one.
fn use_up(watches: &mut HashMap<String, u32>, path: &str) -> bool {
    let Some(count) = watches.get_mut(path) else { return false };
    *count -= 1;
    if *count == 0 {
        watches.remove(path);
    }
    true
}
