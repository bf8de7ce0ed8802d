//! Counting what others request from a ZooKeeper, by the servers' logs.

use std::collections::{BTreeMap, BTreeSet};

use super::ZooKeeper;
use super::content::session_id;

/// One request that a server carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    session: i64,
    /// Its number within the session.
    number: String,
    operation: String,
}

/// Reads the end of a line: `Processing request:: sessionid:0x1 type:create cxid:0x1 zxid:0x2 txntype:1 reqpath:/x`.
fn parse_request(line: &str) -> Option<Request> {
    let (_, words) = line.split_once("Processing request:: ")?;
    let word = |name: &str| words.split(' ').find_map(|word| word.strip_prefix(name));
    let session = session_id(word("sessionid:")?)?;
    Some(Request { session, number: word("cxid:")?.to_owned(), operation: word("type:")?.to_owned() })
}

#[derive(Default)]
struct Requests {
    others: BTreeSet<Request>,
    pings: u64,
}

/// What others request from a [`ZooKeeper`] from a moment on.
pub struct RequestCount<'a> {
    zookeeper: &'a ZooKeeper,
    before: Requests,
}

impl RequestCount<'_> {
    /// How often others have requested what up to now, by the operation's name in ZooKeeper's log (`create2`, `multi`,
    /// `getChildren2`, `createSession` …, and `ping` for heartbeats). Everything that has been answered is included,
    /// except logins.
    #[track_caller]
    pub fn so_far(&self) -> BTreeMap<String, u64> {
        let after = self.zookeeper.requests_by_others();
        let mut counts = BTreeMap::new();
        for request in after.others.difference(&self.before.others) {
            *counts.entry(request.operation.clone()).or_default() += 1;
        }
        let pings = after.pings - self.before.pings;
        if pings > 0 {
            counts.insert("ping".to_owned(), pings);
        }
        counts
    }

    /// How many requests these were, without heartbeats.
    #[track_caller]
    pub fn without_heartbeats(&self) -> u64 {
        self.so_far().iter().filter(|(operation, _)| *operation != "ping").map(|(_, count)| count).sum()
    }
}

impl ZooKeeper {
    /// Counts requests of others than [`ZooKeeper`] itself and its clients, from now on.
    #[track_caller]
    pub fn count_requests(&self) -> RequestCount<'_> {
        RequestCount { zookeeper: self, before: self.requests_by_others() }
    }

    /// What others have requested up to now.
    fn requests_by_others(&self) -> Requests {
        let own = self.own.lock().unwrap().clone();
        let mut found = Requests::default();
        for server in self.servers() {
            for line in server.log().lines() {
                let Some(request) = parse_request(line) else { continue };
                if own.contains(&request.session) {
                    continue;
                }
                if request.operation == "ping" {
                    found.pings += 1;
                } else {
                    // Every server logs every write.
                    found.others.insert(request);
                }
            }
        }
        found
    }
}
