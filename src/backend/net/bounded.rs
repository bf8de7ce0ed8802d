/*!
A stream that bounds how much memory a server can make this process use: the client library buffers a reply of any
length that the server announces.

It also preserves the refusal of a server that hangs up before any request: the client library would drop a message that
answers nothing, so reading waits for the first request, and a failed write does not end the stream.
*/

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes that a server may send in answer to one request. An honest answer holds at most 4 KiB of
/// another client's value and a few numbers.
const MAX_ANSWER: usize = 64 * 1024;
/// Maximum number of bytes in answer to a look at many locks, or at all holders and waiters of one.
const MAX_PICTURE: usize = 2 * 1024 * 1024;

/// Number of bytes that a server may send in answer to one request on a stream; initially the limit for one lock.
#[derive(Clone, Debug)]
pub(crate) struct Allowance(Arc<AtomicUsize>);

impl Default for Allowance {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(MAX_ANSWER)))
    }
}

impl Allowance {
    /// Raises the limit from the next request on, for looks at many locks.
    pub(crate) fn for_looks(&self) {
        self.0.store(MAX_PICTURE, Ordering::Relaxed);
    }
}

/// A stream that fails once more than its [`Allowance`] has arrived since the last request was written.
#[derive(Debug)]
pub(crate) struct Bounded<S> {
    inner: S,
    allowance: Allowance,
    room: usize,
    /// A request was written.
    asked: bool,
    /// The reader that waits for the first request.
    reader: Option<Waker>,
}

impl<S> Bounded<S> {
    /// Bounds what is read from `inner`.
    pub(crate) fn new(inner: S, allowance: Allowance) -> Self {
        Self { inner, allowance, room: MAX_ANSWER, asked: false, reader: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.asked {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let came = buffer.filled().len() - before;
        match self.room.checked_sub(came) {
            Some(room) => {
                self.room = room;
                polled
            }
            None => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer is too long for a lock server's",
            ))),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.room = self.allowance.0.load(Ordering::Relaxed);
        self.asked = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        match Pin::new(&mut self.inner).poll_write(context, bytes) {
            // The reader gets the server's last words, and then the end.
            Poll::Ready(Err(error)) if is_hung_up(&error) => Poll::Ready(Ok(bytes.len())),
            polled => polled,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

fn is_hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::property::holds;

    /// An event on a connection.
    #[derive(Clone, Copy, Debug)]
    enum Happens {
        /// The server sends this many bytes.
        Sent(usize),
        /// A request is written.
        Asked,
    }

    #[test]
    fn in_whatever_pieces_it_comes_an_answer_arrives_whole_up_to_its_limit_and_no_further() {
        let sent = prop_oneof![0..100_usize, 0..=MAX_ANSWER, MAX_ANSWER - 2..MAX_ANSWER + 2];
        let happens = prop_oneof![3 => sent.prop_map(Happens::Sent), 1 => Just(Happens::Asked)];
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        holds(200, (vec(happens, 0..12), 1..5000_usize), |(happens, piece)| {
            runtime.block_on(async {
                let (ours, mut its) = duplex(MAX_ANSWER + 2);
                let mut bounded = Bounded::new(ours, Allowance::default());
                bounded.write_all(b"x").await.expect("room");
                let mut room = MAX_ANSWER;
                let mut numbers = (0..=u8::MAX).cycle();
                for happens in happens {
                    let Happens::Sent(length) = happens else {
                        bounded.write_all(b"x").await.expect("room");
                        room = MAX_ANSWER;
                        continue;
                    };
                    let bytes: Vec<u8> = numbers.by_ref().take(length).collect();
                    its.write_all(&bytes).await.expect("room");
                    let mut read = Vec::new();
                    let mut buffer = vec![0; piece];
                    while read.len() < length {
                        match bounded.read(&mut buffer).await {
                            Ok(count) => read.extend_from_slice(&buffer[..count]),
                            Err(error) => {
                                prop_assert!(length > room, "{error}");
                                return Ok(());
                            }
                        }
                    }
                    prop_assert!(length <= room && read == bytes);
                    room -= length;
                }
                Ok(())
            })
        });
    }

    #[test]
    fn what_a_server_said_before_it_hung_up_is_read_also_after_a_write() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(async {
            let (ours, mut its) = duplex(100);
            its.write_all(b"-ERR full").await.expect("room");
            drop(its);
            let (mut reading, mut writing) = tokio::io::split(Bounded::new(ours, Allowance::default()));
            let read = async {
                let mut said = String::new();
                reading.read_to_string(&mut said).await.map(|_| said)
            };
            let mut read = Box::pin(read);
            assert!(futures_util::poll!(read.as_mut()).is_pending(), "an answer to nothing");
            writing.write_all(b"AUTH").await.expect("as if it had arrived");
            assert_eq!(read.await.expect("the end"), "-ERR full");
        });
    }

    #[test]
    fn an_endless_answer_ends_in_an_error_and_a_request_makes_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(async {
            let (ours, mut its) = duplex(4 * MAX_ANSWER);
            let mut bounded = Bounded::new(ours, Allowance::default());
            let mut answer = vec![0; MAX_ANSWER];
            bounded.write_all(b"first").await.expect("room");
            its.write_all(&vec![b'x'; 3 * MAX_ANSWER]).await.expect("room");
            bounded.read_exact(&mut answer).await.expect("as much as is allowed");
            bounded.write_all(b"next").await.expect("room");
            bounded.read_exact(&mut answer).await.expect("as much again");
            let error = bounded.read_exact(&mut answer).await.expect_err("no more");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        });
    }
}
