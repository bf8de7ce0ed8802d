/*!
The requests to one server, and their outcomes.
*/

use std::sync::Arc;
use std::time::Duration;

use crate::backend::contract::contender::Released;
use crate::backend::redlock::errors::Failure;
use crate::backend::redlock::introduction::Introduction;
use crate::backend::redlock::scripts::{Acquired, Occupant, Return, Try};

/// A request to one server.
#[derive(Clone, Debug)]
pub(super) enum Request {
    /// Connect, and find out whether the server may be used.
    Contact,
    /// Send nothing: the attempt with this number was made by another process, and the server may have granted it.
    Adopt(u64),
    /// Ask for the vote. Earlier requests have released all earlier attempts.
    Acquire(Arc<Try>),
    /// Ask for the vote of an attempt that a majority has granted with this token, unless this server may have granted
    /// it before: a lost vote is never restored.
    Join(Arc<Try>, u64),
    /// Raise the counter to the token.
    WriteBack(Arc<Try>, u64),
    /// Extend the vote.
    Renew(Arc<Try>),
    /// Give back the votes of this attempt and of earlier ones.
    Release(Arc<Try>, Return),
}

/// A request, the number of its round, and the time limit for the server.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    /// The number of the round, which its answer carries.
    pub(super) round: u64,
    /// The request itself.
    pub(super) request: Request,
    /// The time limit for each answer of the server.
    pub(super) timeout: Duration,
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The server can be used.
    Ready,
    /// Its answer to an acquire, and its introduction if it was asked for one.
    Acquired(Acquired, Option<Introduction>),
    /// `true` if the vote is ours and the counter is at least the token.
    WroteBack(bool),
    /// The vote is extended, perhaps with a request to stop.
    Extended(Option<Vec<u8>>),
    /// The vote is not ours; this is at the key instead.
    NotOurs(Occupant),
    /// The result of the release.
    Released(Released),
    /// No answer.
    Failed(Failure),
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// The number of the server.
    pub(super) voter: usize,
    /// The number of the round.
    pub(super) round: u64,
    /// The outcome.
    pub(super) answer: Answer,
}
