/*!
ZooKeeper's frames as they pass, so that no server can upset the client library: it reserves what a reply announces
before it looks whether that much is there, and relies on the form of replies.

Every reply must have the form that its request calls for, and nothing more; what does not is passed on to nobody.
*/

use std::collections::HashMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest frame but for the names of a directory's children. A server's own limit is as large.
const MAX_FRAME: usize = 1024 * 1024;
/// The longest frame with the names of children: there are no pages of them, and each contender takes 113 bytes.
const MAX_CHILDREN: usize = 16 * 1024 * 1024;
/// The length of a node's status in a reply.
const STAT: usize = 68;

/// The ids of replies that answer no request of that id.
const NOTIFICATION: i32 = -1;
/// The id of every ping, and of its reply.
const PING: i32 = -2;
/// The operations that the library asks for.
mod operation {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const PING: i32 = 11;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE2: i32 = 15;
    pub(super) const REMOVE_WATCHES: i32 = 18;
    pub(super) const AUTH: i32 = 100;
    pub(super) const SET_WATCHES: i32 = 101;
    pub(super) const SET_WATCHES2: i32 = 105;
    pub(super) const CLOSE: i32 = -11;
    pub(super) const ERROR: i32 = -1;
}

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
        return Err(nonsense(&format!("it announced {announced} bytes")));
    };
    let mut frame = head.to_vec();
    // Grows with what comes, not with what was announced.
    stream.take(length as u64).read_to_end(&mut frame).await?;
    if frame.len() - head.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

fn nonsense(what: &str) -> io::Error {
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
    /// It granted or continues a session of so many milliseconds.
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
        _ => Err(nonsense("its answer to the connect request has no sense")),
    }
}

/// A ping, with its length before it: a server answers it, and nothing else comes of it but that the session lives on.
pub(super) fn ping() -> Vec<u8> {
    [8, PING, operation::PING].into_iter().flat_map(i32::to_be_bytes).collect()
}

/// The requests that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// The operation and the number of requests of each id.
    requests: HashMap<i32, (i32, u32)>,
    /// How many of the pings are ours: the library knows nothing of them.
    own_pings: u32,
}

impl Unanswered {
    /// Whether there are any but pings.
    pub(super) fn any(&self) -> bool {
        self.requests.values().any(|&(operation, _)| operation != operation::PING)
    }

    /// Whether the library waits for any, pings too: it opens no session before its first one is answered.
    pub(super) fn any_of_library(&self) -> bool {
        self.any() || self.requests.get(&PING).is_some_and(|&(_, count)| count > self.own_pings)
    }

    /// How long the next reply may be: longer only while somebody has asked for children.
    pub(super) fn longest(&self) -> usize {
        let children = |&(operation, _): &(i32, u32)| operation == operation::GET_CHILDREN;
        if self.requests.values().any(children) { MAX_CHILDREN } else { MAX_FRAME }
    }

    /// Takes note of a ping of ours.
    pub(super) fn note_own_ping(&mut self) {
        self.note(&ping());
        self.own_pings += 1;
    }

    /// Takes note of a request.
    pub(super) fn note(&mut self, frame: &[u8]) {
        let mut body = Body(frame.get(4..).unwrap_or_default());
        if let (Some(id), Some(operation)) = (body.int(), body.int()) {
            let entry = self.requests.entry(id).or_insert((operation, 0));
            *entry = (operation, entry.1 + 1);
        }
    }

    /// Checks a reply; the error says what is wrong with it. False for one that the library does not wait for.
    pub(super) fn check(&mut self, frame: &[u8]) -> io::Result<bool> {
        let mut body = Body(frame.get(4..).unwrap_or_default());
        let (Some(id), Some(_), Some(error)) = (body.int(), body.long(), body.int()) else {
            return Err(nonsense("a reply has no header"));
        };
        if id == NOTIFICATION && frame.len() <= 4 + MAX_FRAME {
            return body.notification().map(|()| true).ok_or_else(|| nonsense("a notification has no sense"));
        }
        let Some((operation, count)) = self.requests.get(&id).copied() else {
            return Err(nonsense("it answered what was not asked"));
        };
        if frame.len() > 4 + MAX_FRAME && operation != operation::GET_CHILDREN {
            return Err(nonsense("it answered at too great a length"));
        }
        if count > 1 {
            self.requests.insert(id, (operation, count - 1));
        } else {
            self.requests.remove(&id);
        }
        // An error's body is not read.
        if error == 0 {
            let answered = body.answer(operation);
            answered.ok_or_else(|| nonsense(&format!("the answer to operation {operation} has no sense")))?;
        }
        // Pings are all alike; the library is told of its own as late as possible.
        let is_ours = id == PING && self.own_pings > 0;
        self.own_pings -= u32::from(is_ours);
        Ok(!is_ours)
    }
}

/// What is left to read of a frame.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Bytes with their length before them; a length of -1 means that there are none.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        match self.int()? {
            -1 => Some(&[]),
            length => self.take(usize::try_from(length).ok()?),
        }
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
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

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    fn notification(&mut self) -> Option<()> {
        let (_event, _state) = (self.int()?, self.int()?);
        self.path()?;
        self.end()
    }

    /// The body of a reply without an error.
    fn answer(&mut self, operation: i32) -> Option<()> {
        match operation {
            operation::CREATE => self.path()?,
            operation::CREATE2 => self.path().and_then(|()| self.stat())?,
            operation::EXISTS | operation::SET_DATA => self.stat()?,
            operation::GET_DATA => self.bytes().and_then(|_| self.stat())?,
            operation::GET_CHILDREN => self.names()?,
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
