//! A process for which locks are kept.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};

/// It ends when it is told to, and at the latest with the test.
pub struct Ward(Child);

impl Ward {
    /// One that does nothing: `sleep`, by that name from the beginning.
    pub fn idle() -> Self {
        Self::spawned(Command::new("sleep").arg("1000"))
    }

    /// One that runs this script; returns once the script has printed a line, or is about to begin.
    pub fn shell(script: &str) -> Self {
        let mut ward =
            Self::spawned(Command::new("sh").args(["-c", &format!("echo; {script}")]).stdout(Stdio::piped()));
        BufReader::new(ward.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        ward
    }

    fn spawned(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// Ends it by SIGKILL.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
