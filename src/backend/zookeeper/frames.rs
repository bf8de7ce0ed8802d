/*!
ZooKeeper's frames as they pass, so that no server can upset the client library, which reserves the memory that a
reply announces before it looks whether so much is there, and relies on the form of replies.

Every reply must have the form that its request calls for, and nothing more; what does not is passed on to nobody.
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

/// The longest frame but for the names of a directory's children. A server's own limit is as large.
const MAX_FRAME: usize = 1024 * 1024;
/// The longest frame with the names of children: there are no pages of them, and each contender takes 175 bytes.
const MAX_CHILDREN: usize = 24 * 1024 * 1024;
/// How many requests of one connection may be unanswered: far more than dlock ever asks for at once.
const MAX_UNANSWERED: usize = 1000;
/// The length of a node's status in a reply.
const STAT: usize = 68;

/// The ids of replies that answer no request of that id.
const NOTIFICATION: i32 = -1;
/// The id of every ping, and of its reply.
const PING: i32 = -2;
/// Reads one frame with its length before it; none at the end of the stream.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    read_within(stream, || MAX_FRAME).await
}

/// Reads one frame with its length before it, which may be as long as `longest` says when it begins ([`Unanswered::longest`]
/// knows); none at the end of the stream.
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
    // Grows with what comes, not with what was announced.
    stream.take(length as u64).read_to_end(&mut frame).await?;
    if frame.len() - head.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// How long a session the connect request in `frame` asks for, in milliseconds.
pub(super) fn asked_session(frame: &[u8]) -> Option<u64> {
    let mut body = Body(frame.get(4..)?);
    body.int()?;
    body.long()?;
    body.int().and_then(|timeout| timeout.try_into().ok())
}

/// What a server says to a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Welcome {
    /// It granted or continues a session of this length in milliseconds.
    Session(u32),
    /// The session is no more.
    Expired,
}

/// Reads the reply to a connect request.
pub(super) fn welcome(frame: &[u8]) -> io::Result<Welcome> {
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
        Some((_, 0)) => Ok(Welcome::Expired),
        Some((timeout @ 1.., _)) => Ok(Welcome::Session(timeout)),
        _ => Err(malformed("its answer to the connect request has no sense")),
    }
}

/// A ping, with its length before it: a server answers it, and nothing else comes of it but that the session lives on.
pub(super) fn ping() -> Vec<u8> {
    [8, PING, operation::PING].into_iter().flat_map(i32::to_be_bytes).collect()
}

/// The request for a session of this length that every connection begins with, with its length before it.
pub(super) fn connect(session: Duration) -> Vec<u8> {
    let millis = i32::try_from(session.as_millis()).unwrap_or(i32::MAX);
    // No protocol but 0, nothing seen, no session yet and so no password of one, and no server that only reads.
    framed(&[&[0; 12], &millis.to_be_bytes(), &[0; 8], &16_i32.to_be_bytes(), &[0; 16], &[0]])
}

/// The id of the session that the reply to a connect request grants.
pub(super) fn session(welcome: &[u8]) -> Option<i64> {
    let mut body = Body(welcome.get(4..)?);
    body.int()?;
    body.int()?;
    body.long()
}

/// The request for what a server says of its ensemble, with its length before it.
pub(super) fn read_configuration() -> Vec<u8> {
    let path = framed(&[b"/zookeeper/config"]);
    framed(&[&1_i32.to_be_bytes(), &operation::GET_DATA.to_be_bytes(), &path, &[0]])
}

/// What stands in the node that the reply to [`read_configuration`] is about; none where that says something else.
pub(super) fn data(reply: &[u8]) -> Option<&[u8]> {
    let mut body = Body(reply.get(4..)?);
    let (id, _, error) = (body.int()?, body.long()?, body.int()?);
    if (id, error) == (1, 0) { body.bytes() } else { None }
}

/// The request that ends a session, with its length before it.
pub(super) fn close() -> Vec<u8> {
    framed(&[&2_i32.to_be_bytes(), &operation::CLOSE.to_be_bytes()])
}

/// A frame of these parts, with its length before it.
fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &body].concat()
}

/// The requests that are not answered yet, and what the library watches.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// What was asked for by each id.
    requests: HashMap<i32, Asked>,
    watched: Watched,
    /// How many of the pings are ours: the library knows nothing of them.
    own_pings: u32,
}

/// What was asked for by one id.
#[derive(Debug)]
struct Asked {
    operation: i32,
    /// How many requests there are: more than one only of an id that means one operation.
    count: u32,
    /// The path of a node that is to be watched.
    watches: Option<String>,
}

impl Unanswered {
    /// Whether there are any but pings.
    pub(super) fn any(&self) -> bool {
        self.requests.values().any(|asked| asked.operation != operation::PING)
    }

    /// Whether the library waits for any, pings too: it opens no session before its first one is answered.
    pub(super) fn any_of_library(&self) -> bool {
        self.any() || self.requests.get(&PING).is_some_and(|asked| asked.count > self.own_pings)
    }

    /// How long the next reply may be: longer only while a list of children is asked for.
    pub(super) fn longest(&self) -> usize {
        let children = |asked: &Asked| asked.operation == operation::GET_CHILDREN;
        if self.requests.values().any(children) { MAX_CHILDREN } else { MAX_FRAME }
    }

    /// Takes note of a ping that the tunnel sends.
    pub(super) fn note_own_ping(&mut self) -> io::Result<()> {
        self.own_pings += 1;
        self.note(&ping())
    }

    /// Takes note of a request; fails where too many are unanswered.
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

    /// Checks a reply; the error says what is wrong with it. False for one that the library does not wait for.
    pub(super) fn check(&mut self, frame: &[u8]) -> io::Result<bool> {
        let mut body = Body(frame.get(4..).unwrap_or_default());
        let (Some(id), Some(_), Some(error)) = (body.int(), body.long(), body.int()) else {
            return Err(malformed("a reply has no header"));
        };
        if id == NOTIFICATION && frame.len() <= 4 + MAX_FRAME {
            let (event, path) = body.notification().ok_or_else(|| malformed("a notification has no sense"))?;
            // To one that it does not wait for, the library would answer with a request, and keep that until it is answered.
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
        // An error's body is not read.
        if error == 0 {
            let answered = body.answer(operation);
            answered.ok_or_else(|| malformed(&format!("the answer to operation {operation} has no sense")))?;
        }
        // Pings are all alike; the library is told of its own as late as possible.
        let is_ours = id == PING && self.own_pings > 0;
        self.own_pings -= u32::from(is_ours);
        Ok(!is_ours)
    }
}

impl<'a> Body<'a> {
    /// What happened, by its number, and the path of the node.
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

    /// An access list: who may do what.
    fn acls(&mut self) -> Option<()> {
        let count = self.int()?;
        (0..count).try_for_each(|_| {
            let (_rights, _scheme, _id) = (self.int()?, self.text()?, self.text()?);
            Some(())
        })
    }

    /// The body of a reply without an error.
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

    /// The results of the operations of one request, up to the mark of their end.
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
