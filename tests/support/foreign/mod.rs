/*!
Locks as other programs take them, each by its own library: small programs that a test drives by lines on their standard
streams. `driver.py` says which lines.
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

/// Whose lock it is, and what a key is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// flock(1); the key is the lock file, and there are no servers.
    Flock,
    /// `Lock` of redis-py, as the distribution has it, on one server; the key is the redis key.
    RedisPy,
    /// `Redlock` of redlock-py on several servers; the key is the redis key.
    RedlockPy,
    /// `etcdctl lock`; the key is the name, below which it makes its own. Its leases stay, with no keys, until they end.
    Etcdctl,
    /// What `concurrency.Mutex` of etcd's Go client does; the key is the name, below which it makes its own.
    EtcdMutex,
    /// etcd's own lock service; the key is the name, below which it makes its own.
    EtcdLockService,
    /// `Lock` of kazoo; the key is the path of the parent node.
    Kazoo,
    /// `InterProcessMutex` of Curator; the key is the path of the parent node.
    Curator,
}

impl Kind {
    /// The program, without the servers, the key and the lease.
    #[track_caller]
    fn command(self) -> Command {
        let script = |python: PathBuf, name: &str| {
            let mut command = Command::new(python);
            // The source directory is not for what Python makes of its files.
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
            Self::Kazoo => script(need_python("kazoo", "python3-kazoo"), "kazoo_lock.py"),
            Self::Curator => {
                let mut command = Command::new(need("java", "default-jdk-headless"));
                command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
                command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", &made::curator_class_path()]);
                command.arg("CuratorLock");
                command
            }
        }
    }
}

/// The path of one of the files here.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/foreign").join(name)
}

/// One user of one lock. When this is dropped it is killed with all that it started, and what it held stays until the lease
/// ends.
pub struct Foreign {
    kind: Kind,
    child: Child,
    /// Until it is told that there are no more.
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    /// The answer to the request for the lock, when it has come and nobody has waited for it.
    held: Option<String>,
    // Where it works: whatever is still at work there goes with the directory.
    scratch: Scratch,
}

impl Foreign {
    /// A user of `key` at `servers`: a URL (redis-py's own where it is not `redis://HOST:PORT`), or `HOST:PORT` and perhaps
    /// more of them with commas between. The lease is long: 10 seconds of session at ZooKeeper, of lease at etcd, where they
    /// are renewed; 60 seconds on redis, where nobody does.
    #[track_caller]
    pub fn spawn(kind: Kind, servers: &str, key: &str) -> Self {
        let lease = if matches!(kind, Kind::RedisPy | Kind::RedlockPy) { "60" } else { "10" };
        Self::spawn_with_lease(kind, servers, key, lease)
    }

    /// The same with a lease of so many seconds, which may have a fraction; `never` ends only with redis-py.
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

    /// Takes the lock, and waits until it is held. What is returned orders the holders where such a thing exists: the
    /// revision that etcd's own users see, the czxid of the node at ZooKeeper. On redis it is the value of the key, with
    /// flock its process.
    #[track_caller]
    pub fn acquire(&mut self) -> String {
        self.start_acquire();
        self.wait_held()
    }

    /// Begins to take the lock. Nothing may be asked until it is held.
    #[track_caller]
    pub fn start_acquire(&mut self) {
        self.tell("acquire");
    }

    /// Waits until the lock is held that it [began to take](Self::start_acquire); what [`Self::acquire`] returns.
    #[track_caller]
    pub fn wait_held(&mut self) -> String {
        let answer = self.held.take().unwrap_or_else(|| self.hear());
        self.token(&answer)
    }

    /// Whether it has the lock by now that it [began to take](Self::start_acquire).
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

    /// Takes the lock if it is free; what [`Self::acquire`] returns, or nothing when somebody else has it.
    #[track_caller]
    pub fn try_acquire(&mut self) -> Option<String> {
        let answer = self.ask("try");
        (answer != "busy").then(|| self.token(&answer))
    }

    /// Gives the lock back, which must have been held.
    #[track_caller]
    pub fn release(&mut self) {
        let answer = self.ask("release");
        assert_eq!(answer, "released", "{}", self.log());
    }

    /// Gives a lock back that was lost; the error that the library raises then.
    #[track_caller]
    pub fn release_lost(&mut self) -> String {
        let answer = self.ask("release");
        let error = answer.strip_prefix("error ").map(str::to_owned);
        error.unwrap_or_else(|| panic!("{:?} let a lost lock go: {answer}", self.kind))
    }

    /// The same where the library may have nothing to say against it.
    #[track_caller]
    pub fn release_late(&mut self) {
        let answer = self.ask("release");
        assert!(answer == "released" || answer.starts_with("error "), "{answer}\n{}", self.log());
    }

    /// Whether the library says that it holds the lock. Redis and the Go client's way ask the server for that.
    #[track_caller]
    pub fn owns(&mut self) -> bool {
        match self.ask("owned").as_str() {
            "yes" => true,
            "no" => false,
            other => panic!("{:?} answered {other}\n{}", self.kind, self.log()),
        }
    }

    /// Freezes it with all that it started, so that nobody renews its lease. Returns when all stand still.
    #[track_caller]
    pub fn freeze(&self) {
        for pid in self.tree() {
            process::signal(pid, Signal::SIGSTOP);
            process::wait_stopped(pid);
        }
    }

    /// Lets it go on when it is frozen.
    #[track_caller]
    pub fn thaw(&self) {
        for pid in self.tree() {
            process::signal(pid, Signal::SIGCONT);
        }
    }

    /// It and all that it started, parents before their children.
    fn tree(&self) -> Vec<i32> {
        [self.pid()].into_iter().chain(process::descendants(self.pid())).collect()
    }

    /// From the next acquisition on another lease, in seconds or `never`; only where each acquisition has one, which is
    /// on redis and with `etcdctl`.
    #[track_caller]
    pub fn set_lease(&mut self, lease: &str) {
        assert!(matches!(self.kind, Kind::RedisPy | Kind::RedlockPy | Kind::Etcdctl), "{:?} cannot do that", self.kind);
        assert_eq!(self.ask(&format!("lease {lease}")), "ok");
    }

    /// Lets it end by itself, which closes its connections and sessions; waits for that.
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
