/*!
A server process of a test's own, of any kind: started as an unprivileged user in a directory of its own, frozen, killed
and restarted at will, and gone at the end of the test.

Also what every server needs: the path of its program, and a port that nobody else gets.
*/

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;

use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt::ReuseAddr};
use tempfile::TempDir;

use super::clock::ClockShim;
use super::exhausted::SmallDisk;
use super::islands::Island;
use super::process::{self, NOBODY, State};
use super::rendezvous::{CAP, eventually_within};
use super::scratch;

/// The path of `program`. Fails the test if it is not installed, and names the Debian package that has it.
#[track_caller]
pub fn need(program: &str, package: &str) -> PathBuf {
    process::which(program).unwrap_or_else(|| panic!("missing {program}: apt-get install {package} (or run tests/run)"))
}

/// A Python 3 that has `module`: the distribution's own, which has the distribution's packages, or the first on the `PATH`, which
/// may be a script that looks for one. Each module is looked for once: importing it takes as long as many a test.
#[track_caller]
pub fn need_python(module: &str, package: &str) -> PathBuf {
    static KNOWN: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(python) = known().get(module) {
        return python.clone();
    }
    let candidates = [PathBuf::from("/usr/bin/python3")].into_iter().chain(process::which("python3"));
    let has_module = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", &format!("import {module}")]).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().find(has_module);
    let missing = || panic!("missing {module} for python3: apt-get install {package} (or run tests/run)");
    let python = found.unwrap_or_else(missing);
    known().insert(module.to_owned(), python.clone());
    python
}

/// A TCP port of the loopback address that nobody else is given while this exists.
///
/// Nothing listens there, so connections are refused, until a server that was told the number does. When that server is
/// gone, the number is still reserved, and another server can be started on it.
pub struct Port {
    number: u16,
    _reserved: OwnedFd,
}

impl Port {
    pub fn reserve() -> Self {
        // A bound socket that does not listen keeps the kernel from choosing the port for others, and with SO_REUSEADDR
        // on both sides does not prevent binding it by number.
        let reserved = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        setsockopt(&reserved, ReuseAddr, &true).unwrap();
        let number = bind_loopback(&reserved).unwrap();
        Self { number, _reserved: reserved }
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Binds `socket` to a loopback port of the kernel's choice.
fn bind_loopback(socket: &OwnedFd) -> io::Result<u16> {
    let mut address = libc::sockaddr_in {
        sin_family: libc::AF_INET.try_into().unwrap(),
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    let mut length = size_of_val(&address).try_into().unwrap();
    let generic = (&raw mut address).cast::<libc::sockaddr>();
    // SAFETY: `generic` points to an address of `length` bytes that lives until the end of this function.
    let failed = unsafe {
        libc::bind(socket.as_raw_fd(), generic, length) < 0
            || libc::getsockname(socket.as_raw_fd(), generic, &raw mut length) < 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(u16::from_be(address.sin_port)) }
}

/// A server process and its directory, which outlives the process.
///
/// All methods take `&self`, so that another thread may break the server while the test goes on.
pub struct Daemon {
    /// Its name in the messages of failing tests.
    name: String,
    directory: TempDir,
    child: Mutex<Option<Child>>,
    /// The island on which it runs, if not on this host.
    island: Option<Island>,
    /// Its wall clock, if it does not use the machine's.
    clock: Option<Arc<ClockShim>>,
    /// A disk of its own, if it has one; empty after a restart.
    disk: Option<SmallDisk>,
    aside: AtomicBool,
    /// See [`Self::is_touched`].
    touched: AtomicBool,
    /// How much of the log is not this test's.
    log_before: AtomicUsize,
}

impl Daemon {
    /// A server that is not running yet. Its directory belongs to the user that it will run as.
    pub fn new(name: &str) -> Self {
        let directory = scratch::server_directory(&format!("dlock-{name}-"));
        give_to_nobody(directory.path());
        Self {
            name: name.to_owned(),
            directory,
            child: Mutex::default(),
            island: None,
            clock: None,
            disk: None,
            aside: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            log_before: AtomicUsize::new(0),
        }
    }

    /// Puts it on an island, if one is given.
    pub fn on(mut self, island: Option<&Island>) -> Self {
        self.island = island.cloned();
        self
    }

    /// Gives it a wall clock of its own, [`Self::clock`].
    pub fn with_clock(mut self) -> Self {
        self.clock = Some(Arc::new(ClockShim::new()));
        self
    }

    /// Gives it a disk of its own of 4 MiB, [`Self::disk`].
    pub fn with_small_disk(mut self) -> Self {
        self.disk = Some(SmallDisk::on(self.subdirectory("disk"), 4));
        self
    }

    /// The address at which it serves.
    pub fn host(&self) -> Ipv4Addr {
        self.island.as_ref().map_or(Ipv4Addr::LOCALHOST, Island::address)
    }

    /// Its working directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file into that directory that the server may change.
    pub fn write(&self, name: &str, text: &str) {
        self.touched.store(true, Ordering::Relaxed);
        let path = self.directory().join(name);
        fs::write(&path, text).unwrap();
        give_to_nobody(&path);
    }

    /// A directory in it that belongs to the server; created on first use.
    pub fn subdirectory(&self, name: &str) -> PathBuf {
        let path = self.directory().join(name);
        if !path.exists() {
            fs::create_dir(&path).unwrap();
            give_to_nobody(&path);
        }
        path
    }

    /// Its process id. Fails the test if it is not running.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        // Whoever knows it can do anything.
        self.touched.store(true, Ordering::Relaxed);
        self.running_pid().unwrap_or_else(|| panic!("{} is not running", self.name))
    }

    /// Whether it was started, and not killed since.
    pub fn has_started(&self) -> bool {
        self.running_pid().is_some()
    }

    /// Whether it is running, and neither frozen nor [set aside](Self::set_aside).
    pub fn is_at_work(&self) -> bool {
        let works = |pid| process::is_alive(pid) && process::state(pid) != State::Stopped;
        !self.aside.load(Ordering::Relaxed) && self.running_pid().is_some_and(works)
    }

    /// Excludes it from [`Self::is_at_work`], or includes it again: one that is cut off from the others cannot know
    /// that.
    pub fn set_aside(&self, aside: bool) {
        self.touched.store(true, Ordering::Relaxed);
        self.aside.store(aside, Ordering::Relaxed);
    }

    /// Its wall clock, which outlives the process. Fails the test if it uses the machine's.
    #[track_caller]
    pub fn clock(&self) -> &ClockShim {
        self.own_clock().unwrap_or_else(|| panic!("{} has no clock of its own", self.name))
    }

    /// Its wall clock, if it does not use the machine's.
    pub fn own_clock(&self) -> Option<&Arc<ClockShim>> {
        self.clock.as_ref()
    }

    /// The directory of its own disk, if it has one.
    pub fn disk(&self) -> Option<&Path> {
        self.disk.as_ref().map(SmallDisk::directory)
    }

    /// Leaves no room on its own disk. Fails the test if it has none.
    #[track_caller]
    pub fn fill_disk(&self) {
        self.small_disk().fill(self.pid());
    }

    /// Frees the room that [`Self::fill_disk`] took.
    #[track_caller]
    pub fn free_disk(&self) {
        self.small_disk().free(self.pid());
    }

    #[track_caller]
    fn small_disk(&self) -> &SmallDisk {
        self.disk.as_ref().unwrap_or_else(|| panic!("{} has no disk of its own", self.name))
    }

    /// Everything that it has printed since it was first started, or another test had it.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        let own = bytes.get(self.log_before.load(Ordering::Relaxed)..).unwrap_or_default();
        String::from_utf8_lossy(own).into_owned()
    }

    /// Leaves what it has printed up to now out of [`Self::log`].
    pub fn forget_log(&self) {
        let length = fs::metadata(self.log_path()).map_or(0, |about| about.len());
        self.log_before.store(length.try_into().unwrap(), Ordering::Relaxed);
    }

    /// Whether it may have been frozen, killed, configured or replaced since [`Self::set_untouched`].
    pub fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed)
    }

    pub fn set_untouched(&self) {
        self.touched.store(false, Ordering::Relaxed);
    }

    /// Starts `command` as this server, with its clock and its disk.
    #[track_caller]
    pub fn launch(&self, mut command: Command) {
        self.touched.store(true, Ordering::Relaxed);
        if let Some(clock) = &self.clock {
            clock.attach(&mut command);
        }
        if let Some(disk) = &self.disk {
            command = disk.wrap(&command);
        }
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        command.current_dir(self.directory()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        process::unprivileged(&mut command);
        let child = spawn_mortal_on(self.island.as_ref(), command)
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", self.name));
        *self.lock() = Some(child);
    }

    /// Calls `look` until it returns something. Fails the test with the server's last output if the server ends before.
    #[track_caller]
    pub fn wait_ready<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        // An ensemble that elects its leader on a busy machine can need more than one election.
        let answer = eventually_within(3 * CAP, || {
            if let Some(status) = self.lock().as_mut()?.try_wait().unwrap() {
                return Some(Err(status));
            }
            look().map(Ok)
        });
        let answer = answer.unwrap_or_else(|| panic!("{} does not answer:\n{}", self.name, self.log()));
        answer.unwrap_or_else(|status| panic!("{} ended at once, {status}:\n{}", self.name, self.log()))
    }

    /// Freezes it: the kernel still accepts connections, and nothing is answered. Returns once it is stopped.
    #[track_caller]
    pub fn stop(&self) {
        let pid = self.pid();
        process::signal(pid, Signal::SIGSTOP);
        process::wait_stopped(pid);
    }

    /// Continues it if it is frozen.
    #[track_caller]
    pub fn cont(&self) {
        process::signal(self.pid(), Signal::SIGCONT);
    }

    /// Kills it, frozen or not. Returns once it is gone; connections are refused from then on.
    pub fn kill(&self) {
        self.touched.store(true, Ordering::Relaxed);
        let child = self.lock().take();
        if let Some(mut child) = child {
            process::signal(child.id().cast_signed(), Signal::SIGCONT);
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn running_pid(&self) -> Option<i32> {
        self.lock().as_ref().map(|child| child.id().cast_signed())
    }

    fn log_path(&self) -> PathBuf {
        self.directory().join("log")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes `path` belong to the user that servers run as.
fn give_to_nobody(path: &Path) {
    if process::is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts `command` so that it is killed when this test process ends, in whatever way.
pub fn spawn_mortal(command: Command) -> io::Result<Child> {
    spawn_mortal_on(None, command)
}

/// Starts `command` on an island, if one is given, so that it is killed when this test process ends, in whatever way.
fn spawn_mortal_on(island: Option<&Island>, mut command: Command) -> io::Result<Child> {
    type Job = (Option<Island>, Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();

    let parent = std::process::id();
    let die_with_parent = move || {
        // SAFETY: a system call with integers.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died before this was requested.
        if parent_id() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: the closure makes two system calls and does not allocate. It runs after the change of user, which would
    // clear the setting.
    unsafe { command.pre_exec(die_with_parent) };
    // The kernel means the parent's *thread*, and threads of tests come and go: one thread that stays starts all
    // servers.
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (island, mut command, answer) in jobs {
                let child = match island {
                    // Before it changes its user, who may not enter the island.
                    Some(island) => island.inside(|| command.spawn()),
                    None => command.spawn(),
                };
                let _ = answer.send(child);
            }
        });
        sender
    });
    let (sender, answer) = mpsc::channel();
    spawner.send((island.cloned(), command, sender)).unwrap();
    answer.recv().unwrap()
}
