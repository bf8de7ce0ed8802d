//! One direction of one connection through a proxy: what is held, delayed, cut off or discarded.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::Mode;

/// How much may queue in one direction before the proxy stops reading, as in a network with small buffers.
const ROOM: usize = 256 * 1024;
/// The effect of a mode on one direction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Pass,
    Swallow,
    Hold,
    Drip(Duration),
    Delay(Duration),
    Cut(usize),
}

/// The policies for requests and for replies.
pub(super) fn policies(mode: Mode) -> (Policy, Policy) {
    match mode {
        Mode::Forward => (Policy::Pass, Policy::Pass),
        Mode::Silent => (Policy::Swallow, Policy::Swallow),
        Mode::DropReplies => (Policy::Pass, Policy::Swallow),
        Mode::DropRequests => (Policy::Swallow, Policy::Pass),
        // In the last two modes no connection is left that anything could happen to.
        Mode::Hold | Mode::Refuse | Mode::Reset => (Policy::Hold, Policy::Hold),
        Mode::Drip(interval) => (Policy::Pass, Policy::Drip(interval)),
        Mode::Delay(delay) => (Policy::Delay(delay), Policy::Delay(delay)),
        Mode::DelayReplies(delay) => (Policy::Pass, Policy::Delay(delay)),
        Mode::CutReplyAfter(bytes) => (Policy::Pass, Policy::Cut(bytes)),
    }
}

/// One direction of one connection.
#[derive(Default)]
pub(super) struct Lane {
    /// What has arrived and not left yet, with its time of arrival.
    queue: VecDeque<(Instant, Vec<u8>)>,
    /// Whether something that arrived after all of `queue` was discarded.
    pub(super) torn: bool,
    end: Option<End>,
    /// Whether the end of the stream was passed on.
    pub(super) closed: bool,
    /// [`Policy::Cut`]: how many bytes may still pass.
    uncut: usize,
    /// [`Policy::Drip`]: when the next byte may leave.
    drop_due: Option<Instant>,
}

#[derive(Clone, Copy)]
enum End {
    Finished,
    Reset,
}

#[derive(Default)]
pub(super) struct Moved {
    pub(super) passed: u64,
    pub(super) lost: u64,
    pub(super) broken: bool,
}

impl Lane {
    /// Switches to a new policy; returns how many bytes that discards.
    pub(super) fn enter(&mut self, policy: Policy) -> u64 {
        let keep = match policy {
            Policy::Swallow => 0,
            Policy::Cut(bytes) => bytes,
            _ => usize::MAX,
        };
        let mut left = keep;
        let mut lost = 0;
        for (_, chunk) in &mut self.queue {
            let kept = chunk.len().min(left);
            lost += (chunk.len() - kept) as u64;
            left -= kept;
            chunk.truncate(kept);
        }
        self.queue.retain(|(_, chunk)| !chunk.is_empty());
        self.torn |= lost > 0;
        self.uncut = left;
        self.drop_due = if let Policy::Drip(interval) = policy { Some(Instant::now() + interval) } else { None };
        lost
    }

    pub(super) fn has_room(&self, policy: Policy) -> bool {
        let waiting: usize = self.queue.iter().map(|(_, chunk)| chunk.len()).sum();
        self.end.is_none() && policy != Policy::Hold && waiting < ROOM
    }

    /// How many bytes at the front of the queue may leave at `now`.
    pub(super) fn sendable(&self, policy: Policy, now: Instant) -> usize {
        let front = self.queue.front().map_or(0, |(_, chunk)| chunk.len());
        match policy {
            Policy::Swallow | Policy::Hold => 0,
            Policy::Drip(_) | Policy::Delay(_) if self.due(policy).is_some_and(|due| due > now) => 0,
            Policy::Drip(_) => front.min(1),
            Policy::Pass | Policy::Cut(_) | Policy::Delay(_) => front,
        }
    }

    /// When the front of the queue may leave, if that depends on time.
    pub(super) fn due(&self, policy: Policy) -> Option<Instant> {
        let (arrived, _) = self.queue.front()?;
        match policy {
            Policy::Drip(_) => self.drop_due,
            Policy::Delay(delay) => Some(*arrived + delay),
            _ => None,
        }
    }

    pub(super) fn pump(&mut self, policy: Policy, mut source: &TcpStream, mut sink: &TcpStream) -> Moved {
        let mut moved = Moved::default();
        let mut buffer = [0; 16 * 1024];
        while self.has_room(policy) {
            match source.read(&mut buffer) {
                Ok(0) => self.end = Some(End::Finished),
                Ok(n) => self.take(policy, &buffer[..n], &mut moved),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.end = Some(End::Reset),
            }
            if moved.broken {
                return moved;
            }
        }
        let now = Instant::now();
        loop {
            let n = self.sendable(policy, now);
            if n == 0 {
                break;
            }
            let (_, chunk) = self.queue.front_mut().expect("something to send");
            match sink.write(&chunk[..n]) {
                Ok(written) => {
                    moved.passed += written as u64;
                    chunk.drain(..written);
                    if chunk.is_empty() {
                        self.queue.pop_front();
                    }
                    if let Policy::Drip(interval) = policy {
                        self.drop_due = Some(now + interval);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => moved.broken = true,
            }
            if moved.broken {
                return moved;
            }
        }
        self.pass_end(policy, sink, &mut moved);
        moved
    }

    fn take(&mut self, policy: Policy, bytes: &[u8], moved: &mut Moved) {
        let keep = match policy {
            Policy::Swallow => 0,
            Policy::Cut(_) => bytes.len().min(self.uncut),
            _ => bytes.len(),
        };
        if keep > 0 && self.torn {
            moved.broken = true;
            return;
        }
        if keep > 0 {
            self.uncut = self.uncut.saturating_sub(keep);
            if self.queue.is_empty()
                && let (Policy::Drip(interval), Some(due)) = (policy, &mut self.drop_due)
            {
                *due = (*due).max(Instant::now() + interval);
            }
            self.queue.push_back((Instant::now(), bytes[..keep].to_vec()));
        }
        moved.lost += (bytes.len() - keep) as u64;
        self.torn |= keep < bytes.len();
    }

    fn pass_end(&mut self, policy: Policy, sink: &TcpStream, moved: &mut Moved) {
        let passes = match policy {
            Policy::Swallow | Policy::Hold => false,
            Policy::Cut(_) => self.uncut > 0,
            _ => true,
        };
        if self.closed || !passes || !self.queue.is_empty() {
            return;
        }
        match self.end {
            None => {}
            Some(End::Finished) if !self.torn => {
                let _ = sink.shutdown(Shutdown::Write);
                self.closed = true;
            }
            // A clean end would claim that the stream is complete.
            Some(End::Finished | End::Reset) => moved.broken = true,
        }
    }
}
