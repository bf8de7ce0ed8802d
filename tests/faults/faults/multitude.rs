//! A multitude of contenders, so large that the cost of each decides whether there is any service at all. Only a
//! campaign has the time.

use std::time::Duration;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::faults::crowds::{BATCH, Crowd, LONG, left_nothing};
use crate::quick::{self, Stay};
use crate::support::dlock::Running;
use crate::support::rendezvous::{boottime, last_until};
use crate::support::witness::read_counter;

/// How many there are: a whole number of batches.
const MULTITUDE: usize = 100 * BATCH;

/// How long they are watched while they do nothing but wait.
const IDLE: Duration = Duration::from_secs(15);

/// How many bytes servers may write for each of them per second of that time, however many there are: to clients, to
/// one another and to disks.
const BYTES: u64 = 2048;

/// How often the servers are asked how many have arrived.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How many may be refused on arrival, because a small machine with all of them on it does not answer in time.
const REFUSED: usize = MULTITUDE / 20;

/// How long a hand-over may take: for all but one in twenty, which other work on the machine may delay, and at most.
const HAND_OVER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// All wait at the same time, and then have the lock once each.
pub fn waits_and_is_served(episode: &mut Episode<'_>) {
    let ttl = std::mem::replace(&mut episode.ttl, LONG);
    let holder = episode.hold(Way::Straight, &[]);
    episode.ttl = ttl;
    let mut crowd = Crowd::new(episode, KEY, quick::section(episode, Stay::Not));
    episode.broken();
    let (mut asked, mut there) = (Duration::ZERO, 0);
    let mut refused = 0;
    crowd.come(episode, MULTITUDE, |episode: &Episode<'_>, shell: &Running| {
        if boottime() >= asked + ASK_EVERY {
            // The holder is one of them.
            refused = Crowd::refused(shell);
            there = episode.world.contenders(KEY).saturating_sub(1) + refused;
            asked = boottime();
        }
        there
    });
    if refused > REFUSED {
        episode.violation(Invariant::GoesOn, format!("{refused} of {MULTITUDE} found no answer in time"));
    }
    crowd.look_at_some(episode);
    does_nothing(episode);
    if !holder.is_alive() {
        episode.violation(Invariant::GoesOn, "the holder lost its lock to the crowd");
    }
    episode.mended();
    let before = episode.store.starts().len();
    holder.let_go();
    episode.ends(holder.running, &[Ending::Own(0)]);
    let turns = crowd.pass_but(episode, refused);
    one_after_the_other(episode, before);
    left_nothing(episode, &[KEY]);
    let counted = read_counter(&episode.scratch.path("counter"));
    if let Some(turns) = turns.filter(|&turns| counted != turns as u64) {
        let what = format!("{turns} of {MULTITUDE} contenders have counted to {counted}");
        episode.violation(Invariant::NoOverlap, what);
    }
}

/// Checks the cost of an idle crowd.
fn does_nothing(episode: &mut Episode<'_>) {
    let (before, since) = (episode.world.written(), boottime());
    last_until(since + IDLE);
    let written = episode.world.written() - before;
    let each = written * 1000 / u64::try_from((boottime() - since).as_millis()).unwrap_or(1) / MULTITUDE as u64;
    eprintln!("{}: {each} bytes a second for each of {MULTITUDE} that wait", episode.world.column);
    if each > BYTES {
        episode.violation(Invariant::NoLeak, format!("the servers write {each} bytes a second for each that waits"));
    }
}

/// Checks how soon each holder followed the one before it.
fn one_after_the_other(episode: &mut Episode<'_>, before: usize) {
    let starts = episode.store.starts();
    let mut gaps: Vec<Duration> = starts[before..].windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0)).collect();
    gaps.sort_unstable();
    let at = |percent: usize| gaps.get((gaps.len() * percent / 100).min(gaps.len().saturating_sub(1))).copied();
    let (Some(median), Some(most), Some(worst)) = (at(50), at(95), at(100)) else { return };
    eprintln!("{}: one follows another within {median:?}, {most:?}, {worst:?}", episode.world.column);
    if most > HAND_OVER.0 || worst > HAND_OVER.1 {
        let what = format!("hand-overs take {median:?}, 1 in 20 more than {most:?}, and up to {worst:?}");
        episode.violation(Invariant::GoesOn, what);
    }
}
