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
}

impl Scratch {
    /// The processes that wait for `key`. The kernel prints its table in pieces, and a table that changes meanwhile may
    /// lack a line or repeat one: a missing line is there at the next look, and a repeated one does not count twice.
    pub fn waiting(&self, key: &str) -> BTreeSet<i32> {
        let pid = |line: &String| line.split_once(" -> ")?.1.split_whitespace().nth(3)?.parse().ok();
        self.kernel_locks(key).iter().filter_map(pid).collect()
    }

    /// The lines of `/proc/locks` about `key`; those of waiters contain an arrow.
    pub fn kernel_locks(&self, key: &str) -> Vec<String> {
        let Ok(about) = fs::metadata(self.lock_dir().join(format!("{key}.lock"))) else { return Vec::new() };
        // Without the device, which some file systems spell differently there.
        let inode = format!(":{} ", about.ino());
        let table = fs::read_to_string("/proc/locks").unwrap();
        table.lines().filter(|line| line.contains("FLOCK") && line.contains(&inode)).map(str::to_owned).collect()
    }
}
