//! The verbosity at which each event is reported.

use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::report::event::meeting::MeetingEvent;

/// The verbosity at which an event is reported. Events that end dlock are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Always, also with `-q`.
    Warning,
    /// Unless `-q` is given.
    Note,
    /// Unless `-q` is given, as the state of a wait: on a terminal one line that is kept up to date.
    State,
    /// Only with `-v`.
    Detail,
}

impl Event {
    /// Returns the verbosity at which it is reported.
    #[must_use]
    pub(crate) fn level(&self) -> Level {
        match self {
            Self::Handle(event) => event.level(),
            Self::Meeting(event) => event.level(),
            Self::Waiting { .. } | Self::GotIt { .. } => Level::State,
            Self::Look(look) if !look.is_failure() => Level::Note,
            Self::Break(event) if event.is_note() => Level::Note,
            Self::NoBackendChosen
            | Self::Unlogged { .. }
            | Self::PasswordExposed(_)
            | Self::PasswordWithheld { .. }
            | Self::Concern { .. }
            | Self::ShortGrace { .. }
            | Self::Suspended { .. } => Level::Note,
            Self::Acquired { .. }
            | Self::LinesLost { .. }
            | Self::LastBreak { .. }
            | Self::NotRenewed { .. }
            | Self::RenewedAgain(_)
            | Self::Covered(_)
            | Self::StoppingLeftovers { .. }
            | Self::Throttled { .. }
            | Self::Released(_)
            | Self::Kept { .. } => Level::Detail,
            Self::Bug(_)
            | Self::Look(_)
            | Self::Break(_)
            | Self::CommandLine { .. }
            | Self::Settings(_)
            | Self::NoSuchPage(_)
            | Self::OnlyPagesHaveSubcommands
            | Self::OutputFailed(_)
            | Self::Lacking { .. }
            | Self::NoJournal { .. }
            | Self::NotAcquired { .. }
            | Self::OtherSlots { .. }
            | Self::AlreadyDone { .. }
            | Self::OnceInside(_)
            | Self::Upgrade { .. }
            | Self::OuterElsewhere
            | Self::OuterGuardUnreachable(_)
            | Self::OuterFull(_)
            | Self::StartsItself(_)
            | Self::OuterUnwatchable(_)
            | Self::NotRun { .. }
            | Self::Lost { .. }
            | Self::TakenAway { .. }
            | Self::AskedAndGoesOn { .. }
            | Self::LostBeforeTheEnd { .. }
            | Self::OuterEnded { .. }
            | Self::NotReleased { .. }
            | Self::ReleaseFailed { .. }
            | Self::GuardKilled(_)
            // The user has set a limit or a variable, and must hear what came of it from cron too.
            | Self::MaxRun { .. }
            | Self::StoppingNested { .. }
            | Self::UnknownVariables { .. }
            | Self::DlockKilled { .. } => Level::Warning,
        }
    }
}

/// The importance of a line in a log, as a level of syslog(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Something that was to be done was not, or may have been done twice.
    Error = 3,
    /// Something to look into.
    Warning = 4,
    /// An everyday result of several hosts that want one lock.
    Notice = 5,
    /// Details.
    Info = 6,
}

impl Event {
    /// Returns the importance of its line in a log.
    #[must_use]
    pub(crate) fn priority(&self) -> Priority {
        match self {
            Self::NotAcquired { .. } | Self::AlreadyDone { .. } | Self::Meeting(MeetingEvent::RanOut { .. }) => {
                Priority::Notice
            }
            // The lock frees itself.
            Self::NotReleased { .. }
            | Self::ReleaseFailed { .. }
            | Self::UnknownVariables { .. }
            | Self::StoppingNested { .. } => Priority::Warning,
            _ => match self.level() {
                Level::Warning => Priority::Error,
                Level::Note if matches!(self, Self::Look(_) | Self::Break(_) | Self::Handle(_)) => Priority::Notice,
                Level::Note => Priority::Warning,
                Level::State | Level::Detail => Priority::Info,
            },
        }
    }
}

impl HandleEvent {
    fn level(&self) -> Level {
        match self {
            Self::NotHeld(_) | Self::Empty | Self::WaitingForRun { .. } | Self::OfAnotherShell { .. } => Level::Note,
            Self::Renewed { .. } | Self::StaysHeld { .. } => Level::Detail,
            Self::NotRenewed { .. }
            | Self::Lost { .. }
            | Self::PassedOn(_)
            | Self::OwnHandle { .. }
            | Self::KeptElsewhere { .. }
            | Self::KeptByAnother { .. }
            | Self::KeeperUnseen { .. }
            | Self::KeeperDeaf { .. }
            | Self::RunElsewhere { .. }
            | Self::RunDenied { .. }
            | Self::RunGoesOn { .. }
            | Self::KeeperStays { .. }
            | Self::KeeperGone { .. }
            | Self::NotKept(_)
            | Self::TooLong(_) => Level::Warning,
        }
    }
}

impl MeetingEvent {
    fn level(&self) -> Level {
        match self {
            Self::Waiting { .. } => Level::State,
            Self::NoBackendChosen(_) => Level::Note,
            Self::Open { .. } | Self::Done { .. } | Self::Failing { .. } | Self::Forgotten(_) => Level::Detail,
            Self::RanOut { .. }
            | Self::Unusable { .. }
            | Self::Failed { .. }
            | Self::Broken { .. }
            | Self::Replaced { .. }
            | Self::CountedDead { .. }
            | Self::OtherParties { .. }
            | Self::NotHere { .. } => Level::Warning,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_dlock_did_to_a_job_is_told_with_q_too_and_is_an_error_in_the_journal() {
        let stopped = Event::MaxRun { program: "backup.sh".to_owned(), max_run: Duration::from_secs(60) };
        assert_eq!((stopped.level(), stopped.priority()), (Level::Warning, Priority::Error));
        let misspelt = Event::UnknownVariables { names: vec!["DLOCK_WIAT".to_owned()], meant: None };
        assert_eq!((misspelt.level(), misspelt.priority()), (Level::Warning, Priority::Warning));
    }
}
