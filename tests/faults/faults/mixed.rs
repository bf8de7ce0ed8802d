//! Several contenders want the lock again and again, and anything may happen to any of them, to the servers and on the
//! way.

use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::episode::{Ending, Episode, Way};
use crate::support::dlock::Running;
use crate::support::process;
use crate::support::proxy::Mode;
use crate::support::rendezvous::{boottime, last_until};

/// How long the contenders go on.
const LENGTH: Duration = Duration::from_secs(8);

/// How a contender may end: as its command did, or by what was done to it.
const ENDINGS: [Ending; 7] = [
    Ending::Own(0),
    Ending::Lost,
    Ending::GuardKilled,
    Ending::Unavailable,
    Ending::Busy,
    Ending::By(Signal::SIGKILL),
    Ending::By(Signal::SIGTERM),
];

/// A contender for the lock.
struct Contender {
    running: Running,
    /// Whether something was done to it. Then nothing more is: one that loses dlock and its guard at once loses what
    /// stops the command's children.
    is_hurt: bool,
}

/// What is broken at the moment.
#[derive(Default)]
struct Broken {
    way: bool,
    frozen: Vec<i32>,
    killed: Option<usize>,
    asleep: Option<usize>,
}

pub fn mixed(episode: &mut Episode<'_>) {
    let count = episode.rng.usize(2..=4);
    let mut contenders: Vec<Contender> = (0..count).map(|_| contender(episode)).collect();
    let mut broken = Broken::default();
    let end = boottime() + LENGTH;
    while boottime() < end {
        let pause = Duration::from_millis(episode.rng.u64(20..=200));
        last_until(boottime() + pause);
        for contender in &mut contenders {
            if !contender.running.is_running() {
                let next = self::contender(episode);
                let ended = std::mem::replace(contender, next);
                episode.ends(ended.running, &ENDINGS);
            }
        }
        match episode.rng.u8(..10) {
            0..=1 => hurt(episode, &mut contenders, &mut broken),
            2 => break_way(episode, &mut broken),
            3 => break_server(episode, &mut broken),
            4..=5 => mend(episode, &mut broken),
            _ => {}
        }
    }
    mend(episode, &mut broken);
    episode.wait_serving();
    episode.cut_short = true;
    for contender in contenders {
        episode.ends(contender.running, &ENDINGS);
    }
    episode.mended();
}

fn contender(episode: &mut Episode<'_>) -> Contender {
    let way = if episode.coin() { Way::Straight } else { Way::Detour };
    let work = format!("{}; sleep 0.{}; {}", episode.store.write(), episode.rng.u8(0..=3), episode.store.write());
    let dlock = episode.contender(way).args(["-w", "20"]).command(episode.section(&work));
    let running = dlock.new_process_group().spawn();
    Contender { running, is_hurt: false }
}

/// Does something to one of the contenders.
fn hurt(episode: &mut Episode<'_>, contenders: &mut [Contender], broken: &mut Broken) {
    let index = episode.rng.usize(..contenders.len());
    let contender = &mut contenders[index];
    if contender.is_hurt || !contender.running.is_running() {
        return;
    }
    contender.is_hurt = true;
    let dlock = contender.running.pid();
    let guard = process::children(dlock).first().copied();
    episode.broken();
    match (episode.rng.u8(..7), guard) {
        (0, _) => process::signal(dlock, Signal::SIGKILL),
        (1, _) => _ = killpg(Pid::from_raw(dlock), Signal::SIGTERM),
        (5, _) => process::signal(dlock, Signal::SIGTERM),
        (6, _) => _ = killpg(Pid::from_raw(dlock), Signal::SIGKILL),
        (2, Some(guard)) => process::signal(guard, Signal::SIGKILL),
        (3, Some(guard)) => process::signal(guard, Signal::SIGSTOP),
        _ => {
            process::signal(dlock, Signal::SIGSTOP);
            broken.frozen.push(dlock);
        }
    }
}

fn break_way(episode: &mut Episode<'_>, broken: &mut Broken) {
    if episode.world.proxies().is_empty() {
        return;
    }
    let delay = Duration::from_millis(episode.rng.u64(10..=150));
    let modes = [Mode::Silent, Mode::DropReplies, Mode::DropRequests, Mode::Refuse, Mode::Reset, Mode::Delay(delay)];
    let mode = *episode.rng.choice(&modes).expect("one of several");
    episode.broken();
    episode.world.set_way(mode);
    broken.way = true;
}

/// Breaks a minority of several servers, or the only one, which keeps its data.
fn break_server(episode: &mut Episode<'_>, broken: &mut Broken) {
    let world = episode.world;
    if world.size() == 0 || broken.killed.is_some() || broken.asleep.is_some() {
        return;
    }
    let index = episode.rng.usize(..world.size());
    episode.broken();
    if episode.coin() {
        world.node(index).kill();
        broken.killed = Some(index);
    } else {
        world.node(index).freeze();
        broken.asleep = Some(index);
    }
}

fn mend(episode: &Episode<'_>, broken: &mut Broken) {
    let world = episode.world;
    if std::mem::take(&mut broken.way) {
        world.set_way(Mode::Forward);
    }
    if let Some(index) = broken.asleep.take() {
        world.node(index).thaw();
    }
    if let Some(index) = broken.killed.take() {
        world.restart(&[index]);
    }
    for pid in broken.frozen.drain(..) {
        process::signal(pid, Signal::SIGCONT);
    }
}
