//! The verbosity at which something is reported, and its importance in a log.

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
