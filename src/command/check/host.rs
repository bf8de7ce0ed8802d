/*!
Whether commands can be supervised on this host.
*/

use crate::backend::ErrorKind;
use crate::backend::probing::Finding;
use crate::report::event::Lack;
use crate::report::lack;
use crate::supervise::process::{is_own, pidfd_open};
use crate::supervise::protocol::Unfit;
use crate::supervise::reaping::become_subreaper;
use crate::supervise::sweep::Sweep;

/// What a run needs of this host besides a backend.
pub(super) fn host() -> Finding {
    let mut sweep = Sweep::new();
    let unfit = match () {
        () if become_subreaper().is_err() => Unfit::Subreaper,
        () if !is_own() => Unfit::OtherProc,
        () if !sweep.works() => Unfit::Proc,
        () if sweep.reserve().is_err() => Unfit::Descriptors,
        () => return watching(pidfd_open(nix::unistd::getpid().as_raw()).is_ok()),
    };
    let said = lack(&Lack::Unfit(unfit));
    let (text, remedy) = said.split_once(": ").unwrap_or((&said, ""));
    Finding::fail("host", ErrorKind::Unavailable, text, remedy)
}

/// What it means that processes can be watched or not.
fn watching(is_possible: bool) -> Finding {
    if is_possible {
        return Finding::ok("host", "commands can be supervised here");
    }
    let text = "pidfd_open is refused: a run inside another one for the same lock cannot watch that";
    Finding::warn("host", text, "allow it in the container's seccomp profile")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_will_do() {
        assert_eq!(watching(true).verdict.name(), "ok");
        assert_eq!(watching(false).verdict.name(), "warn");
    }
}
