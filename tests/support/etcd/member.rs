//! One server of an etcd: where it is, what can be done to it, and what it reports.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::support::daemon::{Daemon, Port};
use crate::support::islands::Island;

use super::ANSWER;
use super::json::{Rpc, STATUS, read_head};

/// One server of an [`Etcd`](super::Etcd).
pub struct Member {
    pub(super) name: String,
    daemon: Daemon,
    /// For clients, with TLS if that is enabled.
    client: Port,
    peer: Port,
    /// For the test itself, without TLS.
    inside: Port,
    /// How often the test itself has made each request to this process, by the names of the metrics.
    pub(super) own: Mutex<BTreeMap<String, u64>>,
}

impl Deref for Member {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl Member {
    /// A member that does not run yet.
    pub(super) fn new(index: usize, island: Option<&Island>) -> Self {
        Self {
            name: format!("n{index}"),
            daemon: Daemon::new("etcd").on(island),
            client: Port::reserve(),
            peer: Port::reserve(),
            inside: Port::reserve(),
            own: Mutex::default(),
        }
    }

    /// The port at which clients reach it.
    pub fn port(&self) -> u16 {
        self.client.number()
    }

    /// The port at which the other members reach it.
    pub fn peer_port(&self) -> u16 {
        self.peer.number()
    }

    /// The URL at which the test itself reaches it.
    pub(super) fn inside_url(&self) -> String {
        format!("http://{}:{}", self.host(), self.inside.number())
    }

    pub(super) fn peer_url(&self) -> String {
        format!("http://{}:{}", self.host(), self.peer_port())
    }

    #[track_caller]
    pub(super) fn wait_answers(&self) {
        self.wait_ready(|| {
            let (_, body) = self.http("GET", "/health", "", None).ok()?;
            body.contains(r#""health":"true""#).then_some(())
        });
    }

    pub(super) fn status(&self) -> io::Result<Value> {
        self.post(STATUS, &json!({}), None)
    }

    /// How many messages clients have sent, by the method's name; each heartbeat of a lease is one.
    #[track_caller]
    pub(super) fn requests(&self) -> BTreeMap<String, u64> {
        let text = self.metrics();
        let counter = |line: &str| {
            let labels = line.strip_prefix("grpc_server_msg_received_total{")?;
            let method = labels.split_once(r#"grpc_method=""#)?.1.split_once('"')?.0;
            let count: u64 = line.rsplit_once(' ')?.1.parse().ok()?;
            (count > 0).then(|| (method.to_owned(), count))
        };
        text.lines().filter_map(counter).collect()
    }

    #[track_caller]
    pub(super) fn metrics(&self) -> String {
        let (status, text) = self.http("GET", "/metrics", "", None).unwrap();
        assert_eq!(status, 200, "{text}");
        text
    }

    pub(super) fn post(&self, rpc: Rpc, request: &Value, token: Option<&str>) -> io::Result<Value> {
        let (path, method) = rpc;
        *self.own.lock().unwrap_or_else(PoisonError::into_inner).entry(method.to_owned()).or_default() += 1;
        let (status, body) = self.http("POST", path, &request.to_string(), token)?;
        if status != 200 {
            return Err(io::Error::other(format!("{status} {body}")));
        }
        serde_json::from_str(&body).map_err(io::Error::other)
    }

    /// Sends one request; returns the status code and the body of the answer.
    fn http(&self, method: &str, path: &str, body: &str, token: Option<&str>) -> io::Result<(u16, String)> {
        let mut stream = self.send(method, path, body, token)?;
        let status = read_head(&mut stream)?;
        let mut body = String::new();
        stream.read_to_string(&mut body)?;
        Ok((status, body))
    }

    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
        token: Option<&str>,
    ) -> io::Result<BufReader<TcpStream>> {
        let address = SocketAddr::from((self.host(), self.inside.number()));
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        // In this version of HTTP the body is sent as it is, and ends with the connection.
        let head = format!("{method} {path} HTTP/1.0\r\n{token}Content-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes())?;
        Ok(BufReader::new(stream))
    }
}

/// Whether this is the status of the leader.
pub(super) fn leads(status: &Value) -> bool {
    status["leader"] == status["header"]["member_id"]
}
