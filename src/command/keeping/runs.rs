/*!
The runs under the handle of a kept lock. They register with its keeper, which releases the lock only when none of them
is left, and tells them when to stop.
*/

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use futures_util::future::select_all;
use libc::pid_t;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{Shutdown, getsockopt, shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::readable::readable;
use crate::supervise::keeper::{Answer, Request, listening};
use crate::supervise::process::is_below;

/// A client of the keeper: a run, or a `dlock release`.
#[derive(Debug)]
struct Client {
    line: AsyncFd<OwnedFd>,
    pid: pid_t,
    /// `true` if it belongs to the keeper's user, or to root.
    is_ours: bool,
    is_run: bool,
}

/// The registered runs, and the socket at which they register.
#[derive(Debug)]
pub(super) struct Runs {
    listener: AsyncFd<OwnedFd>,
    clients: Vec<Client>,
    /// The process for which the lock is kept, while that lives.
    process: Option<pid_t>,
    are_stopping: bool,
}

impl Runs {
    /// Listens for runs under the lock of this owner, which is kept for `process`.
    pub(super) fn listen(owner: &str, process: pid_t) -> std::io::Result<Self> {
        let listener = readable(listening(owner)?)?;
        Ok(Self { listener, clients: Vec::new(), process: Some(process), are_stopping: false })
    }

    /// Returns `true` if a run is registered.
    pub(super) fn is_any(&self) -> bool {
        self.clients.iter().any(|client| client.is_run)
    }

    /// Forgets the process for which the lock is kept: it has ended, so its number may be reused.
    pub(super) fn process_ended(&mut self) {
        self.process = None;
    }

    /// Tells the runs to stop their commands. From now on, no run is accepted and no release is granted.
    pub(super) fn stop(&mut self) {
        if !std::mem::replace(&mut self.are_stopping, true) {
            for run in self.clients.iter().filter(|client| client.is_run) {
                // The other direction stays open: its end shows that nothing of the run is left.
                let _ = shutdown(run.line.as_raw_fd(), Shutdown::Write);
            }
        }
    }

    /// Waits until a run begins or ends, or a release asks; `true` if the lock is let go. Cancelling it loses nothing.
    pub(super) async fn changed(&mut self) -> bool {
        let lines = std::iter::once(&self.listener).chain(self.clients.iter().map(|client| &client.line));
        drop(select_all(lines.map(|line| Box::pin(line.readable()))).await);
        while let Ok(line) = self.listener.try_io(Interest::READABLE, accept) {
            self.clients.extend(self.client(line));
        }
        let mut lets_go = false;
        for index in (0..self.clients.len()).rev() {
            // One request of each client, so that one that does not stop asking does not block everything else.
            let received = self.clients[index].line.try_io(Interest::READABLE, |line| Ok(Request::receive(line)?));
            match received {
                Ok(request) => lets_go |= request.is_some_and(|request| self.answer(index, request)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => drop(self.clients.swap_remove(index)),
            }
        }
        lets_go
    }

    /// Returns the client that has connected; `None` if it may ask for nothing.
    fn client(&self, line: OwnedFd) -> Option<Client> {
        let peer = getsockopt(&line, PeerCredentials).ok()?;
        let is_ours = [0, nix::unistd::geteuid().as_raw()].contains(&peer.uid());
        let is_below = |process| peer.pid() == process || is_below(peer.pid(), process) == Some(true);
        if !is_ours && !self.process.is_some_and(is_below) {
            Answer::Denied.send(&line);
            return None;
        }
        Some(Client { line: readable(line).ok()?, pid: peer.pid(), is_ours, is_run: false })
    }

    /// Answers a request of this client; returns `true` if the lock is let go.
    fn answer(&mut self, index: usize, request: Request) -> bool {
        let busy = self.clients.iter().find(|client| client.is_run).map(|run| Answer::Busy(run.pid));
        let client = &mut self.clients[index];
        let answer = match request {
            _ if self.are_stopping => Answer::Stopping,
            Request::Register => {
                client.is_run = true;
                Answer::Yes
            }
            Request::LetGo if client.is_ours => busy.unwrap_or(Answer::Yes),
            Request::LetGo => Answer::Denied,
        };
        answer.send(client.line.get_ref());
        request == Request::LetGo && answer == Answer::Yes
    }
}

/// Accepts the next client.
fn accept(listener: &OwnedFd) -> std::io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the address is not asked for, and the descriptor is fresh.
    unsafe {
        match libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) {
            // Without free descriptors it would fail again at once: the next try is made when another client comes.
            -1 => Err(ErrorKind::WouldBlock.into()),
            line => Ok(OwnedFd::from_raw_fd(line)),
        }
    }
}
