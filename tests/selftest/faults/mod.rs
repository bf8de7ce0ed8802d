/*!
Checks that the fault tools do what they claim: a tool that quietly does nothing would make every test that uses it
pass.
*/

mod hostile;
mod netns;
mod proxy;
mod pty;
mod witness;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::rendezvous::eventually;

/// How long to listen for what must not come. A tool that fails to hold something back delivers it in a millisecond.
const A_MOMENT: Duration = Duration::from_millis(100);

/// A server on a port of its own that echoes what it receives, until it is dropped.
struct Echo {
    port: u16,
    listener: Arc<TcpListener>,
    heard: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start() -> Echo {
        let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(AtomicU64::new(0));
        let thread = std::thread::spawn({
            let (listener, heard) = (Arc::clone(&listener), Arc::clone(&heard));
            move || {
                while let Ok((stream, _)) = listener.accept() {
                    let heard = Arc::clone(&heard);
                    std::thread::spawn(move || {
                        let mut buffer = [0; 1024];
                        while let Ok(n @ 1..) = (&stream).read(&mut buffer) {
                            heard.fetch_add(n as u64, Ordering::SeqCst);
                            if (&stream).write_all(&buffer[..n]).is_err() {
                                break;
                            }
                        }
                    });
                }
            }
        });
        Echo { port, listener, heard, thread: Some(thread) }
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::SeqCst)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        use std::os::fd::AsRawFd;
        let _ = nix::sys::socket::shutdown(self.listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A connection to `port`. A read panics if nothing arrives within 30 s.
fn client(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn say(mut stream: &TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
}

/// Reads once. A read with a time-out is interrupted by the SIGCHLD of any child whose parent thread is starting
/// another.
fn hear(mut stream: &TcpStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[track_caller]
fn assert_hears(mut stream: &TcpStream, text: &str) {
    let mut buffer = vec![0; text.len()];
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!(String::from_utf8_lossy(&buffer), text);
}

#[track_caller]
fn assert_hears_nothing(stream: &TcpStream) {
    stream.set_read_timeout(Some(A_MOMENT)).unwrap();
    let result = hear(stream, &mut [0]);
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[track_caller]
fn assert_reset(stream: &TcpStream) {
    assert_eq!(hear(stream, &mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[track_caller]
fn assert_panics(what: &str, act: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(act)).expect_err("it should have been caught");
    let message = payload.downcast_ref::<String>().expect("a message");
    assert!(message.contains(what), "{message}");
}
