//! One server of an etcd: where it is, what can be done to it, and what it reports.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::PoisonError;

use serde_json::{Value, json};

use super::json::{Rpc, STATUS, read_head};
use super::{ANSWER, Member};

impl Member {
    /// The port at which clients reach it.
    pub fn port(&self) -> u16 {
        self.client.number()
    }

    /// The port at which the other members reach it.
    pub fn peer_port(&self) -> u16 {
        self.peer.number()
    }

    /// Its process id. Fails the test if it is not running.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Its address.
    pub fn host(&self) -> Ipv4Addr {
        self.daemon.host()
    }

    /// Excludes it from [`Self::is_at_work`], or includes it again: one that is cut off from the others cannot know
    /// that.
    pub fn set_aside(&self, aside: bool) {
        self.daemon.set_aside(aside);
    }

    /// Whether it is running, and neither frozen nor set aside.
    pub fn is_at_work(&self) -> bool {
        self.daemon.is_at_work()
    }

    /// Freezes it: the kernel still accepts connections, and nothing is answered. Returns once it is stopped.
    #[track_caller]
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Continues it if it is frozen.
    #[track_caller]
    pub fn cont(&self) {
        self.daemon.cont();
    }

    /// Kills it, frozen or not. Returns once it is gone; connections are refused from then on.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// The URL at which the test itself reaches it.
    pub(super) fn inside_url(&self) -> String {
        format!("http://{}:{}", self.host(), self.inside.number())
    }

    pub(super) fn peer_url(&self) -> String {
        format!("http://{}:{}", self.host(), self.peer_port())
    }

    #[track_caller]
    pub(super) fn wait_ready(&self) {
        self.daemon.wait_ready(|| {
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
