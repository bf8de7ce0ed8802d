//! What a process writes, collected while the test goes on.

use std::io::{self, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::{fs, mem};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::support::rendezvous::CAP;

/// The output of a pipe, collected by a thread.
pub(super) struct Stream {
    shared: Arc<(Mutex<Gathered>, Condvar)>,
    /// Closing it ends the thread as soon as it has read what is in the pipe.
    stop: PipeWriter,
    thread: JoinHandle<()>,
}

#[derive(Default)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    pub(super) closed: bool,
}

impl Gathered {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub(super) fn line_with(&self, part: &str) -> Option<String> {
        let end = self.bytes.iter().rposition(|&byte| byte == b'\n')?;
        let lines = String::from_utf8_lossy(&self.bytes[..end]);
        lines.lines().find(|line| line.contains(part)).map(str::to_owned)
    }
}

impl Stream {
    pub(super) fn gather(pipe: OwnedFd) -> Self {
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

    pub(super) fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.shared.0.lock().unwrap()
    }

    /// Waits until `enough` or [`CAP`]; the caller checks which.
    pub(super) fn wait(&self, enough: impl Fn(&Gathered) -> bool) -> MutexGuard<'_, Gathered> {
        self.shared.1.wait_timeout_while(self.gathered(), CAP, |gathered| !enough(gathered)).unwrap().0
    }

    /// Everything in the pipe up to now, even if some process still has it open.
    pub(super) fn finish(self) -> Vec<u8> {
        drop(self.stop);
        self.thread.join().unwrap();
        mem::take(&mut self.shared.0.lock().unwrap().bytes)
    }
}
