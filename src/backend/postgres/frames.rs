/*!
A stream that watches a server's messages on their way to the client library: it bounds the length of each before the
library allocates memory for it, refuses a server that asks for a password in clear text where others could read it, and
records the server process of the connection, which the library does not expose.
*/

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest message that is accepted. An honest one holds a row with 4 KiB of text.
const LONGEST: u32 = 64 * 1024;
/// The size of a message's header: a letter for its kind, and its length without that letter.
const HEADER: usize = 5;
/// The number of bytes at the start of a message's body that matter.
const HEAD: usize = 4;

/// The process that a server says has taken a connection; 0 if it has not said so.
#[derive(Clone, Debug, Default)]
pub(super) struct Process(Arc<AtomicI32>);

impl Process {
    /// Returns the number of the process.
    pub(super) fn number(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The authentication that a server may demand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sound {
    /// Nobody else reads the traffic, so the server may ask for a password in clear text.
    pub is_private: bool,
    /// The server must use SCRAM-SHA-256 and nothing else.
    pub needs_scram: bool,
}

/// A reader of messages, which may arrive in pieces.
#[derive(Debug)]
struct Reader {
    /// The header of this message and the beginning of its body, as far as received.
    begun: Vec<u8>,
    /// The number of bytes of the body still to come; `None` until the header is complete.
    left: Option<u32>,
    sound: Sound,
    /// `true` if the server has proved, at the end of SCRAM, that it knows the password.
    is_proved: bool,
    process: Process,
}

impl Reader {
    /// Reads the bytes that have arrived.
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = if let Some(left) = self.left {
                left
            } else {
                bytes = self.begin(bytes, HEADER);
                if self.begun.len() < HEADER {
                    return Ok(());
                }
                self.body()?
            };
            let take = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.begin(&bytes[..take], HEADER + HEAD);
            bytes = &bytes[take..];
            let left = left - u32::try_from(take).unwrap_or(left);
            self.left = Some(left);
            if left == 0 {
                self.ended()?;
            }
        }
        Ok(())
    }

    /// Keeps those of `bytes` that are missing from the first `most` bytes of the message; returns the rest.
    fn begin<'a>(&mut self, bytes: &'a [u8], most: usize) -> &'a [u8] {
        let (first, rest) = bytes.split_at(bytes.len().min(most.saturating_sub(self.begun.len())));
        self.begun.extend_from_slice(first);
        rest
    }

    /// Returns the length of the body that follows the header.
    fn body(&self) -> io::Result<u32> {
        let [_, a, b, c, d] = self.begun[..] else { return Err(refused("a message without a header")) };
        let length = u32::from_be_bytes([a, b, c, d]);
        match length.checked_sub(4) {
            Some(body) if length <= LONGEST => Ok(body),
            _ => Err(refused("a message is too long for a lock server's")),
        }
    }

    /// Handles a message that is complete.
    fn ended(&mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        self.left = None;
        let number = begun.get(HEADER..HEADER + HEAD).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
        match (begun.first(), number) {
            (Some(b'K'), Some(number)) => self.process.0.store(number, Ordering::Relaxed),
            (Some(b'R'), Some(SCRAM_ENDS)) => self.is_proved = true,
            (Some(b'R'), Some(SCRAM | SCRAM_GOES_ON)) => {}
            (Some(b'R'), Some(LET_IN)) if self.is_proved => {}
            (Some(b'R'), _) if self.sound.needs_scram => return Err(refused(NO_SCRAM)),
            (Some(b'R'), Some(CLEAR)) if !self.sound.is_private => return Err(refused(CLEAR_TEXT)),
            _ => {}
        }
        Ok(())
    }
}

/// The types of authentication messages.
const LET_IN: i32 = 0;
const CLEAR: i32 = 3;
const SCRAM: i32 = 10;
const SCRAM_GOES_ON: i32 = 11;
const SCRAM_ENDS: i32 = 12;
/// The error that ends a login without SCRAM.
const NO_SCRAM: &str = "it does not let us in by SCRAM-SHA-256";
/// The error if a password is demanded in clear text.
pub(in crate::backend::postgres) const CLEAR_TEXT: &str = "it asks for the password in clear text";

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A stream whose incoming messages are watched.
#[derive(Debug)]
pub(super) struct Frames<S> {
    inner: S,
    reader: Reader,
}

impl<S> Frames<S> {
    /// Watches the data read from `inner`, whose server may demand the authentication in `sound`.
    pub(super) fn new(inner: S, sound: Sound) -> Self {
        let reader = Reader { begun: Vec::new(), left: None, sound, is_proved: false, process: Process::default() };
        Self { inner, reader }
    }

    /// Returns a handle to the number of the server's process.
    pub(super) fn process(&self) -> Process {
        self.reader.process.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begins = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        match self.reader.read(&buffer.filled()[begins..]) {
            Ok(()) => polled,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(is_private: bool) -> Reader {
        Frames::new((), Sound { is_private, needs_scram: false }).reader
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        [&[kind][..], &length, body].concat()
    }

    #[test]
    fn in_whatever_pieces_they_come_messages_are_told_apart() {
        let all = [
            message(b'S', b"in_hot_standby\0off\0"),
            message(b'1', b""),
            message(b'K', &[0, 0, 18, 103, 0, 0, 0, 3]),
            message(b'Z', b"I"),
        ]
        .concat();
        for piece in 1..all.len() {
            let mut reader = reader(false);
            for bytes in all.chunks(piece) {
                reader.read(bytes).expect("no message is too long");
            }
            assert_eq!((reader.process.number(), reader.left, reader.begun.len()), (4711, None, 0), "{piece}");
        }
    }

    #[test]
    fn a_header_alone_is_enough_to_refuse_a_message() {
        for (length, is_refused) in
            [(4_u32, false), (LONGEST, false), (LONGEST + 1, true), (u32::MAX, true), (3, true), (0, true)]
        {
            let header = [&b"D"[..], &length.to_be_bytes()].concat();
            assert_eq!(reader(false).read(&header).is_err(), is_refused, "{length}");
        }
    }

    #[test]
    fn a_server_that_must_prove_itself_by_scram_lets_us_in_by_nothing_else() {
        for (said, is_refused) in [
            (&[10, 11, 12, 0][..], false),
            (&[0], true),
            (&[10, 11, 0], true),
            (&[3], true),
            (&[5], true),
            (&[7], true),
        ] {
            let mut reader = Frames::new((), Sound { is_private: true, needs_scram: true }).reader;
            let said: Vec<u8> = said.iter().flat_map(|method: &i32| message(b'R', &method.to_be_bytes())).collect();
            assert_eq!(reader.read(&said).is_err(), is_refused, "{said:?}");
        }
    }

    #[test]
    fn a_password_is_sent_in_clear_text_only_where_nobody_else_reads_it() {
        for (method, is_private, is_refused) in
            [(3_i32, false, true), (3, true, false), (0, false, false), (10, false, false)]
        {
            let read = reader(is_private).read(&message(b'R', &method.to_be_bytes()));
            assert_eq!(read.is_err(), is_refused, "{method}");
        }
    }
}
