//! What a redis carries out, as it reports it itself.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::clock::ClockShim;
use crate::support::rendezvous::{CAP, boottime, eventually, go_first};

use super::{Client, Redis, Reply};

/// One command that a server carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When the server reported it, by [`boottime`]: a script before it ran, the commands that it called afterwards.
    pub at: Duration,
    pub db: u32,
    /// The client's address, or `lua` for a command that a script called.
    pub source: String,
    /// The command's name as it was sent, and its arguments.
    pub words: Vec<String>,
    /// When that was by the server's clock, since 1970.
    pub by_server: Duration,
}

/// The commands that a server carries out, as it reports them itself (`MONITOR`). It leaves out administrators'
/// commands (CONFIG and the like) and those that contain a password.
pub struct Monitor<'a> {
    redis: &'a Redis,
    seen: Arc<(Mutex<Vec<Seen>>, Condvar)>,
    /// The test's own connection, to end the thread.
    stream: TcpStream,
}

/// Whether this command runs a script, by its text or by its digest.
pub fn runs_script(words: &[String]) -> bool {
    ["EVAL", "EVALSHA"].iter().any(|name| words[0].eq_ignore_ascii_case(name))
}

impl<'a> Monitor<'a> {
    pub(super) fn watch(redis: &'a Redis, mut client: Client) -> Self {
        let seen = Arc::<(Mutex<Vec<Seen>>, Condvar)>::default();
        let stream = client.stream.get_ref().try_clone().unwrap();
        let (shared, clock) = (Arc::clone(&seen), redis.own_clock().cloned());
        thread::spawn(move || {
            // A question about a lease must not be answered before this has heard of its renewal.
            go_first();
            while let Ok(Reply::Status(line)) = client.read_reply() {
                shared.0.lock().unwrap().push(parse_seen(&line, clock.as_deref()));
                shared.1.notify_all();
            }
        });
        Self { redis, seen, stream }
    }

    /// The commands that others than this test have sent up to now, without those that ran in their scripts. Everything
    /// that the server has carried out before this call is included.
    #[track_caller]
    pub fn client_commands(&self) -> Vec<Vec<String>> {
        self.catch_up();
        self.others().into_iter().filter(|seen| seen.source != "lua").map(|seen| seen.words).collect()
    }

    /// Those of [`Self::client_commands`] that run scripts.
    #[track_caller]
    pub fn scripts(&self) -> Vec<Vec<String>> {
        self.client_commands().into_iter().filter(|words| runs_script(words)).collect()
    }

    /// The commands that others than this test have sent up to now, including those that ran in their scripts, with
    /// their senders.
    #[track_caller]
    pub fn all(&self) -> Vec<Seen> {
        self.catch_up();
        self.others()
    }

    /// Waits until `enough` of the commands that others have sent, without those that ran in scripts; sends nothing to
    /// the server.
    #[track_caller]
    pub fn wait_until(&self, what: &str, enough: impl Fn(&[Vec<String>]) -> bool) -> Vec<Vec<String>> {
        eventually(what, || {
            let words: Vec<_> =
                self.others().into_iter().filter(|seen| seen.source != "lua").map(|s| s.words).collect();
            enough(&words).then_some(words)
        })
    }

    /// When the lease of the lock at `key` can expire at the server at the earliest, by [`boottime`] and by what had
    /// been carried out at `until`. Sends nothing to the server, which may be gone by now: the report of what it
    /// carried out just before has to have arrived already.
    #[track_caller]
    pub fn expiry(&self, key: &str, until: Duration) -> Duration {
        let seen = self.others();
        let given = seen.iter().rev().filter(|seen| seen.at <= until).find_map(|seen| self.lease_until(seen, key));
        given.unwrap_or_else(|| panic!("nobody took the lock at {key}: {seen:?}"))
    }

    /// When the lease of the lock at `key` that belongs to `owner`, whose id is in the value that it sets or among the
    /// holders of a lock that several hold, can expire at the earliest, as in [`Self::expiry`]; none if that owner never
    /// had it.
    pub fn lease_end_of(&self, owner: &str, key: &str, until: Duration) -> Option<Duration> {
        let (mut end, mut is_owners) = (None, false);
        for seen in self.others().iter().filter(|seen| seen.at <= until) {
            if let Some(length) = share(seen, key, owner) {
                end = Some(seen.at + self.redis.true_length(length) - Duration::from_millis(1));
            }
            let Some(until) = self.lease_until(seen, key) else { continue };
            if seen.words[0] == "SET" {
                // What several hold together says when all of them are over.
                is_owners = seen.words[2].contains(owner) && !seen.words[2].starts_with("{\"v\":1,\"mode\":");
            }
            if is_owners {
                end = Some(until);
            }
        }
        end
    }

    /// Waits until the lease of the lock at `key` is renewed once more, so that the next renewal is as far away as
    /// possible; sends nothing to the server.
    #[track_caller]
    pub fn wait_renewed(&self, key: &str) {
        let renewals = || self.others().iter().filter(|seen| lease(seen, key).is_some()).count();
        let before = renewals();
        eventually(&format!("a renewal of {key}"), || (renewals() > before).then_some(()));
    }

    /// Waits until the monitor has reported a request that is made now.
    #[track_caller]
    fn catch_up(&self) {
        static MARKS: AtomicU64 = AtomicU64::new(0);
        let (seen, changed) = &*self.seen;
        let mark = format!("mark {}", MARKS.fetch_add(1, Ordering::Relaxed));
        self.redis.cli(&["ECHO", &mark]);
        let missing = |seen: &mut Vec<Seen>| !seen.iter().any(|seen| seen.words.get(1) == Some(&mark));
        let (seen, late) = changed.wait_timeout_while(seen.lock().unwrap(), CAP, missing).unwrap();
        assert!(!late.timed_out(), "the monitor fell behind: {seen:?}");
    }

    /// When the lease that this command gave to `key` can expire at the earliest: the server counts in whole
    /// milliseconds.
    fn lease_until(&self, seen: &Seen, key: &str) -> Option<Duration> {
        Some(seen.at + self.redis.true_length(lease(seen, key)?) - Duration::from_millis(1))
    }

    fn others(&self) -> Vec<Seen> {
        let own = self.redis.own.lock().unwrap();
        self.seen.0.lock().unwrap().iter().filter(|seen| !own.contains(&seen.source)).cloned().collect()
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The lease that this command gave to `key`, if it is one that does: `SET key value PX ms` or `PEXPIRE key ms`, which
/// the scripts of dlock call.
fn lease(seen: &Seen, key: &str) -> Option<Duration> {
    let gives = match seen.words.first()?.as_str() {
        "SET" => seen.words.get(3).is_some_and(|word| word == "PX"),
        "PEXPIRE" => true,
        _ => false,
    };
    if !gives || seen.words.get(1)? != key {
        return None;
    }
    seen.words.last()?.parse().ok().map(Duration::from_millis)
}

/// The length of the lease that this command gave to `owner` at `key`, if it is one that does that for one of several holders:
/// `ZADD holders END ID`, where the end is in milliseconds by the server's clock.
fn share(seen: &Seen, key: &str, owner: &str) -> Option<Duration> {
    let [name, holders, end, id] = &seen.words[..] else { return None };
    if name != "ZADD" || *holders != format!("{{{key}}}\u{1}holders") || id != owner {
        return None;
    }
    Duration::from_millis(end.parse().ok()?).checked_sub(seen.by_server)
}

/// Reads `1700000000.123456 [0 127.0.0.1:50000] "SET" "key" "va\"lue"`, where the time is by the server's clock.
fn parse_seen(line: &str, clock: Option<&ClockShim>) -> Seen {
    let parse = || {
        let (at, rest) = line.split_once(" [")?;
        let (seconds, micros) = at.split_once('.')?;
        let by_server = Duration::new(seconds.parse().ok()?, micros.parse::<u32>().ok()? * 1000);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        // How long ago that was is the same by every clock that was not changed.
        let ago = now.saturating_sub(clock.map_or(by_server, |clock| clock.true_time(by_server, now)));
        let (origin, rest) = rest.split_once("] ")?;
        let (db, source) = origin.split_once(' ')?;
        Some(Seen {
            at: boottime().saturating_sub(ago),
            db: db.parse().ok()?,
            source: source.to_owned(),
            words: unquote(rest),
            by_server,
        })
    };
    parse().unwrap_or_else(|| panic!("not a line of MONITOR: {line:?}"))
}

fn unquote(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.bytes();
    while rest.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = rest.next().filter(|&byte| byte != b'"') {
            word.push(match (byte, if byte == b'\\' { rest.next() } else { None }) {
                (_, Some(b'n')) => b'\n',
                (_, Some(b'r')) => b'\r',
                (_, Some(b't')) => b'\t',
                (_, Some(b'a')) => 7,
                (_, Some(b'b')) => 8,
                (_, Some(b'x')) => {
                    let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).unwrap_or(0);
                    u8::try_from(digit() * 16 + digit()).unwrap()
                }
                (_, Some(escaped)) => escaped,
                (plain, None) => plain,
            });
        }
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    words
}
