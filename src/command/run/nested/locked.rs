/*!
The locked files of outer runs, which a command inherits: a lock file stays locked after its dlock was killed, as long as a
process has the locked descriptor.
*/

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use crate::holder::{BESIDE, Holder, LOCK_FILE, Published};

/// How much of a lock file is read to find an outer run, in bytes: room for thousands of holders.
const LONGEST: usize = 32 << 20;

/// The locked files of outer runs with these owner `ids` that this process has inherited.
pub(crate) fn inherited_locks(ids: &[String]) -> Vec<OwnedFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let descriptors = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    // All of them, before the copies are in the list too.
    let descriptors: Vec<RawFd> = descriptors.filter(|&descriptor| descriptor > 2).collect();
    let copies = descriptors.into_iter().filter_map(|descriptor| {
        // SAFETY: the descriptor is only borrowed, and a copy of one that is closed meanwhile fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        borrowed.try_clone_to_owned().ok()
    });
    copies.filter(|copy| ids.iter().any(|id| names(copy, id).is_some())).collect()
}

/// What the owner `id` has published in `file` or in a file beside it, if that is a lock file and it holds the lock.
fn names(file: &OwnedFd, id: &str) -> Option<Box<Published>> {
    let beside = || {
        let mut path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?.into_os_string();
        path.push(BESIDE);
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
    };
    let says = |file: std::fs::File| says(&file, id);
    file.try_clone().ok().and_then(|file| says(file.into())).or_else(|| beside().and_then(says))
}

/// What the owner `id` has published in this lock file: each holder has a line there.
fn says(file: &std::fs::File, id: &str) -> Option<Box<Published>> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut beginning = [0; LOCK_FILE.len()];
    file.read_exact_at(&mut beginning, 0).ok()?;
    if beginning.as_slice() != LOCK_FILE.as_bytes() {
        return None;
    }
    let mut content = vec![0; usize::try_from(metadata.len()).map_or(LONGEST, |length| length.min(LONGEST))];
    let length = file.read_at(&mut content, 0).ok()?;
    let quoted = format!("\"id\":\"{id}\"");
    let lines = content[..length].split(|&byte| byte == b'\n' || byte == 0);
    let mut named = lines.filter(|line| line.windows(quoted.len()).any(|part| part == quoted.as_bytes()));
    named.find_map(|line| match Holder::read(line) {
        Holder::Dlock(published) if published.id == id && !published.done => Some(published),
        _ => None,
    })
}

/// Whether `file` names the owner `id` and is locked by the descriptor that this process has inherited. The kernel is only
/// asked: to take the lock again would turn a shared one into an exclusive one, or lose it.
pub(crate) fn keeps(file: &OwnedFd, id: &str) -> bool {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap_or_default();
    let is_locked = about.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK"));
    // In this order: what a release removes from the file is removed while it is still locked.
    is_locked && names(file, id).is_some()
}
