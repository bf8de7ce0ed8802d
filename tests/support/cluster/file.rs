//! Lock files, which need no server.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::scratch::Scratch;

use super::Cluster;

impl Cluster for Scratch {
    fn url(&self) -> String {
        self.file_url()
    }

    fn queued(&self, key: &str) -> usize {
        self.waiting(key).len()
    }

    /// Lock files stay, with the tokens' counters in them, or what a killed holder has left there.
    fn litter(&self, keys: &[&str]) -> Vec<String> {
        let files = fs::read_dir(self.lock_dir()).into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        names.filter(|name| !keys.iter().any(|key| *name == format!("{key}.lock"))).collect()
    }

    /// It is the last line, which nobody but the next holder cuts off.
    fn forget_break(&self, key: &str) -> bool {
        let path = self.lock_dir().join(format!("{key}.lock"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let Some((counter, trace)) = text.split_once("\n\n") else { return false };
        let is_there = trace.starts_with(r#"{"v":1,"stop":""#) && trace.lines().count() == 1;
        if is_there {
            fs::write(path, format!("{counter}\n")).unwrap();
        }
        is_there
    }
}

/// Where the byte ranges begin that contenders lock in a lock file. Their length is the process id.
const TURNSTILE: i64 = 1 << 30;
const FIRST: i64 = TURNSTILE + (2 << 23);

impl Scratch {
    /// The processes that wait for `key`. The kernel prints its table in pieces, and a table that changes meanwhile may
    /// lack a line or repeat one: a missing line is there at the next look, and a repeated one does not count twice.
    pub fn waiting(&self, key: &str) -> BTreeSet<i32> {
        self.kernel_locks(key).iter().filter_map(|line| waiter(line)).collect()
    }

    /// The lines of `/proc/locks` about `key`; those of waiters contain an arrow.
    pub fn kernel_locks(&self, key: &str) -> Vec<String> {
        let Ok(about) = fs::metadata(self.lock_dir().join(format!("{key}.lock"))) else { return Vec::new() };
        // Without the device, which some file systems spell differently there.
        let inode = format!(":{} ", about.ino());
        let table = fs::read_to_string("/proc/locks").unwrap();
        let is_ours = |line: &&str| line.contains(&inode) && (line.contains("FLOCK") || line.contains("OFDLCK"));
        table.lines().filter(is_ours).map(str::to_owned).collect()
    }
}

/// The process that waits according to this line of `/proc/locks`: in flock(2), at the turnstile, or to get there.
fn waiter(line: &str) -> Option<i32> {
    let (_, lock) = line.split_once(':')?;
    let (waits, lock) = lock.trim_start().strip_prefix("->").map_or((false, lock), |lock| (true, lock));
    let words: Vec<&str> = lock.split_whitespace().collect();
    let [kind, _, _, pid, _, start, end] = words[..] else { return None };
    if kind == "FLOCK" {
        return if waits { pid.parse().ok() } else { None };
    }
    let (start, end): (i64, i64) = (start.parse().ok()?, end.parse().ok()?);
    let is_waiter = if waits { start == TURNSTILE } else { start == FIRST };
    if is_waiter { i32::try_from(end - start).ok() } else { None }
}
