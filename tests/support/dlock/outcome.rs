//! How a dlock has ended, and assertions about it.

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

/// How a dlock ended, and what it wrote.
///
/// stderr must be empty unless the test inspects it: dropping an outcome with messages that were never inspected fails
/// the test.
pub struct Outcome {
    pub(super) shown: String,
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) warnings: usize,
    pub(super) elapsed: Duration,
    pub(super) expected: Cell<bool>,
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

/// `text` under its `name`, for messages.
pub(super) fn indented(name: &str, text: &str) -> String {
    let mut shown = format!("  {name}:{}\n", if text.is_empty() { " nothing" } else { "" });
    for line in text.lines() {
        let _ = writeln!(shown, "    {line}");
    }
    shown
}
