/*!
The locked files of outer runs, which a command inherits: a lock file stays locked after its dlock was killed, as long
as a process has the locked descriptor.
*/

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use crate::holder::{BESIDE, Holder, LOCK_FILE, Published};

/// Number of bytes of a lock file that are read to find an outer run: room for thousands of holders.
const LONGEST: usize = 32 << 20;

/// Returns the locked files of outer runs with these owner `ids` that this process has inherited.
pub(crate) fn inherited_locks(ids: &[String]) -> Vec<OwnedFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let descriptors = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    // Collected first, before the copies are in the list too.
    let descriptors: Vec<RawFd> = descriptors.filter(|&descriptor| descriptor > 2).collect();
    let copies = descriptors.into_iter().filter_map(|descriptor| {
        // SAFETY: the descriptor is only borrowed, and a copy of one that is closed meanwhile fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        borrowed.try_clone_to_owned().ok()
    });
    copies.filter(|copy| ids.iter().any(|id| names(copy, id).is_some())).collect()
}

/// Returns what the owner `id` published in `file` or its side file, if that is a lock file and `id` holds the lock.
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

/// Returns what the owner `id` has published in this lock file, which has a line for each holder.
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

/// Returns `true` if `file` names the owner `id` and is locked by the descriptor that this process has inherited. This
/// only asks the kernel: taking the lock again would turn a shared one into an exclusive one, or lose it.
pub(crate) fn keeps(file: &OwnedFd, id: &str) -> bool {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap_or_default();
    let is_locked = about.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK"));
    // In this order: a release removes its text from the file while that is still locked.
    is_locked && names(file, id).is_some()
}
