//! The single thread of a proxy, and the connections between which it passes bytes.

use std::io::{PipeReader, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket;

use super::lane::{Lane, policies};
use super::socket::{connect, linger_none, listen, reset};
use super::{Counts, Mode, Order, lock};

/// The single thread of a proxy, and all its connections.
pub(super) struct Relay {
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
    /// A relay that listens on `port`, which is reserved, and passes everything on to `target`.
    pub(super) fn new(
        port: u16,
        target: u16,
        inbox: Receiver<Order>,
        wake: PipeReader,
        counts: Arc<Mutex<Counts>>,
    ) -> Self {
        let listener = Some(listen(port));
        Self { port, target, mode: Mode::Forward, listener, links: Vec::new(), inbox, wake, counts }
    }

    pub(super) fn run(mut self) {
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
            // Rounded up: waking early would only spin.
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
    /// has copies of these sockets, which would keep them open a moment longer.
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

/// One client and its connection to the server.
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
        let was_heard = !self.requests.torn;
        counts.lost_requests += self.requests.enter(requests);
        counts.unheard += u64::from(was_heard && self.requests.torn);
        counts.lost_replies += self.replies.enter(replies);
    }

    /// Moves what can be moved now. Returns false if the connection is over and both its ends are closed.
    fn pump(&mut self, mode: Mode, counts: &mut Counts) -> bool {
        let (requests, replies) = policies(mode);
        let was_heard = !self.requests.torn;
        let up = self.requests.pump(requests, &self.client, &self.server);
        counts.unheard += u64::from(was_heard && self.requests.torn);
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

    /// The events to wait for. A socket without any is left out: poll would report its hang-up again and again.
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
