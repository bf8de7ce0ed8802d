/*!
Derives a lock's holders and waiters from the nodes in its directory and next to it. Sends no requests.
*/

use ::zookeeper_client::Stat;

use crate::backend::survey::{Location, Party, Snapshot, State};
use crate::backend::zookeeper::hold::Hold;
use crate::backend::zookeeper::line::Rival;
use crate::backend::zookeeper::names::contender_of;
use crate::holder::{Holder, Published};
use crate::lock::admission::{Entry, Mode, holders};

/// The data that were read about a lock.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The contenders, oldest first.
    pub contenders: Vec<(Entry, Rival)>,
    /// The content of each one's first node; `None` if it has gone meanwhile. The last ones may not have been read.
    pub nodes: Vec<Option<(Vec<u8>, Stat)>>,
    /// The minimum holds.
    pub holds: Vec<Hold>,
}

impl Found {
    /// Evaluates the data at `now`, in milliseconds since 1970.
    pub(super) fn seen(self, location: Location, now: u64) -> Snapshot {
        let is_over = |hold: &Hold| hold.until() <= now;
        let contends = |hold: &Hold| self.contenders.iter().any(|(entry, _)| entry.name == contender_of(hold.owner()));
        let kept = self.holds.iter().filter(|hold| !is_over(hold) && !contends(hold));
        let mut line: Vec<Party> = kept.map(|hold| Party::new(hold.holder(), "")).collect();
        let (mut stray, mut unread) = (None, 0);
        for (index, (entry, rival)) in self.contenders.iter().enumerate() {
            match self.nodes.get(index) {
                Some(Some((data, stat))) => {
                    if line.is_empty() && stat.ephemeral_owner == 0 {
                        stray = Some(format!("the node {}, which no session owns", rival.first));
                    }
                    line.push(party(entry, rival, data, stat));
                }
                // It has gone meanwhile.
                Some(None) => {}
                None => unread += 1,
            }
        }
        if let Some(stray) = stray {
            let waiting = line.len() as u64 - 1 + unread;
            return Snapshot { state: State::Blocked(stray), waiting, ..Snapshot::free(location, now) };
        }
        let holding = holders(line.iter().map(|party| party.mode.unwrap_or_default()));
        let has_entered = |party: &&Party| party.slot.is_some() || !matches!(party.mode, Some(Mode::Slots(_)));
        let holding = line.iter().take(holding).take_while(has_entered).count();
        let mut queue = line.split_off(holding);
        for waiter in &mut queue {
            (waiter.token, waiter.renewed) = (None, None);
        }
        let waiting = queue.len() as u64 + unread;
        Snapshot::free(location, now).held_by(line, 0).awaited_by(queue, waiting)
    }
}

/// Returns the contender with these nodes, of which the first one has `data`.
fn party(entry: &Entry, rival: &Rival, data: &[u8], stat: &Stat) -> Party {
    let who = match Holder::read(data) {
        Holder::Dlock(said) => {
            let token = said.token.or(stat.czxid.try_into().ok());
            Holder::Dlock(Box::new(Published { token, mode: Some(entry.mode.name()), ..*said }))
        }
        other => other,
    };
    let mut party = Party::new(who, rival.first.as_str());
    party.mode = Some(entry.mode);
    party.since = party.since.or(stat.ctime.try_into().ok());
    party.renewed = stat.mtime.try_into().ok();
    party
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::zookeeper::line::contenders;

    const NOW: u64 = 100_000;

    /// Returns the owner's id for this digit.
    fn id(digit: char) -> String {
        format!("f{}", digit.to_string().repeat(31))
    }

    fn stat(ctime: i64, session: i64) -> Stat {
        Stat {
            czxid: 17,
            mzxid: 17,
            ctime,
            mtime: ctime + 500,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: session,
            data_length: 0,
            num_children: 0,
            pzxid: 17,
        }
    }

    fn dlock(digit: char, rest: &str) -> String {
        format!(r#"{{"v":1,"id":"{}"{rest}}}"#, id(digit))
    }

    /// Describes a lock. The contenders came in this order, each with its digit, the end of its node's name, the node's
    /// data (`-` if it has gone) and its session; each minimum hold has the digit of its owner and its length.
    fn told(contenders_of: &[(char, &str, &str, i64)], holds: &[(char, u64)]) -> String {
        let name = |(at, (digit, kind, ..)): (usize, &(char, &str, &str, i64))| format!("{}{kind}{at:010}", id(*digit));
        let children: Vec<String> = contenders_of.iter().enumerate().map(name).collect();
        let node = |(_, _, data, session): &(char, &str, &str, i64)| {
            (*data != "-").then(|| (data.as_bytes().to_vec(), stat(90_000, *session)))
        };
        let hold = |(digit, length): &(char, u64)| {
            let text = dlock(*digit, &format!(r#","hold":{length}"#));
            Hold::read(text.as_bytes(), &stat(90_000, 0)).expect("a hold")
        };
        let found = Found {
            contenders: contenders(&children),
            nodes: contenders_of.iter().map(node).collect(),
            holds: holds.iter().map(hold).collect(),
        };
        let seen = found.seen(Location::default(), NOW);
        let party = |party: &Party| {
            let id = party.published().map_or("foreign".to_owned(), |said| said.id[1..2].to_owned());
            let slot = party.slot.map(|slot| format!(" in {slot}")).unwrap_or_default();
            format!("{id}{slot}{}", if party.is_done() { " done" } else { "" })
        };
        let all = |parties: &[Party]| parties.iter().map(party).collect::<Vec<_>>().join(", ");
        let (holders, queue) = (all(&seen.holders), all(&seen.queue));
        let what = if let State::Blocked(what) = &seen.state { what.clone() } else { seen.state.name().to_owned() };
        format!("{what}: {holders} | {}: {queue}", seen.waiting)
    }

    #[test]
    fn who_holds_a_lock_and_who_waits_follows_from_its_nodes() {
        let plain = |digit: char| dlock(digit, "");
        let slot = |digit: char, slot: u32| dlock(digit, &format!(r#","slot":{slot}"#));
        let (one, two, three) = (plain('1'), plain('2'), plain('3'));
        let (alone, read, slots) = ("__lock__", "__rlock__", "-slots2__lock__");
        for (contenders, holds, expected) in [
            (&[][..], &[][..], "free:  | 0: "),
            (&[('1', alone, one.as_str(), 5), ('2', alone, two.as_str(), 6)], &[], "held: 1 | 1: 2"),
            (&[('1', alone, "10.0.0.1", 5), ('2', alone, two.as_str(), 6)], &[], "held: foreign | 1: 2"),
            // Gone since the directory was listed.
            (&[('1', alone, "-", 5), ('2', alone, two.as_str(), 6)], &[], "held: 2 | 0: "),
            (
                &[('1', read, one.as_str(), 5), ('2', read, two.as_str(), 6), ('3', alone, three.as_str(), 7)],
                &[],
                "held: 1, 2 | 1: 3",
            ),
            (
                &[('1', slots, &slot('1', 1), 5), ('2', slots, &slot('2', 0), 6), ('3', slots, three.as_str(), 7)],
                &[],
                "held: 1 in 1, 2 in 0 | 1: 3",
            ),
            // Slots are entered one after the other.
            (&[('1', slots, one.as_str(), 5), ('2', slots, &slot('2', 0), 6)], &[], "free:  | 2: 1, 2 in 0"),
            (&[], &[('1', 20_000)], "held: 1 done | 0: "),
            (&[], &[('1', 9_000)], "free:  | 0: "),
            (&[('2', alone, two.as_str(), 5)], &[('1', 20_000)], "held: 1 done | 1: 2"),
            // It still runs.
            (&[('1', alone, one.as_str(), 5)], &[('1', 20_000)], "held: 1 | 0: "),
        ] {
            assert_eq!(told(contenders, holds), expected, "{contenders:?} {holds:?}");
        }
    }

    #[test]
    fn a_node_that_no_session_owns_blocks_the_lock() {
        let first = format!("{}__lock__0000000000", id('1'));
        let nodes = [('1', "__lock__", "x", 0), ('2', "__lock__", "y", 6)];
        assert_eq!(told(&nodes, &[]), format!("the node {first}, which no session owns:  | 1: "));
    }

    #[test]
    fn a_contender_whose_node_was_not_read_is_counted() {
        let children = [format!("{}__lock__0000000001", id('1')), format!("{}__lock__0000000002", id('2'))];
        let nodes = vec![Some((b"x".to_vec(), stat(90_000, 5)))];
        let seen = Found { contenders: contenders(&children), nodes, holds: Vec::new() }.seen(Location::default(), NOW);
        assert_eq!((seen.held_by, seen.waiting, seen.queue.len()), (1, 1, 0));
        let holder = &seen.holders[0];
        assert_eq!((holder.since, holder.renewed, holder.left), (Some(90_000), Some(90_500), None));
    }
}
