/*!
Checks ZooKeeper's frames in transit, so that no server can upset the client library, which allocates the memory that a
reply announces before that much has arrived, and relies on the form of replies.

Every reply must have exactly the form that its request calls for; any other is not passed on.
*/

mod body;
mod operation;
mod watched;

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use self::body::Body;
use self::watched::Watched;

/// The maximum length of a frame, except for a list of children. A server's own limit is as large.
const MAX_FRAME: usize = 1024 * 1024;
/// The maximum length of a list of children: such lists have no pages, and each contender takes 175 bytes.
const MAX_CHILDREN: usize = 24 * 1024 * 1024;
/// The maximum number of unanswered requests on a connection: far more than dlock ever has at once.
const MAX_UNANSWERED: usize = 1000;
/// The length of a node's status in a reply.
const STAT: usize = 68;

/// The id of a notification, which answers no request.
const NOTIFICATION: i32 = -1;
/// The id of every ping, and of its reply.
const PING: i32 = -2;
/// Reads one frame, including its length prefix. Returns `None` at the end of the stream.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    read_within(stream, || MAX_FRAME).await
}

/// Like [`read`], for a frame of at most the length that `longest` returns when the frame begins (see
/// [`Unanswered::longest`]).
pub(super) async fn read_within(
    stream: &mut (impl AsyncRead + Unpin),
    longest: impl Fn() -> usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 4];
    if stream.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[1..]).await?;
    let announced = i32::from_be_bytes(head);
    let Some(length) = usize::try_from(announced).ok().filter(|&length| length <= longest()) else {
        return Err(malformed(&format!("it announced {announced} bytes")));
    };
    let mut frame = head.to_vec();
    // Grows with the bytes that arrive, not with the announced length.
    stream.take(length as u64).read_to_end(&mut frame).await?;
    if frame.len() - head.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Returns the session length that the connect request in `frame` asks for, in milliseconds.
pub(super) fn asked_session(frame: &[u8]) -> Option<u64> {
    let mut body = Body(frame.get(4..)?);
    body.int()?;
    body.long()?;
    body.int().and_then(|timeout| timeout.try_into().ok())
}

/// A server's answer to a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectReply {
    /// The server granted or continues a session of this length in milliseconds.
    Session(u32),
    /// The session no longer exists.
    Expired,
}

/// Parses the reply to a connect request.
pub(super) fn welcome(frame: &[u8]) -> io::Result<ConnectReply> {
    let read = || {
        let mut body = Body(frame.get(4..)?);
        let (version, timeout, session) = (body.int()?, body.int()?, body.long()?);
        let password = body.bytes()?;
        // Older servers do not say whether they are read-only.
        let tail_fits = matches!(body.0, [] | [0 | 1]);
        let timeout = u32::try_from(timeout).ok()?;
        (version == 0 && password.len() == 16 && tail_fits).then_some((timeout, session))
    };
    match read() {
        Some((_, 0)) => Ok(ConnectReply::Expired),
        Some((timeout @ 1.., _)) => Ok(ConnectReply::Session(timeout)),
        _ => Err(malformed("its answer to the connect request makes no sense")),
    }
}

/// Returns a ping with its length prefix. A server answers it, and its only other effect is to keep the session alive.
pub(super) fn ping() -> Vec<u8> {
    [8, PING, operation::PING].into_iter().flat_map(i32::to_be_bytes).collect()
}

/// Returns the connect request for a session of this length, with its length prefix.
pub(super) fn connect(session: Duration) -> Vec<u8> {
    let millis = i32::try_from(session.as_millis()).unwrap_or(i32::MAX);
    // Protocol version 0, no transaction seen; no session yet and so no password; no read-only server.
    framed(&[&[0; 12], &millis.to_be_bytes(), &[0; 8], &16_i32.to_be_bytes(), &[0; 16], &[0]])
}

/// Returns the id of the session that the reply to a connect request grants.
pub(super) fn session(welcome: &[u8]) -> Option<i64> {
    let mut body = Body(welcome.get(4..)?);
    body.int()?;
    body.int()?;
    body.long()
}

/// Returns the request for the configuration of the server's ensemble, with its length prefix.
pub(super) fn read_configuration() -> Vec<u8> {
    let path = framed(&[b"/zookeeper/config"]);
    framed(&[&1_i32.to_be_bytes(), &operation::GET_DATA.to_be_bytes(), &path, &[0]])
}

/// Returns the node's data in the reply to [`read_configuration`]; `None` if `reply` is anything else.
pub(super) fn data(reply: &[u8]) -> Option<&[u8]> {
    let mut body = Body(reply.get(4..)?);
    let (id, _, error) = (body.int()?, body.long()?, body.int()?);
    if (id, error) == (1, 0) { body.bytes() } else { None }
}

/// Returns the request that ends a session, with its length prefix.
pub(super) fn close() -> Vec<u8> {
    framed(&[&2_i32.to_be_bytes(), &operation::CLOSE.to_be_bytes()])
}

/// Builds a frame from `parts`, with its length prefix.
fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &body].concat()
}

/// The unanswered requests, and the library's watches.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// The requests by their ids.
    requests: HashMap<i32, Asked>,
    watched: Watched,
    /// The number of unanswered pings that are ours, of which the library knows nothing.
    own_pings: u32,
}

/// The unanswered requests with one id.
#[derive(Debug)]
struct Asked {
    operation: i32,
    /// The number of requests: more than one only for an id that always means the same operation.
    count: u32,
    /// The path of the node to watch, if any.
    watches: Option<String>,
}

impl Unanswered {
    /// Returns `true` if any request except pings is unanswered.
    pub(super) fn any(&self) -> bool {
        self.requests.values().any(|asked| asked.operation != operation::PING)
    }

    /// Returns `true` if the library waits for any answer, even to a ping, without which it opens no session.
    pub(super) fn any_of_library(&self) -> bool {
        self.any() || self.requests.get(&PING).is_some_and(|asked| asked.count > self.own_pings)
    }

    /// Returns the maximum length of the next reply, which is larger only while a list of children is requested.
    pub(super) fn longest(&self) -> usize {
        let children = |asked: &Asked| asked.operation == operation::GET_CHILDREN;
        if self.requests.values().any(children) { MAX_CHILDREN } else { MAX_FRAME }
    }

    /// Records a ping that the tunnel sends.
    pub(super) fn note_own_ping(&mut self) -> io::Result<()> {
        self.own_pings += 1;
        self.note(&ping())
    }

    /// Records a request. Fails if too many are unanswered.
    pub(super) fn note(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut body = Body(frame.get(4..).unwrap_or_default());
        if let (Some(id), Some(operation)) = (body.int(), body.int()) {
            let watches = self.watched.note(operation, &mut body);
            let count = self.requests.get(&id).map_or(0, |asked| asked.count) + 1;
            self.requests.insert(id, Asked { operation, count, watches });
        }
        let unanswered: usize = self.requests.values().map(|asked| asked.count as usize).sum();
        if unanswered > MAX_UNANSWERED {
            return Err(malformed(&format!("it leaves {unanswered} requests unanswered")));
        }
        Ok(())
    }

    /// Checks a reply; the error says what is wrong with it. Returns `false` if the library does not wait for it.
    pub(super) fn check(&mut self, frame: &[u8]) -> io::Result<bool> {
        let mut body = Body(frame.get(4..).unwrap_or_default());
        let (Some(id), Some(_), Some(error)) = (body.int(), body.long(), body.int()) else {
            return Err(malformed("a reply has no header"));
        };
        if id == NOTIFICATION && frame.len() <= 4 + MAX_FRAME {
            let (event, path) = body.notification().ok_or_else(|| malformed("a notification makes no sense"))?;
            // The library would answer an unexpected notification with a request, and keep that until it is answered.
            return Ok(self.watched.take(event, path));
        }
        let Some(asked) = self.requests.get_mut(&id) else {
            return Err(malformed("it answered what was not asked"));
        };
        let operation = asked.operation;
        if frame.len() > 4 + MAX_FRAME && operation != operation::GET_CHILDREN {
            return Err(malformed("it answered at too great a length"));
        }
        asked.count -= 1;
        if asked.count == 0
            && let Some(Asked { watches: Some(path), .. }) = self.requests.remove(&id)
            && error != 0
        {
            self.watched.refused(operation, &path);
        }
        // The body of an error is not read.
        if error == 0 {
            let answered = body.answer(operation);
            answered.ok_or_else(|| malformed(&format!("the answer to operation {operation} makes no sense")))?;
        }
        // All pings are alike; the library gets the answers to its own as late as possible.
        let is_ours = id == PING && self.own_pings > 0;
        self.own_pings -= u32::from(is_ours);
        Ok(!is_ours)
    }
}

impl<'a> Body<'a> {
    /// Reads a notification: the number of the event, and the path of the node.
    fn notification(&mut self) -> Option<(i32, &'a str)> {
        let (event, _state) = (self.int()?, self.int()?);
        let path = self.text().filter(|path| path.starts_with('/'))?;
        self.end()?;
        Some((event, path))
    }

    fn path(&mut self) -> Option<()> {
        self.text()?.starts_with('/').then_some(())
    }

    fn stat(&mut self) -> Option<()> {
        self.take(STAT).map(drop)
    }

    fn names(&mut self) -> Option<()> {
        let count = self.int()?;
        (0..count).try_for_each(|_| self.text().map(drop))
    }

    /// Checks an access list.
    fn acls(&mut self) -> Option<()> {
        let count = self.int()?;
        (0..count).try_for_each(|_| {
            let (_rights, _scheme, _id) = (self.int()?, self.text()?, self.text()?);
            Some(())
        })
    }

    /// Checks the body of a reply without an error.
    fn answer(&mut self, operation: i32) -> Option<()> {
        match operation {
            operation::CREATE => self.path()?,
            operation::CREATE2 => self.path().and_then(|()| self.stat())?,
            operation::EXISTS | operation::SET_DATA => self.stat()?,
            operation::GET_DATA => self.bytes().and_then(|_| self.stat())?,
            operation::GET_CHILDREN => self.names().and_then(|()| self.stat())?,
            operation::GET_ACL => self.acls().and_then(|()| self.stat())?,
            operation::MULTI => self.results()?,
            operation::DELETE
            | operation::PING
            | operation::REMOVE_WATCHES
            | operation::AUTH
            | operation::SET_WATCHES
            | operation::SET_WATCHES2
            | operation::CLOSE => {}
            _ => return None,
        }
        self.end()
    }

    /// Checks the results of the operations of one request, up to their end marker.
    fn results(&mut self) -> Option<()> {
        loop {
            let (operation, done, _error) = (self.int()?, self.take(1)?, self.int()?);
            match (done, operation) {
                ([1], _) => return Some(()),
                ([0], operation::CREATE) => self.path()?,
                ([0], operation::CREATE2) => self.path().and_then(|()| self.stat())?,
                ([0], operation::SET_DATA) => self.stat()?,
                ([0], operation::CHECK | operation::DELETE) => {}
                ([0], operation::ERROR) => self.int().map(drop)?,
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
