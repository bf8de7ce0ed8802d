//! At which verbosity each event is reported.

use crate::report::event::Event;
use crate::report::event::handle::HandleEvent;
use crate::report::event::meeting::MeetingEvent;

/// At which verbosity an event is reported. What ends dlock is always reported.
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
    /// At which verbosity it is reported.
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
            Self::Open { .. } | Self::Down { .. } | Self::Failing { .. } | Self::Forgotten(_) => Level::Detail,
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
