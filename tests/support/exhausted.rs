/*!
Running out of descriptors, processes, memory or disk space. Always in one process only, so that no test affects
another.
*/

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::daemon::need;
use super::process;
use super::rendezvous::eventually_within;

/// Keeps `pid` from having more descriptors than now: it can open one only after closing another. Its children get the
/// same limit.
#[track_caller]
pub fn take_free_descriptors(pid: i32) {
    let open = process::fds(pid);
    assert!(!open.is_empty(), "the descriptors of {pid} cannot be seen");
    let free = (0..i32::MAX).find(|number| !open.contains_key(number)).unwrap();
    set_soft(pid, libc::RLIMIT_NOFILE, free.unsigned_abs().into());
}

/// Keeps `pid` from opening anything from now on. Open descriptors stay open, but no more than three at a time can be
/// passed to poll(2).
#[track_caller]
pub fn take_all_descriptors(pid: i32) {
    assert!((0..3).all(|stream| process::fds(pid).contains_key(&stream)), "{pid} has closed a standard stream");
    set_soft(pid, libc::RLIMIT_NOFILE, 3);
}

/// Restores the limit, so that `pid` can open descriptors again.
#[track_caller]
pub fn give_descriptors_back(pid: i32) {
    set_soft(pid, libc::RLIMIT_NOFILE, libc::RLIM_INFINITY);
}

/// Keeps `pid` from starting processes and threads. It must be [unprivileged](process::unprivileged): root has no such
/// limit.
#[track_caller]
pub fn take_processes(pid: i32) {
    let uid = process::status(pid, "Uid").unwrap_or_default();
    assert!(!uid.split_whitespace().any(|id| id == "0"), "{pid} is root's");
    // As its own user: a root without all capabilities may not.
    let mut command = Command::new(need("prlimit", "util-linux"));
    command.args(["--pid", &pid.to_string(), "--nproc=0:"]);
    process::unprivileged(&mut command);
    assert!(command.status().unwrap().success(), "the limits of {pid}");
}

/// Sets the soft limit of another process, up to the hard limit.
#[track_caller]
fn set_soft(pid: i32, resource: libc::__rlimit_resource_t, limit: u64) {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a system call that writes a struct on the stack.
    let read = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut limits) };
    limits.rlim_cur = limit.min(limits.rlim_max);
    // SAFETY: a system call that reads it.
    let set = unsafe { libc::prlimit(pid, resource, &raw const limits, std::ptr::null_mut()) };
    assert!(read == 0 && set == 0, "the limits of {pid}: {}", std::io::Error::last_os_error());
}

/// A disk of a few MiB that is visible to one process and its children.
pub struct SmallDisk {
    directory: PathBuf,
    mebibytes: u32,
}

impl SmallDisk {
    /// A disk of `mebibytes` MiB, mounted on `directory` and empty, for as long as the process lives.
    pub fn on(directory: impl Into<PathBuf>, mebibytes: u32) -> Self {
        Self { directory: directory.into(), mebibytes }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `command` with the disk: the same process, in a mount namespace of its own. It needs no root privileges, and
    /// appears as root to itself.
    #[must_use]
    pub fn wrap(&self, command: &Command) -> Command {
        const SCRIPT: &str = r#"mount -t tmpfs -o "size=$2m,mode=0777" tmpfs "$1" && shift 2 && exec "$@""#;
        let mut wrapped = Command::new(need("unshare", "util-linux"));
        wrapped.args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"]);
        wrapped.arg(&self.directory).arg(self.mebibytes.to_string());
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }

    /// Fills the disk of the process `pid`.
    #[track_caller]
    pub fn fill(&self, pid: i32) {
        // Twice its size, so that no other disk is filled by mistake.
        let script = r#"head -c "$(($2 * 2))M" /dev/zero > "$1" 2> /dev/null && exit 9; exit 0"#;
        assert_eq!(self.run(pid, script), Some(0), "{} is no small disk of {pid}", self.directory.display());
    }

    /// Frees the room that [`Self::fill`] took.
    #[track_caller]
    pub fn free(&self, pid: i32) {
        assert_eq!(self.run(pid, r#"rm "$1""#), Some(0));
    }

    /// Runs a script as the user that the disk belongs to; `$1` is a file there, `$2` its size in MiB. Returns its exit
    /// code.
    fn run(&self, pid: i32, script: &str) -> Option<i32> {
        let inside = self.directory.strip_prefix("/").unwrap();
        let ballast = Path::new(&format!("/proc/{pid}/root")).join(inside).join("ballast");
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(ballast).arg(self.mebibytes.to_string());
        process::unprivileged(&mut shell);
        shell.status().unwrap().code()
    }
}

/// A control group with little memory: a process in it that takes more is killed by the kernel, and no other.
pub struct SmallMemory {
    directory: PathBuf,
}

impl SmallMemory {
    /// A control group of `mebibytes` MiB; none if no such group can be created.
    pub fn of(mebibytes: u64) -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("dlock-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        // Version 1 of control groups, and version 2.
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(root, limit)| {
            let directory = Path::new(root).join(&name);
            fs::create_dir(&directory).ok()?;
            let group = Self { directory };
            fs::write(group.directory.join(limit), (mebibytes << 20).to_string()).ok()?;
            Some(group)
        })
    }

    /// The wrapper (see [`wrapped_by`](super::dlock::Dlock::wrapped_by)) that runs a program and all that it starts in
    /// the group.
    pub fn wrapper(&self) -> [OsString; 5] {
        let script = r#"echo $$ > "$1/cgroup.procs" && shift && exec "$@""#;
        ["sh".into(), "-c".into(), script.into(), "sh".into(), self.directory.clone().into()]
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        // Only the processes of a failed test are left. The group is in use until the kernel has finished with the last
        // of them.
        let _ = eventually_within(Duration::from_secs(5), || {
            let left = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
            for pid in left.lines().filter_map(|pid| pid.parse().ok()) {
                process::signal(pid, Signal::SIGKILL);
            }
            fs::remove_dir(&self.directory).ok()
        });
    }
}
