/*!
A proxy that understands ZooKeeper's frames: it can change a reply, or keep one back at a chosen moment.

For faults that do not depend on what passes see [`super::proxy`].
*/

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::sys::socket;

/// The operations that a request can ask for, by their numbers.
pub const DELETE: i32 = 2;
pub const PING: i32 = 11;
pub const SET_DATA: i32 = 5;
pub const GET_CHILDREN: i32 = 12;
pub const GET_DATA: i32 = 4;
pub const MULTI: i32 = 14;
pub const CREATE2: i32 = 15;

/// A request on its way to the server.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation's number.
    pub operation: i32,
    /// The request, without the length before it.
    pub frame: Vec<u8>,
}

impl Request {
    /// Whether it creates nodes, among other things.
    pub fn makes_nodes(&self) -> bool {
        self.operation == MULTI && self.frame.get(8..12) == Some(&CREATE2.to_be_bytes())
    }
}

/// What happens to a reply.
pub enum Fate {
    /// It passes.
    Pass,
    /// These bytes pass instead, including the length before the frame.
    Instead(Vec<u8>),
    /// It passes once another request has come after it on this connection, and so do the replies behind it.
    Asleep,
    /// Neither it nor anything else passes on this connection any more.
    Silence,
}

/// Decides about the reply (without the length before it) to each request.
type Judge = dyn Fn(&Request, &[u8]) -> Fate + Send + Sync;
/// Changes each request.
type Editor = dyn Fn(&mut Vec<u8>) + Send + Sync;

/// The proxy, on a loopback port of its own; it ends when this is dropped.
pub struct ZooKeeperProxy {
    port: u16,
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    target: u16,
    judge: Box<Judge>,
    editor: Box<Editor>,
    stopping: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl ZooKeeperProxy {
    /// A proxy in front of 127.0.0.1:`target` that asks `judge` about each reply. The handshake is never changed.
    pub fn to(target: u16, judge: impl Fn(&Request, &[u8]) -> Fate + Send + Sync + 'static) -> Self {
        Self::editing(target, |_| {}, judge)
    }

    /// A proxy in front of 127.0.0.1:`target` that asks `judge` about each reply, and lets `editor` change each
    /// request.
    pub fn editing(
        target: u16,
        editor: impl Fn(&mut Vec<u8>) + Send + Sync + 'static,
        judge: impl Fn(&Request, &[u8]) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("could not listen"));
        let port = listener.local_addr().unwrap().port();
        let (judge, editor) = (Box::new(judge), Box::new(editor));
        let shared =
            Arc::new(Shared { target, judge, editor, stopping: AtomicBool::new(false), open: Mutex::default() });
        let (acceptors, sharing) = (Arc::clone(&listener), Arc::clone(&shared));
        let acceptor = Some(std::thread::spawn(move || accept_all(&acceptors, &sharing)));
        Self { port, listener, shared, acceptor }
    }

    /// `zk://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("zk://127.0.0.1:{}", self.port)
    }
}

impl Drop for ZooKeeperProxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // On Linux this wakes accept() with an error.
        let _ = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
        for stream in lock(&self.shared.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = self.acceptor.take().map(JoinHandle::join);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut workers = Vec::new();
    while let Ok((client, _)) = listener.accept() {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.target)) else { continue };
        let clones = [&client, &server].map(|stream| stream.try_clone().expect("a descriptor"));
        let mut open = lock(&shared.open);
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        open.extend(clones);
        drop(open);
        let asked = Arc::new(Mutex::new(HashMap::new()));
        let (wake, woken) = mpsc::channel();
        let up = {
            let (shared, asked) = (Arc::clone(shared), Arc::clone(&asked));
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            move || ended(&from, &to, carry_requests(&from, &to, &shared, &asked, wake))
        };
        let down = {
            let shared = Arc::clone(shared);
            move || ended(&server, &client, carry_replies(&server, &client, &shared, &asked, &woken))
        };
        workers.extend([std::thread::spawn(up), std::thread::spawn(down)]);
    }
    for worker in workers {
        let _ = worker.join();
    }
}

/// Passes the end of one side on to the other.
fn ended(from: &TcpStream, to: &TcpStream, _: io::Result<()>) {
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn carry_requests(
    mut from: &TcpStream,
    mut to: &TcpStream,
    shared: &Shared,
    asked: &Mutex<HashMap<i32, Request>>,
    wake: Sender<()>,
) -> io::Result<()> {
    to.write_all(&framed(&read(&mut from)?))?;
    loop {
        let mut frame = read(&mut from)?;
        let _ = wake.send(());
        (shared.editor)(&mut frame);
        if let (Some(id), Some(operation)) = (int(&frame, 0), int(&frame, 4)) {
            lock(asked).insert(id, Request { operation, frame: frame.clone() });
        }
        to.write_all(&framed(&frame))?;
    }
}

fn carry_replies(
    mut from: &TcpStream,
    mut to: &TcpStream,
    shared: &Shared,
    asked: &Mutex<HashMap<i32, Request>>,
    woken: &Receiver<()>,
) -> io::Result<()> {
    to.write_all(&framed(&read(&mut from)?))?;
    let mut silent = false;
    loop {
        let frame = read(&mut from)?;
        let request = int(&frame, 0).and_then(|id| lock(asked).remove(&id));
        let fate = request.map_or(Fate::Pass, |request| (shared.judge)(&request, &frame));
        let passes = match fate {
            Fate::Pass => framed(&frame),
            Fate::Instead(bytes) => bytes,
            Fate::Asleep => {
                woken.try_iter().for_each(drop);
                if woken.recv().is_err() {
                    return Ok(());
                }
                framed(&frame)
            }
            Fate::Silence => {
                silent = true;
                continue;
            }
        };
        if !silent {
            to.write_all(&passes)?;
        }
    }
}

fn int(frame: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}

fn read(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
    from.read_exact(&mut frame)?;
    Ok(frame)
}

/// The frame with its length before it.
pub fn framed(frame: &[u8]) -> Vec<u8> {
    [&u32::try_from(frame.len()).unwrap().to_be_bytes()[..], frame].concat()
}
