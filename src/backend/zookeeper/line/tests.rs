/*!
Standings in the queue, by tables of queues.
*/

use std::num::NonZeroU32;
use std::time::Duration;

use ::zookeeper_client::Stat;

use super::*;
use crate::holder::Owner;

fn slots(slots: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(slots).expect("a slot"))
}

/// A dlock with its nodes.
#[derive(Clone)]
struct Client {
    names: Names,
    owner: String,
    nodes: Vec<String>,
}

impl Client {
    /// Creates a client whose first node has this number.
    fn new(mode: Mode, number: i64) -> Self {
        let owner = Owner::random().expect("random");
        let names = Names::of(&owner, mode);
        let nodes = names.all().into_iter().zip(number..).map(|(name, number)| format!("{name}{number:010}")).collect();
        Self { names, owner: owner.as_str().to_owned(), nodes }
    }

    fn rival(&self) -> Rival {
        Rival { first: self.nodes[0].clone(), last: self.nodes[2].clone() }
    }

    fn who(&self) -> Who {
        Who::Rival(self.rival())
    }

    fn last(&self) -> String {
        self.nodes[2].clone()
    }

    /// Returns its minimum hold, which ends at `over`, in seconds.
    fn kept(&self, slot: Option<u32>, over: u64) -> MinimumHold {
        let (mode, slot) = (self.names.mode.name(), slot.map_or_else(|| "null".to_owned(), |slot| slot.to_string()));
        let text = format!(r#"{{"v":1,"hold":1000,"id":"{}","mode":"{mode}","slot":{slot}}}"#, self.owner);
        let stat = Stat {
            czxid: 5,
            mzxid: 5,
            pzxid: 5,
            ctime: 5,
            mtime: 5,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
        };
        MinimumHold { hold: Hold::read(text.as_bytes(), &stat).expect("a hold"), over: at(over) }
    }
}

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(0) + Duration::from_secs(seconds)
}

/// Builds the queue of these nodes for `own`, from a listing in reverse order.
fn line(own: &Client, nodes: &[&[String]]) -> QueueView {
    let children: Vec<String> = nodes.iter().rev().flat_map(|nodes| nodes.iter().rev().cloned()).collect();
    QueueView::read(&children, &own.names, &BTreeMap::new())
}

fn behind(holder: &Client, position: u64, awaited: Awaited) -> Behind {
    let (position, awaited) = (Some(position), Some(awaited));
    Behind { holder: holder.who(), beside: 0, position, awaited, until: None, is_entering: false }
}

const ENTERS: Standing = Standing::Enters { slot: None };

#[test]
fn the_smallest_sequence_number_holds_whoever_made_it() {
    use Mode::Exclusive as X;
    let (own, other, later) = (Client::new(X, 7), Client::new(X, 3), Client::new(X, 10));
    let foreign = ["9".repeat(32) + "__lock__0000000006"];
    let odd = ["config".to_owned(), "lock-1".to_owned()];
    assert_eq!(line(&own, &[&own.nodes]).standing(), ENTERS);
    assert_eq!(line(&own, &[&later.nodes, &own.nodes, &odd]).standing(), ENTERS);
    let after = |nodes: &[&[String]], expected: Behind| {
        assert_eq!(line(&own, nodes).standing(), Standing::Behind(expected));
    };
    // The nodes of one contender count once.
    after(&[&other.nodes, &own.nodes, &later.nodes], behind(&other, 1, Awaited::Gone(other.last())));
    after(&[&own.nodes, &foreign, &other.nodes], behind(&other, 2, Awaited::Gone(foreign[0].clone())));
    // A dlock with only two nodes, as in earlier releases, and one whose last node was removed.
    let pair = [other.nodes[0].clone(), other.nodes[2].clone()];
    after(&[&own.nodes, &pair], behind(&other, 1, Awaited::Gone(other.last())));
    let robbed = Behind {
        holder: Who::Rival(Rival { first: other.nodes[0].clone(), last: other.nodes[1].clone() }),
        ..behind(&other, 1, Awaited::Gone(other.nodes[1].clone()))
    };
    after(&[&own.nodes, &other.nodes[..2]], robbed);
    assert_eq!(line(&own, &[&other.nodes, &own.nodes]).count(), 2);
}

#[test]
fn readers_run_together_with_all_readers_and_watch_the_writer_before_them() {
    use Mode::{Exclusive as X, Shared as S};
    let (own, reader, writer) = (Client::new(S, 20), Client::new(S, 1), Client::new(X, 11));
    let curator = ["_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000005".to_owned()];
    let kazoo = ["0123456789abcdef0123456789abcdef__rlock__0000000006".to_owned()];
    let writers = ["_c_01234567-89ab-cdef-0123-456789abcdee-__WRIT__0000000007".to_owned()];
    assert_eq!(line(&own, &[&reader.nodes, &curator, &kazoo, &own.nodes]).standing(), ENTERS);
    let standing = line(&own, &[&reader.nodes, &writer.nodes, &own.nodes]).standing();
    assert_eq!(standing, Standing::Behind(behind(&reader, 2, Awaited::Gone(writer.last()))));
    let standing = line(&own, &[&reader.nodes, &curator, &writers, &own.nodes]).standing();
    let expected = Behind { beside: 1, ..behind(&reader, 2, Awaited::Gone(writers[0].clone())) };
    assert_eq!(standing, Standing::Behind(expected));
    let writer = Client::new(X, 30);
    let standing = line(&writer, &[&reader.nodes, &own.nodes, &writer.nodes]).standing();
    let expected = Behind { beside: 1, ..behind(&reader, 1, Awaited::Gone(own.last())) };
    assert_eq!(standing, Standing::Behind(expected));
}

#[test]
fn slots_are_entered_one_after_the_other() {
    let clients = [1, 4, 7, 10].map(|number| Client::new(slots(2), number));
    let [first, second, third, own] = &clients;
    let mut two = line(second, &[&first.nodes, &second.nodes]);
    assert_eq!(line(first, &[&first.nodes, &second.nodes]).standing(), Standing::Enters { slot: Some(0) });
    assert_eq!(two.standing(), Standing::Unknown(vec![first.rival()]));
    // There is a slot, but the contender before has not said which one it takes.
    two.tell(&first.rival(), None);
    let turn = |client: &Client| Awaited::Turn(client.last());
    assert_eq!(two.standing(), Standing::Behind(Behind { is_entering: true, ..behind(first, 1, turn(first)) }));
    two.tell(&first.rival(), Some(0));
    assert_eq!(two.standing(), Standing::Enters { slot: Some(1) });
    two.tell(&first.rival(), Some(1));
    assert_eq!(two.standing(), Standing::Enters { slot: Some(0) });
    assert_eq!(two.entered(), BTreeMap::from([(first.last(), 1)]));
    // Only the contender before is asked, however many wait.
    let mut four = line(own, &[&first.nodes, &second.nodes, &third.nodes, &own.nodes]);
    assert_eq!(four.standing(), Standing::Unknown(vec![third.rival()]));
    four.tell(&third.rival(), None);
    let full = |position, awaited| Standing::Behind(Behind { beside: 1, ..behind(first, position, awaited) });
    assert_eq!(four.standing(), full(2, turn(third)));
    // The first in line waits for any of the holders.
    let mut three = line(third, &[&first.nodes, &second.nodes, &third.nodes]);
    three.tell(&second.rival(), Some(0));
    assert_eq!(three.standing(), full(1, Awaited::Any(vec![first.last(), second.last()])));
    // A slot that was seen once stays known, including our own.
    let entered = BTreeMap::from([(first.last(), 1), (third.last(), 0)]);
    let children: Vec<String> = [first, third, own].into_iter().flat_map(|client| client.nodes.clone()).collect();
    let standing = |client: &Client| QueueView::read(&children, &client.names, &entered).standing();
    assert_eq!(standing(third), Standing::Enters { slot: Some(0) });
    assert_eq!(standing(own), full(1, Awaited::Any(vec![first.last(), third.last()])));
}

#[test]
fn all_before_are_asked_for_their_slots_by_the_one_who_enters() {
    let [first, second, third] = [1, 4, 7].map(|number| Client::new(slots(3), number));
    let mut line = line(&third, &[&first.nodes, &second.nodes, &third.nodes]);
    line.tell(&second.rival(), Some(2));
    assert_eq!(line.standing(), Standing::Unknown(vec![first.rival()]));
    line.tell(&first.rival(), Some(0));
    assert_eq!(line.standing(), Standing::Enters { slot: Some(1) });
    // A node that somebody has overwritten could stand for any slot.
    line.tell(&first.rival(), None);
    let expected = Behind { beside: 1, is_entering: true, ..behind(&first, 1, Awaited::Turn(first.last())) };
    assert_eq!(line.standing(), Standing::Behind(expected));
}

#[test]
fn another_number_of_slots_is_refused_to_the_later_one() {
    let (two, three) = (Client::new(slots(2), 1), Client::new(slots(3), 4));
    let refused = |slots, by: &Client| Standing::OtherSlots { slots, by: by.who() };
    assert_eq!(line(&three, &[&two.nodes, &three.nodes]).standing(), refused(2, &two));
    assert_eq!(line(&three, &[&two.nodes]).standing(), refused(2, &two));
    assert_eq!(line(&two, &[&two.nodes, &three.nodes]).standing(), Standing::Enters { slot: Some(0) });
    // A contender that is about to be refused does not cause others to be refused.
    let own = Client::new(slots(2), 7);
    let standing = line(&own, &[&two.nodes, &three.nodes, &own.nodes]).standing();
    assert_eq!(standing, Standing::Behind(behind(&two, 2, Awaited::Gone(three.last()))));
    assert!(matches!(line(&own, &[&two.nodes, &three.nodes]).standing(), Standing::Behind(_)));
}

#[test]
fn whoever_is_not_in_the_line_would_be_behind_all() {
    use Mode::{Exclusive as X, Shared as S};
    let busy = |holder: &Client, beside| {
        let behind = behind(holder, 0, Awaited::Any(Vec::new()));
        Standing::Behind(Behind { beside, position: None, awaited: None, ..behind })
    };
    let of = |mode: Mode, number: i64| Client::new(mode, number);
    let (reader, writer, one) = (of(S, 1), of(X, 4), of(slots(2), 1));
    assert_eq!(line(&of(X, 0), &[]).standing(), Standing::ConnectReply);
    assert_eq!(line(&of(X, 0), &[&reader.nodes]).standing(), busy(&reader, 0));
    assert_eq!(line(&of(S, 0), &[&reader.nodes]).standing(), Standing::ConnectReply);
    // A waiting writer is not overtaken.
    assert_eq!(line(&of(S, 0), &[&reader.nodes, &writer.nodes]).standing(), busy(&reader, 0));
    assert_eq!(line(&of(slots(2), 0), &[&one.nodes]).standing(), Standing::ConnectReply);
    let two = of(slots(2), 4);
    assert_eq!(line(&of(slots(2), 0), &[&one.nodes, &two.nodes]).standing(), busy(&one, 1));
}

#[test]
fn minimum_holds_are_entries_before_all_others() {
    use Mode::{Exclusive as X, Shared as S};
    let gone = |mode: Mode| Client::new(mode, 1);
    let with = |own: &Client, nodes: &[&[String]], holds: Vec<MinimumHold>| {
        let mut line = line(own, nodes);
        assert!(!line.knows_holds());
        line.keep(holds);
        assert!(line.knows_holds());
        line.standing()
    };
    let waits = |kept: &MinimumHold, beside: u64, position: Option<u64>| {
        let awaited = position.map(|_| Awaited::MinimumHold(kept.hold.owner().to_owned()));
        let until = position.map(|_| kept.over);
        let holder = Who::MinimumHold(Box::new(kept.hold.clone()));
        Standing::Behind(Behind { holder, beside, position, awaited, until, is_entering: false })
    };
    let (writer, reader, slot) = (Client::new(X, 9), Client::new(S, 9), Client::new(slots(2), 9));
    let (exclusive, shared) = (gone(X).kept(None, 30), gone(S).kept(None, 20));
    assert_eq!(with(&writer, &[&writer.nodes], vec![]), ENTERS);
    assert_eq!(with(&writer, &[&writer.nodes], vec![exclusive.clone()]), waits(&exclusive, 0, Some(1)));
    assert_eq!(with(&writer, &[], vec![exclusive.clone()]), waits(&exclusive, 0, None));
    assert_eq!(with(&reader, &[&reader.nodes], vec![shared.clone()]), ENTERS);
    // The last one to end decides, and an owner that still contends counts once.
    let later = gone(S).kept(None, 25);
    let Standing::Behind(seen) = with(&writer, &[&writer.nodes], vec![later.clone(), shared]) else { panic!() };
    assert_eq!((seen.awaited, seen.until), (Some(Awaited::MinimumHold(later.hold.owner().to_owned())), Some(at(25))));
    assert_eq!((seen.beside, seen.position), (1, Some(1)));
    assert_eq!(with(&reader, &[&reader.nodes], vec![reader.kept(None, 9)]), ENTERS);
    // Kept slots are taken.
    let (zero, one) = (gone(slots(2)).kept(Some(0), 40), gone(slots(2)).kept(Some(1), 35));
    assert_eq!(with(&slot, &[&slot.nodes], vec![zero.clone()]), Standing::Enters { slot: Some(1) });
    let Standing::Behind(seen) = with(&slot, &[&slot.nodes], vec![zero.clone(), one]) else { panic!() };
    assert_eq!((seen.until, seen.position), (Some(at(35)), Some(1)));
    let three = Client::new(slots(3), 12);
    let refused = Standing::OtherSlots { slots: 2, by: Who::MinimumHold(Box::new(zero.hold.clone())) };
    assert_eq!(with(&three, &[&three.nodes], vec![zero.clone()]), refused);
    assert_eq!(with(&three, &[], vec![zero]), refused);
}

#[test]
fn a_run_around_this_one_is_found_where_it_holds() {
    use Mode::{Exclusive as X, Shared as S};
    let (outer, beside, writer, inner) = (Client::new(S, 1), Client::new(S, 4), Client::new(X, 7), Client::new(S, 10));
    let line = line(&inner, &[&outer.nodes, &beside.nodes, &writer.nodes]);
    let found = |owners: &[&Client]| {
        let owners: Vec<String> = owners.iter().map(|client| client.owner.clone()).collect();
        line.holder_among(&owners)
    };
    assert_eq!(found(&[&outer]), Some(outer.rival()));
    assert_eq!(found(&[&inner, &beside]), Some(beside.rival()));
    // An outer run that only waits does not count.
    assert_eq!(found(&[&writer, &inner]), None);
    assert_eq!(found(&[]), None);
}
