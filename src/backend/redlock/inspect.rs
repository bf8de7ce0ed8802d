/*!
Looks at the locks of a majority of redis servers: asks all servers at once, each like a single one, and counts
their answers. A holder is one that a majority of all servers names.
*/

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::backend::error::Error;
use crate::backend::redis::Server;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::inspect::RedisSurvey;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::raw::Raw;
use crate::backend::redis::rights::{LOOK, Rights};
use crate::backend::redlock::errors::{Failures, failed, no_majority, unanswered};
use crate::backend::redlock::quorum::majority;
use crate::backend::survey::{
    Left, Location, Meetings, Names, Party, Smallest, Snapshot, State, Successes, Survey, TIMEOUT, Vote,
};
use crate::clock::within;
use crate::holder::ask::Ask;
use crate::holder::done::Done;
use crate::key::{Key, Namespace};

/// The time limit for servers whose answers are not needed.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// A view of the locks of a majority of redis servers.
pub(super) struct RedlockSurvey {
    servers: Vec<(String, RedisSurvey<Connection>)>,
    namespace: Namespace,
    /// The failures of the servers that could not be asked.
    failures: Failures,
}

/// The lock and its fencing counter on one server; `None` if the server did not answer.
type Opinion = Option<(Snapshot, Option<u64>)>;

fn opinion(raw: &Raw, location: &Location) -> (Snapshot, Option<u64>) {
    (raw.seen(location.clone()), raw.fence)
}

/// Combines the servers' opinions of the lock at this place.
fn counted(location: Location, servers: &[String], opinions: &[Opinion]) -> Snapshot {
    let needed = majority(servers.len());
    let silent = opinions.iter().filter(|opinion| opinion.is_none()).count();
    let seen = || opinions.iter().flatten().map(|(seen, _)| seen);
    let now = seen().map(|seen| seen.now).max().unwrap_or_default();
    let mut votes_for: BTreeMap<String, Vec<&Party>> = BTreeMap::new();
    for party in seen().flat_map(|seen| &seen.holders) {
        votes_for.entry(party.id()).or_default().push(party);
    }
    let most = votes_for.values().map(Vec::len).max().unwrap_or(0);
    let mut holders: Vec<Party> = votes_for
        .into_values()
        .filter(|votes| votes.len() >= needed)
        .filter_map(|votes| holder(&votes, needed))
        .collect();
    holders.sort_by_key(|party| (party.slot, party.since));
    if let [holder] = holders.as_mut_slice()
        && holder.mode == Some(crate::lock::admission::Mode::Exclusive)
        && holder.published().is_some()
    {
        holder.token = token(opinions, needed);
    }
    let of_state = |name: &str| seen().filter(|seen| seen.state.name() == name).count();
    let state = match () {
        () if !holders.is_empty() => State::Held,
        () if of_state("blocked") >= needed => blocked(seen()),
        () if of_state("free") >= needed => State::Free,
        // A silent server may have the missing vote.
        () if most + silent >= needed || of_state("free") + silent >= needed => State::Unknown,
        () => State::Contested,
    };
    let vote = |(server, opinion): (&String, &Opinion)| Vote {
        server: server.clone(),
        state: opinion.as_ref().map_or("unknown", |(seen, _)| seen.state.name()),
        id: opinion.as_ref().and_then(|(seen, _)| Some(seen.holders.first()?.id())),
    };
    let votes = Some(servers.iter().zip(opinions).map(vote).collect());
    Snapshot { state, votes, has_no_queue: true, ..Snapshot::free(location, now).held_by(holders, 0) }
}

/// Returns the state of the first server that reports the lock as blocked.
fn blocked<'a>(mut seen: impl Iterator<Item = &'a Snapshot>) -> State {
    seen.find(|seen| matches!(seen.state, State::Blocked(_))).map(|seen| seen.state.clone()).unwrap_or_default()
}

/// Returns the holder with these votes: its lease lasts as long as a majority has it.
fn holder(votes: &[&Party], needed: usize) -> Option<Party> {
    let mut lefts: Vec<u64> = votes
        .iter()
        .filter_map(|party| match party.left? {
            Left::Millis(left) => Some(left),
            Left::Forever => Some(u64::MAX),
        })
        .collect();
    lefts.sort_unstable_by(|one, other| other.cmp(one));
    let left = lefts.get(needed - 1).map(|&left| if left == u64::MAX { Left::Forever } else { Left::Millis(left) });
    let asked = votes.iter().find_map(|party| party.asked.clone());
    Some(Party { asked, ..(*votes.first()?).clone().lasting(left) })
}

/// Returns the counter on which a majority of the servers agrees.
fn token(opinions: &[Opinion], needed: usize) -> Option<u64> {
    let counters: Vec<u64> = opinions.iter().flatten().filter_map(|(_, fence)| *fence).collect();
    counters.iter().copied().find(|one| counters.iter().filter(|other| *other == one).count() >= needed)
}

impl RedlockSurvey {
    /// Returns a view of the locks of these servers in this namespace; not connected yet.
    pub(super) fn new(servers: &[Server], namespace: &Namespace) -> Self {
        let rights = Rights::for_all_locks(namespace, LOOK);
        let survey = |server: &Server| {
            let connection = Connection::new(server.clone().needing(rights.clone()));
            (server.to_string(), RedisSurvey::by(connection, namespace.clone()))
        };
        Self { servers: servers.iter().map(survey).collect(), namespace: namespace.clone(), failures: Failures::new() }
    }

    /// Asks every server. Returns the answers, with `None` for each failure; fails if less than a majority answered.
    async fn ask<T>(
        &mut self,
        ask: impl AsyncFn(&mut RedisSurvey<Connection>) -> Result<T, Error>,
    ) -> Result<Vec<Option<T>>, Error> {
        let asked = self.servers.iter_mut().map(|(name, survey)| {
            let ask = &ask;
            async move {
                match within(TIMEOUT, survey.connect()).await {
                    Ok(Ok(())) => ask(survey).await.map_err(|error| failed(&error)),
                    Ok(Err(error)) => Err(failed(&error)),
                    Err(_) => Err(unanswered(name)),
                }
            }
        });
        let answers = join_all(asked).await;
        self.failures.clear();
        let all = answers.len();
        let kept = answers.into_iter().enumerate().map(|(index, answer)| match answer {
            Ok(answer) => Some(answer),
            Err(failure) => {
                self.failures.insert(index, failure);
                None
            }
        });
        let kept: Vec<Option<T>> = kept.collect();
        if all - self.failures.len() < majority(all) {
            return Err(no_majority(&self.failures, all));
        }
        Ok(kept)
    }

    fn names_of_servers(&self) -> Vec<String> {
        self.servers.iter().map(|(name, _)| name.clone()).collect()
    }
}

#[async_trait::async_trait(?Send)]
impl Survey for RedlockSurvey {
    async fn connect(&mut self) -> Result<(), Error> {
        // Each connection is made with a request to its server, so that a dead server causes only one delay.
        Ok(())
    }

    async fn look(&mut self, key: &Key) -> Result<Snapshot, Error> {
        let location = Location::of(key, self.namespace.join(':', key));
        let raw = self.ask(async |survey| survey.read(&Keys::at(location.place.clone())).await).await?;
        let opinions: Vec<Opinion> = raw.iter().map(|raw| Some(opinion(raw.as_ref()?, &location))).collect();
        Ok(counted(location, &self.names_of_servers(), &opinions))
    }

    async fn last_break(&mut self, key: &Key) -> Result<Option<Ask>, Error> {
        let keys = Keys::at(self.namespace.join(':', key));
        let needed = majority(self.servers.len());
        let mut asked: FuturesUnordered<_> = self
            .servers
            .iter_mut()
            .map(|(_, survey)| async {
                survey.connect().await.ok()?;
                Some(survey.record(&keys).await.ok()?.map_or(Vec::new(), |ask| vec![ask]))
            })
            .collect();
        let (mut answered, mut records, mut timeout) = (0, Vec::new(), TIMEOUT);
        while let Ok(Some(answer)) = within(timeout, asked.next()).await {
            answered += usize::from(answer.is_some());
            records.extend(answer.into_iter().flatten());
            if answered >= needed {
                // The others get only a short time.
                timeout = STRAGGLERS;
            }
        }
        Ok(records.into_iter().max_by_key(|ask| ask.at))
    }

    async fn last_success(&mut self, key: &Key) -> Result<Option<Done>, Error> {
        let keys = Keys::at(self.namespace.join(':', key));
        let read = self.ask(async |survey| survey.success(&keys).await).await?;
        Ok(read.into_iter().flatten().flatten().max_by_key(|done| done.at))
    }

    async fn last_successes(&mut self, prefix: &str) -> Result<Successes, Error> {
        let mut found = Successes::default();
        for (location, done) in
            self.ask(async |survey| survey.successes(prefix).await).await?.into_iter().flatten().flatten()
        {
            found.add(location, done);
        }
        Ok(found)
    }

    async fn meetings(&mut self, prefix: &str) -> Result<Meetings, Error> {
        let mut found = Meetings::of_latches(prefix);
        for seen in self.ask(async |survey| survey.meeting_points(prefix).await).await?.into_iter().flatten() {
            found.latches.extend(seen.latches);
        }
        Ok(found)
    }

    async fn names(&mut self, prefix: &str, most: Option<usize>) -> Result<Names, Error> {
        let lists = self.ask(async |survey| survey.scan(prefix, most).await).await?;
        let only_own = lists.iter().flatten().any(|names| names.only_own);
        let is_cut = lists.iter().flatten().any(|names| names.is_cut);
        let mut all: Vec<Location> = lists.into_iter().flatten().flat_map(|names| names.found).collect();
        all.sort_unstable();
        all.dedup();
        let mut smallest = Smallest::new(most);
        // The smallest of all are among the smallest of each server.
        let total = Some(all.len() as u64).filter(|_| !is_cut);
        for location in all {
            smallest.add(location);
        }
        let names = smallest.names(total);
        Ok(Names { only_own, is_cut: is_cut || names.is_cut, ..names })
    }

    async fn look_at(&mut self, locations: &[Location]) -> Result<Vec<Snapshot>, Error> {
        let read = self.ask(async |survey| survey.read_all(locations).await).await?;
        let servers = self.names_of_servers();
        let seen = locations.iter().enumerate().map(|(index, location)| {
            let of = |raw: &Option<Vec<Raw>>| Some(opinion(raw.as_ref()?.get(index)?, location));
            let opinions: Vec<Opinion> = read.iter().map(of).collect();
            counted(location.clone(), &servers, &opinions)
        });
        Ok(seen.filter(|seen| seen.state != State::Free).collect())
    }

    async fn ask_to_stop(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let keys = Keys::at(self.namespace.join(':', key));
        // One server that took the request is enough: the holder asks all of them.
        let put = self.ask(async |survey| survey.put(&keys, party, ask).await).await?;
        Ok(put.into_iter().flatten().any(|put| put))
    }

    async fn take_away(&mut self, key: &Key, party: &Party, ask: &Ask) -> Result<bool, Error> {
        let keys = Keys::at(self.namespace.join(':', key));
        let taken = self.ask(async |survey| survey.take(&keys, party, ask, false).await).await?;
        Ok(taken.into_iter().flatten().any(|taken| taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::Holder;

    /// Returns a server's opinion from `holder [lease counter]`: `-` for nobody, `list` for blocked, `?` for no answer.
    fn server(what: &str) -> Opinion {
        let (who, rest) = what.split_once(' ').unwrap_or((what, "5 0"));
        let (left, fence) = rest.split_once(' ').expect("a lease and a counter");
        let seen = Snapshot::free(Location::default(), 100);
        let seen = match who {
            "?" => return None,
            "-" => seen,
            "list" => Snapshot { state: State::Blocked("a redis list".to_owned()), ..seen },
            who => {
                let left = Left::Millis(left.parse().expect("a lease"));
                let text = format!(r#"{{"v":1,"id":"{who}"}}"#);
                seen.held_by(vec![Party::new(Holder::read(text.as_bytes()), "").lasting(Some(left))], 1)
            }
        };
        Some((seen, fence.parse().ok()))
    }

    #[test]
    fn a_holder_is_whom_a_majority_of_all_servers_names() {
        for (servers, expected) in [
            ("-,-,-", "free"),
            ("a 9 7,a 3 7,a 5 7", "held a 5 Some(7)"),
            ("a 9 7,a 3 7,-", "held a 3 Some(7)"),
            ("a 9 7,a 3 8,b", "held a 3 None"),
            ("a,-,-", "free"),
            ("a,b,c", "contested"),
            ("a,b,-", "contested"),
            ("a,a,?", "held a 5 Some(0)"),
            ("a,b,?", "unknown"),
            ("a,-,?", "unknown"),
            ("list,list,a", "blocked"),
            ("a,a,b,b,-", "contested"),
            ("a,a,a,b,?", "held a 5 Some(0)"),
        ] {
            let opinions: Vec<Opinion> = servers.split(',').map(server).collect();
            let names: Vec<String> = (0..opinions.len()).map(|index| format!("s{index}")).collect();
            let seen = counted(Location::default(), &names, &opinions);
            let mut told = seen.state.name().to_owned();
            for party in &seen.holders {
                let Some(Left::Millis(left)) = party.left else { panic!("{party:?}") };
                told = format!("{told} {} {left} {:?}", party.id(), party.token);
            }
            assert_eq!(told, expected, "{servers}");
            assert_eq!(seen.votes.map(|votes| votes.len()), Some(opinions.len()));
        }
    }
}
