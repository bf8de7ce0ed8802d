/*!
Servers that cannot be trusted: a TCP proxy that misbehaves on command, and a server that lies on purpose.

[`Proxy`] stands between a client and a real server on loopback and knows nothing of any protocol: it passes bytes on,
late, one by one, or not at all. [`Hostile`] needs no real server: it speaks just enough of the redis protocol to do
the most harm. Both run in threads of their own, which end when the value is dropped.

Neither can lose a packet: the kernel at both ends sees its bytes acknowledged. For a network that really drops
packets see `netns`.
*/

use std::collections::VecDeque;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, sockopt};

use super::rendezvous::boottime;

/// What a [`Proxy`] does with what passes through it.
///
/// *Requests* are the bytes from the client to the server, *replies* those from the server to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes, both ways, at once.
    Forward,
    /// Connections are accepted and stay open, and every byte is read and thrown away, both ways, ends of streams
    /// too. The server sees a connection, and not one byte.
    Silent,
    /// Requests pass and are carried out; their answers are thrown away.
    DropReplies,
    /// Requests are thrown away; what the server says unasked (a pushed message) passes.
    DropRequests,
    /// Nothing is read and nothing is thrown away, both ways: it arrives, in order, when a later mode lets it pass.
    /// This is how a partition that heals looks to both ends.
    Hold,
    /// As if no server were there: new connections are refused, those that were open are closed. The port stays
    /// ours meanwhile, so nobody else can come to be listening on it.
    Refuse,
    /// Open connections, and each new one as soon as it is accepted, end by a TCP reset.
    Reset,
    /// Requests pass at once, replies one byte at a time with this much time before each of them.
    Drip(Duration),
    /// Everything passes so much later, both ways: a round trip takes twice that much longer.
    Delay(Duration),
    /// Requests pass at once, replies so much later.
    DelayReplies(Duration),
    /// Requests pass. On each connection this many bytes of replies pass from now on (the end of the stream counts as
    /// one more), the rest is thrown away.
    CutReplyAfter(usize),
}

/// What has passed through a [`Proxy`] since it was started, and what did not; bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted, those reset at once included.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// Requests handed to the server.
    pub requests: u64,
    /// Requests thrown away.
    pub lost_requests: u64,
    /// Replies handed to the client.
    pub replies: u64,
    /// Replies thrown away.
    pub lost_replies: u64,
}

/// A TCP proxy on a loopback port of its own, in front of a server on another loopback port.
///
/// A connection that lost bytes cannot become honest again: TCP never delivers a stream with a hole in it, and a
/// client could take the answer to its third question for that to its second. So where a byte would have to follow a
/// hole, the proxy resets that connection instead; a client then connects again, as after any real failure.
pub struct Proxy {
    port: u16,
    orders: Sender<Order>,
    wake: PipeWriter,
    counts: Arc<Mutex<Counts>>,
    thread: Option<JoinHandle<()>>,
    /// Bound and never listening: keeps the port while nothing listens on it.
    _reservation: OwnedFd,
}

enum Order {
    Set(Mode, Sender<()>),
    Stop,
}

impl Proxy {
    /// Starts a proxy in front of 127.0.0.1:`target` in [`Mode::Forward`]. Nothing has to listen there yet; until
    /// something does, clients are accepted and then reset.
    pub fn to(target: u16) -> Proxy {
        let (reservation, port) = reserve_port();
        let (orders, inbox) = channel();
        let (wake_reader, wake) = pipe().expect("could not make a pipe");
        let counts = Arc::new(Mutex::new(Counts::default()));
        let relay = Relay {
            port,
            target,
            mode: Mode::Forward,
            listener: Some(listen(port)),
            links: Vec::new(),
            inbox,
            wake: wake_reader,
            counts: Arc::clone(&counts),
        };
        let thread = std::thread::Builder::new().name("proxy".into()).spawn(move || relay.run()).unwrap();
        Proxy { port, orders, wake, counts, thread: Some(thread), _reservation: reservation }
    }

    /// The port on 127.0.0.1 for clients; the same for as long as the proxy lives.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes what happens from now on, on open connections too. When this returns the new mode is in force: not a
    /// byte is treated by the old one any more. What a delay still held back passes at once in a mode that passes
    /// it, and is lost in one that loses it.
    pub fn set(&self, mode: Mode) {
        let (done, is_done) = channel();
        self.order(Order::Set(mode, done));
        is_done.recv().expect("the proxy's thread has ended");
    }

    /// What has passed so far, and what was lost.
    pub fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
        let _ = (&self.wake).write_all(b"!");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the proxy's thread panicked");
        }
    }
}

/// How much may wait in one direction before the proxy stops reading, as a network with little room would.
const ROOM: usize = 256 * 1024;

/// The one thread of a proxy, and all its connections.
struct Relay {
    port: u16,
    target: u16,
    mode: Mode,
    listener: Option<TcpListener>,
    links: Vec<Link>,
    inbox: Receiver<Order>,
    wake: PipeReader,
    counts: Arc<Mutex<Counts>>,
}

impl Relay {
    fn run(mut self) {
        loop {
            self.sleep();
            while let Ok(order) = self.inbox.try_recv() {
                match order {
                    Order::Set(mode, done) => {
                        self.enter(mode);
                        let _ = done.send(());
                    }
                    Order::Stop => return self.close(),
                }
            }
            self.accept();
            let (mode, counts) = (self.mode, &self.counts);
            self.links.retain_mut(|link| link.pump(mode, &mut lock(counts)));
            lock(&self.counts).open = self.links.len() as u64;
        }
    }

    /// Waits for an order, a client, bytes that may be moved, or the moment at which delayed ones may.
    fn sleep(&mut self) {
        let now = Instant::now();
        let mut wanted = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        wanted.extend(self.listener.as_ref().map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)));
        for link in &self.links {
            wanted.extend(link.interest(self.mode, now));
        }
        // What is due already waits for room, not for time.
        let due = self.links.iter().filter_map(|link| link.due(self.mode)).filter(|due| *due > now).min();
        let timeout = due.map_or(PollTimeout::NONE, |due| {
            // Rounded up: waking a moment early would only spin.
            let millis = due.duration_since(now).as_micros().div_ceil(1000);
            PollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX)).unwrap()
        });
        let _ = poll(&mut wanted, timeout);
        if wanted[0].any() == Some(true) {
            let _ = self.wake.read(&mut [0; 64]);
        }
    }

    fn enter(&mut self, mode: Mode) {
        // What arrived before the order was given belongs to the mode before it.
        self.accept();
        let (old, counts) = (self.mode, &self.counts);
        self.links.retain_mut(|link| link.pump(old, &mut lock(counts)));
        self.mode = mode;
        match mode {
            Mode::Refuse => self.close(),
            Mode::Reset => self.links.drain(..).for_each(Link::reset),
            _ => self.links.iter_mut().for_each(|link| link.enter(mode, &mut lock(&self.counts))),
        }
        if mode != Mode::Refuse && self.listener.is_none() {
            self.listener = Some(listen(self.port));
        }
        lock(&self.counts).open = self.links.len() as u64;
    }

    /// Shuts down before it closes: another thread of the test may be between fork and exec, and its child then still
    /// has copies of our sockets, which would keep them open a moment longer.
    fn close(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = socket::shutdown(listener.as_raw_fd(), socket::Shutdown::Both);
        }
        for link in self.links.drain(..) {
            let _ = link.client.shutdown(Shutdown::Both);
            let _ = link.server.shutdown(Shutdown::Both);
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok((client, _)) = listener.accept() {
            lock(&self.counts).accepted += 1;
            if self.mode == Mode::Reset {
                reset(client);
                continue;
            }
            let mut link = Link::new(client, connect(self.target));
            link.enter(self.mode, &mut lock(&self.counts));
            self.links.push(link);
        }
    }
}

/// One client and its own connection to the server.
struct Link {
    client: TcpStream,
    server: TcpStream,
    requests: Lane,
    replies: Lane,
}

impl Link {
    fn new(client: TcpStream, server: TcpStream) -> Link {
        for stream in [&client, &server] {
            stream.set_nonblocking(true).unwrap();
            let _ = stream.set_nodelay(true);
        }
        Link { client, server, requests: Lane::default(), replies: Lane::default() }
    }

    fn enter(&mut self, mode: Mode, counts: &mut Counts) {
        let (requests, replies) = policies(mode);
        counts.lost_requests += self.requests.enter(requests);
        counts.lost_replies += self.replies.enter(replies);
    }

    /// Moves what can be moved now. False: this connection is over, both its ends are closed.
    fn pump(&mut self, mode: Mode, counts: &mut Counts) -> bool {
        let (requests, replies) = policies(mode);
        let up = self.requests.pump(requests, &self.client, &self.server);
        let down = self.replies.pump(replies, &self.server, &self.client);
        counts.requests += up.passed;
        counts.lost_requests += up.lost;
        counts.replies += down.passed;
        counts.lost_replies += down.lost;
        if up.broken || down.broken {
            linger_none(&self.client);
            linger_none(&self.server);
            return false;
        }
        !(self.requests.closed && self.replies.closed)
    }

    /// What to wait for. A socket without wishes is left out: poll would report its hang-up again and again.
    fn interest(&self, mode: Mode, now: Instant) -> Vec<PollFd<'_>> {
        let (requests, replies) = policies(mode);
        let wish = |read: bool, write: bool| {
            let read = if read { PollFlags::POLLIN } else { PollFlags::empty() };
            read | if write { PollFlags::POLLOUT } else { PollFlags::empty() }
        };
        let client = wish(self.requests.has_room(requests), self.replies.sendable(replies, now) > 0);
        let server = wish(self.replies.has_room(replies), self.requests.sendable(requests, now) > 0);
        [(&self.client, client), (&self.server, server)]
            .into_iter()
            .filter(|(_, wish)| !wish.is_empty())
            .map(|(stream, wish)| PollFd::new(stream.as_fd(), wish))
            .collect()
    }

    fn due(&self, mode: Mode) -> Option<Instant> {
        let (requests, replies) = policies(mode);
        [self.requests.due(requests), self.replies.due(replies)].into_iter().flatten().min()
    }

    fn reset(self) {
        reset(self.client);
        reset(self.server);
    }
}

/// What a mode means for one direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Pass,
    Swallow,
    Hold,
    Drip(Duration),
    Delay(Duration),
    Cut(usize),
}

/// (requests, replies)
fn policies(mode: Mode) -> (Policy, Policy) {
    match mode {
        Mode::Forward => (Policy::Pass, Policy::Pass),
        Mode::Silent => (Policy::Swallow, Policy::Swallow),
        Mode::DropReplies => (Policy::Pass, Policy::Swallow),
        Mode::DropRequests => (Policy::Swallow, Policy::Pass),
        // In the last two no connection is left that anything could happen to.
        Mode::Hold | Mode::Refuse | Mode::Reset => (Policy::Hold, Policy::Hold),
        Mode::Drip(interval) => (Policy::Pass, Policy::Drip(interval)),
        Mode::Delay(delay) => (Policy::Delay(delay), Policy::Delay(delay)),
        Mode::DelayReplies(delay) => (Policy::Pass, Policy::Delay(delay)),
        Mode::CutReplyAfter(bytes) => (Policy::Pass, Policy::Cut(bytes)),
    }
}

/// One direction of one connection.
#[derive(Default)]
struct Lane {
    /// What has arrived and not left yet, with the time it arrived at.
    queue: VecDeque<(Instant, Vec<u8>)>,
    /// Something that arrived after all of `queue` was thrown away.
    torn: bool,
    end: Option<End>,
    /// The end was passed on.
    closed: bool,
    /// [`Policy::Cut`]: how much may still pass.
    uncut: usize,
    /// [`Policy::Drip`]: when the next byte may leave.
    drop_due: Option<Instant>,
}

#[derive(Clone, Copy)]
enum End {
    Finished,
    Reset,
}

#[derive(Default)]
struct Moved {
    passed: u64,
    lost: u64,
    broken: bool,
}

impl Lane {
    /// Prepares for a new policy; returns how many bytes that loses.
    fn enter(&mut self, policy: Policy) -> u64 {
        let keep = match policy {
            Policy::Swallow => 0,
            Policy::Cut(bytes) => bytes,
            _ => usize::MAX,
        };
        let mut left = keep;
        let mut lost = 0;
        for (_, chunk) in &mut self.queue {
            let kept = chunk.len().min(left);
            lost += (chunk.len() - kept) as u64;
            left -= kept;
            chunk.truncate(kept);
        }
        self.queue.retain(|(_, chunk)| !chunk.is_empty());
        self.torn |= lost > 0;
        self.uncut = left;
        self.drop_due = if let Policy::Drip(interval) = policy { Some(Instant::now() + interval) } else { None };
        lost
    }

    fn has_room(&self, policy: Policy) -> bool {
        let waiting: usize = self.queue.iter().map(|(_, chunk)| chunk.len()).sum();
        self.end.is_none() && policy != Policy::Hold && waiting < ROOM
    }

    /// How many bytes at the front of the queue may leave at `now`.
    fn sendable(&self, policy: Policy, now: Instant) -> usize {
        let front = self.queue.front().map_or(0, |(_, chunk)| chunk.len());
        match policy {
            Policy::Swallow | Policy::Hold => 0,
            Policy::Drip(_) | Policy::Delay(_) if self.due(policy).is_some_and(|due| due > now) => 0,
            Policy::Drip(_) => front.min(1),
            Policy::Pass | Policy::Cut(_) | Policy::Delay(_) => front,
        }
    }

    /// When the front of the queue may leave, if that is a matter of time.
    fn due(&self, policy: Policy) -> Option<Instant> {
        let (arrived, _) = self.queue.front()?;
        match policy {
            Policy::Drip(_) => self.drop_due,
            Policy::Delay(delay) => Some(*arrived + delay),
            _ => None,
        }
    }

    fn pump(&mut self, policy: Policy, mut source: &TcpStream, mut sink: &TcpStream) -> Moved {
        let mut moved = Moved::default();
        let mut buffer = [0; 16 * 1024];
        while self.has_room(policy) {
            match source.read(&mut buffer) {
                Ok(0) => self.end = Some(End::Finished),
                Ok(n) => self.take(policy, &buffer[..n], &mut moved),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.end = Some(End::Reset),
            }
            if moved.broken {
                return moved;
            }
        }
        let now = Instant::now();
        loop {
            let n = self.sendable(policy, now);
            if n == 0 {
                break;
            }
            let (_, chunk) = self.queue.front_mut().expect("something to send");
            match sink.write(&chunk[..n]) {
                Ok(written) => {
                    moved.passed += written as u64;
                    chunk.drain(..written);
                    if chunk.is_empty() {
                        self.queue.pop_front();
                    }
                    if let Policy::Drip(interval) = policy {
                        self.drop_due = Some(now + interval);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => moved.broken = true,
            }
            if moved.broken {
                return moved;
            }
        }
        self.pass_end(policy, sink, &mut moved);
        moved
    }

    fn take(&mut self, policy: Policy, bytes: &[u8], moved: &mut Moved) {
        let keep = match policy {
            Policy::Swallow => 0,
            Policy::Cut(_) => bytes.len().min(self.uncut),
            _ => bytes.len(),
        };
        if keep > 0 && self.torn {
            moved.broken = true;
            return;
        }
        if keep > 0 {
            self.uncut = self.uncut.saturating_sub(keep);
            if self.queue.is_empty()
                && let (Policy::Drip(interval), Some(due)) = (policy, &mut self.drop_due)
            {
                *due = (*due).max(Instant::now() + interval);
            }
            self.queue.push_back((Instant::now(), bytes[..keep].to_vec()));
        }
        moved.lost += (bytes.len() - keep) as u64;
        self.torn |= keep < bytes.len();
    }

    fn pass_end(&mut self, policy: Policy, sink: &TcpStream, moved: &mut Moved) {
        let passes = match policy {
            Policy::Swallow | Policy::Hold => false,
            Policy::Cut(_) => self.uncut > 0,
            _ => true,
        };
        if self.closed || !passes || !self.queue.is_empty() {
            return;
        }
        match self.end {
            None => {}
            Some(End::Finished) if !self.torn => {
                let _ = sink.shutdown(Shutdown::Write);
                self.closed = true;
            }
            // A clean end would claim that the stream is complete.
            Some(End::Finished | End::Reset) => moved.broken = true,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port of 127.0.0.1, and the bound socket that keeps everybody else from getting it. Other sockets can be bound to
/// it, and listen, only by naming it.
fn reserve_port() -> (OwnedFd, u16) {
    let fd = tcp_socket(SockFlag::SOCK_CLOEXEC);
    socket::setsockopt(&fd, sockopt::ReuseAddr, &true).unwrap();
    let (address, size) = local(0);
    // SAFETY: bind reads one whole address, and `address` is one.
    let result = unsafe { nix::libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(result, 0, "could not bind a port: {}", std::io::Error::last_os_error());
    // Only asks for the name: the standard library knows no sockets that are bound and do not listen.
    let socket = TcpListener::from(fd);
    let port = socket.local_addr().unwrap().port();
    (socket.into(), port)
}

/// 127.0.0.1:`port` for the kernel, and its size.
fn local(port: u16) -> (nix::libc::sockaddr_in, nix::libc::socklen_t) {
    let address = nix::libc::sockaddr_in {
        sin_family: AddressFamily::Inet as nix::libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: nix::libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    (address, size_of_val(&address).try_into().expect("a small structure"))
}

/// A listener that never blocks on a port from [`reserve_port`].
fn listen(port: u16) -> TcpListener {
    // The standard library sets SO_REUSEADDR, without which the reservation would be in its way.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("could not listen on the reserved port");
    listener.set_nonblocking(true).unwrap();
    listener
}

fn tcp_socket(flags: SockFlag) -> OwnedFd {
    socket::socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("could not make a socket")
}

/// Begins to connect and does not wait: a stopped server with a full backlog must not stop the proxy. A refusal shows
/// up at the first read.
fn connect(port: u16) -> TcpStream {
    let fd = tcp_socket(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
    let (address, size) = local(port);
    // SAFETY: connect reads one whole address, and `address` is one.
    unsafe { nix::libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size) };
    TcpStream::from(fd)
}

/// Makes the close that follows a TCP reset.
fn linger_none(stream: &TcpStream) {
    let _ = socket::setsockopt(stream, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 });
}

fn reset(stream: TcpStream) {
    linger_none(&stream);
    drop(stream);
}

/// How a [`Hostile`] server answers. Unless said otherwise it answers each time it has received something, and
/// ignores what that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// 4 KiB of random bytes (the same ones for the same connection of each run).
    Garbage,
    /// A bulk string of 2^63 - 1 bytes, and then its bytes as fast as they are taken.
    HugeBulk,
    /// An array of 2^31 - 1 elements, and then its elements as fast as they are taken.
    HugeArray,
    /// The first half of a bulk string; then silence.
    HalfReply,
    /// Nothing, ever; the connection stays open.
    Silence,
    /// What a web server says to something that is not HTTP; then the end of the stream.
    Http,
    /// The connection ends as soon as it is accepted (by a reset where the client was faster and had sent something).
    CloseAtOnce,
    /// A simple string without an end, as fast as it is taken.
    EndlessLine,
    /// 100 000 arrays inside each other.
    DeepNesting,
    /// To each command a well-formed reply of a shape that no redis gives to it. CLIENT, HELLO, AUTH and SELECT are
    /// answered as a redis would (HELLO: as one of version 5), so that a client gets as far as asking something.
    /// EVAL, EVALSHA and FCALL, whose shape is the script's own affair, get another shape each time, never a null,
    /// a status or an integer from 0 upwards.
    WrongTypes,
}

impl Behaviour {
    /// Every one of them.
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

/// The most that a [`Hostile`] sends on one connection before it falls silent: a client that has taken so much has
/// failed already, and the machine must live to report it.
pub const ENOUGH: u64 = 256 << 20;

/// A TCP server that lies on purpose.
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
    /// The one honest answer that a script still gets.
    honest: Mutex<Option<Vec<u8>>>,
    /// When the request for it had come.
    honest_at: Mutex<Option<Duration>>,
}

impl Hostile {
    /// Starts a server on a loopback port of its own.
    pub fn start(behaviour: Behaviour) -> Hostile {
        Self::launch(behaviour, None)
    }

    /// Starts a server that is honest at first: it answers handshakes as a redis would, and the first EVAL with `answer`
    /// (raw bytes). From then on it treats every connection, old and new, as `behaviour` says.
    pub fn after(answer: &[u8], behaviour: Behaviour) -> Hostile {
        Self::launch(behaviour, Some(answer.to_vec()))
    }

    /// When it had received the script that it has answered honestly, by [`boottime`]: a lease would count from here.
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

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many bytes clients have sent so far.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::SeqCst)
    }

    /// How many bytes the kernel took from us so far, on all connections: what clients took, and up to a few MiB in
    /// socket buffers per connection.
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
    /// Until the one honest answer has been given, by whichever connection.
    fn be_honest(&mut self) -> std::io::Result<()> {
        let mut pending = Vec::new();
        while lock(&self.shared.honest).is_some() {
            pending.extend(self.hear()?);
            while let Some((command, length)) = parse_command(&pending) {
                pending.drain(..length);
                let reply = match command.to_ascii_uppercase().as_str() {
                    "EVAL" | "EVALSHA" => {
                        *lock(&self.shared.honest_at) = Some(boottime());
                        lock(&self.shared.honest).take().unwrap_or_default()
                    }
                    "HELLO" => b"-ERR unknown command 'HELLO'\r\n".to_vec(),
                    _ => b"+OK\r\n".to_vec(),
                };
                self.say(&reply)?;
            }
        }
        Ok(())
    }

    /// Until the client has gone (an error) or we have said all we want to (then the stream ends).
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
