//! What is in a ZooKeeper, as the test sees it: nodes, sessions and watches, and how to change them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use crate::support::daemon::Daemon;
use crate::support::pool::{Servers, is_connected_to};
use crate::support::rendezvous::{CAP, boottime, eventually};

use super::client::{Client, Error, NO_NODE};
use super::{ANSWER, ZooKeeper};
use super::{Acl, Kind, Node};

/// The name and password with which the test may do everything.
const SUPER: (&str, &str) = ("super", "test");

const NODE_DELETED: i32 = 2;
impl ZooKeeper {
    /// The children of a node, sorted; none if it does not exist.
    #[track_caller]
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        self.read(path, |client| client.children(path))
    }

    /// The node at `path`; none if it does not exist.
    #[track_caller]
    pub fn get(&self, path: &str) -> Option<Node> {
        self.read(path, |client| client.get(path, false))
    }

    /// Who may do what with the node at `path`: permissions, scheme and id.
    #[track_caller]
    pub fn acl(&self, path: &str) -> Option<Vec<(i32, String, String)>> {
        self.ask(path, |client| client.acl(path))
    }

    /// Creates a persistent node that everyone may use.
    #[track_caller]
    pub fn create(&self, path: &str, data: &str) {
        let made = self.ask(path, |client| client.create(path, data, Kind::Persistent, Acl::Open));
        assert!(made.is_some(), "{path} has no parent");
    }

    /// Changes a node's data; returns whether it existed.
    #[track_caller]
    pub fn set(&self, path: &str, data: &str) -> bool {
        self.ask(path, |client| client.set(path, data)).is_some()
    }

    /// Deletes a node; returns whether it existed.
    #[track_caller]
    pub fn delete(&self, path: &str) -> bool {
        self.ask(path, |client| client.delete(path)).is_some()
    }

    /// The paths of all nodes but ZooKeeper's own, parents before their children.
    #[track_caller]
    pub fn tree(&self) -> Vec<String> {
        let mut found = vec![String::new()];
        let mut next = 0;
        while next < found.len() {
            let path = found[next].clone();
            // A node that has gone meanwhile has no children.
            let children = self.children(if path.is_empty() { "/" } else { &path }).unwrap_or_default();
            found.extend(children.iter().map(|child| format!("{path}/{child}")).filter(|path| path != "/zookeeper"));
            next += 1;
        }
        found.split_off(1)
    }

    /// The sessions of others that have not ended.
    #[track_caller]
    pub fn sessions(&self) -> BTreeSet<i64> {
        let leader = self.leader();
        let dump = self.server(leader).four_letters("dump");
        let own = self.own.lock().unwrap();
        let sessions = dump.split("ephemeral nodes dump").next().unwrap();
        sessions.lines().filter_map(session_id).filter(|session| !own.contains(session)).collect()
    }

    /// The sessions with ephemeral nodes, including the test's own, and the paths of those, according to the leader.
    #[track_caller]
    pub fn ephemerals(&self) -> BTreeMap<i64, BTreeSet<String>> {
        let leader = self.leader();
        let dump = self.server(leader).four_letters("dump");
        let nodes = dump.split("ephemeral nodes dump").nth(1).unwrap_or_else(|| panic!("no dump: {dump}"));
        let mut found = BTreeMap::<i64, BTreeSet<String>>::new();
        let mut owner = 0;
        for line in nodes.lines().take_while(|line| !line.starts_with("Connections dump")) {
            match (session_id(line), line.strip_prefix('\t')) {
                (Some(session), _) => owner = session,
                (None, Some(path)) => _ = found.entry(owner).or_default().insert(path.to_owned()),
                _ => {}
            }
        }
        found
    }

    /// How many watches clients have set at the first server.
    #[track_caller]
    pub fn watches(&self) -> usize {
        let monitored = self.server(0).four_letters("mntr");
        let count = monitored.lines().find_map(|line| line.strip_prefix("zk_watch_count\t"));
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count of watches: {monitored}"))
    }

    /// Ends another client's session, and with it all its ephemeral nodes. Returns once they are gone; false if it had
    /// ended before.
    #[track_caller]
    pub fn end_session(&self, session: i64) -> bool {
        let server = self.at_work().next().expect("no server of zookeeper is at work").1;
        // Its owner may take it back before it is closed.
        for attempt in 0..20 {
            match Client::reattach(server.place(), ANSWER, session).map(Client::close) {
                Ok(Ok(())) => return true,
                Ok(Err(_)) => {}
                // A server that is busy may fail too.
                Err(_) if self.ephemerals().contains_key(&session) => {}
                Err(_) => return attempt > 0,
            }
        }
        false
    }

    /// A connection with a session of its own, at the first server at work, for what the methods here cannot do.
    #[track_caller]
    pub fn client(&self) -> Client {
        self.any_client().1
    }

    /// Watches the node at `path`, which must exist.
    #[track_caller]
    pub fn watch(&self, path: &str) -> Watch {
        let mut client = self.client();
        client.get(path, true).unwrap_or_else(|error| panic!("cannot watch {path}: {error:?}"));
        Watch { client, path: path.to_owned() }
    }
    /// Makes a request over the test's own connection, which is kept for the next one. None if there is no such node;
    /// any other error fails the test.
    #[track_caller]
    fn ask<T>(&self, path: &str, request: impl Fn(&mut Client) -> Result<T, Error>) -> Option<T> {
        let (index, answer) = self.try_ask(path, request);
        self.settled(path, index, answer)
    }

    /// Makes a request that changes nothing over the test's own connection: it is repeated if the server goes away, as
    /// one does that loses its leader.
    #[track_caller]
    fn read<T>(&self, path: &str, request: impl Fn(&mut Client) -> Result<T, Error>) -> Option<T> {
        eventually(&format!("what zookeeper says of {path}"), || match self.try_ask(path, &request) {
            (_, Err(Error::Io(_))) => None,
            (index, answer) => Some(self.settled(path, index, answer)),
        })
    }

    #[track_caller]
    fn settled<T>(&self, path: &str, index: usize, answer: Result<T, Error>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(Error::Refused(NO_NODE)) => None,
            Err(error) => panic!("zookeeper {index} failed at {path}: {error:?}\n{}", self.server(index).last_words()),
        }
    }

    /// Makes a request to a server that is up to date; returns its index, and the answer.
    #[track_caller]
    fn try_ask<T>(&self, path: &str, request: impl Fn(&mut Client) -> Result<T, Error>) -> (usize, Result<T, Error>) {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection whose server is broken or has closed it is replaced; one that fails during a request is not,
        // because the request may have been carried out.
        let usable = |(index, client): &(usize, Client)| self.server(*index).is_at_work() && client.is_usable();
        // A server of an ensemble may be behind the others. Requesting a sync changes nothing, so it can be repeated.
        let (index, mut client) = eventually("a server of zookeeper that is up to date", || {
            let (index, mut client) = kept.take().filter(usable).unwrap_or_else(|| self.any_client());
            client.sync(path).is_ok().then_some((index, client))
        });
        let answer = request(&mut client);
        if !matches!(answer, Err(Error::Io(_))) {
            *kept = Some((index, client));
        }
        (index, answer)
    }

    #[track_caller]
    fn any_client(&self) -> (usize, Client) {
        eventually("a server of zookeeper to take a connection", || {
            self.at_work().find_map(|(index, server)| {
                let mut client = Client::connect_at(server.place(), ANSWER).ok()?;
                self.own.lock().unwrap().insert(client.session());
                client.add_auth(SUPER.0, SUPER.1).ok()?;
                Some((index, client))
            })
        })
    }
}

impl Servers for ZooKeeper {
    fn daemons(&self) -> Vec<&Daemon> {
        self.servers().iter().map(|server| &**server).collect()
    }

    fn has_clients(&self) -> bool {
        let ports = self.servers().iter().flat_map(|server| [server.port(), server.secure_port()]);
        ports.into_iter().any(|port| is_connected_to(port, &[]))
    }

    fn clear(&self) {
        // The sessions of those who were killed.
        self.sessions().into_iter().for_each(|session| _ = self.end_session(session));
        self.tree().iter().rev().for_each(|path| _ = self.delete(path));
    }

    fn state(&self) -> String {
        format!("{:?} {:?} {:?}", self.sessions(), self.tree(), self.acl("/"))
    }
}

/// A node that is watched for a change.
pub struct Watch {
    client: Client,
    path: String,
}

impl Watch {
    /// Waits for the node to be deleted, and returns when the test was told, by [`boottime`]: never before it happened.
    /// Fails the test if its data change instead.
    #[track_caller]
    pub fn wait_deleted(mut self) -> Duration {
        let event = self.client.wait_event();
        let event =
            event.unwrap_or_else(|error| panic!("timed out after {CAP:?} waiting for {}: {error:?}", self.path));
        let at = boottime();
        assert_eq!(event, (NODE_DELETED, self.path), "what happened, and where");
        at
    }
}

/// A session's id as ZooKeeper prints it at the beginning of a line.
pub(super) fn session_id(line: &str) -> Option<i64> {
    let digits = line.trim().strip_prefix("0x")?;
    let end = digits.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(digits.len());
    Some(u64::from_str_radix(&digits[..end], 16).ok()?.cast_signed())
}
