/*!
A real terminal, with a process that has it as its controlling terminal: for everything that only a terminal does
(Ctrl-C to a whole group, job control, stopping a background reader, redrawing a line).

The terminal has 40 lines of 240 columns until [`Pty::resize`] changes that: wide enough that readline does not scroll a
test's command lines sideways.
*/

use std::fs::{File, Metadata, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, setsid, tcgetpgrp};

use super::dlock::NO_CONFIG;
use super::rendezvous::eventually;

/// What [`bash`] prints when it waits for a command.
pub const PROMPT: &str = "ready> ";

/// The identity of no terminal: no inode has this number.
const NO_TERMINAL: (u64, u64) = (0, 0);

/// How long each wait may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// An interactive bash with job control whose prompt is [`PROMPT`], and which reads no file of the user's. Its
/// environment is empty but for `PATH` and what keeps it plain.
pub fn bash() -> Command {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]).env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        bash.env("PATH", path);
    }
    // On a dumb terminal readline sends no escape sequences.
    bash.envs([("PS1", PROMPT), ("TERM", "dumb"), ("LC_ALL", "C"), ("HISTFILE", ""), ("INPUTRC", "/dev/null")]);
    bash
}

/// A process on a terminal of its own, of whose session it is the leader.
///
/// When this is dropped, every process that is in the session, descends from the process, or has the terminal open is
/// killed, and the terminal is gone. A process that left all three behind (a daemon with its own session, orphaned, and
/// its output elsewhere) is up to the test.
pub struct Pty {
    master: File,
    /// Collected in `drop` only: until then no other process can get its pid.
    child: Child,
    /// Device and inode of the terminal; no other terminal gets them while `master` is open.
    terminal: (u64, u64),
    screen: Arc<Screen>,
    stop_reading: Option<PipeWriter>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Screen {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    bytes: Vec<u8>,
    consumed: usize,
    /// Nobody has the terminal open any more.
    hung_up: bool,
}

impl Screen {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pty {
    /// Starts `command` as the leader of a new session whose controlling terminal, standard input, output and error
    /// are a new terminal. `command` is used up by it: its three streams point nowhere afterwards.
    pub fn spawn(command: &mut Command) -> Pty {
        command.envs([NO_CONFIG]);
        // Not openpty(3): its descriptors would leak into processes that other threads start at the same moment, and a
        // copy of the terminal in another process keeps it from ever hanging up.
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).expect("could not open a pty");
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname_r(&master).unwrap();
        let slave = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_NOCTTY).open(&path).unwrap();
        let terminal = identity(&slave.metadata().unwrap());
        let master = File::from(OwnedFd::from(master));
        set_size(&master, 40, 240);

        let stream = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: the closure makes two system calls and touches no memory that another thread could hold locked.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                // Standard input is the terminal already.
                if nix::libc::ioctl(0, nix::libc::TIOCSCTTY, 0) == -1 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));
        // Copies of the terminal here would keep it from ever hanging up.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(slave);

        let screen = Arc::new(Screen::default());
        let (stopped, stop_reading) = pipe().unwrap();
        let reader = std::thread::Builder::new()
            .name("pty".into())
            .spawn({
                let (master, screen) = (master.try_clone().unwrap(), Arc::clone(&screen));
                move || read_all(master, &stopped, &screen)
            })
            .unwrap();
        Pty { master, child, terminal, screen, stop_reading: Some(stop_reading), reader: Some(reader) }
    }

    /// Types `text`. A line needs its `\n`. The terminal echoes what is typed, so what a test expects as *output*
    /// should not be part of the typed line: `echo do''ne` prints `done`, and its echo does not match it.
    pub fn send(&self, text: &str) {
        (&self.master).write_all(text.as_bytes()).expect("could not type into the terminal");
    }

    /// Types Ctrl and `key`: `'c'`, `'z'`, `'d'`, `'\\'`…
    ///
    /// A program is ready for it (and for typed text) once it has printed something itself. Before that its shell,
    /// though in the foreground already, may still catch or ignore the key's signal and lose what is typed.
    pub fn send_key(&self, key: char) {
        let key = u8::try_from(key.to_ascii_uppercase()).expect("an ASCII key");
        (&self.master).write_all(&[key & 0x1f]).expect("could not type into the terminal");
    }

    /// Waits until `text` appears after what earlier calls consumed; consumes everything up to its end, and returns
    /// that. Lines end in `\r\n`. Panics with everything seen if it does not appear within 30 seconds, or cannot any
    /// more because nobody has the terminal open.
    pub fn expect(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.screen.lock();
        loop {
            let fresh = &seen.bytes[seen.consumed..];
            if let Some(at) = fresh.windows(text.len().max(1)).position(|window| window == text.as_bytes()) {
                let consumed = String::from_utf8_lossy(&fresh[..at + text.len()]).into_owned();
                seen.consumed += at + text.len();
                return consumed;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if seen.hung_up || left.is_zero() {
                let why = if seen.hung_up { "before the terminal hung up" } else { "in time" };
                let (old, fresh) = seen.bytes.split_at(seen.consumed);
                let (old, fresh) = (String::from_utf8_lossy(old), String::from_utf8_lossy(fresh));
                panic!("{text:?} did not appear {why}.\n--- consumed ---\n{old}\n--- since then ---\n{fresh}\n---");
            }
            seen = self.screen.changed.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Everything written to the terminal so far, consumed or not.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().bytes).into_owned()
    }

    /// Waits until nobody has the terminal open any more; returns what was not consumed. Panics after 30 seconds.
    pub fn hang_up(&self) -> String {
        eventually("the terminal to hang up", || self.screen.lock().hung_up.then_some(()));
        let mut seen = self.screen.lock();
        let rest = String::from_utf8_lossy(&seen.bytes[seen.consumed..]).into_owned();
        seen.consumed = seen.bytes.len();
        rest
    }

    /// Closes the terminal's other side, as closing a terminal window or a connection does: the terminal hangs up.
    pub fn close(&mut self) {
        // The thread has a copy.
        drop(self.stop_reading.take());
        let _ = self.reader.take().map(JoinHandle::join);
        self.master = File::open("/dev/null").unwrap();
        // From now on another process may be given a terminal with the same numbers.
        self.terminal = NO_TERMINAL;
    }

    /// The pid of the process that was started, which is also the number of its session and of its own process group.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The terminal's foreground process group, which its keys signal and which may read from it.
    pub fn foreground(&self) -> Pid {
        tcgetpgrp(&self.master).expect("could not ask the terminal for its foreground group")
    }

    /// Waits for the process to end (for 30 seconds at most, then panics with everything seen).
    pub fn wait(&self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            match waitid(Id::Pid(self.pid()), flags).expect("the process is our child") {
                WaitStatus::Exited(_, code) => return ExitStatus::from_raw((code & 0xff) << 8),
                WaitStatus::Signaled(_, signal, _) => return ExitStatus::from_raw(signal as i32),
                _ => {}
            }
            assert!(Instant::now() < deadline, "the process on the terminal did not end. Seen:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sets the size of the terminal; its foreground group gets a SIGWINCH if that is a change.
    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.master, rows, columns);
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let living = processes_of(self.pid(), self.terminal);
            if living.is_empty() {
                break;
            }
            for pid in living {
                let _ = kill(pid, Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.wait();
        drop(self.stop_reading.take());
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

fn set_size(terminal: &File, rows: u16, columns: u16) {
    let size = nix::libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one winsize, and `size` is one.
    let result = unsafe { nix::libc::ioctl(terminal.as_raw_fd(), nix::libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(result, 0, "could not set the size of the terminal: {}", std::io::Error::last_os_error());
}

/// Reads until the terminal hangs up (the master then reads as EIO) or `stopped` does.
fn read_all(mut master: File, stopped: &PipeReader, screen: &Screen) {
    let mut buffer = [0; 4096];
    loop {
        let mut wanted =
            [PollFd::new(master.as_fd(), PollFlags::POLLIN), PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut wanted, PollTimeout::NONE);
        if wanted[1].any() == Some(true) {
            return;
        }
        if wanted[0].any() != Some(true) {
            continue;
        }
        let result = master.read(&mut buffer);
        let mut seen = screen.lock();
        match result {
            Ok(n) if n > 0 => seen.bytes.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            _ => seen.hung_up = true,
        }
        let over = seen.hung_up;
        drop(seen);
        screen.changed.notify_all();
        if over {
            return;
        }
    }
}

/// What tells a terminal from every other one: the number alone is not unique across instances of devpts.
fn identity(terminal: &Metadata) -> (u64, u64) {
    (terminal.dev(), terminal.ino())
}

/// The living processes that are in the session of `leader`, are it, descend from it, or have `terminal` open.
fn processes_of(leader: Pid, terminal: (u64, u64)) -> Vec<Pid> {
    struct Process {
        pid: i32,
        parent: i32,
        session: i32,
        living: bool,
    }
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It has ended since the directory was read: nothing to kill.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name may contain blanks and parentheses; what follows its last one does not.
        let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |field: usize| fields[field].parse().unwrap_or(0);
        all.push(Process { pid, parent: number(1), session: number(3), living: !matches!(fields[0], "Z" | "X") });
    }
    let mut tree = vec![leader.as_raw()];
    let mut known = 0;
    while known < tree.len() {
        let parent = tree[known];
        tree.extend(all.iter().filter(|process| process.parent == parent).map(|process| process.pid));
        known += 1;
    }
    let has_it_open = |pid: i32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|fd| std::fs::metadata(fd.path()).ok()).any(|file| identity(&file) == terminal)
    };
    all.iter()
        .filter(|process| process.living)
        .filter(|process| tree.contains(&process.pid) || process.session == leader.as_raw() || has_it_open(process.pid))
        // A test may have opened the terminal itself.
        .filter(|process| process.pid != Pid::this().as_raw())
        .map(|process| Pid::from_raw(process.pid))
        .collect()
}
