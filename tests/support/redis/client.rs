//! A connection to a redis that speaks its protocol and knows no commands.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use super::ANSWER;

/// A reply of redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    /// The reply as text: a null is the empty string, an array is its items as lines.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil => String::new(),
            Self::Array(items) => items.iter().map(Self::text).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The items of an array. Fails the test if it is not one.
    #[track_caller]
    pub fn array(self) -> Vec<Reply> {
        match self {
            Self::Array(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }
}

/// A connection to a redis on loopback that speaks RESP2 and knows no commands.
pub struct Client {
    pub(super) stream: BufReader<TcpStream>,
    pub(super) address: String,
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_nodelay(true)?;
        let address = stream.local_addr()?.to_string();
        Ok(Self { stream: BufReader::new(stream), address })
    }

    /// Sends one request and waits for its reply.
    pub fn call(&mut self, request: &[&[u8]]) -> io::Result<Reply> {
        let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
        for word in request {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)?;
        self.read_reply()
    }

    /// Waits for the next reply or message.
    pub fn read_reply(&mut self) -> io::Result<Reply> {
        let line = self.read_line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| bad(&line))?;
        let number = || rest.parse::<i64>().map_err(|_| bad(&line));
        Ok(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(bytes)
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => Reply::Array((0..length).map(|_| self.read_reply()).collect::<io::Result<_>>()?),
            },
            _ => return Err(bad(&line)),
        })
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.stream.read_until(b'\n', &mut bytes)?;
        match bytes.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether the other side has neither closed it nor sent anything unasked.
    pub(super) fn is_usable(&self) -> bool {
        let stream = self.stream.get_ref();
        let _ = stream.set_nonblocking(true);
        let silent = stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        let _ = stream.set_nonblocking(false);
        silent && self.stream.buffer().is_empty()
    }
}

fn bad(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}
