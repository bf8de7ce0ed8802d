//! The sentences about an outer run.

use nix::errno::Errno;

use crate::lock::admission::Mode;
use crate::report::event::Event;
use crate::report::line::number::either;

/// The sentence for what there is to report about an outer run.
pub(super) fn outer(event: &Event) -> String {
    match event {
        Event::OuterGuardUnreachable(reason) => {
            let reason = reason.as_deref().unwrap_or("it does not answer");
            format!(
                "the lock is held by the outer dlock run, and its guard could not be reached: {reason}; take the \
                 lock once, outside (another network namespace hides it, for one)"
            )
        }
        Event::OuterFull(key) => format!(
            "{key} is held by the outer dlock run, whose guard may open no more files: raise the limit (ulimit -Hn) \
             where that one is started, or start fewer runs inside it at the same time"
        ),
        Event::StartsItself(key) => format!(
            "this command line starts itself again and again inside its lock {key}: give dlock held in that script the --key, \
             --backend and --namespace of its dlock run"
        ),
        Event::OuterUnwatchable(errno) => format!(
            "could not watch the outer dlock run: pidfd_open: {}; allow it in the container's seccomp profile",
            Errno::from_raw(*errno).desc()
        ),
        Event::Upgrade { key, outer, wanted } => {
            let option = |mode: &Mode| match mode {
                Mode::Exclusive => "--exclusive".to_owned(),
                Mode::Shared => "--shared".to_owned(),
                Mode::Slots(slots) => format!("--slots {slots}"),
            };
            format!(
                "{key} is held with {} by the outer dlock run, so that this one would never get it: use {} in \
                 the outer run, or another key here",
                option(outer),
                option(wanted)
            )
        }
        Event::OnceInside(key) => format!(
            "{key} is held by the outer dlock run, which alone knows whether its command succeeds: use --once-per \
             there"
        ),
        Event::Covered(key) => {
            let (is, it) = (either(key, "is", "are"), either(key, "it", "them"));
            format!("{key} {is} held by the outer dlock run; running under {it}")
        }
        _ => "the lock is held by the outer dlock run, which is in another PID namespace and cannot be watched \
              from here: take the lock once, outside"
            .to_owned(),
    }
}
