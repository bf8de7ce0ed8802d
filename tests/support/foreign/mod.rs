/*!
Locks as other programs take them, each with its own library: small programs that a test drives by lines on their
standard streams. `driver.py` defines the lines.
*/

mod made;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use nix::sys::signal::Signal;

use super::daemon::{need, need_python, spawn_mortal};
use super::process;
use super::rendezvous::CAP;
use super::scratch::Scratch;

/// Which program takes the lock, and what its key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// flock(1); the key is the lock file, and there are no servers.
    Flock,
    /// `Lock` of redis-py, from the distribution, on one server; the key is the redis key.
    RedisPy,
    /// `Redlock` of redlock-py on several servers; the key is the redis key.
    RedlockPy,
    /// `etcdctl lock`; the key is the name, below which it creates its own. Its leases stay, without keys, until they
    /// expire.
    Etcdctl,
    /// What `concurrency.Mutex` of etcd's Go client does; the key is the name, below which it creates its own.
    EtcdMutex,
    /// etcd's own lock service; the key is the name, below which it creates its own.
    EtcdLockService,
    /// `Lock` of kazoo; the key is the path of the parent node.
    Kazoo,
    /// `ReadLock` of kazoo; the key is the path of the parent node.
    KazooRead,
    /// `WriteLock` of kazoo; the key is the path of the parent node.
    KazooWrite,
    /// `InterProcessMutex` of Curator; the key is the path of the parent node.
    Curator,
    /// The reader's side of Curator's `InterProcessReadWriteLock`; the key is the path of the parent node.
    CuratorRead,
    /// The writer's side of Curator's `InterProcessReadWriteLock`; the key is the path of the parent node.
    CuratorWrite,
}

impl Kind {
    /// Whether it takes locks at ZooKeeper. Such a program leaves the directories that it made.
    pub fn is_of_zookeeper(self) -> bool {
        use Kind::{Curator, CuratorRead, CuratorWrite, Kazoo, KazooRead, KazooWrite};
        matches!(self, Kazoo | KazooRead | KazooWrite | Curator | CuratorRead | CuratorWrite)
    }

    /// The program, before the servers, the key and the lease.
    #[track_caller]
    fn command(self) -> Command {
        let script = |python: PathBuf, name: &str| {
            let mut command = Command::new(python);
            // Python must not write its compiled files into the source directory.
            command.arg("-B").arg(source(name));
            command
        };
        match self {
            Self::Flock => {
                need("flock", "util-linux");
                need("setpriv", "util-linux");
                script(need_python("subprocess", "python3"), "flock_lock.py")
            }
            Self::RedisPy => script(need_python("redis", "python3-redis"), "redis_py.py"),
            Self::RedlockPy => script(made::python_with_redlock(), "redlock_py.py"),
            Self::Etcdctl => {
                need("etcdctl", "etcd-client");
                need("setpriv", "util-linux");
                script(need_python("json", "python3"), "etcdctl_lock.py")
            }
            Self::EtcdMutex => script(need_python("json", "python3"), "etcd_mutex.py"),
            Self::EtcdLockService => script(need_python("json", "python3"), "etcd_lock_service.py"),
            Self::Kazoo | Self::KazooRead | Self::KazooWrite => {
                let mut command = script(need_python("kazoo", "python3-kazoo"), "kazoo_lock.py");
                command.arg(match self {
                    Self::KazooRead => "ReadLock",
                    Self::KazooWrite => "WriteLock",
                    _ => "Lock",
                });
                command
            }
            Self::Curator | Self::CuratorRead | Self::CuratorWrite => {
                let mut command = Command::new(need("java", "default-jdk-headless"));
                command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
                command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", &made::curator_class_path()]);
                command.arg("CuratorLock").arg(match self {
                    Self::CuratorRead => "read",
                    Self::CuratorWrite => "write",
                    _ => "mutex",
                });
                command
            }
        }
    }
}

/// The path of a file in this directory.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/foreign").join(name)
}

/// One contender for a lock. When this is dropped, it is killed with everything that it started, and what it held stays
/// until its lease expires.
pub struct Foreign {
    kind: Kind,
    child: Child,
    /// Open until it is told that there are no more requests.
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    /// The answer to the request for the lock, if it has come and was not waited for.
    held: Option<String>,
    // Its working directory: whatever still works there is ended with the directory.
    scratch: Scratch,
}

impl Foreign {
    /// A contender for `key` at `servers`: a URL (redis-py's own kind unless it is `redis://HOST:PORT`), or a list of
    /// `HOST:PORT` with commas. The lease is long: 10 seconds for sessions at ZooKeeper and leases at etcd, which are
    /// renewed; 60 seconds on redis, where they are not.
    #[track_caller]
    pub fn spawn(kind: Kind, servers: &str, key: &str) -> Self {
        let lease = if matches!(kind, Kind::RedisPy | Kind::RedlockPy) { "60" } else { "10" };
        Self::spawn_with_lease(kind, servers, key, lease)
    }

    /// A contender for `key` at `servers` with a lease of this many seconds, which may have a fraction; `never` expires
    /// only with redis-py.
    #[track_caller]
    pub fn spawn_with_lease(kind: Kind, servers: &str, key: &str, lease: &str) -> Self {
        let scratch = Scratch::new();
        // redis-py is the only one that takes a URL.
        let place = |url| str::split_once(url, "://").map_or(url, |(_, place)| place);
        let servers = if kind == Kind::RedisPy { servers } else { place(servers) };
        let mut command = kind.command();
        command.args([servers, key, lease]).current_dir(scratch.root());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(scratch.path("log")).unwrap());
        let mut child = spawn_mortal(command).unwrap();
        let requests = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let this = Self { kind, child, requests, answers, held: None, scratch };
        assert_eq!(this.hear(), "ready");
        this
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Takes the lock, and waits until it is held. Returns what orders the holders, if there is such a thing: the
    /// revision that etcd's own users see, the czxid of the node at ZooKeeper. On redis it is the value of the key,
    /// with flock the process.
    #[track_caller]
    pub fn acquire(&mut self) -> String {
        self.start_acquire();
        self.wait_held()
    }

    /// Begins to take the lock. No other request may be made until it is held.
    #[track_caller]
    pub fn start_acquire(&mut self) {
        self.tell("acquire");
    }

    /// Waits until the lock is held that it [began to take](Self::start_acquire); returns what [`Self::acquire`]
    /// returns.
    #[track_caller]
    pub fn wait_held(&mut self) -> String {
        let answer = self.held.take().unwrap_or_else(|| self.hear());
        self.token(&answer)
    }

    /// Whether it holds the lock by now that it [began to take](Self::start_acquire).
    #[track_caller]
    pub fn is_held(&mut self) -> bool {
        if self.held.is_none() {
            self.held = match self.answers.try_recv() {
                Ok(answer) => Some(answer),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => panic!("{}", self.gone()),
            };
        }
        self.held.as_ref().is_some_and(|answer| !self.token(answer).is_empty())
    }

    /// Takes the lock if it is free; returns what [`Self::acquire`] returns, or none if somebody else holds it.
    #[track_caller]
    pub fn try_acquire(&mut self) -> Option<String> {
        let answer = self.ask("try");
        (answer != "busy").then(|| self.token(&answer))
    }

    /// Releases the lock, which must be held.
    #[track_caller]
    pub fn release(&mut self) {
        let answer = self.ask("release");
        assert_eq!(answer, "released", "{}", self.log());
    }

    /// Releases a lock that was lost; returns the error that the library raises.
    #[track_caller]
    pub fn release_lost(&mut self) -> String {
        let answer = self.ask("release");
        let error = answer.strip_prefix("error ").map(str::to_owned);
        error.unwrap_or_else(|| panic!("{:?} let a lost lock go: {answer}", self.kind))
    }

    /// Releases a lock that was lost; returns the error if the library raises one.
    #[track_caller]
    pub fn release_late(&mut self) {
        let answer = self.ask("release");
        assert!(answer == "released" || answer.starts_with("error "), "{answer}\n{}", self.log());
    }

    /// Whether the library says that it holds the lock. Redis libraries and the Go client's way ask the server for
    /// that.
    #[track_caller]
    pub fn owns(&mut self) -> bool {
        match self.ask("owned").as_str() {
            "yes" => true,
            "no" => false,
            other => panic!("{:?} answered {other}\n{}", self.kind, self.log()),
        }
    }

    /// Freezes it with everything that it started, so that nothing renews its lease. Returns once all are stopped.
    #[track_caller]
    pub fn freeze(&self) {
        for pid in self.tree() {
            process::signal(pid, Signal::SIGSTOP);
            process::wait_stopped(pid);
        }
    }

    /// Continues it if it is frozen.
    #[track_caller]
    pub fn thaw(&self) {
        for pid in self.tree() {
            process::signal(pid, Signal::SIGCONT);
        }
    }

    /// It and everything that it started, parents before their children.
    fn tree(&self) -> Vec<i32> {
        [self.pid()].into_iter().chain(process::descendants(self.pid())).collect()
    }

    /// Sets the lease of the following acquisitions, in seconds or `never`; only for libraries with a lease per
    /// acquisition: those of redis, and `etcdctl`.
    #[track_caller]
    pub fn set_lease(&mut self, lease: &str) {
        assert!(matches!(self.kind, Kind::RedisPy | Kind::RedlockPy | Kind::Etcdctl), "{:?} cannot do that", self.kind);
        assert_eq!(self.ask(&format!("lease {lease}")), "ok");
    }

    /// Lets it end on its own, which closes its connections and sessions, and waits for that.
    #[track_caller]
    pub fn close(mut self) {
        self.requests = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
    }

    #[track_caller]
    fn tell(&mut self, request: &str) {
        let told = writeln!(self.requests.as_mut().expect("it was told to end"), "{request}");
        told.unwrap_or_else(|error| panic!("{error}: {}", self.gone()));
    }

    #[track_caller]
    fn hear(&self) -> String {
        self.answers.recv_timeout(CAP).unwrap_or_else(|error| panic!("{error}: {}", self.gone()))
    }

    #[track_caller]
    fn ask(&mut self, request: &str) -> String {
        self.tell(request);
        self.hear()
    }

    #[track_caller]
    fn token(&self, answer: &str) -> String {
        let token = answer.strip_prefix("held ").map(str::to_owned);
        token.unwrap_or_else(|| panic!("{:?} answered {answer} instead of holding the lock\n{}", self.kind, self.log()))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.path("log")).unwrap_or_default()
    }

    fn gone(&self) -> String {
        format!("{:?} does not answer\n{}", self.kind, self.log())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
