/*!
A descriptor that the event loop watches until it is readable.
*/

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers `inner` with the running event loop.
pub(crate) fn readable<T: AsFd + AsRawFd>(inner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: `AsFd` promises an open descriptor that stays the same for as long as the value lives, and the types
    // passed here give the same one through `AsRawFd`.
    unsafe { AsyncFd::register_with_interest(inner, Interest::READABLE) }.map_err(io::Error::from)
}
