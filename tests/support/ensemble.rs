//! Servers of one kind that belong together: what can be done to all of them.

use std::ops::Deref;

use super::certificates::{Certificates, Tls};
use super::daemon::Daemon;

/// The servers of a service, one or several, and the TLS that all of them use towards clients.
pub struct Ensemble<S> {
    servers: Vec<S>,
    tls: Option<(Tls, Certificates)>,
}

impl<S: Deref<Target = Daemon>> Ensemble<S> {
    /// These servers, none of which was started yet, with certificates if `tls` is given.
    pub fn new(servers: Vec<S>, tls: Option<Tls>) -> Self {
        Self { servers, tls: tls.map(|tls| (tls, Certificates::new())) }
    }

    /// All servers.
    pub fn servers(&self) -> &[S] {
        &self.servers
    }

    /// The server with this index.
    #[track_caller]
    pub fn server(&self, index: usize) -> &S {
        &self.servers[index]
    }

    /// The servers that are at work, see [`Daemon::is_at_work`], each with its index.
    pub fn at_work(&self) -> impl Iterator<Item = (usize, &S)> {
        self.servers.iter().enumerate().filter(|(_, server)| server.is_at_work())
    }

    /// Whether clients have to use TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What the servers show and require, and their certificates; none without TLS.
    pub fn tls(&self) -> Option<(Tls, &Certificates)> {
        self.tls.as_ref().map(|(tls, certificates)| (*tls, certificates))
    }

    /// The certificates that clients need for TLS. Fails the test if it is not enabled.
    #[track_caller]
    pub fn certificates(&self) -> &Certificates {
        self.tls().expect("the servers were started without TLS").1
    }

    /// `HOST:PORT,HOST:PORT`: the address of each server and its `port`.
    pub fn addresses(&self, port: impl Fn(&S) -> u16) -> String {
        let addresses = self.servers.iter().map(|server| format!("{}:{}", server.host(), port(server)));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Starts these servers by `launch`, and returns once `ready` has returned for each. All are started first: a server
    /// of several is not ready before most of them are.
    pub fn start(&self, indices: &[usize], launch: impl Fn(usize), ready: impl Fn(&S)) {
        for &index in indices {
            launch(index);
        }
        for &index in indices {
            ready(&self.servers[index]);
        }
    }

    /// The indices of all servers.
    pub fn indices(&self) -> Vec<usize> {
        (0..self.servers.len()).collect()
    }

    /// Freezes all servers.
    #[track_caller]
    pub fn stop(&self) {
        self.servers.iter().for_each(|server| server.stop());
    }

    /// Continues all frozen servers.
    #[track_caller]
    pub fn cont(&self) {
        self.servers.iter().for_each(|server| server.cont());
    }

    /// Kills all servers.
    pub fn kill(&self) {
        self.servers.iter().for_each(|server| server.kill());
    }
}
