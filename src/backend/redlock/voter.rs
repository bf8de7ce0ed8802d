/*!
The task that looks after one server, so that a slow server never delays the others.

A voter carries out its requests in order, each within its time limit, and gives each exactly one answer. It keeps track
of what it may have left on its server: that decides which commands may use a new connection and which must follow on
the old one.
*/

use std::collections::VecDeque;
use std::time::Duration;

use ::redis::{Cmd, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::backend::contract::contender::Released;
use crate::backend::redis::connection::{Connection, Outstanding, Server};
use crate::backend::redlock::errors::{self, Failure};
use crate::backend::redlock::introduction;
use crate::backend::redlock::requests::{Answer, Dispatch, Event, Request};
use crate::backend::redlock::scripts::{self, Acquired, Return, Try};
use crate::clock::{Instant, before, sleep_until};

/// The time limit for the first contact while no request is waiting.
const CONTACT: Duration = Duration::from_secs(3);
/// The minimum time for making a connection, however short the time limit for an answer is.
const CONNECT: Duration = Duration::from_millis(250);

/// The time to read an answer that has already arrived.
const UNREAD: Duration = Duration::from_millis(10);

/// Starts the task that looks after `server`, whose number is `voter`. It ends when the returned sender is dropped.
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
        announced: false,
        perhaps: 0,
    };
    tokio::spawn(task.work(voter, events));
    sender
}

struct Voter {
    name: String,
    connection: Connection,
    requests: UnboundedReceiver<Dispatch>,
    /// Requests that arrived during another one.
    waiting: VecDeque<Dispatch>,
    /// `true` if a server that could lose its counter is refused.
    strict: bool,
    known: Known,
    /// The attempt whose request for the vote is unanswered on this connection, until a release follows it.
    in_flight: Option<u64>,
    /// `true` if the server may hold one of our votes.
    asked: bool,
    /// `true` if the server may keep others out for us.
    announced: bool,
    /// The last attempt that the server granted, or may have granted in an answer that was lost.
    perhaps: u64,
}

/// The state of the present connection.
#[derive(Debug, Default)]
struct Known {
    /// `true` if the server's settings show that it keeps its counter.
    trusted: bool,
    /// `true` if the server has identified itself.
    identified: bool,
    /// `true` if a release was sent, and no request for the vote after it.
    released: bool,
    /// The time since which a request is unanswered.
    doubt: Option<Instant>,
}

impl Voter {
    async fn work(mut self, voter: usize, events: UnboundedSender<Event>) {
        loop {
            let next = match self.waiting.pop_front() {
                Some(dispatch) => Some(dispatch),
                None => self.requests.recv().await,
            };
            let Some(Dispatch { round, request, timeout }) = next else { return };
            let done = match &request {
                Request::Contact => self.contact(timeout).await,
                Request::Adopt(attempt) => Ok(self.adopt(*attempt)),
                Request::Release(attempt, what) => self.release(attempt, *what, timeout).await,
                _ if self.is_outdated() => Err(self.unasked()),
                Request::Acquire(attempt) => self.acquire(attempt, timeout).await,
                Request::Join(attempt, token) => self.join(attempt, *token, timeout).await,
                Request::WriteBack(attempt, token) => self.write_back(attempt, *token, timeout).await,
                Request::Renew(attempt) => self.renew(attempt, timeout).await,
            };
            let answer = done.unwrap_or_else(Answer::Failed);
            if events.send(Event { voter, round, answer }).is_err() {
                return;
            }
        }
    }

    /// Returns `true` if a newer request is waiting: the other servers have then decided the matter of this one.
    fn is_outdated(&mut self) -> bool {
        while let Ok(dispatch) = self.requests.try_recv() {
            self.waiting.push_back(dispatch);
        }
        !self.waiting.is_empty()
    }

    /// Makes the first contact, within [`CONTACT`]. Once another request arrives, a majority of the others can be used,
    /// and this server gets only [`CONNECT`] from then on.
    async fn contact(&mut self, timeout: Duration) -> Result<Answer, Failure> {
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
        self.trust(timeout).await?;
        Ok(Answer::Ready)
    }

    /// Records that the server may have granted this attempt to another process: it gets a release, but no new request.
    fn adopt(&mut self, attempt: u64) -> Answer {
        (self.asked, self.perhaps) = (true, attempt);
        Answer::Ready
    }

    async fn acquire(&mut self, attempt: &Try, timeout: Duration) -> Result<Answer, Failure> {
        // A frozen server must not be flooded with requests.
        if self.in_doubt() && !self.is_overdue(timeout) {
            return Err(self.unasked());
        }
        self.vote(attempt, None, timeout).await
    }

    async fn join(&mut self, attempt: &Try, token: u64, timeout: Duration) -> Result<Answer, Failure> {
        if self.perhaps == attempt.number || self.in_flight.is_some() {
            return Err(self.unasked());
        }
        self.vote(attempt, Some(token), timeout).await
    }

    async fn vote(&mut self, attempt: &Try, granted: Option<u64>, timeout: Duration) -> Result<Answer, Failure> {
        self.connect(timeout).await?;
        self.trust(timeout).await?;
        // Connecting may have taken long: a vote must not be requested after its release.
        if self.is_outdated() {
            return Err(self.unasked());
        }
        self.asked = true;
        self.announced |= granted.is_none() && attempt.announces();
        self.in_flight = Some(attempt.number);
        self.known.released = false;
        let also = if self.known.identified { Vec::new() } else { introduction::introduction() };
        let (answer, further) = self.ask_also(&attempt.acquire(granted), &also, timeout).await?;
        let said = self.read(&answer, scripts::acquired)?;
        match &said {
            Acquired::Granted(_) => (self.perhaps, self.announced) = (attempt.number, false),
            Acquired::Busy(blocker) => (self.asked, self.announced) = (false, attempt.is_announced(blocker)),
            Acquired::OtherSlots(_) | Acquired::Done(_) => self.asked = false,
            // The server may also hold an earlier vote of this client.
            Acquired::Outer(_) => {}
            Acquired::Damaged(damage) => return Err(errors::failed(&self.connection.damaged(damage))),
        }
        let introduced = (!self.known.identified).then(|| introduction::introduced(&further));
        if introduced.as_ref().is_some_and(|introduced| introduced.is_replica) {
            return Err(errors::replica(&self.name));
        }
        self.known.identified = true;
        Ok(Answer::Acquired(said, introduced))
    }

    async fn write_back(&mut self, attempt: &Try, token: u64, timeout: Duration) -> Result<Answer, Failure> {
        self.connect(timeout).await?;
        let answer = self.ask(&attempt.write_back(token), timeout).await?;
        self.read(&answer, scripts::yes_or_no).map(Answer::WroteBack)
    }

    async fn renew(&mut self, attempt: &Try, timeout: Duration) -> Result<Answer, Failure> {
        self.connect(timeout).await?;
        let answer = self.ask(&attempt.renew(), timeout).await?;
        match self.read(&answer, scripts::renewed)? {
            Ok(request) => {
                self.perhaps = attempt.number;
                Ok(Answer::Extended(request))
            }
            Err(occupant) => Ok(Answer::NotOurs(occupant)),
        }
    }

    async fn release(&mut self, attempt: &Try, what: Return, timeout: Duration) -> Result<Answer, Failure> {
        let lets_in = self.announced && what != Return::Vote;
        if !self.asked && !lets_in {
            return Ok(Answer::Released(Released::NotMine));
        }
        // A release already follows the last request for the vote; a frozen server must not be flooded with more.
        if self.known.released && self.in_doubt() && !self.is_overdue(timeout) {
            return Err(self.unasked());
        }
        self.connect(timeout).await?;
        // From here on a release follows the request, whether it is answered or not.
        self.in_flight = None;
        self.known.released = true;
        let answer = self.ask(&attempt.release(what, lets_in), timeout).await?;
        let released = self.read(&answer, scripts::released)?;
        (self.asked, self.announced) = (false, self.announced && !lets_in);
        Ok(Answer::Released(released))
    }

    /// Makes sure that there is a connection. A connection with an overdue answer is replaced, unless a request for the
    /// vote is on its way there: later requests, above all the release, must stay behind it.
    async fn connect(&mut self, timeout: Duration) -> Result<(), Failure> {
        if self.connection.is_there() && (self.in_flight.is_some() || !self.is_overdue(timeout)) {
            return Ok(());
        }
        self.forget_connection();
        match before(Instant::now() + timeout.max(CONNECT), self.connection.connect()).await {
            Ok(connected) => connected.map_err(|error| errors::failed(&error)),
            Err(_) => Err(self.unasked()),
        }
    }

    /// Returns `true` if a request is unanswered on the connection.
    fn in_doubt(&self) -> bool {
        self.known.doubt.is_some()
    }

    /// Returns `true` if an answer is overdue.
    fn is_overdue(&self, timeout: Duration) -> bool {
        self.known.doubt.is_some_and(|since| Instant::now() >= since + timeout)
    }

    /// Resets the state of the connection, which broke or is replaced.
    fn forget_connection(&mut self) {
        self.known = Known::default();
        // The request that was on its way may have been granted.
        if let Some(attempt) = self.in_flight.take() {
            self.perhaps = attempt;
        }
    }

    /// With strict fencing, checks that the server keeps its counter, according to its settings.
    async fn trust(&mut self, timeout: Duration) -> Result<(), Failure> {
        if !self.strict || self.known.trusted {
            return Ok(());
        }
        let lack = match self.ask(&introduction::durability(), timeout).await {
            Ok(answer) => introduction::lacks_durability(&answer),
            Err(failure) if self.connection.is_ready() => Some(errors::untold(&failure)),
            Err(failure) => return Err(failure),
        };
        if let Some(lack) = lack {
            return Err(errors::forgetful(&self.name, &lack));
        }
        self.known.trusted = true;
        Ok(())
    }

    /// Sends one command and waits for its answer until that is overdue or a release is requested. The server may still
    /// execute the command then.
    async fn ask(&mut self, command: &Cmd, timeout: Duration) -> Result<Value, Failure> {
        self.ask_also(command, &[], timeout).await.map(|(answer, _)| answer)
    }

    /// Sends one command, and further ones in the same round trip, and waits for the answers until they are overdue or
    /// a release is requested. The server may still execute the commands then.
    async fn ask_also(
        &mut self,
        command: &Cmd,
        also: &[Cmd],
        timeout: Duration,
    ) -> Result<(Value, Vec<Value>), Failure> {
        let now = Instant::now();
        let (mut limit, mut overdue) = (now + timeout, false);
        self.known.doubt.get_or_insert(now);
        let Self { connection, requests, waiting, .. } = self;
        let is_release = |dispatch: &Dispatch| matches!(dispatch.request, Request::Release(..));
        let answered = {
            let mut asking = std::pin::pin!(connection.ask_also(command, also, Outstanding::Request));
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
                        // The answer may have arrived while this process could not read it.
                        limit = Instant::now() + UNREAD;
                    }
                }
            }
        };
        let Some(answered) = answered else {
            return Err(errors::unanswered(&self.name));
        };
        if self.connection.is_ready() {
            // Answers come in order: all earlier requests are answered too.
            self.known.doubt = None;
            self.in_flight = None;
        } else {
            self.forget_connection();
        }
        answered.map_err(|error| errors::failed(&error))
    }

    fn read<T>(&self, answer: &Value, read: impl Fn(&Value) -> Option<T>) -> Result<T, Failure> {
        read(answer).ok_or_else(|| errors::failed(&self.connection.malformed()))
    }

    /// Returns the failure if nothing was sent to this server.
    fn unasked(&self) -> Failure {
        errors::unasked(&self.name)
    }
}
