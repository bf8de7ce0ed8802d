//! A server that misbehaves on purpose.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket;

use crate::support::rendezvous::boottime;

use super::lock;

/// How a [`Hostile`] server answers. Unless stated otherwise, it answers each time it has received something, and
/// ignores what that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// 4 KiB of random bytes (the same bytes for the same connection in every run).
    Garbage,
    /// A bulk string of 2^63 - 1 bytes, and then its bytes as fast as they are read.
    HugeBulk,
    /// An array of 2^31 - 1 elements, and then its elements as fast as they are read.
    HugeArray,
    /// The first half of a bulk string; then silence.
    HalfReply,
    /// Nothing, ever; the connection stays open.
    Silence,
    /// What a web server says to something that is not HTTP; then the end of the stream.
    Http,
    /// The connection ends as soon as it is accepted (by a reset where the client was faster and had sent something).
    CloseAtOnce,
    /// A simple string without an end, as fast as it is read.
    EndlessLine,
    /// 100 000 nested arrays.
    DeepNesting,
    /// A well-formed reply of the wrong type for each command. CLIENT, HELLO, AUTH and SELECT are answered as redis
    /// would (HELLO: as version 5), so that a client gets as far as its first real request. EVAL, EVALSHA and FCALL,
    /// whose replies are up to the script, get another type each time, never a null, a status or an integer from 0
    /// upwards.
    WrongTypes,
}

impl Behaviour {
    /// All behaviours.
    pub const ALL: [Behaviour; 10] = [
        Self::Garbage,
        Self::HugeBulk,
        Self::HugeArray,
        Self::HalfReply,
        Self::Silence,
        Self::Http,
        Self::CloseAtOnce,
        Self::EndlessLine,
        Self::DeepNesting,
        Self::WrongTypes,
    ];
}

/// The most that a [`Hostile`] sends on one connection before it falls silent: a client that has read that much has
/// failed already, and the machine has to survive to report it.
pub const ENOUGH: u64 = 256 << 20;

/// A TCP server that misbehaves on purpose.
pub struct Hostile {
    port: u16,
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    connections: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    open: Mutex<Vec<Weak<TcpStream>>>,
    /// The one honest answer to a script that is still due.
    honest: Mutex<Option<Vec<u8>>>,
    /// When the request for it arrived.
    honest_at: Mutex<Option<Duration>>,
}

impl Hostile {
    /// Starts a server on a loopback port of its own.
    pub fn start(behaviour: Behaviour) -> Hostile {
        Self::launch(behaviour, None)
    }

    /// Starts a server that is honest at first: it answers handshakes as redis would, and the first EVAL with `answer`
    /// (raw bytes). From then on it treats every connection, old and new, according to `behaviour`.
    pub fn after(answer: &[u8], behaviour: Behaviour) -> Hostile {
        Self::launch(behaviour, Some(answer.to_vec()))
    }

    /// When it received the script that it answered honestly, by [`boottime`]: a lease would count from here.
    pub fn honest_at(&self) -> Option<Duration> {
        *lock(&self.shared.honest_at)
    }

    fn launch(behaviour: Behaviour, honest: Option<Vec<u8>>) -> Hostile {
        let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("could not listen"));
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { honest: Mutex::new(honest), ..Shared::default() });
        let acceptor = std::thread::Builder::new()
            .name("hostile".into())
            .spawn({
                let (listener, shared) = (Arc::clone(&listener), Arc::clone(&shared));
                move || accept_all(&listener, &shared, behaviour)
            })
            .unwrap();
        Hostile { port, listener, shared, acceptor: Some(acceptor) }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections it has accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many bytes clients have sent so far.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::SeqCst)
    }

    /// How many bytes the kernel has taken for clients so far, on all connections: what they have read, and up to a few
    /// MiB per connection in socket buffers.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let open = {
            let mut open = lock(&self.shared.open);
            self.shared.stopping.store(true, Ordering::SeqCst);
            std::mem::take(&mut *open)
        };
        // On Linux this wakes accept() with an error.
        let _ = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
        for stream in open.iter().filter_map(Weak::upgrade) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = self.acceptor.take().map(JoinHandle::join);
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>, behaviour: Behaviour) {
    let mut workers = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        let stream = Arc::new(stream);
        {
            let mut open = lock(&shared.open);
            if shared.stopping.load(Ordering::SeqCst) {
                break;
            }
            open.retain(|stream| stream.strong_count() > 0);
            open.push(Arc::downgrade(&stream));
        }
        let number = shared.connections.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(shared);
        workers.push(std::thread::spawn(move || {
            let mut lie = Lie { stream: &stream, shared: &shared, sent: 0 };
            let _ = lie.be_honest().and_then(|()| lie.tell(behaviour, number));
        }));
    }
    for worker in workers {
        let _ = worker.join();
    }
}

/// One connection of a hostile server.
struct Lie<'a> {
    stream: &'a TcpStream,
    shared: &'a Shared,
    sent: u64,
}

impl Lie<'_> {
    /// Answers as redis would until the one honest answer has been given, on whichever connection.
    fn be_honest(&mut self) -> std::io::Result<()> {
        let mut pending = Vec::new();
        // The first script comes with questions about the server, of which ROLE is the last; they may arrive later than it.
        let mut questions = false;
        while questions || lock(&self.shared.honest).is_some() {
            pending.extend(self.hear()?);
            while let Some((command, length)) = parse_command(&pending) {
                pending.drain(..length);
                let reply = match command.to_ascii_uppercase().as_str() {
                    "EVAL" | "EVALSHA" => {
                        let Some(answer) = lock(&self.shared.honest).take() else { return Ok(()) };
                        *lock(&self.shared.honest_at) = Some(boottime());
                        questions = true;
                        answer
                    }
                    "ROLE" => {
                        questions = false;
                        b"+OK\r\n".to_vec()
                    }
                    "HELLO" => b"-ERR unknown command 'HELLO'\r\n".to_vec(),
                    _ => b"+OK\r\n".to_vec(),
                };
                self.say(&reply)?;
            }
        }
        Ok(())
    }

    /// Misbehaves until the client has gone (an error) or nothing is left to send (then the stream ends).
    fn tell(&mut self, behaviour: Behaviour, number: u64) -> std::io::Result<()> {
        match behaviour {
            Behaviour::CloseAtOnce => return Ok(()),
            Behaviour::Silence => {}
            Behaviour::WrongTypes => return self.answer_wrongly(),
            Behaviour::Garbage => {
                let mut noise = Noise::new(number);
                loop {
                    self.hear()?;
                    self.say(&noise.bytes(4096))?;
                }
            }
            Behaviour::HugeBulk => self.flood(b"$9223372036854775807\r\n", &b"x".repeat(64 * 1024))?,
            Behaviour::HugeArray => self.flood(b"*2147483647\r\n", &b":1\r\n".repeat(16 * 1024))?,
            Behaviour::EndlessLine => self.flood(b"+", &b"x".repeat(64 * 1024))?,
            Behaviour::HalfReply => {
                self.hear()?;
                self.say(b"$10\r\nhello")?;
            }
            Behaviour::Http => {
                self.hear()?;
                return self.say(
                    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400 Bad Request",
                );
            }
            Behaviour::DeepNesting => loop {
                self.hear()?;
                self.say(&b"*1\r\n".repeat(100_000))?;
                self.say(b":1\r\n")?;
            },
        }
        loop {
            self.hear()?;
        }
    }

    /// Waits until something arrives; an error when nothing more will.
    fn hear(&mut self) -> std::io::Result<Vec<u8>> {
        let mut buffer = [0; 16 * 1024];
        let n = self.stream.read(&mut buffer)?;
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.shared.received.fetch_add(n as u64, Ordering::SeqCst);
        Ok(buffer[..n].to_vec())
    }

    fn say(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let n = self.stream.write(bytes)?;
            self.sent += n as u64;
            self.shared.sent.fetch_add(n as u64, Ordering::SeqCst);
            bytes = &bytes[n..];
        }
        Ok(())
    }

    fn flood(&mut self, head: &[u8], body: &[u8]) -> std::io::Result<()> {
        self.hear()?;
        self.say(head)?;
        while self.sent < ENOUGH {
            self.say(body)?;
        }
        Ok(())
    }

    fn answer_wrongly(&mut self) -> std::io::Result<()> {
        const SHAPES: [&[u8]; 5] = [
            b":-7\r\n",
            b"$8\r\nsurprise\r\n",
            b"*0\r\n",
            b"*3\r\n$-1\r\n*1\r\n:1\r\n$0\r\n\r\n",
            b"*9\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n$1\r\nf\r\n$1\r\ng\r\n$1\r\nh\r\n$1\r\ni\r\n",
        ];
        let mut shapes = SHAPES.iter().cycle();
        let mut pending = Vec::new();
        loop {
            pending.extend(self.hear()?);
            while let Some((command, length)) = parse_command(&pending) {
                pending.drain(..length);
                let reply: &[u8] = match command.to_ascii_uppercase().as_str() {
                    "CLIENT" | "AUTH" | "SELECT" => b"+OK\r\n",
                    "HELLO" => b"-ERR unknown command 'HELLO'\r\n",
                    "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "FCALL" => shapes.next().expect("endless"),
                    // Words where redis counts, a number where it has words.
                    "DEL" | "UNLINK" | "EXISTS" | "PEXPIRE" | "EXPIRE" | "PTTL" | "TTL" | "INCR" | "INCRBY"
                    | "PUBLISH" | "WAIT" | "DBSIZE" => b"+SURPRISE\r\n",
                    _ => b":-7\r\n",
                };
                self.say(reply)?;
            }
        }
    }
}

/// The name of the first whole command in `bytes`, and how many bytes it takes.
fn parse_command(bytes: &[u8]) -> Option<(String, usize)> {
    let line = |from: usize| {
        let rest = bytes.get(from..)?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        Some((String::from_utf8_lossy(&rest[..end]).into_owned(), from + end + 2))
    };
    let (head, mut at) = line(0)?;
    let Some(count) = head.strip_prefix('*') else {
        return Some((head.split_whitespace().next().unwrap_or_default().to_owned(), at));
    };
    let mut words = Vec::new();
    for _ in 0..count.parse::<usize>().ok()? {
        let (length, start) = line(at)?;
        let end = start + length.strip_prefix('$')?.parse::<usize>().ok()?;
        words.push(String::from_utf8_lossy(bytes.get(start..end)?).into_owned());
        at = end + 2;
    }
    (at <= bytes.len()).then(|| (words.into_iter().next().unwrap_or_default(), at))
}

/// Marsaglia's xorshift: random enough to be garbage, and the same in each run.
struct Noise(u64);

impl Noise {
    fn new(seed: u64) -> Noise {
        Noise((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        std::iter::repeat_with(|| {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0.to_le_bytes()
        })
        .flatten()
        .take(n)
        .collect()
    }
}
