//! A ZooKeeper client for the test's own requests: not a library, so that it sends nothing but those.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::rendezvous::CAP;

use super::jute::{Answer, Jute};

/// How long a session of the test itself lasts without requests, in milliseconds.
const LONG_SESSION: i32 = 60_000;

/// A node and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub data: String,
    /// The transaction that created it.
    pub czxid: i64,
    /// Its time of creation, in milliseconds since 1970 by the leader's clock.
    pub ctime: i64,
    /// The transaction that changed its data last.
    pub mzxid: i64,
    /// How often its data was changed.
    pub version: i32,
    /// The session whose end removes it, or 0.
    pub ephemeral_owner: i64,
    pub children: i32,
}

/// Why a request of a [`Client`] failed.
#[derive(Debug)]
pub enum Error {
    /// The server's error code, such as [`NO_NODE`].
    Refused(i32),
    Io(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub const NO_NODE: i32 = -101;
pub const NO_AUTH: i32 = -102;

/// How long a node lives, and how it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Persistent,
    /// As long as the client's session.
    Ephemeral,
    /// As long as the client's session, and with ten digits that count up after its name.
    EphemeralSequential,
}

/// Who may use a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acl {
    Open,
    /// The user that the client has logged in as.
    Mine,
    /// That user; and everyone may read.
    Readable,
}

/// A connection to a ZooKeeper server with a session of its own, which it does not keep alive: the session ends when
/// nothing is requested for as long as it lasts (a minute, unless the server grants less), or when this is closed.
pub struct Client {
    stream: TcpStream,
    session: i64,
    xid: i32,
}

impl Client {
    /// Connects to this port of the loopback address.
    pub fn connect(port: u16, patience: Duration) -> Result<Self, Error> {
        Self::connect_at((Ipv4Addr::LOCALHOST, port).into(), patience)
    }

    /// Connects to this address.
    pub fn connect_at(place: SocketAddr, patience: Duration) -> Result<Self, Error> {
        Self::introduce(place, patience, LONG_SESSION, None)
    }

    /// Connects with an existing session, whoever created it: its password follows from its number.
    pub fn reattach(place: SocketAddr, patience: Duration, session: i64) -> Result<Self, Error> {
        Self::introduce(place, patience, LONG_SESSION, Some(session))
    }

    pub(super) fn introduce(
        place: SocketAddr,
        patience: Duration,
        length: i32,
        session: Option<i64>,
    ) -> Result<Self, Error> {
        let mut client = Self { stream: connect(place, patience)?, session: 0, xid: 0 };
        let mut request = Jute::default();
        // Protocol version, last transaction seen, session timeout, session, its password, no read-only mode.
        let (session, password) = session.map_or((0, [0; 16]), |session| (session, session_password(session)));
        request.int(0).long(0).int(length).long(session).bytes(&password).flag(false);
        client.send(&request)?;
        let mut answer = client.receive()?;
        answer.int()?;
        let granted = answer.int()?;
        client.session = answer.long()?;
        if granted > 0 { Ok(client) } else { Err(io::Error::other("no session").into()) }
    }

    /// The id of its session.
    pub fn session(&self) -> i64 {
        self.session
    }

    /// Logs in with the scheme `digest`.
    pub fn add_auth(&mut self, user: &str, password: &str) -> Result<(), Error> {
        let mut request = Jute::default();
        request.int(-4).int(100).int(0).text("digest").text(&format!("{user}:{password}"));
        self.send(&request)?;
        self.answer(-4).map(|_| ())
    }

    /// Creates a node, and returns its path.
    pub fn create(&mut self, path: &str, data: &str, kind: Kind, acl: Acl) -> Result<String, Error> {
        const ALL: i32 = 31;
        const READ: i32 = 1;
        let flags = match kind {
            Kind::Persistent => 0,
            Kind::Ephemeral => 1,
            Kind::EphemeralSequential => 3,
        };
        let (anyone, own) = ((ALL, "world", "anyone"), (ALL, "auth", ""));
        let entries = match acl {
            Acl::Open => vec![anyone],
            Acl::Mine => vec![own],
            Acl::Readable => vec![own, (READ, "world", "anyone")],
        };
        let mut body = Jute::default();
        body.text(path).text(data).int(entries.len().try_into().expect("a few"));
        for (rights, scheme, id) in entries {
            body.int(rights).text(scheme).text(id);
        }
        body.int(flags);
        Ok(self.request(1, &body)?.text()?)
    }

    /// Creates ephemeral nodes, with sequence numbers after these paths, that everyone may use: in one transaction.
    pub fn create_together(&mut self, paths: &[&str], data: &str) -> Result<(), Error> {
        let mut body = Jute::default();
        for path in paths {
            // The operation, not the last one, no error; then the request as it is sent alone.
            body.int(1).flag(false).int(-1);
            body.text(path).text(data).int(1).int(31).text("world").text("anyone").int(3);
        }
        body.int(-1).flag(true).int(-1);
        let mut answer = self.request(14, &body)?;
        // The result of the first one.
        if answer.int()? == 1 { Ok(()) } else { Err(io::Error::other("nothing was made").into()) }
    }

    pub fn delete(&mut self, path: &str) -> Result<(), Error> {
        self.request(2, Jute::default().text(path).int(-1)).map(|_| ())
    }

    /// The node at `path`; with `watch`, [`Self::wait_event`] reports the next change.
    pub fn get(&mut self, path: &str, watch: bool) -> Result<Node, Error> {
        let mut answer = self.request(4, Jute::default().text(path).flag(watch))?;
        let data = answer.text()?;
        let (czxid, mzxid) = (answer.long()?, answer.long()?);
        let ctime = answer.long()?;
        // The time of its last change.
        answer.long()?;
        let version = answer.int()?;
        // The versions of its children and of its ACL.
        let _ = (answer.int()?, answer.int()?);
        let ephemeral_owner = answer.long()?;
        // The length of its data.
        answer.int()?;
        Ok(Node { data, czxid, ctime, mzxid, version, ephemeral_owner, children: answer.int()? })
    }

    pub fn set(&mut self, path: &str, data: &str) -> Result<(), Error> {
        self.request(5, Jute::default().text(path).text(data).int(-1)).map(|_| ())
    }

    /// Permissions, scheme and id of everyone who may use it.
    pub fn acl(&mut self, path: &str) -> Result<Vec<(i32, String, String)>, Error> {
        let mut answer = self.request(6, Jute::default().text(path))?;
        let count = answer.int()?;
        Ok((0..count).map(|_| Ok((answer.int()?, answer.text()?, answer.text()?))).collect::<io::Result<_>>()?)
    }

    /// The children of a node, sorted.
    pub fn children(&mut self, path: &str) -> Result<Vec<String>, Error> {
        let mut answer = self.request(12, Jute::default().text(path).flag(false))?;
        let count = answer.int()?;
        let mut children = (0..count).map(|_| answer.text()).collect::<io::Result<Vec<_>>>()?;
        children.sort();
        Ok(children)
    }

    /// Lets the server catch up with its leader.
    pub fn sync(&mut self, path: &str) -> Result<(), Error> {
        self.request(9, Jute::default().text(path)).map(|_| ())
    }

    /// Ends the session, and with it all its ephemeral nodes. Returns once they are gone.
    pub fn close(mut self) -> Result<(), Error> {
        self.request(-11, &Jute::default()).map(|_| ())
    }

    /// Waits for a watch to fire: the kind of change, and the path.
    pub(super) fn wait_event(&mut self) -> Result<(i32, String), Error> {
        self.stream.set_read_timeout(Some(CAP))?;
        let mut event = self.receive()?;
        // Number, transaction, error.
        let _ = (event.int()?, event.long()?, event.int()?);
        let kind = event.int()?;
        // The state of the session.
        event.int()?;
        Ok((kind, event.text()?))
    }

    fn request(&mut self, operation: i32, body: &Jute) -> Result<Answer, Error> {
        self.xid += 1;
        let mut request = Jute::default();
        request.int(self.xid).int(operation).0.extend_from_slice(&body.0);
        self.send(&request)?;
        self.answer(self.xid)
    }

    fn send(&mut self, message: &Jute) -> io::Result<()> {
        let length = u32::try_from(message.0.len()).unwrap().to_be_bytes();
        self.stream.write_all(&[&length[..], &message.0].concat())
    }

    fn answer(&mut self, xid: i32) -> Result<Answer, Error> {
        let mut answer = self.receive()?;
        let (number, _) = (answer.int()?, answer.long()?);
        if number != xid {
            return Err(io::Error::other(format!("an answer to {number} instead of {xid}")).into());
        }
        match answer.int()? {
            0 => Ok(answer),
            code => Err(Error::Refused(code)),
        }
    }

    fn receive(&mut self) -> io::Result<Answer> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut message)?;
        Ok(Answer(io::Cursor::new(message)))
    }

    /// Whether the other side has neither closed it nor sent anything unasked.
    pub(super) fn is_usable(&self) -> bool {
        let _ = self.stream.set_nonblocking(true);
        let silent = self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        let _ = self.stream.set_nonblocking(false);
        silent
    }
}

/// The password of a session, as the server's `generatePasswd` makes it: by `java.util.Random`, from a seed that anyone
/// can know.
fn session_password(session: i64) -> [u8; 16] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session.cast_unsigned() ^ 0xB341_5C00 ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for chunk in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        chunk.copy_from_slice(&u32::try_from(state >> 16).expect("32 bits of 48").to_le_bytes());
    }
    password
}

pub(super) fn connect(place: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&place, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
