/*!
Servers that cannot be trusted: a TCP proxy that misbehaves on command, and a server that misbehaves on purpose.

[`Proxy`] is put between a client and a real server on loopback and knows no protocol: it passes bytes on, late, one by
one, or not at all. [`Hostile`] needs no real server: it speaks just enough of the redis protocol to do the most harm.
Both run in threads of their own, which end when the value is dropped.

Neither can lose a packet: the kernel at both ends sees its bytes acknowledged. For a network that really drops
packets see `netns`.
*/

mod hostile;
mod lane;
mod relay;
mod socket;

use std::io::{PipeWriter, Write, pipe};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

// Each test program uses its own part of this.
#[allow(unused_imports)]
pub use hostile::{Behaviour, ENOUGH, Hostile};

use relay::Relay;
use socket::reserve_port;

/// What a [`Proxy`] does with what passes through it.
///
/// *Requests* are the bytes from the client to the server, *replies* those from the server to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes, both ways, at once.
    Forward,
    /// Connections are accepted and stay open, and every byte is read and discarded, both ways, as are the ends of
    /// streams. The server sees a connection, and not one byte.
    Silent,
    /// Requests pass and are carried out; their replies are discarded.
    DropReplies,
    /// Requests are discarded; what the server sends unasked (a pushed message) passes.
    DropRequests,
    /// Nothing is read or discarded, both ways: it arrives, in order, once a later mode lets it pass. To both ends this
    /// looks like a partition that heals.
    Hold,
    /// As if no server were there: new connections are refused, open ones are closed. The port stays reserved
    /// meanwhile, so that nobody else can listen on it.
    Refuse,
    /// Open connections, and each new one as soon as it is accepted, end by a TCP reset.
    Reset,
    /// Requests pass at once, replies one byte at a time with this delay before each.
    Drip(Duration),
    /// Everything passes with this delay, both ways: a round trip takes twice as much longer.
    Delay(Duration),
    /// Requests pass at once, replies with this delay.
    DelayReplies(Duration),
    /// Requests pass. On each connection this many bytes of replies pass from now on (the end of the stream counts as
    /// one more), and the rest is discarded.
    CutReplyAfter(usize),
}

/// What a [`Proxy`] has passed on and discarded since it was started; in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted, including those reset at once.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// Requests handed to the server.
    pub requests: u64,
    /// Requests discarded.
    pub lost_requests: u64,
    /// Connections of which a request, or a part of one, was discarded.
    pub unheard: u64,
    /// Replies handed to the client.
    pub replies: u64,
    /// Replies discarded.
    pub lost_replies: u64,
}

/// A TCP proxy on a loopback port of its own, in front of a server on another loopback port.
///
/// A connection that lost bytes cannot recover: TCP never delivers a stream with a hole in it, and a client could take
/// the reply to its third request for that to its second. So where a byte would have to follow a hole, the proxy resets
/// the connection instead; the client then connects again, as after any real failure.
pub struct Proxy {
    port: u16,
    orders: Sender<Order>,
    wake: PipeWriter,
    counts: Arc<Mutex<Counts>>,
    thread: Option<JoinHandle<()>>,
    /// Bound and never listening: reserves the port while nothing listens on it.
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
        let relay = Relay::new(port, target, inbox, wake_reader, Arc::clone(&counts));
        let thread = std::thread::Builder::new().name("proxy".into()).spawn(move || relay.run()).unwrap();
        Proxy { port, orders, wake, counts, thread: Some(thread), _reservation: reservation }
    }

    /// The port on 127.0.0.1 for clients, which never changes.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the mode, also for open connections. When this returns, the new mode is in force: not a byte is treated
    /// by the old one any more. Bytes that a delay still held back pass at once in a mode that passes them, and are
    /// lost in one that discards them.
    pub fn set(&self, mode: Mode) {
        let (done, is_done) = channel();
        self.order(Order::Set(mode, done));
        is_done.recv().expect("the proxy's thread has ended");
    }

    /// What has passed so far, and what was discarded.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
