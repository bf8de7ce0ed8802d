//! ZooKeeper's encoding of requests and answers.

use std::io::{self, Read};

/// A message to a server in ZooKeeper's encoding.
#[derive(Default)]
pub(super) struct Jute(pub(super) Vec<u8>);

impl Jute {
    pub(super) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(value.len().try_into().unwrap()).0.extend_from_slice(value);
        self
    }

    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }
}

/// A server's answer, read from the front.
pub(super) struct Answer(pub(super) io::Cursor<Vec<u8>>);

impl Answer {
    pub(super) fn int(&mut self) -> io::Result<i32> {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes)?;
        Ok(i32::from_be_bytes(bytes))
    }

    pub(super) fn long(&mut self) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// Bytes as text; a null is the empty text.
    pub(super) fn text(&mut self) -> io::Result<String> {
        let mut bytes = vec![0; usize::try_from(self.int()?).unwrap_or(0)];
        self.0.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
