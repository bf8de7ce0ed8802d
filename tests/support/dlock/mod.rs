//! Starting dlock in a known environment, watching it, and checking strictly what came of it.

mod inherited;
mod outcome;
mod running;
mod stream;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::{env, fs, mem};

// Each test program uses its own part of this.
#[allow(unused_imports)]
pub use outcome::Outcome;
pub use running::Running;

use super::clock::ClockShim;
use super::process;
use super::rendezvous::{LifelineEnd, boottime};

use stream::Stream;

/// The program under test: the one built along with the tests, or the one that `TESTED_DLOCK` names.
pub static DLOCK: LazyLock<&str> = LazyLock::new(|| match env::var("TESTED_DLOCK") {
    Ok(path) => path.leak(),
    // The unit tests, which use this too, start none.
    Err(_) => match option_env!("CARGO_BIN_EXE_dlock") {
        Some(path) => path,
        None => panic!("integration tests are built after dlock"),
    },
});

/// The variable, and its value, with which a dlock reads none of this machine's config files.
pub const NO_CONFIG: (&str, &str) = ("DLOCK_CONFIG", "/dev/null");

/// The name of the process that receives, for the guard, signals to the caller's process group.
pub const LISTENER: &str = "lock-listener";

/// The command that `guard` watches, once it executes its own program.
pub fn command_of(guard: i32) -> Option<i32> {
    // Before that it still looks like the guard, and for a moment like nothing.
    let own = process::comm(guard)?;
    let is_command = |&pid: &i32| {
        let name = process::comm(pid).unwrap_or_default();
        // As older dlocks call it, too.
        ![own.as_str(), LISTENER, "lockear"].contains(&name.as_str()) && !process::cmdline(pid).is_empty()
    };
    process::children(guard).into_iter().find(is_command)
}

type Hook = Box<dyn FnMut() -> io::Result<()> + Send + Sync>;

/// A dlock that is about to be started: with no environment but `PATH`, `HOME`, `TMPDIR` and `DLOCK_CONFIG`, no input, and its output
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
        let config = OsString::from(NO_CONFIG.1);
        let env = [("PATH", path), ("HOME", home_value.clone()), ("TMPDIR", home_value), (NO_CONFIG.0, config)];
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

    /// Starts it as a user without privileges, if the tests have any. A lock directory has to be given away to that
    /// user.
    pub fn unprivileged(mut self) -> Self {
        self.unprivileged = true;
        self
    }

    /// Starts this program, another dlock, instead of the one under test.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
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

fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("'{}'", arg.replace('\'', r"'\''")) }
}
