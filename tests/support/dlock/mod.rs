//! Starting dlock in a known environment, watching it, and checking strictly what came of it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::io::{self, PipeWriter, Read};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, fs, mem};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::clock::ClockShim;
use super::process::{self, State};
use super::rendezvous::{CAP, LifelineEnd, boottime, eventually_within};

/// The program under test: the one built along with the tests, or the one that `TESTED_DLOCK` names.
pub static DLOCK: LazyLock<&str> = LazyLock::new(|| match env::var("TESTED_DLOCK") {
    Ok(path) => path.leak(),
    Err(_) => env!("CARGO_BIN_EXE_dlock"),
});

/// The name of the process that receives, for the guard, signals to the caller's process group.
pub const EAR: &str = "lockear";

/// The command that `guard` watches, once it executes its own program.
pub fn command_of(guard: i32) -> Option<i32> {
    // Before that it still looks like the guard, and for a moment like nothing.
    let own = process::comm(guard)?;
    let is_command = |&pid: &i32| {
        let name = process::comm(pid).unwrap_or_default();
        name != own && name != EAR && !process::cmdline(pid).is_empty()
    };
    process::children(guard).into_iter().find(is_command)
}

type Hook = Box<dyn FnMut() -> io::Result<()> + Send + Sync>;

/// A dlock that is about to be started: with no environment but `PATH`, `HOME` and `TMPDIR`, no input, and its output
/// collected. It has no backend unless a test sets one.
pub struct Dlock {
    program: PathBuf,
    wrapper: Vec<OsString>,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    home: PathBuf,
    cwd: PathBuf,
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
    unprivileged: bool,
    hooks: Vec<Hook>,
    lifelines: Vec<LifelineEnd>,
}

impl Dlock {
    /// A dlock that works in `home`; see [`Scratch::dlock`](crate::support::scratch::Scratch::dlock).
    pub fn new(home: &Path) -> Self {
        let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let home_value = home.as_os_str().to_owned();
        let env = [("PATH", path), ("HOME", home_value.clone()), ("TMPDIR", home_value)];
        Self {
            program: (*DLOCK).into(),
            wrapper: Vec::new(),
            args: Vec::new(),
            env: env.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            home: home.to_owned(),
            cwd: home.to_owned(),
            stdin: Stdio::null(),
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
            unprivileged: false,
            hooks: Vec::new(),
            lifelines: Vec::new(),
        }
    }

    /// Adds `run --key KEY`.
    pub fn run(self, key: impl AsRef<OsStr>) -> Self {
        self.arg("run").arg("--key").arg(key)
    }

    /// Adds `--backend URL`.
    pub fn backend(self, url: impl AsRef<OsStr>) -> Self {
        self.arg("--backend").arg(url)
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds `--` and the command.
    pub fn command<A: AsRef<OsStr>>(self, argv: impl IntoIterator<Item = A>) -> Self {
        self.arg("--").args(argv)
    }

    /// Adds `--` and a `/bin/sh` that runs `script`.
    pub fn shell(self, script: impl AsRef<str>) -> Self {
        self.command(["/bin/sh", "-c", script.as_ref()])
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.remove(name.as_ref());
        self
    }

    /// Gives this wall clock to dlock and its command.
    pub fn clock(mut self, clock: &ClockShim) -> Self {
        self.env.extend(clock.environment());
        self
    }

    /// Starts it in `directory` instead of the scratch directory. Processes that survive there are ended by [`Running`]
    /// only, and not by the scratch directory.
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        directory.as_ref().clone_into(&mut self.cwd);
        self
    }

    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Sends stdout there instead of into the [`Outcome`].
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = stdout.into();
        self
    }

    /// Sends stderr there instead of into the [`Outcome`].
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = stderr.into();
        self
    }

    /// Runs `hook` in the new process, after its user, group and standard streams are set.
    ///
    /// # Safety
    /// It runs between fork and exec of a process with threads: only async-signal-safe calls, and no allocation.
    pub unsafe fn pre_exec(mut self, hook: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Makes it the leader of a new process group.
    pub fn new_process_group(self) -> Self {
        // SAFETY: setpgid is async-signal-safe.
        unsafe { self.pre_exec(|| done(libc::setpgid(0, 0))) }
    }

    /// Makes it the leader of a new session, without a terminal.
    pub fn new_session(self) -> Self {
        // SAFETY: setsid is async-signal-safe.
        unsafe { self.pre_exec(|| done(libc::setsid())) }
    }

    /// Starts it with `signal` ignored, as under nohup.
    pub fn ignoring(self, signal: Signal) -> Self {
        // SAFETY: signal is async-signal-safe.
        unsafe {
            self.pre_exec(move || {
                let before = libc::signal(signal as libc::c_int, libc::SIG_IGN);
                if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
            })
        }
    }

    /// Starts it with `signal` blocked.
    pub fn blocking(self, signal: Signal) -> Self {
        // SAFETY: these work on a set on the stack and on this thread's mask, and are async-signal-safe.
        unsafe {
            self.pre_exec(move || {
                let mut set = mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, signal as libc::c_int);
                done(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
            })
        }
    }

    /// Starts it with this umask.
    pub fn umask(self, mask: libc::mode_t) -> Self {
        // SAFETY: umask is async-signal-safe.
        unsafe {
            self.pre_exec(move || {
                libc::umask(mask);
                Ok(())
            })
        }
    }

    /// Starts it with both limits of `resource` (such as `libc::RLIMIT_NOFILE`) set to `limit`.
    pub fn limit(self, resource: libc::__rlimit_resource_t, limit: u64) -> Self {
        // SAFETY: setrlimit reads a struct on the stack, and is a plain system call.
        unsafe {
            self.pre_exec(move || {
                let limits = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                done(libc::setrlimit(resource, &raw const limits))
            })
        }
    }

    /// Starts it without descriptor `fd`, such as one of the standard streams.
    pub fn without_fd(self, fd: i32) -> Self {
        // SAFETY: close is async-signal-safe; nothing but an exec follows in this process.
        unsafe {
            self.pre_exec(move || {
                libc::close(fd);
                Ok(())
            })
        }
    }

    /// Starts it as a user without privileges, if the tests have any. A lock directory has to be given away to that
    /// user.
    pub fn unprivileged(mut self) -> Self {
        self.unprivileged = true;
        self
    }

    /// Puts the program where every user can execute it, for a wrapper that changes the user.
    pub fn reachable(mut self) -> Self {
        self.make_reachable();
        self
    }

    /// Starts it by `argv`, such as `["timeout", "5"]`, followed by dlock and its arguments.
    pub fn wrapped_by<A: AsRef<OsStr>>(mut self, argv: impl IntoIterator<Item = A>) -> Self {
        self.wrapper = argv.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        self
    }

    /// Replaces dlock by the command itself, in the same environment, for comparison. What [`Self::command`] was given
    /// stays, every other argument is dropped.
    pub fn bare(mut self) -> Self {
        let start = self.args.iter().position(|arg| arg == "--").expect("there is no command") + 1;
        self.args.drain(..start);
        self.program = self.args.remove(0).into();
        self
    }

    /// Adds an end of a lifeline, which dlock and its guard close and the command's tree keeps. A wrapper that stays
    /// (`timeout`) keeps it too.
    pub fn lifeline(mut self, end: LifelineEnd) -> Self {
        self.lifelines.push(end);
        self
    }

    /// Starts it.
    #[track_caller]
    pub fn spawn(mut self) -> Running {
        if self.unprivileged {
            self.make_reachable();
        }
        let (mut command, shown) = self.assemble();
        let started = boottime();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        // Whatever the child has inherited must not stay open here.
        drop(command);
        let stdout = child.stdout.take().map(|pipe| Stream::gather(pipe.into()));
        let stderr = child.stderr.take().map(|pipe| Stream::gather(pipe.into()));
        Running { child, program: self.program, shown, stdout, stderr, started, collected: false }
    }

    /// Starts it and waits for its end.
    #[track_caller]
    pub fn output(self) -> Outcome {
        self.spawn().wait()
    }

    /// The command that [`Self::spawn`] starts, and its command line for messages.
    fn assemble(&mut self) -> (Command, String) {
        let mut argv = mem::take(&mut self.wrapper);
        argv.push(self.program.clone().into());
        argv.append(&mut self.args);
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).env_clear().envs(&self.env).current_dir(&self.cwd);
        let null = Stdio::null;
        command.stdin(mem::replace(&mut self.stdin, null()));
        command.stdout(mem::replace(&mut self.stdout, null())).stderr(mem::replace(&mut self.stderr, null()));
        if self.unprivileged {
            process::unprivileged(&mut command);
        }
        for end in self.lifelines.drain(..) {
            end.attach(&mut command);
        }
        for hook in self.hooks.drain(..) {
            // SAFETY: the caller of pre_exec vouched for the hook.
            unsafe { command.pre_exec(hook) };
        }
        let shown = argv.iter().map(|arg| quoted(&arg.to_string_lossy())).collect::<Vec<_>>().join(" ");
        (command, shown)
    }

    /// Puts the program where every user can execute it: a checkout may be in a private home directory.
    fn make_reachable(&mut self) {
        let open = |path: &Path| fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o001 != 0);
        if self.program.ancestors().all(open) {
            return;
        }
        let copy = self.home.join("dlock");
        if !copy.exists() {
            // By another process; see Scratch::script.
            let status = Command::new("cp").arg("--").arg(&self.program).arg(&copy).status().unwrap();
            assert!(status.success(), "cannot copy dlock to {}", copy.display());
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        }
        self.program = copy;
    }
}

/// The result of a system call that returns a negative number on failure.
fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("'{}'", arg.replace('\'', r"'\''")) }
}

/// A dlock that was started. If this is dropped before [`Self::wait`], everything below it and then dlock itself is
/// killed.
pub struct Running {
    child: Child,
    program: PathBuf,
    shown: String,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    started: Duration,
    collected: bool,
}

impl Running {
    /// The process that was started: dlock, or its wrapper.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits for dlock itself, also below a wrapper that stays, and returns its process id.
    #[track_caller]
    pub fn dlock_pid(&self) -> i32 {
        self.find("dlock", || {
            let tree = [self.pid()].into_iter().chain(process::descendants(self.pid()));
            tree.into_iter().find(|&pid| self.is_dlock(pid))
        })
    }

    /// Waits for the guard, dlock's child that supervises the command, and returns its process id.
    #[track_caller]
    pub fn guard_pid(&self) -> i32 {
        let dlock = self.dlock_pid();
        let is_guard = |&pid: &i32| self.is_dlock(pid) && process::comm(pid).as_deref() != Some(EAR);
        self.find("the guard", || process::children(dlock).into_iter().find(is_guard))
    }

    /// Waits for the command, the guard's first child that is not the [`EAR`], to execute its own program, and returns
    /// its process id. To be called while the command runs; afterwards it could find something that the command left
    /// behind.
    #[track_caller]
    pub fn command_pid(&self) -> i32 {
        let guard = self.guard_pid();
        self.find("the command", || command_of(guard))
    }

    /// The process id of the guard's ear in the caller's process group, if there is one.
    #[track_caller]
    pub fn ear_pid(&self) -> Option<i32> {
        let mut children = process::children(self.guard_pid()).into_iter();
        children.find(|&pid| process::comm(pid).as_deref() == Some(EAR))
    }

    /// All living processes below the one that was started.
    pub fn descendants(&self) -> Vec<i32> {
        process::descendants(self.pid())
    }

    /// Sends `signal` to the process that was started, and to no other.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        assert_ne!(process::state(self.pid()), State::Gone, "{} is gone", self.shown);
        process::signal(self.pid(), signal);
    }

    /// Takes its standard input, which must be `Stdio::piped()`. Works once.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("stdin is not a pipe, or was taken before")
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        process::is_alive(self.pid())
    }

    /// Waits for a complete line with `part` on stderr, which may have come already, and returns that line.
    #[track_caller]
    pub fn wait_stderr(&self, part: &str) -> String {
        self.wait_line("stderr", self.stderr.as_ref(), part)
    }

    /// Waits for a complete line with `part` on stdout, which may have come already, and returns that line.
    #[track_caller]
    pub fn wait_stdout(&self, part: &str) -> String {
        self.wait_line("stdout", self.stdout.as_ref(), part)
    }

    /// Waits until nobody has stdout open any more, which can be before or after dlock's own end, and returns
    /// everything that came.
    #[track_caller]
    pub fn wait_stdout_closed(&self) -> String {
        let stream = self.stdout.as_ref().expect("stdout is not collected");
        let gathered = stream.wait(|gathered| gathered.closed);
        let (closed, text) = (gathered.closed, gathered.text());
        // The message below locks it too.
        drop(gathered);
        assert!(closed, "timed out after {CAP:?} waiting for the end of stdout\n{self:?}");
        text
    }

    /// What has come on stderr up to now.
    pub fn stderr_so_far(&self) -> String {
        self.stderr.as_ref().map(|stream| stream.gathered().text()).unwrap_or_default()
    }

    /// What has come on stdout up to now.
    pub fn stdout_so_far(&self) -> String {
        self.stdout.as_ref().map(|stream| stream.gathered().text()).unwrap_or_default()
    }

    /// Waits for it to end. The outcome has everything written by then; what survivors write later is not in it.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        let ended = wait_end(self.pid());
        assert!(ended, "timed out after {CAP:?} waiting for the end of\n{self:?}");
        let elapsed = boottime().saturating_sub(self.started);
        let status = self.child.wait().unwrap();
        self.collected = true;
        let shown = mem::take(&mut self.shown);
        let stdout = self.stdout.take().map(Stream::finish).unwrap_or_default();
        let stderr = self.stderr.take().map(Stream::finish).unwrap_or_default();
        let lines = stderr.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec);
        let (warnings, stderr): (Vec<Vec<u8>>, Vec<Vec<u8>>) = lines.partition(|line| is_about_old_etcd(line));
        let (warnings, stderr) = (warnings.len(), stderr.concat());
        Outcome { shown, status, stdout, stderr, warnings, elapsed, expected: Cell::new(false) }
    }

    fn is_dlock(&self, pid: i32) -> bool {
        process::exe(pid).is_some_and(|exe| Some(exe) == self.program.canonicalize().ok())
    }

    #[track_caller]
    fn find(&self, what: &str, mut look: impl FnMut() -> Option<i32>) -> i32 {
        let found = eventually_within(CAP, || match look() {
            // Once it has ended, waiting is useless.
            None if !self.is_running() => Some(None),
            found => found.map(Some),
        });
        found.flatten().unwrap_or_else(|| panic!("stopped waiting for {what} of\n{self:?}"))
    }

    #[track_caller]
    fn wait_line(&self, name: &str, stream: Option<&Stream>, part: &str) -> String {
        let stream = stream.unwrap_or_else(|| panic!("{name} is not collected"));
        let gathered = stream.wait(|gathered| gathered.closed || gathered.line_with(part).is_some());
        let line = gathered.line_with(part);
        drop(gathered);
        line.unwrap_or_else(|| panic!("stopped waiting for a line with {part:?} on {name} of\n{self:?}"))
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.shown)?;
        for pid in [self.pid()].into_iter().chain(self.descendants()) {
            let (state, argv) = (process::state(pid), process::cmdline(pid).join(" "));
            writeln!(f, "  pid {pid}, parent {}, {state:?}: {argv}", process::ppid(pid).unwrap_or(0))?;
        }
        write!(f, "{}{}", indented("stdout", &self.stdout_so_far()), indented("stderr", &self.stderr_so_far()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.collected {
            return;
        }
        // A frozen dlock cannot start anything, and orphans of what dies below it become its children instead of
        // getting away.
        process::signal(self.pid(), Signal::SIGSTOP);
        let _ = eventually_within(Duration::from_secs(5), || {
            let left = self.descendants();
            for &pid in &left {
                process::signal(pid, Signal::SIGKILL);
            }
            left.is_empty().then_some(())
        });
        process::signal(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Waits until the child `pid` has ended, without collecting it. Returns false if it has not within [`CAP`].
fn wait_end(pid: i32) -> bool {
    // SAFETY: a system call with two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(fd @ 0..) = i32::try_from(fd) else {
        return eventually_within(CAP, || (!process::is_alive(pid)).then_some(())).is_some();
    };
    // SAFETY: the descriptor is new and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let start = Instant::now();
    while let Some(left) = CAP.checked_sub(start.elapsed()) {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::try_from(left).unwrap()).is_ok_and(|ready| ready > 0) {
            return true;
        }
    }
    false
}

/// Whether a line on stderr is the warning that the installed etcd has a known bug: dlock prints it once, at its first
/// renewal, in any test that lasts until then.
fn is_about_old_etcd(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    line.starts_with("dlock: ") && line.contains(": etcd 3.") && line.contains("(etcd#15247)")
}

/// How a dlock ended, and what it wrote.
///
/// stderr must be empty unless the test inspects it: dropping an outcome with messages that were never inspected fails
/// the test.
pub struct Outcome {
    shown: String,
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    warnings: usize,
    elapsed: Duration,
    expected: Cell<bool>,
}

impl Outcome {
    pub fn status(&self) -> ExitStatus {
        self.status
    }

    /// The time from just before its start to its end.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stdout_bytes(&self) -> &[u8] {
        &self.stdout
    }

    /// How often it warned of an old etcd; these lines are not in [`Self::stderr`].
    pub fn warnings_of_old_etcd(&self) -> usize {
        self.warnings
    }

    /// What it wrote to stderr, which then counts as inspected.
    pub fn stderr(&self) -> String {
        self.expected.set(true);
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Asserts exit code 0, and nothing on stderr.
    #[track_caller]
    pub fn success(&self) -> &Self {
        self.code(0).quiet()
    }

    /// Asserts this exit code.
    #[track_caller]
    pub fn code(&self, code: i32) -> &Self {
        assert!(self.status.code() == Some(code), "expected exit code {code}\n{self:?}");
        self
    }

    /// Asserts an end by this signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) -> &Self {
        assert!(self.status.signal() == Some(signal as i32), "expected an end by {signal}\n{self:?}");
        self
    }

    /// Asserts exactly one line on stderr, which begins with `dlock: ` and contains `part`.
    #[track_caller]
    pub fn stderr_is_one_line(&self, part: &str) -> &Self {
        let stderr = self.stderr();
        let line = stderr.strip_suffix('\n').filter(|line| !line.contains('\n') && line.starts_with("dlock: "));
        let fits = line.is_some_and(|line| line.contains(part));
        assert!(fits, "expected one line `dlock: …` with {part:?} on stderr\n{self:?}");
        self
    }

    /// Asserts at least one line on stderr, each beginning with `dlock: `, the last of them containing `part`.
    #[track_caller]
    pub fn stderr_ends_with_line(&self, part: &str) -> &Self {
        let stderr = self.stderr();
        let ours = stderr.ends_with('\n') && stderr.lines().all(|line| line.starts_with("dlock: "));
        let fits = ours && stderr.lines().next_back().is_some_and(|line| line.contains(part));
        assert!(fits, "expected lines `dlock: …`, the last with {part:?}, on stderr\n{self:?}");
        self
    }

    /// Asserts nothing on stderr.
    #[track_caller]
    pub fn quiet(&self) -> &Self {
        assert!(self.stderr().is_empty(), "expected nothing on stderr\n{self:?}");
        self
    }

    /// Asserts exactly `text` on stdout.
    #[track_caller]
    pub fn stdout_is(&self, text: &str) -> &Self {
        assert!(self.stdout == text.as_bytes(), "expected {text:?} on stdout\n{self:?}");
        self
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stdout, stderr) = (String::from_utf8_lossy(&self.stdout), String::from_utf8_lossy(&self.stderr));
        writeln!(f, "  {}\n  {} after {:?}", self.shown, self.status, self.elapsed)?;
        write!(f, "{}{}", indented("stdout", &stdout), indented("stderr", &stderr))
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        let fine = self.expected.get() || self.stderr.is_empty() || thread::panicking();
        assert!(fine, "nobody asked for what is on stderr\n{self:?}");
    }
}

fn indented(name: &str, text: &str) -> String {
    let mut shown = format!("  {name}:{}\n", if text.is_empty() { " nothing" } else { "" });
    for line in text.lines() {
        let _ = writeln!(shown, "    {line}");
    }
    shown
}

/// The output of a pipe, collected by a thread.
struct Stream {
    shared: Arc<(Mutex<Gathered>, Condvar)>,
    /// Closing it ends the thread as soon as it has read what is in the pipe.
    stop: PipeWriter,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    closed: bool,
}

impl Gathered {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn line_with(&self, part: &str) -> Option<String> {
        let end = self.bytes.iter().rposition(|&byte| byte == b'\n')?;
        let lines = String::from_utf8_lossy(&self.bytes[..end]);
        lines.lines().find(|line| line.contains(part)).map(str::to_owned)
    }
}

impl Stream {
    fn gather(pipe: OwnedFd) -> Self {
        let shared = Arc::<(Mutex<Gathered>, Condvar)>::default();
        let (stopped, stop) = io::pipe().unwrap();
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let mut pipe = fs::File::from(pipe);
                let mut buffer = vec![0; 65536];
                loop {
                    let mut fds = [pipe.as_fd(), stopped.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
                    let _ = poll(&mut fds, PollTimeout::NONE);
                    let [ready, stop] = fds.map(|fd| fd.any().unwrap_or(false));
                    // What was written before the stop is read first.
                    let length = if ready { pipe.read(&mut buffer).unwrap_or(0) } else { 0 };
                    if ready || stop {
                        let mut gathered = shared.0.lock().unwrap();
                        gathered.bytes.extend_from_slice(&buffer[..length]);
                        gathered.closed = ready && length == 0;
                        shared.1.notify_all();
                        if length == 0 {
                            return;
                        }
                    }
                }
            }
        });
        Self { shared, stop, thread }
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.shared.0.lock().unwrap()
    }

    /// Waits until `enough` or [`CAP`]; the caller checks which.
    fn wait(&self, enough: impl Fn(&Gathered) -> bool) -> MutexGuard<'_, Gathered> {
        self.shared.1.wait_timeout_while(self.gathered(), CAP, |gathered| !enough(gathered)).unwrap().0
    }

    /// Everything in the pipe up to now, even if some process still has it open.
    fn finish(self) -> Vec<u8> {
        drop(self.stop);
        self.thread.join().unwrap();
        mem::take(&mut self.shared.0.lock().unwrap().bytes)
    }
}
