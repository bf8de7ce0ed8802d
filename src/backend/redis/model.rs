//! Checks the scripts of a single server, a [fake](super::fake), against [the model of the
//! rule](crate::backend::contract::rule) in the states that a few contenders can reach, the shortest paths first.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::time::Duration;

use super::answers::{Attempted, attempted, released, renewed};
use super::fake::{Fake, Prepared, Store, Thing};
use super::keys::Keys;
use super::{attempting, heartbeat_ttl, releasing, renewing};
use crate::backend::contract::claim::Claim;
use crate::backend::contract::contender::{Queue, Released, Used};
use crate::backend::contract::rule::{FOREIGN, Request, Rule, Step, StepResult};
use crate::holder::{About, Owner};
use crate::lock::admission::Mode;
use crate::property::from_env;

const BEGIN: u64 = 1_800_000_000_000;

pub(super) fn claims(modes: &[Mode], ttl: u64, min_hold: u64) -> Vec<Claim> {
    let claim = |(who, mode): (usize, &Mode)| Claim {
        owner: Owner::read(&format!("{who:032x}")).expect("an id"),
        mode: *mode,
        ttl: Duration::from_millis(ttl),
        min_hold: Duration::from_millis(min_hold),
        about: About { ttl: Some(ttl), ..About::default() },
        ..Claim::example("", "k").expect("names")
    };
    modes.iter().enumerate().map(claim).collect()
}

pub(super) fn lock_requests(claims: &[Claim]) -> Vec<Request> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).expect("short");
    let request = |claim: &Claim| Request {
        mode: claim.mode,
        ttl: millis(claim.ttl),
        heartbeat_ttl: millis(heartbeat_ttl(claim.ttl)),
        min_hold: millis(claim.min_hold),
        once: claim.once_per.is_some(),
    };
    claims.iter().map(request).collect()
}

struct World {
    fake: Fake,
    /// The request for each step, prepared once.
    requests: HashMap<Step, Prepared>,
    claims: Vec<Claim>,
    lock_requests: Vec<Request>,
    keys: Keys,
    lock: Vec<u8>,
}

impl World {
    fn new(modes: &[Mode], ttl: u64, min_hold: u64) -> Self {
        let claims = claims(modes, ttl, min_hold);
        let keys = Keys::of(&claims[0]);
        let lock = keys.lock.clone().into_bytes();
        Self {
            fake: Fake::new(Store::at(BEGIN)),
            requests: HashMap::new(),
            lock_requests: lock_requests(&claims),
            claims,
            keys,
            lock,
        }
    }

    /// Sends the request for a step to the server.
    fn ask(&mut self, step: Step, request: impl Fn(&[Claim]) -> ::redis::Cmd) -> Result<::redis::Value, String> {
        let Self { fake, requests, claims, .. } = self;
        let request = requests.entry(step).or_insert_with(|| fake.prepare(&request(claims)));
        fake.ask(request).map_err(|error| error.to_string())
    }

    /// Lets the server carry out a step.
    fn carry_out(&mut self, step: Step) -> Result<StepResult, String> {
        Ok(match step {
            Step::Attempt(who, joins) => {
                let queue = if joins { Queue::Join } else { Queue::Pass };
                let answer = self.ask(step, |claims| attempting(&claims[who], queue))?;
                match attempted(&answer).ok_or_else(|| format!("{answer:?}"))? {
                    Attempted::Granted(token, slot) => StepResult::Granted { token, slot },
                    Attempted::Busy(blocker) => {
                        StepResult::Busy { position: u64::try_from(blocker.position).ok().filter(|place| *place > 0) }
                    }
                    Attempted::OtherSlots(other) => StepResult::OtherSlots(other.slots),
                    Attempted::Done(_) => StepResult::Done,
                    other => return Err(format!("{other:?}")),
                }
            }
            Step::Renew(who) => {
                let answer = self.ask(step, |claims| renewing(&claims[who]))?;
                match renewed(&answer).ok_or_else(|| format!("{answer:?}"))? {
                    Ok(_) => StepResult::Extended,
                    Err(_) => StepResult::NotMine,
                }
            }
            Step::Release(who, used) => {
                let answer = self.ask(step, |claims| releasing(&claims[who], used))?;
                match released(&answer).ok_or_else(|| format!("{answer:?}"))? {
                    Released::Freed => StepResult::Freed,
                    Released::Kept => StepResult::Kept,
                    Released::NotMine => StepResult::NotMine,
                }
            }
            Step::Pass(millis) => {
                self.fake.change().pass(millis);
                StepResult::Nothing
            }
            Step::Delete => {
                self.fake.change().keys.remove(&self.lock);
                StepResult::Nothing
            }
            Step::Undo(_) | Step::Die(_) | Step::Ask(_) | Step::Take(_) => return Err("not here".to_owned()),
            Step::Foreign(millis) => {
                let mut store = self.fake.change();
                let ends = store.now() + millis;
                if store.keys.contains_key(&self.lock) {
                    return Ok(StepResult::Nothing);
                }
                store.keys.insert(self.lock.clone(), (Thing::Text(b"foreign".to_vec()), Some(ends)));
                StepResult::Freed
            }
        })
    }

    /// Carries out a step, and checks its result, the data of the server and the wake-up that it causes.
    fn step(&mut self, rule: &mut Rule, step: Step) -> Result<(), String> {
        let seen = self.carry_out(step)?;
        let now = self.fake.store().now();
        rule.expire(&self.lock_requests, now);
        let could = rule.could_enter(&self.lock_requests, now);
        rule.step(&self.lock_requests, step, &seen, now)?;
        self.compare(rule, now)?;
        // A waiter that can enter since this step must be woken, unless it took the step itself.
        if let Some(head) = rule.could_enter(&self.lock_requests, now)
            && could != Some(head)
            && !matches!(step, Step::Pass(_) | Step::Delete)
            && !matches!(step, Step::Attempt(who, _) if who == head)
        {
            let list = format!("{}{}", self.keys.wakes(), self.claims[head].owner.as_str());
            if !self.fake.store().keys.contains_key(list.as_bytes()) {
                return Err(format!("{head} could enter and was not woken"));
            }
        }
        Ok(())
    }

    fn hash_at(&self, key: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        match self.fake.store().keys.get(key.as_bytes()) {
            Some((Thing::Hash(all), _)) => all.clone(),
            _ => BTreeMap::new(),
        }
    }

    fn sorted_at(&self, key: &str) -> Vec<(Vec<u8>, i64)> {
        match self.fake.store().keys.get(key.as_bytes()) {
            Some((Thing::Sorted(all), _)) => {
                let mut all: Vec<_> = all.iter().map(|(one, score)| (one.clone(), *score)).collect();
                all.sort_by_key(|(_, score)| *score);
                all
            }
            _ => Vec::new(),
        }
    }

    /// Checks that the server keeps exactly what the rule demands.
    fn compare(&self, rule: &Rule, now: u64) -> Result<(), String> {
        let store = self.fake.store();
        let endless: Vec<_> = store.keys.iter().filter(|(_, (_, ends))| ends.is_none()).map(|(key, _)| key).collect();
        if !endless.is_empty() {
            return Err(format!("keys without an end: {endless:?}"));
        }
        let live = store.keys.get(&self.lock).filter(|(_, ends)| ends.is_none_or(|ends| now <= ends));
        let expected: BTreeMap<usize, u64> = rule.holds.iter().map(|hold| (hold.who, hold.ends)).collect();
        let kept = match live {
            None => BTreeMap::new(),
            Some((Thing::Text(text), ends)) => {
                self.holders_in(&String::from_utf8_lossy(text), ends.expect("an end"), now)?
            }
            Some(other) => return Err(format!("{other:?}")),
        };
        if kept != expected {
            return Err(format!("the server has the holders {kept:?}, the rule {expected:?}"));
        }
        if rule.last > 0 {
            let fence = store.keys.get(self.keys.fence().as_bytes());
            let kept = fence.map(|(thing, _)| thing.clone());
            if kept != Some(Thing::Text(rule.last.to_string().into_bytes())) {
                return Err(format!("the counter is {kept:?} after {}", rule.last));
            }
        }
        self.compare_line(rule, now)
    }

    /// Returns the holders named by this text at the lock's key, which expires at `ends`, and the end of each hold.
    fn holders_in(&self, text: &str, ends: u64, now: u64) -> Result<BTreeMap<usize, u64>, String> {
        if !text.starts_with('{') {
            return Ok(BTreeMap::from([(FOREIGN, ends)]));
        }
        if !text.starts_with("{\"v\":1,\"mode\"") {
            let id = text.split("\"id\":\"").nth(1).expect("an id").split('"').next().expect("an id");
            return Ok(BTreeMap::from([(who_of(id.as_bytes()), ends)]));
        }
        let all = self.sorted_at(&self.keys.holders());
        let details = self.hash_at(&self.keys.details());
        if all.iter().any(|(id, _)| !details.contains_key(id)) || details.len() != all.len() {
            return Err(format!("{all:?} and {details:?}"));
        }
        let last = all.last().map_or(0, |(_, score)| score.cast_unsigned());
        if last != ends {
            return Err(format!("the group's key ends at {ends}, its last holder at {last}"));
        }
        let live = all.into_iter().filter(|(_, score)| score.cast_unsigned() > now);
        Ok(live.map(|(id, score)| (who_of(&id), score.cast_unsigned())).collect())
    }

    /// Checks that the server has the waiters of the rule, and keeps nothing about anyone else.
    fn compare_line(&self, rule: &Rule, now: u64) -> Result<(), String> {
        let alive = self.hash_at(&self.keys.alive());
        let ends = |id| alive.get(id).map_or(0, |ends| String::from_utf8_lossy(ends).parse().expect("ms"));
        let queue = self.sorted_at(&self.keys.queue());
        let queue: Vec<(usize, u64)> = queue.iter().map(|(id, _)| (who_of(id), ends(id))).collect();
        let ours = |queue: Vec<(usize, u64)>| queue.into_iter().filter(|(_, ends)| *ends >= now).collect::<Vec<_>>();
        let expected = rule.line.iter().map(|waiter| (waiter.who, waiter.ends)).collect();
        if ours(queue.clone()) != ours(expected) {
            return Err(format!("the server has the line {queue:?}, the rule {:?}", rule.line));
        }
        let who: Vec<usize> = self.hash_at(&self.keys.who()).keys().map(|id| who_of(id)).collect();
        let mut members: Vec<usize> = queue.iter().map(|(who, _)| *who).collect();
        members.sort_unstable();
        if who != members {
            return Err(format!("the line is {members:?}, and {who:?} publish something"));
        }
        for id in self.hash_at(&self.keys.modes()).keys() {
            if !members.contains(&who_of(id)) {
                return Err(format!("a mode of {id:?} is left"));
            }
        }
        let wakes = self.keys.wakes().into_bytes();
        for key in self.fake.store().keys.keys().filter(|key| key.starts_with(&wakes)) {
            if !members.contains(&who_of(&key[wakes.len()..])) {
                return Err(format!("{key:?} is left"));
            }
        }
        Ok(())
    }

    /// Hashes the part of the state that decides what can follow: remaining times, the order of tickets, and no tokens.
    fn essence(&self) -> u128 {
        let store = self.fake.store();
        let (mut one, mut two) = (DefaultHasher::new(), DefaultHasher::new());
        0x9e37_u16.hash(&mut two);
        let mut put = |value: &dyn Fn(&mut DefaultHasher)| {
            value(&mut one);
            value(&mut two);
        };
        let now = store.now();
        for (key, (thing, ends)) in &store.keys {
            if *key == self.keys.fence().into_bytes() {
                continue;
            }
            let left = ends.map(|ends| ends - now.min(ends));
            put(&|to| (key, left).hash(to));
            match thing {
                Thing::Text(text) => put(&|to| timeless(text, now).hash(to)),
                Thing::List(all) => put(&|to| all.len().hash(to)),
                Thing::Hash(all) if *key == self.keys.alive().into_bytes() => {
                    for (id, ends) in all {
                        let ends: u64 = String::from_utf8_lossy(ends).parse().expect("ms");
                        put(&|to| (id, ends.saturating_sub(now), ends >= now).hash(to));
                    }
                }
                Thing::Hash(all) => all.iter().for_each(|(id, text)| put(&|to| (id, timeless(text, now)).hash(to))),
                Thing::Sorted(_) if *key == self.keys.queue().into_bytes() => {
                    let order = self.sorted_at(&self.keys.queue());
                    put(&|to| order.iter().map(|(id, _)| id).collect::<Vec<_>>().hash(to));
                }
                Thing::Sorted(all) => {
                    for (id, score) in all {
                        put(&|to| (id, (*score - now.cast_signed()).max(0)).hash(to));
                    }
                }
            }
        }
        u128::from(one.finish()) << 64 | u128::from(two.finish())
    }
}

fn who_of(id: &[u8]) -> usize {
    usize::from_str_radix(std::str::from_utf8(id).expect("an id"), 16).expect("an id")
}

/// Returns a text without its token and its begin, and with the remaining time of its minimum hold.
fn timeless(text: &[u8], now: u64) -> Vec<u8> {
    let text = String::from_utf8_lossy(text).into_owned();
    let mut out = String::new();
    for part in text.split_inclusive(',') {
        if part.starts_with("\"token\":") || part.starts_with("\"since\":") {
            continue;
        }
        match part.strip_prefix("\"until\":").and_then(|until| until.strip_suffix(',')?.parse::<u64>().ok()) {
            Some(until) => out.extend(["until ", &until.saturating_sub(now).to_string(), ","]),
            None => out.push_str(part),
        }
    }
    out.into_bytes()
}

/// The parameters of a search.
#[derive(Clone, Copy)]
struct Search<'a> {
    broken: Option<(&'static str, &'static str)>,
    /// Number of states after which the search ends.
    most: usize,
    modes: &'a [Mode],
    ttl: u64,
    min_hold: u64,
    tick: u64,
    others: &'a [Step],
    passes: bool,
}

impl Search<'_> {
    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Pass(self.tick)];
        for who in 0..self.modes.len() {
            steps.extend([Step::Attempt(who, true), Step::Renew(who), Step::Release(who, Used::No)]);
            if self.passes {
                steps.push(Step::Attempt(who, false));
            }
            if self.min_hold > 0 {
                steps.push(Step::Release(who, Used::Yes));
            }
        }
        steps.extend(self.others);
        steps
    }

    /// Visits the states that can be reached, the shortest paths first. Returns the numbers of states and of requests.
    fn run(&self) -> Result<(usize, u64), String> {
        let mut world = World::new(self.modes, self.ttl, self.min_hold);
        world.fake.broken = self.broken;
        let steps = self.steps();

        let mut seen = HashSet::from([world.essence()]);
        // Each state's predecessor, and the step from there.
        let mut ways: Vec<(usize, Step)> = vec![(0, Step::Delete)];
        let mut open = VecDeque::from([(0, world.fake.store().clone(), Rule::default())]);
        while let Some((number, store, rule)) = open.pop_front() {
            if seen.len() > self.most {
                break;
            }
            for &step in &steps {
                *world.fake.change() = store.clone();
                let mut rule = rule.clone();
                if let Err(why) = world.step(&mut rule, step) {
                    let mut way = vec![step];
                    let mut at = number;
                    while at > 0 {
                        way.push(ways[at].1);
                        at = ways[at].0;
                    }
                    way.reverse();
                    return Err(format!("{why}\nof {:?} after {way:?}", self.modes));
                }
                if seen.insert(world.essence()) {
                    ways.push((number, step));
                    open.push_back((ways.len() - 1, world.fake.store().clone(), rule));
                }
            }
        }
        assert!(self.broken.is_none() || world.fake.is_broken, "no script has the text {:?}", self.broken);
        Ok((seen.len(), world.fake.asked))
    }
}

fn slots(slots: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(slots).expect("a slot"))
}

/// Number of states that each search visits, unless there are fewer: `SEARCH_STATES=100000` completes all searches.
const STATES: u64 = 500;

#[allow(clippy::print_stdout)] // The extent of the search is for whoever runs it.
fn search_all(all: &[&[Mode]], min_hold: u64, others: &[Step], passes: bool) {
    let most = usize::try_from(from_env("SEARCH_STATES").unwrap_or(STATES)).expect("a number of states");
    for modes in all {
        let search = Search { broken: None, most, modes, ttl: 2000, min_hold, tick: 1000, others, passes };
        let (states, asked) = search.run().unwrap_or_else(|why| panic!("{why}"));
        println!("{modes:?}: {states} states, {asked} requests");
    }
}

#[test]
fn all_that_two_contenders_can_come_to() {
    let (x, s, n) = (Mode::Exclusive, Mode::Shared, slots(2));
    search_all(&[&[x, x], &[x, s], &[x, n], &[s, s], &[s, n], &[n, n]], 0, &[Step::Delete], true);
}

#[test]
fn all_that_three_contenders_can_come_to() {
    let (x, s, n) = (Mode::Exclusive, Mode::Shared, slots(2));
    let all: [&[Mode]; 6] = [&[x, x, x], &[x, s, s], &[s, s, s], &[n, n, x], &[n, n, n], &[n, slots(3), s]];
    search_all(&all, 0, &[], false);
}

#[test]
fn minimum_holds_and_other_programs() {
    let (x, s, n) = (Mode::Exclusive, Mode::Shared, slots(2));
    search_all(&[&[x, x], &[s, x], &[n, n]], 3000, &[Step::Delete, Step::Foreign(1000)], false);
}

#[test]
fn every_known_mistake_is_noticed() {
    let (x, s, n) = (Mode::Exclusive, Mode::Shared, slots(2));
    let scenes: [&[Mode]; 5] = [&[x, x], &[s, x], &[s, s, x], &[n, n], &[x, s, s]];
    for (scene, name, old, new) in [
        (2, "a-readers-release-frees-all", "if count == 1 then", "if count > 0 then"),
        (1, "waiters-before-not-looked-at", "if mode_of(waiter) ~= mine or before", "if before"),
        (
            2,
            "group-ends-with-its-first-holder",
            "redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')\nlocal left",
            "redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')\nlocal left",
        ),
        (
            4,
            "nobody-is-woken-after-a-grant",
            "if is_group(mine) then\nsettle(wakes, head_of(wakes, heartbeat_ttl), mine, count + 1)\nend\n",
            "",
        ),
        (
            0,
            "renewal-makes-the-key-again",
            "return { 0, kind, value }",
            "if kind == 'none' then redis.call('SET', lock, prefix, 'PX', ttl) return { 1 } end return { 0, kind, value }",
        ),
        (0, "plain-del", "if own and starts_with(own, prefix) then\nours", "if own then\nours"),
        (2, "group-adopted", "redis.call('DEL', holders, details)", ""),
        (0, "waiters-text-left-behind", "redis.call('HDEL', who, id)\n", ""),
        (0, "token-not-counted", "math.max(last + 1, micros)", "micros"),
        (3, "slot-of-another", "while texts[slot] do", "while false do"),
        (0, "place-lost", "if not redis.call('ZSCORE', queue, id) then", "if true then"),
        (0, "no-end", "if redis.call('PTTL', key) < 2 * heartbeat_ttl then", "if false then"),
        (0, "dead-waiters-count", "return deadline and deadline >= now", "return deadline"),
        (
            0,
            "own-not-recognised",
            "local own = mode == mine and text_of(id, mode, value)\nif own and starts_with(own, prefix) then\nextend(id, own, ttl, mode)\nleave",
            "local own = false\nif own and starts_with(own, prefix) then\nextend(id, own, ttl, mode)\nleave",
        ),
        (0, "minimum-hold-not-kept", "if left > 0 then", "if false then"),
        (0, "nobody-is-woken-by-a-release", "wake(wakes, head)\nend\nend\nreturn ours", "end\nend\nreturn ours"),
    ] {
        let others = [Step::Delete, Step::Foreign(1000)];
        let modes = scenes[scene];
        let min_hold = if modes.len() == 2 { 3000 } else { 0 };
        let search = Search {
            broken: Some((old, new)),
            most: 700,
            modes,
            ttl: 2000,
            min_hold,
            tick: 1000,
            others: &others,
            passes: true,
        };
        assert!(search.run().is_err(), "{name} is not noticed");
    }
}
