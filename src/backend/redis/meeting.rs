/*!
Latches and barriers on one redis server: one script for each decides, and wakes the waiters through their wake lists.

A latch is a sorted set of names by the times at which they are forgotten. A barrier is a hash of marks, and a sorted
set of the ends of their leases. All keys are side keys, which no user can name, and expire when no longer used.
*/

use std::time::Duration;

use ::redis::{Cmd, Value};

use crate::backend::contract::claim::Claim;
use crate::backend::error::Error;
use crate::backend::meeting::{Arrivals, Barrier, Gathering, Latch, LatchFailure, Meeting, TOLD};
use crate::backend::redis::answers::{bytes, number, text_of};
use crate::backend::redis::connection::Outstanding;
use crate::backend::redis::errors;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::script::{millis, script, script_of};
use crate::backend::redis::sentinel::Master;
use crate::clock::{Instant, before};

const LATCH: &str = script_of!("latch.lua");
const BARRIER: &str = script_of!("barrier.lua");

/// The interval at which a waiter at a latch looks again without having been woken.
const LOOK: Duration = Duration::from_secs(10);
/// The time after its last look during which a waiter at a latch is woken.
const WOKEN: Duration = Duration::from_secs(30);
/// The extra time that a blocking wait may take before the connection counts as dead.
const WAKE_SLACK: Duration = Duration::from_secs(2);
/// The time limit for replicas to confirm a write.
const REPLICATION: Duration = Duration::from_secs(1);

/// The answer of one server about a latch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct LatchAnswer {
    /// The state of the latch on this server.
    pub arrivals: Arrivals,
    /// The names that have arrived, as digests; empty if none were requested.
    pub digests: Vec<String>,
}

/// Number of characters in a digest of a name.
const DIGEST: usize = 20;

/// An action at a latch.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) enum Ask<'a> {
    /// Look, and be woken by changes for this time (never if zero); with the maximum number of names and of digests.
    Look(Duration, usize, u32),
    /// Stop being woken.
    Leave,
    /// Remember the name for this time.
    Arrive(Duration),
    /// Remember the failure for this time.
    Fail(&'a LatchFailure, Duration),
    /// Forget all names and the failure.
    Forget,
}

/// Returns the request for this action at the latch of `meeting`.
pub(in crate::backend) fn latch_request(meeting: &Meeting, ask: Ask<'_>) -> Cmd {
    let keys = Keys::of(&Claim::like(meeting));
    let (what, life, text) = match ask {
        Ask::Look(life, ..) => ("look", life, String::new()),
        Ask::Leave => ("leave", Duration::ZERO, String::new()),
        Ask::Arrive(life) => ("down", life, meeting.name.clone()),
        Ask::Fail(failure, life) => ("fail", life, failure.text()),
        Ask::Forget => ("forget", Duration::ZERO, String::new()),
    };
    let (told, digests) = if let Ask::Look(_, told, digests) = ask { (told, digests) } else { (0, 0) };
    let names = ["latch", "latch-failure", "latch-waits"].map(|name| keys.side(name));
    let (life, told, digests) = (millis(life), told.to_string(), digests.to_string());
    script(LATCH, &names, &[what, meeting.id.as_str(), &life, &text, &keys.side("latch-wake:"), &digests, &told])
}

/// Reads the answer to [`latch_request`]; `None` if it is malformed.
pub(in crate::backend) fn latch_answer(answer: &Value) -> Option<LatchAnswer> {
    let Value::Array(parts) = answer else { return None };
    let [count, failure, digests, names @ ..] = parts.as_slice() else { return None };
    let count = number(count)?.try_into().ok()?;
    let failure = Some(bytes(failure)?).filter(|text| !text.is_empty()).map(LatchFailure::read);
    let digests = text_of(digests)?;
    if !digests.is_ascii() {
        return None;
    }
    let digests =
        digests.as_bytes().chunks(DIGEST).map(|digest| String::from_utf8_lossy(digest).into_owned()).collect();
    Some(LatchAnswer { arrivals: Arrivals { count, names: all_names(names)?, failure }, digests })
}

/// Reads the answer to `barrier.lua`; `None` if it is malformed.
fn gathering(answer: &Value) -> Option<Gathering> {
    let Value::Array(parts) = answer else { return None };
    match parts.as_slice() {
        [Value::Int(0), names @ ..] => Some(Gathering::Waiting(all_names(names)?)),
        [Value::Int(1)] => Some(Gathering::Open),
        [Value::Int(2)] => Some(Gathering::Gone),
        [Value::Int(3)] => Some(Gathering::Replaced),
        [Value::Int(4), parties, names @ ..] => {
            Some(Gathering::OtherParties { parties: number(parties)?.try_into().ok()?, names: all_names(names)? })
        }
        _ => None,
    }
}

fn all_names(names: &[Value]) -> Option<Vec<String>> {
    names.iter().map(|name| bytes(name).map(|name| String::from_utf8_lossy(name).into_owned())).collect()
}

/// A participant of a latch or barrier, with its connection to the server.
#[derive(Debug)]
pub(super) struct Participant {
    connection: Master,
    meeting: Meeting,
    /// Number of replicas that must confirm every write.
    replicas: u32,
}

impl Participant {
    /// Returns a participant at the server behind `connection`. This many `replicas` must confirm each of its writes.
    pub(super) fn new(connection: Master, meeting: Meeting, replicas: u32) -> Self {
        Self { connection, meeting, replicas }
    }

    async fn ask<T>(&mut self, command: &Cmd, read: impl Fn(&Value) -> Option<T>) -> Result<T, Error> {
        let (answer, _) = self.connection.ask_master(command, &[]).await?;
        read(&answer).ok_or_else(|| self.connection.malformed())
    }

    /// Waits until enough replicas have confirmed the last write of this connection.
    async fn replicate(&mut self) -> Result<(), Error> {
        if self.replicas == 0 {
            return Ok(());
        }
        let mut command = ::redis::cmd("WAIT");
        command.arg(self.replicas).arg(millis(REPLICATION));
        match self.connection.ask(&command, Outstanding::Blocker).await? {
            Value::Int(confirmed) if confirmed >= i64::from(self.replicas) => Ok(()),
            Value::Int(confirmed) => Err(errors::unconfirmed(confirmed, self.replicas, REPLICATION)),
            _ => Err(self.connection.malformed()),
        }
    }

    /// Waits for a message in our wake list below `prefix`, for `wait` at most.
    async fn woken(&mut self, prefix: &str, wait: Duration) -> Result<(), Error> {
        let keys = Keys::of(&Claim::like(&self.meeting));
        let list = format!("{}{}", keys.side(prefix), self.meeting.id.as_str());
        let mut command = ::redis::cmd("BLPOP");
        command.arg(list).arg(format!("{:.3}", wait.as_secs_f64()));
        let asked = self.connection.ask(&command, Outstanding::Blocker);
        let answered = before(Instant::now() + wait + WAKE_SLACK, asked).await;
        answered.unwrap_or_else(|_| Err(self.connection.silence())).map(drop)
    }
}

/// One dlock at a latch.
#[derive(Debug)]
pub(super) struct RedisLatch(pub Participant);

impl RedisLatch {
    async fn write(&mut self, ask: Ask<'_>) -> Result<(), Error> {
        let command = latch_request(&self.0.meeting, ask);
        self.0.ask(&command, latch_answer).await?;
        self.0.replicate().await
    }
}

#[async_trait::async_trait(?Send)]
impl Latch for RedisLatch {
    async fn connect(&mut self) -> Result<(), Error> {
        self.0.connection.connect().await
    }

    async fn arrive(&mut self, keep: Duration) -> Result<(), Error> {
        self.write(Ask::Arrive(keep)).await
    }

    async fn fail(&mut self, failure: &LatchFailure, keep: Duration) -> Result<(), Error> {
        self.write(Ask::Fail(failure, keep)).await
    }

    async fn forget(&mut self) -> Result<(), Error> {
        self.write(Ask::Forget).await
    }

    /// Only looks if more than [`TOLD`] names are requested, and does not register to be woken.
    async fn look(&mut self, told: usize) -> Result<Arrivals, Error> {
        if told > TOLD {
            let command = latch_request(&self.0.meeting, Ask::Look(Duration::ZERO, told, 0));
            let answers = self.0.connection.ask_all(&[command]).await?;
            let told = answers.first().and_then(latch_answer);
            return told.map(|told| told.arrivals).ok_or_else(|| self.0.connection.malformed());
        }
        let command = latch_request(&self.0.meeting, Ask::Look(WOKEN, told, 0));
        Ok(self.0.ask(&command, latch_answer).await?.arrivals)
    }

    async fn changed(&mut self) -> Result<(), Error> {
        self.0.woken("latch-wake:", LOOK).await
    }

    async fn close(&mut self) {
        let command = latch_request(&self.0.meeting, Ask::Leave);
        if self.0.connection.connect_in_order().await.is_ok() {
            // If this fails, the rest expires by itself.
            let _ = self.0.connection.ask(&command, Outstanding::Blocker).await;
        }
    }
}

/// One party at a barrier.
#[derive(Debug)]
pub(super) struct RedisBarrier {
    visitor: Participant,
    parties: u32,
}

impl RedisBarrier {
    /// Returns a party at a barrier for this many `parties`.
    pub(super) fn new(visitor: Participant, parties: u32) -> Self {
        Self { visitor, parties }
    }

    fn request(&self, what: &str) -> Cmd {
        let meeting = &self.visitor.meeting;
        let keys = Keys::of(&Claim::like(meeting));
        let [marks, ends, wakes] = ["meet", "meet-ends", "meet-wake:"].map(|name| keys.side(name));
        let (lease, parties) = (millis(meeting.lease), self.parties.to_string());
        script(BARRIER, &[marks, ends], &[what, meeting.id.as_str(), &meeting.name, &lease, &parties, &wakes])
    }

    /// Sends a request that must be executed after all earlier ones.
    async fn last(&mut self, what: &str) -> Result<Gathering, Error> {
        self.visitor.connection.connect_in_order().await?;
        let command = self.request(what);
        let answer = self.visitor.connection.ask(&command, Outstanding::Blocker).await?;
        gathering(&answer).ok_or_else(|| self.visitor.connection.malformed())
    }
}

#[async_trait::async_trait(?Send)]
impl Barrier for RedisBarrier {
    async fn connect(&mut self) -> Result<(), Error> {
        self.visitor.connection.connect().await
    }

    async fn arrive(&mut self) -> Result<Gathering, Error> {
        let command = self.request("arrive");
        let arrived = self.visitor.ask(&command, gathering).await?;
        let Gathering::Waiting(_) = arrived else { return Ok(arrived) };
        // An arrival counts only from the next look on: see the script.
        let gathering = self.look().await?;
        self.visitor.replicate().await?;
        Ok(gathering)
    }

    async fn look(&mut self) -> Result<Gathering, Error> {
        let command = self.request("look");
        self.visitor.ask(&command, gathering).await
    }

    async fn changed(&mut self) -> Result<(), Error> {
        self.visitor.woken("meet-wake:", self.visitor.meeting.lease / 3).await
    }

    async fn withdraw(&mut self) -> Result<bool, Error> {
        Ok(self.last("withdraw").await? == Gathering::Open)
    }

    async fn close(&mut self) {
        // If this fails, the mark expires with its lease.
        let _ = self.last("close").await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::redis::answers::any;
    use crate::backend::redis::rights::{MAJORITY, SINGLE, lacking};
    use crate::property::holds;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn what_a_server_says_of_a_latch() {
        let digests = "0123456789abcdef0123".repeat(2);
        let answer = Value::Array(vec![Value::Int(2), text(""), text(&digests), text("a"), text("b")]);
        let told = latch_answer(&answer).expect("an answer");
        assert_eq!((told.arrivals.count, told.arrivals.names.as_slice()), (2, &["a".to_owned(), "b".to_owned()][..]));
        assert_eq!((told.digests.len(), told.arrivals.failure), (2, None));
        let failed = Value::Array(vec![Value::Int(0), text(r#"{"by":"a","reason":"red"}"#), text("")]);
        let failure = latch_answer(&failed).and_then(|told| told.arrivals.failure);
        assert_eq!(failure, Some(LatchFailure { by: "a".to_owned(), reason: "red".to_owned() }));
        for odd in
            [Value::Nil, Value::Int(1), Value::Array(vec![]), Value::Array(vec![Value::Int(-1), text(""), text("")])]
        {
            assert_eq!(latch_answer(&odd), None, "{odd:?}");
        }
    }

    #[test]
    fn only_an_answer_of_the_right_form_opens_a_barrier() {
        holds(4000, any::answer(), |answer| {
            let opens = gathering(&answer) == Some(Gathering::Open);
            prop_assert_eq!(opens, answer == Value::Array(vec![Value::Int(1)]));
            if let Some(told) = latch_answer(&answer) {
                let Value::Array(parts) = &answer else { return Err(TestCaseError::fail("no list")) };
                prop_assert_eq!(parts.first().and_then(number), i64::try_from(told.arrivals.count).ok());
            }
            Ok(())
        });
    }

    #[test]
    fn those_who_may_lock_may_meet() {
        for script in [LATCH, BARRIER] {
            assert_eq!(lacking(SINGLE, script), Vec::<String>::new());
        }
        // Servers that vote wake nobody.
        assert_eq!(lacking(MAJORITY, LATCH), ["exists"]);
    }

    #[test]
    fn what_a_server_says_of_a_barrier() {
        let other = Value::Array(vec![Value::Int(4), Value::Int(3), text("a")]);
        let names = vec!["a".to_owned()];
        for (answer, expected) in [
            (Value::Array(vec![Value::Int(0), text("a")]), Some(Gathering::Waiting(names.clone()))),
            (Value::Array(vec![Value::Int(2)]), Some(Gathering::Gone)),
            (Value::Array(vec![Value::Int(3)]), Some(Gathering::Replaced)),
            (other, Some(Gathering::OtherParties { parties: 3, names })),
            (Value::Array(vec![Value::Int(4), text("3")]), None),
            (Value::Array(vec![Value::Int(5)]), None),
        ] {
            assert_eq!(gathering(&answer), expected, "{answer:?}");
        }
    }
}
