//! Small programs and libraries in C, each compiled once per test process, when a test needs it.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

use super::daemon::need;
use super::scratch::{self, Scratch};

/// Programs that are hard to stop; see `unruly.c`.
static UNRULY: LazyLock<Vec<u8>> = LazyLock::new(|| compile(include_bytes!("unruly.c"), &["-pthread"]));

/// A library that slows down fork; see `forking.c`.
static FORKING: LazyLock<Vec<u8>> = LazyLock::new(|| compile_library(include_bytes!("forking.c")));

/// A library without `fsync`; see `unsynced.c`.
static UNSYNCED: LazyLock<Vec<u8>> = LazyLock::new(|| compile_library(include_bytes!("unsynced.c")));

/// Returns the shared library of this source.
pub(super) fn compile_library(source: &[u8]) -> Vec<u8> {
    compile(source, &["-shared", "-fPIC"])
}

fn compile(source: &[u8], options: &[&str]) -> Vec<u8> {
    let directory = scratch::directory("dlock-program-");
    let program = directory.path().join("program");
    let mut compiler = Command::new(need("cc", "gcc libc6-dev"));
    compiler.args(["-x", "c", "-O1", "-Wall", "-Wextra", "-Werror"]).args(options);
    compiler.arg("-o").arg(&program).arg("-");
    let mut compiler = compiler.stdin(Stdio::piped()).spawn().unwrap();
    compiler.stdin.take().unwrap().write_all(source).unwrap();
    assert!(compiler.wait().unwrap().success(), "cannot compile a program");
    fs::read(program).unwrap()
}

/// Makes a server not wait for the disk, with a library in `directory`. What a process has written survives its death
/// without `fsync`, and no test cuts the power.
pub fn unsync(server: &mut Command, directory: &Path) {
    let library = directory.join("unsynced.so");
    if !library.exists() {
        fs::write(&library, &*UNSYNCED).unwrap();
    }
    server.env("LD_PRELOAD", library);
}

/// Shell code that runs `script` in a shell of its own.
pub fn sh(script: &str) -> String {
    format!("sh -c '{}'", script.replace('\'', r"'\''"))
}

/// Shell code that runs a program of `unruly.c`, such as `crowd 100`, with the executable in `scratch`. After `exec` it
/// takes the shell's place.
pub fn unruly(scratch: &Scratch, what: &str) -> String {
    let program = scratch.path("unruly");
    if !program.exists() {
        let source = scratch.file("unruly.bin", &*UNRULY);
        // By another process; see Scratch::script.
        let copy = Command::new("install").args(["-m", "755"]).arg(source).arg(&program).status().unwrap();
        assert!(copy.success(), "cannot make {}", program.display());
    }
    format!("'{}' {what}", program.display())
}

/// Slows down fork in dlock and everything that it starts.
pub struct SlowForks {
    directory: TempDir,
}

impl SlowForks {
    pub fn new() -> Self {
        let directory = scratch::directory("dlock-program-");
        fs::write(directory.path().join("forking.so"), &*FORKING).unwrap();
        Self { directory }
    }

    fn library(&self) -> PathBuf {
        Path::join(self.directory.path(), "forking.so")
    }

    /// The environment that adds `micros` microseconds before each fork and after it.
    pub fn by(&self, micros: u32) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.library().into()), ("FORKING_SLOW", micros.to_string().into())]
    }

    /// The environment in which the first forked process does nothing, forever.
    pub fn stuck(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.library().into()), ("FORKING_STUCK", "1".into())]
    }
}
