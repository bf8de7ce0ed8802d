//! A control group with a CPU quota.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::dlock::Dlock;
use super::rendezvous::eventually_within;

/// A control group, which is removed at the end. Everything in it must have ended by then.
pub struct CpuGroup(PathBuf);

impl CpuGroup {
    /// A group that gets `granted` of each `period` of processor. None where this user may not make one, or where the
    /// hierarchy with the processors has no room for one beside its processes.
    pub fn new(granted: Duration, period: Duration) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("dlock-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let root = if v1.is_dir() { v1 } else { Path::new("/sys/fs/cgroup") };
        fs::create_dir(root.join(&name)).ok()?;
        let group = Self(root.join(&name));
        let write = |file: &str, text: String| fs::write(group.0.join(file), text).ok();
        let [granted, period] = [granted, period].map(|time| time.as_micros());
        if v1.is_dir() {
            write("cpu.cfs_period_us", period.to_string())?;
            write("cpu.cfs_quota_us", granted.to_string())?;
        } else {
            write("cpu.max", format!("{granted} {period}"))?;
        }
        Some(group)
    }

    /// Starts `dlock` in this group.
    pub fn bring(&self, dlock: Dlock) -> Dlock {
        let mut processes = fs::File::options().write(true).open(self.0.join("cgroup.procs")).unwrap();
        // SAFETY: a single write, of what needs no memory.
        unsafe { dlock.pre_exec(move || processes.write_all(b"0")) }
    }

    /// Lets what is in it run without a quota.
    pub fn lift(&self) {
        let lifted = [("cpu.cfs_quota_us", "-1"), ("cpu.max", "max")];
        for (file, text) in lifted.into_iter().filter(|(file, _)| self.0.join(file).exists()) {
            fs::write(self.0.join(file), text).unwrap();
        }
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        let _ = eventually_within(Duration::from_secs(5), || fs::remove_dir(&self.0).ok());
    }
}
