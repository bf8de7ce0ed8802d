//! The members of a cluster are cut off from each other and from clients. Each member is on an island of its own;
//! contenders are on the island of a member, or on one without a member.

use std::time::Duration;

use crate::episode::{Ending, Episode, Holder, Invariant, KEY, Length, Way};
use crate::support::dlock::Running;
use crate::support::islands::Cut;
use crate::support::rendezvous::{boottime, eventually_within, last_until};

/// The island without a member.
const SHORE: usize = 3;
/// All of them.
const ISLANDS: [usize; 4] = [0, 1, 2, SHORE];
/// How long an intermittent partition lasts.
const A_WHILE: Duration = Duration::from_secs(10);
/// A lease that survives an intermittent partition, however often it strikes.
const OUTLIVES_OUTAGES: Duration = Duration::from_secs(10);
/// How long a newcomer waits for the lock where no member can serve it.
const UNSERVED: &str = "2s";
/// How long a newcomer may have to wait at most where it is served; this includes an election.
const LONG: &str = "60s";

/// How many newcomers there are at most during an intermittent partition.
const MANY: usize = 8;

/// A partition: which packets do not pass, and which islands suffer.
struct Split {
    /// The pairs of islands (from, to) that are cut.
    ways: Vec<(usize, usize)>,
    /// The islands from which no majority of the members can be reached.
    apart: Vec<usize>,
}

impl Split {
    /// Cuts these islands off from `others`, by dropping packets in the directions of `lost`.
    fn between(apart: Vec<usize>, others: &[usize], lost: Lost) -> Self {
        let pairs = || apart.iter().flat_map(|&one| others.iter().map(move |&other| (one, other)));
        let away = pairs().filter(|_| lost != Lost::Arriving);
        let back = pairs().filter(|_| lost != Lost::Leaving).map(|(one, other)| (other, one));
        Self { ways: away.chain(back).collect(), apart }
    }

    /// Cuts off one member with the contenders on its island. At random, the shore goes with it, still reaches it, or
    /// is cut off from it.
    fn alone(episode: &mut Episode<'_>, member: usize, lost: Lost) -> Self {
        let others =
            |also: &[usize]| ISLANDS.into_iter().filter(|&one| one != member && !also.contains(&one)).collect();
        let others: Vec<usize> = match episode.rng.u8(..3) {
            0 => return Self::between(vec![member, SHORE], &Vec::from_iter(others(&[SHORE])), lost),
            1 => others(&[SHORE]),
            _ => others(&[]),
        };
        Self::between(vec![member], &others, lost)
    }

    fn is_apart(&self, island: usize) -> bool {
        self.apart.contains(&island)
    }
}

/// Which packets of the islands that are cut off vanish.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Both,
    Leaving,
    Arriving,
}

/// The majority goes on; contenders on the wrong side end in time.
pub fn minority(episode: &mut Episode<'_>) {
    let leader = leader_of(episode);
    let member = (leader + episode.rng.usize(1..=2)) % 3;
    let split = Split::alone(episode, member, Lost::Both);
    apart(episode, &split);
}

/// The leader is cut off, so the majority has to elect another one first; contenders on the wrong side end in time.
pub fn leader(episode: &mut Episode<'_>) {
    let leader = leader_of(episode);
    let split = Split::alone(episode, leader, Lost::Both);
    apart(episode, &split);
}

/// Packets vanish in one direction only, which takes longer to be noticed.
pub fn one_way(episode: &mut Episode<'_>) {
    let leader = leader_of(episode);
    let member = if episode.coin() { leader } else { (leader + episode.rng.usize(1..=2)) % 3 };
    let lost = if episode.coin() { Lost::Leaving } else { Lost::Arriving };
    let split = Split::alone(episode, member, lost);
    apart(episode, &split);
}

/// Every island is cut off from every other: no two members form a majority.
pub fn all(episode: &mut Episode<'_>) {
    let sees_all = episode.coin();
    let islands = if sees_all { &ISLANDS[..SHORE] } else { &ISLANDS[..] };
    let pairs = islands.iter().flat_map(|&one| islands.iter().map(move |&other| (one, other)));
    let ways: Vec<(usize, usize)> = pairs.filter(|(one, other)| one != other).collect();
    let (holder, _) = scene(episode, &ISLANDS, true);
    let ttl = episode.ttl;
    let start = episode.broken();
    let cut = episode.world.islands().cut(&ways);
    let silent = boottime();
    (0..SHORE).for_each(|member| episode.world.node(member).set_aside(true));
    let newcomer = come_unserved(episode, &ISLANDS);
    let died = holder.died_at();
    // Without a majority no lease ends.
    if died >= silent + ttl {
        let what =
            format!("the command lived for {:?} after the last servers that could renew its lease", died - silent);
        episode.violation(Invariant::DeadInTime, what);
    }
    episode.ends(newcomer, &[Ending::Unavailable, Ending::Busy]);
    last_until(start + 3 * ttl);
    heal(episode, cut);
    episode.ends(holder.running, &[Ending::Lost]);
}

/// Every island still reaches a majority, at least by way of the one in the middle.
pub fn bridge(episode: &mut Episode<'_>) {
    let middle = if episode.coin() { leader_of(episode) } else { episode.rng.usize(..SHORE) };
    let (one, other) = ((middle + 1) % 3, (middle + 2) % 3);
    let split = Split::between(vec![one], &[other], Lost::Both);
    let (holder, ttl) = (scene(episode, &ISLANDS, false).0, episode.ttl);
    episode.cut_short = true;
    let start = episode.broken();
    let cut = episode.world.islands().cut(&split.ways);
    let newcomers = [one, middle, other].map(|island| come(episode, island));
    last_until(start + 3 * ttl);
    heal(episode, cut);
    let ending = let_go(episode, holder);
    episode.could_have_kept(ending);
    refused_or_served(episode, newcomers);
}

/// One second up, one second down.
pub fn flapping(episode: &mut Episode<'_>) {
    let how_long = if episode.length == Length::Full {
        episode.ttl = OUTLIVES_OUTAGES;
        Duration::from_secs(600)
    } else {
        A_WHILE
    };
    let member = if episode.coin() { leader_of(episode) } else { episode.rng.usize(..SHORE) };
    let split = Split::alone(episode, member, Lost::Both);
    let (holder, place) = scene(episode, &ISLANDS, false);
    let begin = boottime();
    let mut until = begin;
    episode.cut_short = true;
    episode.world.node(member).set_aside(true);
    let (mut cut, mut newcomers) = (None, Vec::new());
    while until - begin < A_WHILE || (until - begin < how_long && holder.is_alive()) {
        if newcomers.len() < MANY {
            let place = *episode.rng.choice(&ISLANDS).expect("one of several");
            newcomers.push(come(episode, place));
        }
        cut = if cut.is_none() {
            episode.broken();
            Some(episode.world.islands().cut(&split.ways))
        } else {
            None
        };
        until = boottime() + Duration::from_secs(1);
        last_until(until);
    }
    heal(episode, cut);
    let ending = let_go(episode, holder);
    if !split.is_apart(place) {
        episode.could_have_kept(ending);
    }
    refused_or_served(episode, newcomers);
}

/// A minority is cut off for 3 ttl, with contenders on both sides.
fn apart(episode: &mut Episode<'_>, split: &Split) {
    let served: Vec<usize> = ISLANDS.into_iter().filter(|&island| !split.is_apart(island)).collect();
    let doomed = episode.coin();
    let (holder, _) = scene_on_both_sides(episode, split, &served, doomed);
    let (ttl, world) = (episode.ttl, episode.world);
    let name = world.holder(KEY);
    let start = episode.broken();
    let cut = world.islands().cut(&split.ways);
    let members = split.apart.iter().filter(|&&island| island != SHORE);
    members.for_each(|&member| world.node(member).set_aside(true));
    if doomed {
        // Looked at before anything else is done: missing the end of a lease looks like a lease that ended too early.
        episode.report.hindered = Some("the servers did not come back");
        episode.dies_before(&holder, name);
        episode.report.hindered = None;
        taken(episode);
    }
    let in_vain = come_unserved(episode, &split.apart);
    // The majority may have to elect a leader first.
    episode.wait_serving();
    let late = if episode.coin() { episode.rng.choice(&served).copied() } else { None };
    let late = late.map(|island| come(episode, island));
    episode.ends(in_vain, &[Ending::Unavailable, Ending::Busy]);
    last_until(start + 3 * ttl);
    heal(episode, cut);
    if doomed {
        episode.ends(holder.running, &[Ending::Lost]);
    } else {
        let ending = let_go(episode, holder);
        episode.could_have_kept(ending);
    }
    refused_or_served(episode, late);
}

/// Starts a holder on one of these islands and one or two waiters on each other one, and lets a random time of up to a
/// lease go by. Returns the holder's island.
fn scene(episode: &mut Episode<'_>, islands: &[usize], stubborn: bool) -> (Holder, usize) {
    let place = *episode.rng.choice(islands).expect("one of several");
    let holder = hold(episode, place, stubborn);
    let mut ways: Vec<Way> =
        islands.iter().filter(|&&island| island != place).map(|&island| Way::From(island)).collect();
    episode.rng.shuffle(&mut ways);
    ways.truncate(episode.rng.usize(1..=3));
    queue_and_linger(episode, &holder, &ways);
    (holder, place)
}

/// Starts contenders on both sides of a partition, with the holder on either side, and lets a random time of up to a
/// lease go by.
fn scene_on_both_sides(episode: &mut Episode<'_>, split: &Split, served: &[usize], doomed: bool) -> (Holder, usize) {
    let mut any = |islands: &[usize]| *episode.rng.choice(islands).expect("one of several");
    let place = any(if doomed { &split.apart } else { served });
    let mut ways = vec![Way::From(any(&split.apart)), Way::From(any(served)), Way::From(any(&ISLANDS))];
    episode.rng.shuffle(&mut ways[..2]);
    ways.truncate(episode.rng.usize(2..=3));
    let holder = hold(episode, place, doomed);
    queue_and_linger(episode, &holder, &ways);
    (holder, place)
}

fn hold(episode: &mut Episode<'_>, place: usize, stubborn: bool) -> Holder {
    if stubborn { episode.hold_stubbornly(Way::From(place), &[]) } else { episode.hold(Way::From(place), &[]) }
}

fn queue_and_linger(episode: &mut Episode<'_>, holder: &Holder, ways: &[Way]) {
    episode.queue_by(ways);
    episode.linger(episode.ttl);
    episode.look_at(&holder.running);
}

/// Starts a newcomer on one of these islands, where no member can serve it.
fn come_unserved(episode: &mut Episode<'_>, islands: &[usize]) -> Running {
    let place = *episode.rng.choice(islands).expect("one of several");
    // It would end with another code if it ran.
    episode.dlock(Way::From(place)).args(["-w", UNSERVED]).command(["false"]).spawn()
}

/// Starts a newcomer on this island, which gets the lock in the end.
fn come(episode: &Episode<'_>, island: usize) -> Running {
    episode.dlock(Way::From(island)).args(["-w", LONG]).command(episode.section(&episode.store.write())).spawn()
}

/// Checks newcomers that came while the members may have been busy with an election, or out of reach, which is an error
/// at first contact.
fn refused_or_served(episode: &mut Episode<'_>, newcomers: impl IntoIterator<Item = Running>) {
    for newcomer in newcomers {
        episode.ends(newcomer, &[Ending::Own(0), Ending::Unavailable]);
    }
}

/// Checks that somebody on the majority's side gets the lock soon, now that it is free.
fn taken(episode: &mut Episode<'_>) {
    let free = boottime();
    let patience = episode.ttl + Duration::from_secs(2) + episode.world.column.granularity();
    let begun = || (episode.store.starts().len() > 1).then_some(());
    if eventually_within(patience, begun).is_none() {
        episode.violation(
            Invariant::GoesOn,
            format!("on the side of the majority nobody held the lock, free since {free:?}"),
        );
    }
}

/// Lets everything pass again, and waits until the members form one cluster.
fn heal(episode: &mut Episode<'_>, cut: impl Into<Option<Cut>>) {
    drop(cut.into());
    (0..SHORE).for_each(|member| episode.world.node(member).set_aside(false));
    episode.wait_together();
    episode.mended();
}

/// Lets the command end, if it has not, and returns how its dlock has ended.
fn let_go(episode: &mut Episode<'_>, holder: Holder) -> Option<Ending> {
    let alive = holder.is_alive();
    if alive {
        episode.look_at(&holder.running);
    }
    holder.let_go();
    let ending = episode.ends(holder.running, &[Ending::Own(0), Ending::Lost]);
    if alive {
        episode.mended();
    }
    ending
}

fn leader_of(episode: &Episode<'_>) -> usize {
    episode.world.leader().expect("a service with a leader")
}
