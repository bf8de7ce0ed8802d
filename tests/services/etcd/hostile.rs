/*!
Servers that are no etcd, or lie as one: bounded time, bounded memory, one line, and no panic.
*/

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use crate::services::hostile::{assert_harmless, wait_within_memory};
use crate::support::proxy::{Behaviour, ENOUGH, Hostile};
use crate::support::scratch::Scratch;

#[track_caller]
fn is_given_up(port: u16, name: &str) {
    let scratch = Scratch::new();
    for (credentials, others) in [("", ""), ("user:password@", ""), ("", ",127.0.0.1:1")] {
        let url = format!("etcd://{credentials}127.0.0.1:{port}{others}");
        let dlock = scratch.dlock().run("k").backend(&url).args(["--connect-timeout", "1s", "--ttl", "2s"]);
        let outcome = wait_within_memory(dlock.command(["touch", "ran"]).spawn());
        let stderr = outcome.stderr();
        assert_eq!(outcome.status().code(), Some(69), "{name}: {outcome:?}");
        outcome.stderr_is_one_line("did not get 'k'");
        assert_harmless(&stderr);
        assert!(!stderr.contains("password@"), "{stderr}");
        assert!(outcome.elapsed() < Duration::from_secs(5), "{name}: {outcome:?}");
        assert!(!scratch.path("ran").exists(), "the command ran without a lock");
    }
}

/// Some speak HTTP/2 as far as it takes to be heard.
#[test]
fn servers_that_lie_are_given_up_in_time() {
    thread::scope(|scope| {
        for behaviour in Behaviour::ALL {
            scope.spawn(move || is_given_up(Hostile::start(behaviour).port(), &format!("{behaviour:?}")));
        }
        for lie in Lie::ALL {
            scope.spawn(move || is_given_up(Liar::start(lie).port, &format!("{lie:?}")));
        }
    });
}

#[test]
fn an_answer_about_another_lease_is_no_lease() {
    let (scratch, liar) = (Scratch::new(), Liar::start(Lie::OtherLease));
    let url = format!("etcd://127.0.0.1:{}", liar.port);
    let outcome = scratch.dlock().run("k").backend(&url).args(["--ttl", "2s"]).command(["touch", "ran"]).output();
    outcome.code(69).stderr_is_one_line("answered about another lease (7) than it was asked for");
    assert!(!scratch.path("ran").exists());
}

/// What a [`Liar`] says after its settings, to each request.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A message of 4 GiB, and its bytes for ever.
    HugeMessage,
    /// A message of no known shape.
    Nonsense,
    /// Empty messages without end.
    EmptyMessages,
    /// Questions whether we are alive, as fast as they are taken.
    Pings,
    /// New settings, as fast as they are taken.
    Settings,
    /// A header that goes on and on.
    Headers,
    /// Nothing but empty frames.
    EmptyFrames,
    /// That the request was done, and no word of what came of it.
    NoMessage,
    /// A failure whose text is long and not for terminals.
    Failure,
    /// A lease, but another one than was asked for.
    OtherLease,
}

impl Lie {
    const ALL: [Self; 10] = [
        Self::HugeMessage,
        Self::Nonsense,
        Self::EmptyMessages,
        Self::Pings,
        Self::Settings,
        Self::Headers,
        Self::EmptyFrames,
        Self::NoMessage,
        Self::Failure,
        Self::OtherLease,
    ];

    /// What comes first, and what follows it for ever, in answer to the request on `stream`.
    fn says(self, stream: u32) -> (Vec<u8>, Vec<u8>) {
        // `:status: 200` of the static table, and a literal `content-type: application/grpc`.
        let head = [&[0x88, 0x0f, 0x10, 16][..], b"application/grpc"].concat();
        let headers = frame(1, 4, stream, &head);
        let data = |bytes: &[u8]| frame(0, 0, stream, bytes);
        match self {
            Self::HugeMessage => ([headers, data(&[0, 0xff, 0xff, 0xff, 0xff])].concat(), data(&[0; 16384])),
            Self::Nonsense => ([headers, data(&[0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff])].concat(), Vec::new()),
            Self::EmptyMessages => (headers, data(&[0; 5000])),
            Self::Pings => (Vec::new(), frame(6, 0, 0, &[7; 8]).repeat(100)),
            Self::Settings => (Vec::new(), frame(4, 0, 0, &[]).repeat(100)),
            Self::Headers => {
                let literal = [&[0x00, 1, b'x', 100][..], &[b'y'; 100]].concat();
                (frame(1, 0, stream, &head), frame(9, 0, stream, &literal.repeat(100)))
            }
            Self::EmptyFrames => (headers, data(&[]).repeat(100)),
            Self::NoMessage => {
                let status = [&[0x00, 11][..], b"grpc-status", &[1, b'0']].concat();
                ([headers, frame(1, 5, stream, &status)].concat(), Vec::new())
            }
            Self::OtherLease => {
                // A lease of the id 7, granted for 30 s.
                let message = data(&[0, 0, 0, 0, 4, 0x10, 7, 0x18, 30]);
                let status = [&[0x00, 11][..], b"grpc-status", &[1, b'0']].concat();
                ([headers, message, frame(1, 5, stream, &status)].concat(), Vec::new())
            }
            Self::Failure => {
                let text = "%1b[2J%0a%e2%80%ae".repeat(6);
                let mut status = [&[0x00, 11][..], b"grpc-status", &[2, b'1', b'4']].concat();
                status.extend([&[0x00, 12][..], b"grpc-message", &[text.len().try_into().unwrap()]].concat());
                status.extend(text.bytes());
                ([headers, frame(1, 5, stream, &status)].concat(), Vec::new())
            }
        }
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A server that lies in HTTP/2, for as long as this exists.
struct Liar {
    port: u16,
    listener: TcpListener,
}

impl Drop for Liar {
    fn drop(&mut self) {
        // SAFETY: a system call with integers, on a descriptor that is open. It wakes who accepts.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

impl Liar {
    fn start(lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ours = listener.try_clone().unwrap();
        thread::spawn(move || {
            for client in ours.incoming().map_while(Result::ok) {
                thread::spawn(move || serve(client, lie));
            }
        });
        Self { port, listener }
    }
}

/// Answers until the client has gone, or has taken more than enough.
fn serve(mut client: TcpStream, lie: Lie) -> io::Result<()> {
    let mut preface = [0; 24];
    client.read_exact(&mut preface)?;
    client.write_all(&frame(4, 0, 0, &[]))?;
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        client.read_exact(&mut payload)?;
        if head[3] == 4 && head[4] == 0 {
            client.write_all(&frame(4, 1, 0, &[]))?;
        }
        if head[3] == 1 {
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let (first, then) = lie.says(stream);
            client.write_all(&first)?;
            let mut sent = 0;
            while !then.is_empty() && sent < ENOUGH {
                client.write_all(&then)?;
                sent += then.len() as u64;
            }
        }
    }
}
