/*!
Events about breaking a lock.
*/

use std::fmt::Display;
use std::time::Duration;

use humantime::format_duration;

use crate::holder::Holder;
use crate::key::Key;
use crate::report::level::Level;

/// The hint for a lock that can be taken away.
const NOW: &str = "; --now takes the lock away at once";

/// The reason why a holder cannot be asked to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unaskable {
    /// It is another program.
    Foreign,
    /// It is another program on this host, with this process id and name.
    Process(i32, String),
    /// It is a dlock that does not heed requests.
    Older,
    /// Its process has ended, and it holds the lock by its handle.
    Handle,
    /// It has finished, and the lock only stays taken.
    Finished,
    /// Its dlock has ended, and its command goes on with the lock, which has no lease.
    Ended,
}

/// Something about breaking a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BreakEvent {
    /// The lock is free.
    Nothing(Key),
    /// Several holders' ids begin with what was given.
    Several(String),
    /// Another holder has the lock, and nothing was done.
    Another {
        /// The lock.
        key: Key,
        /// The holder.
        holder: Holder,
        /// The owner id of that holder.
        owner: String,
        /// "Now" in milliseconds since 1970 by the clock of the service.
        now: u64,
    },
    /// It is not known who holds the lock, and nothing was done.
    Unclear(Key),
    /// The holder cannot be asked, and nothing was done.
    Unaskable {
        /// The lock.
        key: Key,
        /// The reason.
        why: Unaskable,
        /// `true` if the lock can be taken away.
        can_be_taken: bool,
    },
    /// The user did not confirm the break.
    Declined {
        /// The lock.
        key: Key,
        /// `true` if the user had to confirm by typing the lock's name.
        typed: bool,
    },
    /// The holder was asked to stop.
    Asked {
        /// The holder, as people call it.
        who: String,
        /// Longest time until it notices.
        notices: Option<Duration>,
        /// Time that it gives its command to end.
        stops: Option<Duration>,
    },
    /// This holder, in words, has ended without giving the lock back.
    Dead(String),
    /// That owner no longer uses the lock.
    Gone {
        /// The lock.
        key: Key,
        /// Time that this took, if it was asked.
        after: Option<Duration>,
        /// The present holder.
        next: Option<Holder>,
        /// "Now" in milliseconds since 1970 by the clock of the service.
        now: u64,
    },
    /// It still holds the lock after the wait.
    StillHeld {
        /// The lock.
        key: Key,
        /// Length of the wait.
        within: Duration,
        /// `true` if the lock can be taken away.
        can_be_taken: bool,
    },
    /// The lock was taken away.
    Taken {
        /// The lock.
        key: Key,
        /// The holder that lost it.
        holder: Holder,
        /// "Now" in milliseconds since 1970 by the clock of the service.
        now: u64,
        /// Longest time until that holder notices; `None` if unknown.
        within: Option<Duration>,
        /// Longest time for which that holder can go on if it is frozen, if that is longer.
        frozen: Option<Duration>,
    },
    /// The break could not be recorded for later looks at the lock.
    Untraced {
        /// The lock.
        key: Key,
        /// The reason.
        reason: String,
    },
    /// The service has failed.
    Failed {
        /// The lock.
        key: Key,
        /// Its reason.
        reason: String,
    },
}

impl BreakEvent {
    /// Returns the verbosity at which it is reported: always, if dlock fails.
    #[must_use]
    pub(in crate::report) fn level(&self) -> Level {
        match self {
            Self::Nothing(_) | Self::Asked { .. } | Self::Untraced { .. } | Self::Gone { .. } | Self::Taken { .. } => {
                Level::Note
            }
            Self::Several(_)
            | Self::Another { .. }
            | Self::Unclear(_)
            | Self::Unaskable { .. }
            | Self::Declined { .. }
            | Self::Dead(_)
            | Self::StillHeld { .. }
            | Self::Failed { .. } => Level::Warning,
        }
    }

    /// Returns its sentence.
    #[must_use]
    pub(in crate::report) fn line(&self) -> String {
        match self {
            Self::Nothing(key) => format!("{key} is free: there is nothing to break"),
            Self::Several(owner) => {
                format!("the ids of several holders begin with {owner}: give more of the one that is meant")
            }
            Self::Another { key, holder, owner, now } => {
                format!("{key} is {}, owner {owner}: nothing was done", holder.describe(*now))
            }
            Self::Unclear(key) => {
                format!("it is not clear who holds {key}, and nothing was done: see dlock status")
            }
            Self::Unaskable { key, why, can_be_taken } => unaskable(key, why, if *can_be_taken { NOW } else { "" }),
            Self::Declined { key, typed: false } => format!("{key}: nothing was done"),
            Self::Declined { key, typed: true } => format!("{key} was not typed, and nothing was done"),
            Self::Asked { who, notices, stops } => {
                let notices = notices.map(|every| format!(": it checks every {} or sooner", format_duration(every)));
                let stops =
                    stops.map(|within| format!(", and then has {} to end its command", format_duration(within)));
                format!("asked {who} to stop{}{}", notices.unwrap_or_default(), stops.unwrap_or_default())
            }
            Self::Dead(who) => format!("{who} is gone: waiting until its lease has run out"),
            Self::Gone { key, after, next, now } => {
                let gone = match after {
                    Some(after) => format!("was released after {}", roughly(*after)),
                    None => "is not held by that owner any more".to_owned(),
                };
                format!(
                    "{key} {gone}; {}",
                    next.as_ref().map_or("nobody holds it".to_owned(), |next| next.describe(*now))
                )
            }
            Self::StillHeld { key, within, can_be_taken } => {
                let rest = if *can_be_taken {
                    NOW
                } else {
                    "; it is free once its command and every process it has started have ended"
                };
                format!("{key} was not released within {}{rest}", format_duration(*within))
            }
            Self::Taken { key, holder, now, within, frozen } => {
                let who = holder.describe(*now);
                let who = who.strip_prefix("held by ").unwrap_or(&who);
                let until = match (within, holder) {
                    (Some(within), _) => {
                        let frozen = frozen.map(|frozen| format!(", or {} if it is frozen", format_duration(frozen)));
                        let (within, frozen) = (format_duration(*within), frozen.unwrap_or_default());
                        format!("until it notices (at most {within}{frozen}), two commands can run")
                    }
                    (None, Holder::Dlock(_)) => "its command had ended".to_owned(),
                    (None, _) => "whether it notices is not known, and two programs can run".to_owned(),
                };
                format!("took {key} away from {who}; {until}")
            }
            Self::Untraced { key, reason } => {
                format!("could not record this break of {key}, so dlock status will not show it: {reason}")
            }
            Self::Failed { key, reason } => format!("could not break {key}: {reason}"),
        }
    }
}

/// The sentence for a holder that cannot be asked to stop; `taking` is the hint on taking the lock, or empty.
fn unaskable(key: &impl Display, why: &Unaskable, taking: &str) -> String {
    let who = match why {
        Unaskable::Process(pid, name) => {
            return format!("the holder of {key} cannot be asked: it is {name}, pid {pid}: end that process");
        }
        Unaskable::Handle => {
            return format!(
                "{key} was taken by dlock acquire, and a step that may be running under it cannot be asked to stop: end that job, \
                 and use dlock release{taking}"
            );
        }
        Unaskable::Ended => {
            return format!(
                "the holder of {key} cannot be asked, its dlock has ended: end its command and every process it has started"
            );
        }
        Unaskable::Older => "an older dlock",
        Unaskable::Finished => "a run that has finished (--min-hold)",
        Unaskable::Foreign => "another program",
    };
    format!("the holder of {key} cannot be asked, it is {who}: nothing was done{taking}")
}

/// A length of time for people: in seconds, or in steps of 100 ms below ten seconds.
fn roughly(time: Duration) -> impl std::fmt::Display {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let step = if millis < 10_000 { 100 } else { 1000 };
    format_duration(Duration::from_millis((millis / step).max(1) * step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn every_outcome_has_its_sentence() {
        let key = || Key::parse("backup".as_ref()).expect("valid");
        let holder = |text: &str| Holder::read(text.as_bytes());
        let dlock = || holder(r#"{"v":1,"id":"ab","user":"ci","host":"runner-7","pid":812,"program":"deploy.sh"}"#);
        let gone = |after, next| BreakEvent::Gone { key: key(), after, next, now: 0 };
        let taken = |holder, within| BreakEvent::Taken {
            key: key(),
            holder,
            now: 0,
            within,
            frozen: within.map(|one| 2 * one),
        };
        let seconds = Duration::from_secs;
        for (event, expected) in [
            (BreakEvent::Nothing(key()), "'backup' is free: there is nothing to break"),
            (
                BreakEvent::Another { key: key(), holder: dlock(), owner: "ab".to_owned(), now: 0 },
                "'backup' is held by ci@runner-7, pid 812 (deploy.sh), owner ab: nothing was done",
            ),
            (
                BreakEvent::Asked { who: dlock().name(), notices: Some(seconds(10)), stops: Some(seconds(5)) },
                "asked ci@runner-7, pid 812 (deploy.sh) to stop: it checks every 10s or sooner, and then has 5s to end its command",
            ),
            (BreakEvent::Asked { who: "flock".to_owned(), notices: None, stops: None }, "asked flock to stop"),
            (
                BreakEvent::Dead(dlock().name()),
                "ci@runner-7, pid 812 (deploy.sh) is gone: waiting until its lease has run out",
            ),
            (
                gone(Some(seconds(7)), Some(dlock())),
                "'backup' was released after 7s; held by ci@runner-7, pid 812 (deploy.sh)",
            ),
            (gone(Some(Duration::from_millis(433)), None), "'backup' was released after 400ms; nobody holds it"),
            (gone(None, None), "'backup' is not held by that owner any more; nobody holds it"),
            (
                BreakEvent::StillHeld { key: key(), within: seconds(45), can_be_taken: true },
                "'backup' was not released within 45s; --now takes the lock away at once",
            ),
            (
                taken(dlock(), Some(seconds(10))),
                "took 'backup' away from ci@runner-7, pid 812 (deploy.sh); until it notices (at most 10s, or 20s if it is frozen), two commands can run",
            ),
            (
                taken(holder("redis-py"), None),
                "took 'backup' away from another program: redis-py; whether it notices is not known, and two programs can run",
            ),
        ] {
            assert_eq!(event.line(), expected);
        }
    }

    #[test]
    fn who_cannot_be_asked_is_told_with_what_can_be_done() {
        let key = || Key::parse("backup".as_ref()).expect("valid");
        let unaskable = |why, can_be_taken| BreakEvent::Unaskable { key: key(), why, can_be_taken };
        for (event, expected) in [
            (
                unaskable(Unaskable::Older, true),
                "the holder of 'backup' cannot be asked, it is an older dlock: nothing was done; --now takes the lock away at once",
            ),
            (
                unaskable(Unaskable::Foreign, false),
                "the holder of 'backup' cannot be asked, it is another program: nothing was done",
            ),
            (
                unaskable(Unaskable::Process(4711, "flock".to_owned()), false),
                "the holder of 'backup' cannot be asked: it is flock, pid 4711: end that process",
            ),
            (
                unaskable(Unaskable::Ended, false),
                "the holder of 'backup' cannot be asked, its dlock has ended: end its command and every process it has started",
            ),
        ] {
            assert_eq!(event.line(), expected);
        }
    }
}
