/*!
Notices changes of a file, for waiters that the kernel does not wake: those for a seat, and those at a latch or a
barrier.

A holder that leaves touches the file after it has unlocked it. A killed holder does not, but the kernel reports that
its descriptor was closed, and does so just before it drops the locks of that descriptor.
*/

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::read;
use tokio::io::unix::AsyncFd;

use crate::clock::{Instant, sleep_until};
use crate::readable::readable;

/// The time after an event in which its cause may not have taken effect yet, and the interval between looks until then.
const UNSETTLED: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(5);

/// Watches files. Without a free descriptor, or if the user already has too many watches, it reports nothing.
#[derive(Debug)]
pub(super) struct Watcher {
    events: Option<AsyncFd<OwnedFd>>,
    /// The time until which to look again without an event.
    unsettled_until: Option<Instant>,
}

impl Watcher {
    /// Returns a watcher of these files, which reports changes from now on.
    #[must_use]
    pub(super) fn new(paths: &[&Path]) -> Self {
        Self::of(paths, AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_CLOSE)
    }

    /// Returns a watcher of new files in the directory at `path`.
    #[must_use]
    pub(super) fn of_new_files(path: &Path) -> Self {
        Self::of(&[path], AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO)
    }

    fn of(paths: &[&Path], kinds: AddWatchFlags) -> Self {
        let events = || {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
            for path in paths {
                inotify.add_watch(*path, kinds).ok()?;
            }
            readable(OwnedFd::from(inotify)).ok()
        };
        Self { events: events(), unsettled_until: None }
    }

    /// Resolves when it is worth looking at the files again, at `limit` at the latest.
    pub(super) async fn changed(&mut self, limit: Instant) {
        let now = Instant::now();
        let limit = match self.unsettled_until {
            Some(until) if now < until => limit.min(now + LOOK),
            _ => limit,
        };
        if self.notified(limit).await {
            self.unsettled_until = Some(Instant::now() + UNSETTLED);
        }
    }

    /// Resolves with `true` after an event, or with `false` at `limit`.
    pub(super) async fn notified(&self, limit: Instant) -> bool {
        let Some(events) = &self.events else {
            sleep_until(limit).await;
            return false;
        };
        tokio::select! {
            () = event(events) => true,
            () = sleep_until(limit) => false,
        }
    }
}

/// Resolves after an event.
async fn event(events: &AsyncFd<OwnedFd>) {
    let Ok(mut ready) = events.readable().await else { return std::future::pending().await };
    // The waiter looks for the change itself. More than one buffer of events only makes it look once more.
    let mut buffer = [0; 4096];
    let _ = read(events.get_ref(), &mut buffer);
    ready.clear_ready();
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::sys::stat::futimens;
    use nix::sys::time::TimeSpec;

    use super::*;

    #[test]
    fn a_file_that_is_touched_or_closed_is_heard_of() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
        for path in [&one, &other] {
            File::create(path).expect("created");
        }
        let file = File::open(&one).expect("opened");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let soon = || Instant::now() + Duration::from_secs(20);
            let mut watcher = Watcher::new(&[&one, &other]);
            futimens(&file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW).expect("touched");
            watcher.changed(soon()).await;
            assert!(watcher.unsettled_until.is_some());
            // Its cause may take effect later.
            watcher.changed(soon()).await;
            watcher.unsettled_until = None;
            drop(File::open(&other).expect("opened"));
            watcher.changed(soon()).await;
            assert!(watcher.unsettled_until.is_some());
            watcher.unsettled_until = None;
            watcher.changed(Instant::now() + Duration::from_millis(1)).await;
            assert_eq!(watcher.unsettled_until, None, "nothing happened");
            let watcher = Watcher::of_new_files(scratch.path());
            File::create(scratch.path().join("new")).expect("created");
            assert!(watcher.notified(soon()).await);
        });
    }
}
