/*!
Servers that tests use one after the other, each alone: starting one costs more than most tests.

A test has its server for itself. Afterwards all that clients have left on it is removed, and it is compared with what it was when
it had just been started: its users, its settings, whatever clients can change. If it is the same, another test gets it. If it is
not, if a client is still connected, if the test failed, or if it has done something to the process (has asked for its process id,
even), the server ends with the test. So whatever a test does and asserts, it can do as if the server were new.
*/

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;
use std::{process, thread};

use super::daemon::Daemon;
use super::process::fds;
use super::rendezvous::eventually_within;

/// How many server processes may wait for a test. Beyond that, those that have waited for the longest time end.
const MOST: usize = 48;

/// How long the connections of a test's clients may outlive the test.
const FAREWELL: Duration = Duration::from_secs(1);

/// The servers of a service, which a test can leave to the next one.
pub trait Servers: Sized + Send + 'static {
    /// Their processes.
    fn daemons(&self) -> Vec<&Daemon>;

    /// Whether a client other than the test itself is connected.
    fn has_clients(&self) -> bool;

    /// Removes all that clients can leave behind.
    fn clear(&self);

    /// All that clients can change, and [`Self::clear`] does not undo; also what it should have removed.
    fn state(&self) -> String;
}

/// Servers that a test has for itself, and leaves to the next one unless it has changed them.
pub struct Lent<S: Servers> {
    name: &'static str,
    // Empty only while it is dropped.
    servers: Option<S>,
    /// What they were like at first; none for servers that are not for others.
    state: Option<String>,
}

impl<S: Servers> Lent<S> {
    /// Servers that `make` has made for this test, or for an earlier one under the same name.
    #[track_caller]
    pub fn by(name: &'static str, make: impl FnOnce() -> S) -> Self {
        if let Some((servers, state)) = take(name) {
            return Self { name, servers: Some(servers), state: Some(state) };
        }
        let servers = make();
        let state = Some(servers.state());
        servers.daemons().into_iter().for_each(Daemon::set_untouched);
        Self { name, servers: Some(servers), state }
    }

    /// Whether another test may have them.
    fn is_like_new(servers: &S, state: &str) -> bool {
        let is_untouched = servers.daemons().iter().all(|daemon| daemon.is_at_work() && !daemon.is_touched());
        let is_alone = || eventually_within(FAREWELL, || (!servers.has_clients()).then_some(())).is_some();
        let is_same = || {
            servers.clear();
            servers.state() == state && !servers.has_clients()
        };
        is_untouched && is_alone() && is_same()
    }
}

impl<S: Servers> From<S> for Lent<S> {
    /// Servers for this test alone.
    fn from(servers: S) -> Self {
        Self { name: "", servers: Some(servers), state: None }
    }
}

impl<S: Servers> Deref for Lent<S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.servers.as_ref().expect("servers until the end")
    }
}

impl<S: Servers> Drop for Lent<S> {
    fn drop(&mut self) {
        let (Some(servers), Some(state)) = (self.servers.take(), self.state.take()) else { return };
        if thread::panicking() {
            return;
        }
        // A server that does not answer says nothing about the test.
        let is_like_new = catch_unwind(AssertUnwindSafe(|| Self::is_like_new(&servers, &state)));
        if is_like_new.unwrap_or(false) {
            servers.daemons().into_iter().for_each(Daemon::forget_log);
            keep(Idle { name: self.name, count: servers.daemons().len(), servers: Box::new((servers, state)) });
        }
    }
}

/// Servers that wait for a test.
struct Idle {
    name: &'static str,
    /// How many processes they are.
    count: usize,
    servers: Box<dyn Any + Send>,
}

/// Those that have waited for the longest time come first.
fn idle() -> MutexGuard<'static, Vec<Idle>> {
    static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The servers of this name that were used last.
fn take<S: Servers>(name: &str) -> Option<(S, String)> {
    let mut idle = idle();
    let index = idle.iter().rposition(|one| one.name == name)?;
    let found = idle.remove(index).servers.downcast().expect("a name for each kind of servers");
    Some(*found)
}

fn keep(servers: Idle) {
    static AT_EXIT: Once = Once::new();
    // SAFETY: the function may be called at any time, and does not unwind.
    AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(end_all) }, 0, "cannot end servers at the end"));
    let mut idle = idle();
    idle.push(servers);
    let mut count: usize = idle.iter().map(|one| one.count).sum();
    let mut ended = Vec::new();
    while count > MOST {
        let oldest = idle.remove(0);
        count -= oldest.count;
        ended.push(oldest);
    }
    // Ending them takes a while.
    drop(idle);
}

/// Ends them with the test program, and removes their directories. (If that is killed, they are killed as all servers are.)
extern "C" fn end_all() {
    // This thread has lost its thread-locals.
    let end = thread::Builder::new().spawn(|| idle().clear());
    let _ = end.map(thread::JoinHandle::join);
}

/// Whether another process than the test and these servers is connected to this TCP port of the loopback address.
pub fn is_connected_to(port: u16, servers: &[&Daemon]) -> bool {
    let own: Vec<String> = servers
        .iter()
        .filter_map(|server| server.running_pid())
        .chain([process::id().cast_signed()])
        .flat_map(|pid| fds(pid).into_values())
        .collect();
    connections().into_iter().any(|one| one.remote == port && !own.contains(&one.socket))
}

/// An established IPv4 connection on this machine.
pub struct Connection {
    /// Its socket, as `/proc/PID/fd` shows it.
    pub socket: String,
    pub local: u16,
    pub remote: u16,
}

/// All of them. `/proc/net/tcp` would list thousands that are closed already, too.
pub fn connections() -> Vec<Connection> {
    let ss = Command::new("ss").args(["-4Htne", "state", "established"]).output().unwrap();
    assert!(ss.status.success(), "{ss:?}");
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |at: usize| words[at].rsplit_once(':').unwrap().1.parse().unwrap();
        let inode = words.iter().find_map(|word| word.strip_prefix("ino:")).unwrap();
        Connection { socket: format!("socket:[{inode}]"), local: port(2), remote: port(3) }
    };
    String::from_utf8(ss.stdout).unwrap().lines().map(read).collect()
}
