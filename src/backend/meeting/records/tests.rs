//! Latches and barriers on records in memory, with requests that arrive late and parties that die.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::FutureExt;

use super::*;
use crate::backend::error::ErrorKind;
use crate::backend::meeting::TOLD;
use crate::holder::Owner;
use crate::key::{Key, Namespace};

/// The lease of every party, in the service's microseconds.
const LEASE: i64 = 10;
const MICRO: Duration = Duration::from_micros(1);

/// A record's text, the change that wrote it, its end, and its party.
type Kept = (String, i64, i64, usize);

#[derive(Default)]
struct World {
    kept: BTreeMap<String, Kept>,
    version: i64,
    now: i64,
    /// The time at which each party was last heard of; missing if it has left.
    heard: BTreeMap<usize, i64>,
    /// Write requests that are still on their way: party, name, text, life, and the moment that they have seen.
    late: Vec<(usize, String, String, i64, Moment)>,
}

impl World {
    fn put(&mut self, party: usize, name: &str, text: &str, life: i64, seen: Option<Moment>) -> bool {
        self.version += 1;
        let overtaken = |seen: Moment| self.kept.get(name).is_some_and(|kept| kept.1 > seen.version);
        if seen.is_some_and(overtaken) {
            return false;
        }
        let until = seen.map_or(self.now, |seen| seen.micros) + life;
        self.kept.insert(name.to_owned(), (text.to_owned(), self.version, until, party));
        true
    }

    /// Asserts that each opened mark belongs to a party that was heard of within its lease, and has not left.
    fn amend(&mut self, records: &[Record], seen: Moment) -> bool {
        self.version += 1;
        let is_sound = |record: &Record| {
            let kept = self.kept.get(&record.name);
            kept.is_some_and(|kept| kept.1 <= seen.version && kept.1 == record.version && kept.2 > self.now)
        };
        if !records.iter().all(is_sound) {
            return false;
        }
        for Record { name, text, .. } in records {
            let kept = self.kept.get_mut(name).expect("it is there");
            let heard = self.heard.get(&kept.3);
            let is_there = heard.is_some_and(|heard| self.now < heard + LEASE);
            assert!(is_there || *text == kept.0, "{name} is counted, and is gone: {kept:?}");
            (kept.0, kept.1) = (text.clone(), self.version);
        }
        true
    }
}

struct Memory {
    world: Rc<RefCell<World>>,
    meeting: Meeting,
    party: usize,
    /// `true` if the next write request is dropped, and arrives later.
    is_slow: Rc<RefCell<bool>>,
}

fn memory(world: &Rc<RefCell<World>>, name: &str, party: usize) -> Memory {
    let meeting = Meeting {
        key: Key::parse("k".as_ref()).expect("a key"),
        namespace: Namespace::parse("dlock").expect("a namespace"),
        id: Owner::random().expect("random"),
        name: name.to_owned(),
        lease: 10 * MICRO,
    };
    Memory { world: Rc::clone(world), meeting, party, is_slow: Rc::default() }
}

fn micros(life: Duration) -> i64 {
    i64::try_from(life.as_micros()).expect("short")
}

#[async_trait::async_trait(?Send)]
impl Records for Memory {
    fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    async fn connect(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn connect_in_order(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn read(&mut self, most: usize) -> Result<Page, Error> {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        if let Some(own) = world.kept.get_mut(&self.meeting.name).filter(|own| own.3 == self.party && own.2 > now) {
            own.2 = now + LEASE;
        }
        world.heard.entry(self.party).and_modify(|heard| *heard = now);
        let alive = world.kept.iter().filter(|(_, kept)| kept.2 > now);
        let record =
            |(name, kept): (&String, &Kept)| Record { name: name.clone(), text: kept.0.clone(), version: kept.1 };
        let records: Vec<Record> = alive.map(record).collect();
        let count = records.len() as u64;
        let moment = Moment { version: world.version, micros: now };
        Ok(Page { records: records.into_iter().take(most).collect(), count, moment })
    }

    async fn put(&mut self, name: &str, text: &str, life: Duration, seen: Option<Moment>) -> Result<bool, Error> {
        let mut world = self.world.borrow_mut();
        if let Some(seen) = seen.filter(|_| self.is_slow.replace(false)) {
            world.late.push((self.party, name.to_owned(), text.to_owned(), micros(life), seen));
            return Err(Error::new(ErrorKind::Unavailable, "no answer".to_owned()));
        }
        Ok(world.put(self.party, name, text, micros(life), seen))
    }

    async fn amend(&mut self, records: &[Record], seen: Moment) -> Result<bool, Error> {
        Ok(self.world.borrow_mut().amend(records, seen))
    }

    async fn clear(&mut self) -> Result<(), Error> {
        self.world.borrow_mut().kept.clear();
        Ok(())
    }

    async fn changed(&mut self, _at_most: Duration) -> Result<(), Error> {
        Ok(())
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing waits")
}

/// A reproducible stream of numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).expect("small")
    }
}

/// Plays two to four parties, one with a newer process under its name; returns `true` if the barrier has opened.
fn play(draw: &mut Draw) -> bool {
    let world = Rc::new(RefCell::new(World::default()));
    let wanted = 2 + draw.below(3);
    let mut slow = Vec::new();
    let mut parties: Vec<_> = (0..=wanted)
        .map(|party| {
            let records = memory(&world, &format!("p{}", party % wanted), party);
            slow.push(Rc::clone(&records.is_slow));
            RecordedBarrier::new(Box::new(records), u32::try_from(wanted).expect("few"))
        })
        .collect();
    let (mut came, mut arrived, mut gone) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..40 {
        let party = draw.below(parties.len());
        if gone.contains(&party) {
            continue;
        }
        match draw.below(12) {
            0 => world.borrow_mut().now += 1 + i64::try_from(draw.below(8)).expect("small"),
            1 => {
                let late = std::mem::take(&mut world.borrow_mut().late);
                for (whose, name, text, life, seen) in late {
                    world.borrow_mut().put(whose, &name, &text, life, Some(seen));
                }
            }
            2 => {
                gone.insert(party);
                if draw.below(2) == 0 && now(parties[party].withdraw()).is_ok_and(|is_open| !is_open) {
                    world.borrow_mut().heard.remove(&party);
                }
            }
            kind => {
                *slow[party].borrow_mut() = kind == 3;
                let since = world.borrow().now;
                world.borrow_mut().heard.entry(party).or_insert(since);
                came.insert(party % wanted);
                match now(parties[party].gather(arrived.insert(party))) {
                    Ok(Gathering::Open) => {
                        assert_eq!(came.len(), wanted, "one has passed that not all have come to");
                        return true;
                    }
                    Ok(Gathering::Waiting(_)) => {}
                    Ok(_) => drop(gone.insert(party)),
                    // Without an answer, it asks once more.
                    Err(_) => drop(arrived.remove(&party)),
                }
                *slow[party].borrow_mut() = false;
            }
        }
    }
    false
}

#[test]
fn nobody_passes_alone_and_none_that_is_gone_counts() {
    let mut draw = Draw(88_172_645_463_325_252);
    let opened = (0..20_000).filter(|_| play(&mut draw)).count();
    assert!(opened > 5_000, "{opened}");
}

#[test]
fn a_latch_counts_names_apart_from_its_failure() {
    let world = Rc::new(RefCell::new(World::default()));
    for name in ["a", "b", "a", ""] {
        now(RecordedLatch(Box::new(memory(&world, name, 0))).arrive(20 * MICRO)).expect("done");
    }
    let mut latch = RecordedLatch(Box::new(memory(&world, "", 0)));
    let failure = LatchFailure { by: "a".to_owned(), reason: "red".to_owned() };
    now(latch.fail(&failure, 10 * MICRO)).expect("done");
    let look = |latch: &mut RecordedLatch| now(latch.look(TOLD)).expect("answered");
    let names = ["", "a", "b"].map(str::to_owned).to_vec();
    assert_eq!(look(&mut latch), Arrivals { count: 3, names: names.clone(), failure: Some(failure) });
    world.borrow_mut().now = 10;
    assert_eq!(look(&mut latch), Arrivals { count: 3, names, failure: None });
    for name in 0..20 {
        now(RecordedLatch(Box::new(memory(&world, &name.to_string(), 0))).arrive(20 * MICRO)).expect("done");
    }
    let arrivals = look(&mut latch);
    assert_eq!((arrivals.count, arrivals.names.len()), (23, TOLD));
    now(latch.forget()).expect("done");
    assert_eq!(look(&mut latch), Arrivals::default());
}
