//! A directory of its own for every test.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, process};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::dlock::Dlock;
use super::process::{self as proc, NOBODY};

/// A fresh directory that every user may enter and read.
///
/// It is removed with everything in it at the end of the test, and every process that still works there is killed:
/// dlock and its command work there, so nothing survives a test that failed half-way.
pub struct Scratch {
    directory: TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Self { directory: directory("dlock-test-") }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Where `name` is or would be.
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.root().join(name.as_ref())
    }

    /// The directory `locks`, which only its owner may enter; created on first use.
    pub fn lock_dir(&self) -> PathBuf {
        self.directory("locks", 0o700)
    }

    /// A backend URL for the locks in [`Self::lock_dir`].
    pub fn file_url(&self) -> String {
        format!("file://{}", self.lock_dir().display())
    }

    /// The directory `name` with exactly this mode; created on first use.
    pub fn directory(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        if !path.exists() {
            fs::create_dir(&path).unwrap();
            // A step of its own, because the umask does not apply here.
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        path
    }

    /// Creates a file that holds `text`, and returns its path.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A file that holds `text` and that only this user may read and write, as a password's should be.
    pub fn secret(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name, text);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Creates an executable file that holds `text`, and returns its path. It is safe to run at once.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        // Another process writes it: if this one had it open for writing, a child that another test forks meanwhile
        // would have it too, and executing it would fail with ETXTBSY.
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(&path).stdin(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "cannot write {}", path.display());
        path
    }

    /// Makes `path` belong to the user that [`Dlock::unprivileged`] runs as.
    pub fn give_away(&self, path: impl AsRef<Path>) {
        if proc::is_root() {
            chown(self.root().join(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// A dlock that works in this directory and knows nothing of the environment of the tests.
    pub fn dlock(&self) -> Dlock {
        Dlock::new(self.root())
    }

    /// The processes whose working directory is here, or below.
    pub fn processes(&self) -> Vec<i32> {
        let here = |&pid: &i32| pid != process::id().cast_signed() && self.is_home_of(pid);
        proc::all().into_iter().filter(here).collect()
    }

    fn is_home_of(&self, pid: i32) -> bool {
        proc::cwd(pid).is_some_and(|cwd| cwd.starts_with(self.root())) && proc::is_alive(pid)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Once more after the last kill, because a process may fork before the signal reaches it.
        let _ = super::rendezvous::eventually_within(std::time::Duration::from_secs(5), || {
            let left = self.processes();
            for &pid in &left {
                proc::signal(pid, Signal::SIGKILL);
            }
            left.is_empty().then_some(())
        });
    }
}

/// A fresh directory of mode 0755 that every user can reach, removed when dropped.
pub fn directory(prefix: &str) -> TempDir {
    directory_in(env::temp_dir(), prefix)
}

/// A directory as [`directory`] makes them, for the data of a server. It is in `SERVER_TMPDIR` if that is set, which
/// `tests/run` sets to a directory in memory.
pub fn server_directory(prefix: &str) -> TempDir {
    directory_in(env::var_os("SERVER_TMPDIR").map_or_else(env::temp_dir, PathBuf::from), prefix)
}

fn directory_in(ours: PathBuf, prefix: &str) -> TempDir {
    let everybody = |path: &&Path| fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o001 != 0);
    // Servers and commands that run as another user cannot use a private TMPDIR.
    let base = if ours.ancestors().all(|path| everybody(&path)) { ours } else { PathBuf::from("/tmp") };
    // As the kernel spells it, so that paths in `/proc` compare.
    let base = base.canonicalize().unwrap();
    let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(base).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}
