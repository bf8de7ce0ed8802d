//! What is in a redis, as the test sees it: keys, leases and connections, and how to change them.

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use crate::support::rendezvous::boottime;

use super::{Client, Monitor, Redis, Reply};
use crate::support::daemon::Daemon;
use crate::support::pool::Servers;

impl Redis {
    /// Sends one request over the test's own connection and waits for the reply. The connection is kept for the next
    /// request.
    #[track_caller]
    pub fn call(&self, request: &[&[u8]]) -> Reply {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection that the server has closed since is replaced; one that fails during a request is not, because
        // the request may have been carried out.
        let mut client = kept.take().filter(Client::is_usable).unwrap_or_else(|| self.client());
        let reply = client.call(request);
        let named = || request.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
        let reply = reply.unwrap_or_else(|error| panic!("redis did not answer {}: {error}", named()));
        *kept = Some(client);
        reply
    }

    /// Sends one request to a server that may be gone, or may close connections on its own: none if it does.
    pub fn ask(&self, request: &[&str]) -> Option<Reply> {
        let mut client = self.connect().ok()?;
        self.log_in(&mut client).ok()?;
        let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
        client.call(&words).ok()
    }

    /// Sends one request in words, as [`Self::call`], and returns the reply as text, an array as lines. An error reply
    /// fails the test.
    #[track_caller]
    pub fn cli<A: AsRef<str>>(&self, request: &[A]) -> String {
        let words: Vec<&[u8]> = request.iter().map(|word| word.as_ref().as_bytes()).collect();
        match self.call(&words) {
            Reply::Error(error) => {
                let request = request.iter().map(AsRef::as_ref).collect::<Vec<_>>();
                panic!("redis refused {}: {error}", request.join(" "))
            }
            reply => reply.text(),
        }
    }

    /// A connection of the test's own, logged in, for what [`Self::call`] cannot do (such as SUBSCRIBE).
    #[track_caller]
    pub fn client(&self) -> Client {
        let client = self.connect().and_then(|mut client| self.log_in(&mut client).map(|()| client));
        client.unwrap_or_else(|error| panic!("cannot connect to redis: {error}\n{}", self.log()))
    }

    /// All keys of database 0, sorted.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.call(&[b"KEYS", b"*"]).array().iter().map(Reply::text).collect();
        keys.sort();
        keys
    }

    /// The string at `key` in database 0, if there is one.
    #[track_caller]
    pub fn get(&self, key: &str) -> Option<String> {
        match self.call(&[b"GET", key.as_bytes()]) {
            Reply::Nil => None,
            Reply::Bulk(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            other => panic!("GET {key} answered {other:?}"),
        }
    }

    /// The milliseconds that `key` in database 0 has left; -1 when it does not expire, -2 when there is none.
    #[track_caller]
    pub fn pttl(&self, key: &str) -> i64 {
        match self.call(&[b"PTTL", key.as_bytes()]) {
            Reply::Int(left) => left,
            other => panic!("PTTL {key} answered {other:?}"),
        }
    }

    /// When `key` in database 0 expires at the earliest, by [`boottime`]; none when there is none or it does not expire.
    #[track_caller]
    pub fn expiry(&self, key: &str) -> Option<Duration> {
        // Asked later than this, it has that much left.
        let now = boottime();
        let left = Duration::from_millis(u64::try_from(self.pttl(key)).ok()?.saturating_sub(1));
        Some(now + self.true_length(left))
    }

    /// The true length of an interval that takes `shown` by the server's clock.
    pub(super) fn true_length(&self, shown: Duration) -> Duration {
        self.own_clock().map_or(shown, |clock| clock.true_length(shown))
    }

    /// The connections of others, one line of `CLIENT LIST` each.
    #[track_caller]
    pub fn clients(&self) -> Vec<String> {
        let list = self.cli(&["CLIENT", "LIST"]);
        let own = self.own.lock().unwrap();
        let is_own = |line: &str| {
            let address = line.split(' ').find_map(|word| word.strip_prefix("addr="));
            address.is_some_and(|address| own.contains(address))
        };
        list.lines().filter(|line| !line.is_empty() && !is_own(line)).map(str::to_owned).collect()
    }

    /// Watches the commands that the server carries out, from now on.
    #[track_caller]
    pub fn monitor(&self) -> Monitor<'_> {
        let mut client = self.client();
        assert_eq!(client.call(&[b"MONITOR"]).unwrap().text(), "OK");
        client.stream.get_ref().set_read_timeout(None).unwrap();
        Monitor::watch(self, client)
    }

    pub(super) fn connect(&self) -> io::Result<Client> {
        let client = Client::connect(self.port())?;
        self.own.lock().unwrap().insert(client.address.clone());
        Ok(client)
    }

    /// Forgets the addresses of the test's own connections that are closed: others may get them now.
    pub(in crate::support) fn forget_addresses(&self) {
        let kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        self.own.lock().unwrap().retain(|address| kept.as_ref().is_some_and(|client| client.address == *address));
    }

    pub(super) fn log_in(&self, client: &mut Client) -> io::Result<()> {
        let Some(password) = &self.password else { return Ok(()) };
        match client.call(&[b"AUTH", password.as_bytes()])? {
            Reply::Error(error) => Err(io::Error::other(error)),
            _ => Ok(()),
        }
    }
}

impl Servers for Redis {
    fn daemons(&self) -> Vec<&Daemon> {
        vec![self]
    }

    fn has_clients(&self) -> bool {
        !self.clients().is_empty()
    }

    fn clear(&self) {
        for request in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"], &["CONFIG", "RESETSTAT"]] {
            self.cli(request);
        }
        self.forget_addresses();
    }

    fn state(&self) -> String {
        let state =
            [&["CONFIG", "GET", "*"][..], &["ACL", "LIST"], &["ROLE"], &["DBSIZE"]].map(|words| self.cli(words));
        // Of the role, without how far the replicas are.
        let [settings, users, role, keys] = state;
        [&settings, &users, role.lines().next().unwrap_or_default(), &keys].join("\n")
    }
}
