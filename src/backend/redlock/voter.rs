/*!
One server, looked after by a task of its own, so that it never keeps the others waiting.

A voter carries out the requests that it is given, in the order in which they come, each within the time that it has, and
gives each exactly one answer. It knows what it may have left on its server: that decides which commands may go over a new
connection and which must follow on the old one.
*/

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::backend::redis::connection::{Connection, Outstanding, Server};
use crate::backend::redlock::errors::{self, Failure};
use crate::backend::redlock::scripts::{self, Acquired, Introduction, Occupant, Try};
use crate::clock::{Instant, before, sleep_until};

/// How long the first contact may take while nobody has anything to ask yet.
const CONTACT: Duration = Duration::from_secs(3);
/// How long a connection may take to be made at least, whatever the time for an answer is.
const CONNECT: Duration = Duration::from_millis(250);

/// How long it takes at most to read what has arrived.
const UNREAD: Duration = Duration::from_millis(10);

/// What to do.
#[derive(Clone, Debug)]
pub(super) enum Request {
    /// Connect, and find out whether the server may be used.
    Contact,
    /// Ask for the vote. The requests before it have released all earlier attempts.
    Acquire(Arc<Try>),
    /// Ask for the vote of an attempt that a majority has granted with this token, unless this server may have granted
    /// it: what it granted and lost is never made again.
    Join(Arc<Try>, u64),
    /// Raise the counter to the token.
    WriteBack(Arc<Try>, u64),
    /// Extend the vote.
    Renew(Arc<Try>),
    /// Give the vote back.
    Release(Arc<Try>),
}

/// A request, what to call its answer, and how long the server may take.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    /// Comes back with the answer.
    pub(super) round: u64,
    /// What to do.
    pub(super) request: Request,
    /// How long one answer of the server may take.
    pub(super) patience: Duration,
}

/// What came of a request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The server is there.
    Ready,
    /// What it said to an acquire, and of itself if that was new.
    Acquired(Acquired, Option<Introduction>),
    /// Whether it holds the token that was written back.
    WroteBack(bool),
    /// The vote is ours for a new term.
    Extended,
    /// The vote is not ours; what is there instead.
    NotOurs(Occupant),
    /// Whether there was a vote of ours to give back.
    Released(bool),
    /// There is no answer.
    Failed(Failure),
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Which server.
    pub(super) voter: usize,
    /// Which request.
    pub(super) round: u64,
    /// What it came to.
    pub(super) answer: Answer,
}

/// Starts the task that looks after `server`, as number `voter`. It ends when the requests do.
pub(super) fn start(
    voter: usize,
    server: Server,
    strict: bool,
    events: UnboundedSender<Event>,
) -> UnboundedSender<Dispatch> {
    let (sender, requests) = unbounded_channel();
    let task = Voter {
        name: server.to_string(),
        connection: Connection::new(server),
        requests,
        waiting: VecDeque::new(),
        strict,
        known: Known::default(),
        in_flight: None,
        asked: false,
        perhaps: 0,
    };
    tokio::spawn(task.work(voter, events));
    sender
}

struct Voter {
    name: String,
    connection: Connection,
    requests: UnboundedReceiver<Dispatch>,
    /// Requests that came while another one was carried out.
    waiting: VecDeque<Dispatch>,
    /// Whether it must keep its counters.
    strict: bool,
    known: Known,
    /// The attempt whose request for the vote is unanswered on this connection, as long as no release follows it.
    in_flight: Option<u64>,
    /// Something of ours may be on the server.
    asked: bool,
    /// The last attempt that the server granted, or may have granted unseen.
    perhaps: u64,
}

/// What is known of the present connection.
#[derive(Debug, Default)]
struct Known {
    /// The server said that it keeps its counters.
    trusted: bool,
    /// It said who it is.
    identified: bool,
    /// A release was sent, and no request for the vote after it.
    released: bool,
    /// Since when there is an unanswered request.
    doubt: Option<Instant>,
}

impl Voter {
    async fn work(mut self, voter: usize, events: UnboundedSender<Event>) {
        loop {
            let next = match self.waiting.pop_front() {
                Some(dispatch) => Some(dispatch),
                None => self.requests.recv().await,
            };
            let Some(Dispatch { round, request, patience }) = next else { return };
            let done = match &request {
                Request::Contact => self.contact(patience).await,
                Request::Release(attempt) => self.release(attempt, patience).await,
                _ if self.is_outdated() => Err(self.unasked()),
                Request::Acquire(attempt) => self.acquire(attempt, patience).await,
                Request::Join(attempt, token) => self.join(attempt, *token, patience).await,
                Request::WriteBack(attempt, token) => self.write_back(attempt, *token, patience).await,
                Request::Renew(attempt) => self.renew(attempt, patience).await,
            };
            let answer = done.unwrap_or_else(Answer::Failed);
            if events.send(Event { voter, round, answer }).is_err() {
                return;
            }
        }
    }

    /// Whether there is a newer request: then the others have decided what this one is about.
    fn is_outdated(&mut self) -> bool {
        while let Ok(dispatch) = self.requests.try_recv() {
            self.waiting.push_back(dispatch);
        }
        !self.waiting.is_empty()
    }

    /// The first contact has a long time, until there is something to ask: then a majority of the others is there, and
    /// this server gets only as long as any connection.
    async fn contact(&mut self, patience: Duration) -> Result<Answer, Failure> {
        let mut limit = Instant::now() + CONTACT;
        {
            let mut connecting = std::pin::pin!(self.connection.connect());
            loop {
                tokio::select! {
                    biased;
                    connected = &mut connecting => {
                        connected.map_err(|error| errors::failed(&error))?;
                        break;
                    }
                    () = sleep_until(limit) => return Err(errors::unasked(&self.name)),
                    Some(dispatch) = self.requests.recv() => {
                        self.waiting.push_back(dispatch);
                        limit = limit.min(Instant::now() + CONNECT);
                    }
                }
            }
        }
        self.trust(patience).await?;
        Ok(Answer::Ready)
    }

    async fn acquire(&mut self, attempt: &Try, patience: Duration) -> Result<Answer, Failure> {
        // A frozen server is not to be flooded with requests.
        if self.in_doubt() && !self.is_overdue(patience) {
            return Err(self.unasked());
        }
        self.vote(attempt, None, patience).await
    }

    async fn join(&mut self, attempt: &Try, token: u64, patience: Duration) -> Result<Answer, Failure> {
        if self.perhaps == attempt.number || self.in_flight.is_some() {
            return Err(self.unasked());
        }
        self.vote(attempt, Some(token), patience).await
    }

    async fn vote(&mut self, attempt: &Try, granted: Option<u64>, patience: Duration) -> Result<Answer, Failure> {
        self.connect(patience).await?;
        self.trust(patience).await?;
        // Connecting may have taken long. What is sent now must not be the last thing that this process does.
        if self.is_outdated() {
            return Err(self.unasked());
        }
        self.asked = true;
        self.in_flight = Some(attempt.number);
        self.known.released = false;
        let beside = if self.known.identified { Vec::new() } else { scripts::introduction() };
        let (answer, further) = self.ask_beside(&attempt.acquire(granted), &beside, patience).await?;
        let said = self.read(&answer, scripts::acquired)?;
        self.asked = matches!(said, Acquired::Granted(_));
        if self.asked {
            self.perhaps = attempt.number;
        }
        let introduction = (!self.known.identified).then(|| scripts::introduced(&further));
        if introduction.as_ref().is_some_and(|introduction| introduction.is_replica) {
            return Err(errors::replica(&self.name));
        }
        self.known.identified = true;
        Ok(Answer::Acquired(said, introduction))
    }

    async fn write_back(&mut self, attempt: &Try, token: u64, patience: Duration) -> Result<Answer, Failure> {
        self.connect(patience).await?;
        let answer = self.ask(&attempt.write_back(token), patience).await?;
        self.read(&answer, scripts::yes_or_no).map(Answer::WroteBack)
    }

    async fn renew(&mut self, attempt: &Try, patience: Duration) -> Result<Answer, Failure> {
        self.connect(patience).await?;
        let answer = self.ask(&attempt.renew(), patience).await?;
        match self.read(&answer, scripts::renewed)? {
            Ok(()) => {
                self.perhaps = attempt.number;
                Ok(Answer::Extended)
            }
            Err(occupant) => Ok(Answer::NotOurs(occupant)),
        }
    }

    async fn release(&mut self, attempt: &Try, patience: Duration) -> Result<Answer, Failure> {
        if !self.asked {
            return Ok(Answer::Released(false));
        }
        // Nor with releases: one follows the last request for the vote already.
        if self.known.released && self.in_doubt() && !self.is_overdue(patience) {
            return Err(self.unasked());
        }
        self.connect(patience).await?;
        // From here on a release follows it, whether that is answered or not.
        self.in_flight = None;
        self.known.released = true;
        let answer = self.ask(&attempt.release(), patience).await?;
        let freed = self.read(&answer, scripts::yes_or_no)?;
        self.asked = false;
        Ok(Answer::Released(freed))
    }

    /// Makes sure that there is a connection. One on which an answer is overdue is replaced, unless a request for the
    /// vote is on its way there: what follows must stay behind that, above all the release.
    async fn connect(&mut self, patience: Duration) -> Result<(), Failure> {
        if self.connection.is_there() && (self.in_flight.is_some() || !self.is_overdue(patience)) {
            return Ok(());
        }
        self.forget_connection();
        match before(Instant::now() + patience.max(CONNECT), self.connection.connect()).await {
            Ok(connected) => connected.map_err(|error| errors::failed(&error)),
            Err(_) => Err(self.unasked()),
        }
    }

    /// Whether something is unanswered on the connection.
    fn in_doubt(&self) -> bool {
        self.known.doubt.is_some()
    }

    /// Whether it should have been answered by now.
    fn is_overdue(&self, patience: Duration) -> bool {
        self.known.doubt.is_some_and(|since| Instant::now() >= since + patience)
    }

    /// What was known of the connection is void: it is replaced, or it broke.
    fn forget_connection(&mut self) {
        self.known = Known::default();
        // Whether the request that was on its way arrived will never be known.
        if let Some(attempt) = self.in_flight.take() {
            self.perhaps = attempt;
        }
    }

    /// With strict fencing: the server must say that it keeps its counters.
    async fn trust(&mut self, patience: Duration) -> Result<(), Failure> {
        if !self.strict || self.known.trusted {
            return Ok(());
        }
        let lack = match self.ask(&scripts::durability(), patience).await {
            Ok(answer) => scripts::lacks_durability(&answer),
            Err(failure) if self.connection.is_ready() => Some(errors::untold(&failure)),
            Err(failure) => return Err(failure),
        };
        if let Some(lack) = lack {
            return Err(errors::forgetful(&self.name, &lack));
        }
        self.known.trusted = true;
        Ok(())
    }

    /// Sends one command and waits for its answer, but no longer than until it is overdue or a release is asked for. What
    /// was sent stays on its way.
    async fn ask(&mut self, command: &Cmd, patience: Duration) -> Result<Value, Failure> {
        self.ask_beside(command, &[], patience).await.map(|(answer, _)| answer)
    }

    /// Sends one command, and further ones in the same round trip, and waits for their answers as [`Self::ask`] does.
    async fn ask_beside(
        &mut self,
        command: &Cmd,
        beside: &[Cmd],
        patience: Duration,
    ) -> Result<(Value, Vec<Value>), Failure> {
        let now = Instant::now();
        let (mut limit, mut overdue) = (now + patience, false);
        self.known.doubt.get_or_insert(now);
        let Self { connection, requests, waiting, .. } = self;
        let is_release = |dispatch: &Dispatch| matches!(dispatch.request, Request::Release(_));
        let answered = {
            let mut asking = std::pin::pin!(connection.ask_beside(command, beside, Outstanding::Request));
            loop {
                tokio::select! {
                    biased;
                    answered = &mut asking => break Some(answered),
                    Some(dispatch) = requests.recv() => {
                        let cut = is_release(&dispatch);
                        waiting.push_back(dispatch);
                        if cut {
                            return Err(errors::unanswered(&self.name));
                        }
                    }
                    () = sleep_until(limit) => {
                        if std::mem::replace(&mut overdue, true) {
                            break None;
                        }
                        // It may have come while this process was kept from reading it.
                        limit = Instant::now() + UNREAD;
                    }
                }
            }
        };
        let Some(answered) = answered else {
            return Err(errors::unanswered(&self.name));
        };
        if self.connection.is_ready() {
            // Answers come in order: one answers for all before it.
            self.known.doubt = None;
            self.in_flight = None;
        } else {
            self.forget_connection();
        }
        answered.map_err(|error| errors::failed(&error))
    }

    fn read<T>(&self, answer: &Value, read: impl Fn(&Value) -> Option<T>) -> Result<T, Failure> {
        read(answer).ok_or_else(|| errors::failed(&self.connection.nonsense()))
    }

    /// See [`errors::unasked`].
    fn unasked(&self) -> Failure {
        errors::unasked(&self.name)
    }
}
