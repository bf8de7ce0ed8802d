//! Many come at once.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::quick::{self, Stay};
use crate::support::dlock::{DLOCK, Running};
use crate::support::process;
use crate::support::rendezvous::{Fifo, boottime, eventually_within};
use crate::support::witness::{Witness, read_counter};
use crate::world::{Column, Servers};

/// The size of a crowd.
const CROWD: usize = 500;

/// How many are started at the same time, and how many may still be arriving. With more, the machine could answer none
/// of them in time, and the servers could not answer one another.
pub(super) const BATCH: usize = 25;
const ON_THEIR_WAY: usize = 2 * BATCH;

/// How many wait for a lock of redlock at a time. It has no queue, so each of them polls five servers several times a
/// second, and a small machine that runs all of this cannot answer more. The others come as these leave.
const POLLING: usize = 50;

/// How long a crowd may take: far more than it does on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long the crowd may go without a new arrival.
const STUCK: Duration = Duration::from_secs(40);

/// How many lines are shown of what a crowd prints.
const SHOWN: usize = 5;

/// A lease that no slow machine outlasts.
pub(super) const LONG: Duration = Duration::from_secs(30);

/// How many members of a crowd are inspected.
const SAMPLE: usize = 5;

/// For each line that it reads, starts that many dlocks; then waits for all of them, and prints which of them ended
/// with a code other than 0. They want the key `$1`, or one of [`CROWD`] keys in turn if it ends in a hyphen. The other
/// arguments are dlock and its arguments, `run` first.
///
/// It is a shell, because starting this many from the test would need a pipe and a thread for each.
const SCRIPT: &str = r#"
key=$1 keys=$2 program=$3
shift 4
number=0
pids=
while read -r more; do
    end=$((number + more))
    while [ "$number" -lt "$end" ]; do
        case $key in
            *-) name=$key$((number % keys)) ;;
            *) name=$key ;;
        esac
        "$program" run --key "$name" "$@" &
        pids="$pids $!"
        number=$((number + 1))
    done
done
for pid in $pids; do
    wait "$pid"
    code=$?
    [ "$code" -eq 0 ] || echo "pid $pid: $code"
done
"#;

/// A crowd of contenders.
pub(super) struct Crowd {
    shell: Running,
    orders: ChildStdin,
    started: usize,
}

impl Crowd {
    /// An empty crowd. Its members will want `key`, see [`SCRIPT`], to run `command`.
    pub(super) fn new(episode: &Episode<'_>, key: &str, command: Vec<OsString>) -> Self {
        let ttl = format!("{}s", LONG.as_secs());
        let dlock = episode.scratch.dlock().arg("run").backend(episode.world.url()).args(["-t", &ttl]).command(command);
        let dlock = dlock.wrapped_by(["/bin/sh", "-c", SCRIPT, "crowd", key, &CROWD.to_string()]);
        let mut shell = dlock.stdin(Stdio::piped()).spawn();
        let orders = shell.take_stdin();
        Self { shell, orders, started: 0 }
    }

    /// Starts `count` more. Returns once `arrived` has counted all that were ever started.
    pub(super) fn come(
        &mut self,
        episode: &mut Episode<'_>,
        more: usize,
        mut arrived: impl FnMut(&Episode<'_>, &Running) -> usize,
    ) {
        let all = self.started + more;
        let mut latest = (0, boottime());
        let over = eventually_within(PATIENCE, || {
            let there = arrived(episode, &self.shell);
            while self.started < all && self.started + BATCH <= there + ON_THEIR_WAY {
                // A shell that no longer reads is found out below.
                let _ = writeln!(self.orders, "{BATCH}");
                self.started += BATCH;
            }
            if there != latest.0 {
                latest = (there, boottime());
            }
            let stuck = !self.shell.is_running() || boottime() - latest.1 > STUCK;
            if there >= all { Some(true) } else { stuck.then_some(false) }
        });
        if over != Some(true) {
            let (stdout, stderr) = (self.shell.stdout_so_far(), self.shell.stderr_so_far());
            expect_answers(episode, &stderr);
            let what = format!("only {} of {all} of the crowd arrive:\n{stdout}\n{}", latest.0, beginning(&stderr));
            episode.violation(Invariant::GoesOn, what);
        }
    }

    /// How many have said that they wait.
    fn waiting(_: &Episode<'_>, shell: &Running) -> usize {
        shell.stderr_so_far().matches("dlock: waiting for ").count()
    }

    /// How many have given up when they arrived: see [`is_refusal`].
    pub(super) fn refused(shell: &Running) -> usize {
        shell.stderr_so_far().lines().filter(|line| is_refusal(line)).count()
    }

    /// Inspects a few of those that are there now.
    pub(super) fn look_at_some(&self, episode: &mut Episode<'_>) {
        let mut some = process::children(self.shell.pid());
        let program = fs::canonicalize(*DLOCK).ok();
        // One that was only just forked is still a shell.
        some.retain(|&pid| process::exe(pid) == program);
        episode.rng.shuffle(&mut some);
        for pid in some.into_iter().take(SAMPLE) {
            episode.look_at_pid(pid);
        }
    }

    /// Waits until all have had their turn and have printed nothing but that they wait. Returns how many have had it, if
    /// all have ended.
    pub(super) fn pass(self, episode: &mut Episode<'_>) -> Option<usize> {
        self.pass_but(episode, 0)
    }

    /// Waits until all but `refused` members, which were refused on arrival, have had their turn and have printed
    /// nothing but that they wait. Returns how many have had it, if all have ended.
    pub(super) fn pass_but(self, episode: &mut Episode<'_>, refused: usize) -> Option<usize> {
        drop(self.orders);
        if eventually_within(PATIENCE, || (!self.shell.is_running()).then_some(())).is_none() {
            episode.violation(Invariant::GoesOn, format!("a crowd does not come to its end within {PATIENCE:?}"));
            return None;
        }
        let outcome = self.shell.wait();
        let (stdout, stderr) = (outcome.stdout(), outcome.stderr());
        let unavailable = stdout.lines().filter(|line| line.ends_with(": 69")).count();
        let without = stdout.lines().count();
        let served = self.started.checked_sub(without);
        if without != unavailable || unavailable != refused || !outcome.status().success() {
            expect_answers(episode, &stderr);
            episode.violation(
                Invariant::EndsRight,
                format!("not everybody's turn went well:\n{}\n{}", beginning(&stdout), beginning(&stderr)),
            );
            return served;
        }
        // Busy servers can miss a release, which is a warning; the lease expires all the same.
        let may_be_said = ["dlock: waiting for ", "dlock: could not release "];
        let fine =
            |line: &str| may_be_said.iter().any(|said| line.starts_with(said)) || refused > 0 && is_refusal(line);
        if let Some(line) = stderr.lines().find(|line| !fine(line)) {
            episode.violation(Invariant::EndsRight, format!("a contender said {line:?}"));
        }
        served
    }
}

/// Whether this line says that a dlock gives up because no answer came in time, or because the servers, which the crowd
/// keeps from answering one another, had no leader.
fn is_refusal(line: &str) -> bool {
    line.starts_with("dlock: did not get ") && ["not answer", "no leader"].iter().any(|why| line.contains(why))
}

/// Panics if the servers, which serve the whole crowd on a machine that may have other things to do, stood still for so
/// long that a contender found no majority and rightly gave up.
#[track_caller]
fn expect_answers(episode: &mut Episode<'_>, stderr: &str) {
    if episode.world.column.is_redlock() && stderr.lines().any(is_refusal) {
        episode.report.hindered = Some("a majority did not answer in time");
        panic!("the servers stood still:\n{}", beginning(stderr));
    }
}

fn beginning(text: &str) -> String {
    let mut shown: Vec<&str> = text.lines().filter(|line| !line.starts_with("dlock: waiting for ")).collect();
    let more = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    format!("{}\n({more} lines more)", shown.join("\n"))
}

/// How many may wait at the same time.
fn most(episode: &Episode<'_>) -> usize {
    if episode.world.column == Column::Redlock { POLLING } else { CROWD }
}

/// Checks that nothing is left once the crowd's leases have expired: a session that busy servers do not close at once
/// is closed later.
pub(super) fn left_nothing(episode: &mut Episode<'_>, keys: &[&str]) {
    let ttl = std::mem::replace(&mut episode.ttl, LONG);
    // A contender that gives up on a slow request may leave an empty directory that belongs to nobody.
    episode.cut_short = true;
    episode.check_litter(keys);
    episode.ttl = ttl;
}

/// Each contender has the lock once: some wait behind a holder, perhaps all of them; the others come while these have
/// their turn.
pub fn contenders(episode: &mut Episode<'_>) {
    let ttl = std::mem::replace(&mut episode.ttl, LONG);
    let holder = episode.hold(Way::Straight, &[]);
    episode.ttl = ttl;
    let mut crowd = Crowd::new(episode, KEY, quick::section(episode, Stay::Not));
    let most = most(episode);
    let first = if episode.coin() { most } else { BATCH * episode.rng.usize(..most / BATCH) };
    episode.broken();
    crowd.come(episode, first, Crowd::waiting);
    crowd.look_at_some(episode);
    episode.mended();
    holder.let_go();
    episode.ends(holder.running, &[Ending::Own(0)]);
    if first < CROWD {
        let before = episode.store.starts().len();
        crowd.come(episode, CROWD - first, |episode, _| first + episode.store.starts().len() - before);
        crowd.look_at_some(episode);
    }
    let turns = crowd.pass(episode);
    left_nothing(episode, &[KEY]);
    let counted = read_counter(&episode.scratch.path("counter"));
    if let Some(turns) = turns.filter(|&turns| counted != turns as u64) {
        episode.violation(Invariant::NoOverlap, format!("{turns} of them have counted to {counted}"));
    }
}

/// Contenders for different keys are not in each other's way: that many locks are held at the same time, and then each
/// is had once more.
pub fn keys(episode: &mut Episode<'_>) {
    let names: Vec<String> = (0..CROWD).map(|number| format!("key-{number}")).collect();
    let dir = episode.scratch.directory("keys", 0o755);
    let witnesses: Vec<Witness> = names
        .iter()
        .map(|name| {
            fs::create_dir(dir.join(name)).unwrap();
            Witness::in_dir(dir.join(name))
        })
        .collect();
    let mut pipe = Fifo::new(episode.scratch.path("begun"));
    let gate = episode.scratch.file("keys-gate", "");
    let closed = File::open(&gate).unwrap();
    closed.lock().unwrap();
    let mut crowd = Crowd::new(episode, "key-", quick::section_by_key(&dir, pipe.path(), &gate));
    let mut begun = 0;
    let mut begun = |_: &Episode<'_>, _: &Running| {
        begun += std::iter::from_fn(|| pipe.try_word()).count();
        begun
    };
    episode.broken();
    crowd.come(episode, CROWD, &mut begun);
    crowd.look_at_some(episode);
    let waiting = if episode.coin() { most(episode) } else { 0 };
    crowd.come(episode, waiting, |episode, shell| CROWD + Crowd::waiting(episode, shell));
    drop(closed);
    crowd.come(episode, CROWD - waiting, &mut begun);
    crowd.pass(episode);
    let before = episode.report.violations.len();
    for (name, witness) in names.iter().zip(&witnesses) {
        match witness.verdict() {
            Err(wrong) => episode.violation(Invariant::NoOverlap, format!("{name}: {wrong}\n{}", witness.log())),
            Ok(sections) => {
                episode.report.hand_overs += sections.len() as u64;
                let ended = sections.iter().filter(|section| section.end.is_some()).count();
                let counted = read_counter(&dir.join(name).join("counter"));
                if (sections.len(), ended, counted) != (2, 2, 2) {
                    let what = format!("{name}: two of them have counted to {counted}\n{}", witness.log());
                    episode.violation(Invariant::NoOverlap, what);
                }
            }
        }
    }
    episode.report.violations.truncate(before + SHOWN);
    // The counter of the key of earlier episodes is left.
    let names: Vec<&str> = names.iter().map(String::as_str).chain([KEY]).collect();
    left_nothing(episode, &names);
    // Their counters stay on purpose, but later episodes know nothing of these keys.
    for redis in episode.world.redis() {
        redis.cli(&["FLUSHALL"]);
    }
    if let Servers::Postgres(postgres) = &episode.world.servers {
        postgres.sql(&format!("DELETE FROM shedlock WHERE name <> 'dlock:{KEY}'"));
    }
    if let Servers::Mysql(mysql) = &episode.world.servers {
        mysql.sql(&format!("DELETE FROM shedlock WHERE name <> 'dlock:{KEY}'"));
    }
    if let Servers::File(scratch) = &episode.world.servers {
        for name in names.iter().filter(|name| **name != KEY) {
            fs::remove_file(scratch.lock_dir().join(format!("{name}.lock"))).unwrap();
        }
    }
}

/// A contender that comes and goes.
struct Visitor {
    running: Running,
    killed: Option<(Duration, Signal)>,
    allowed: Vec<Ending>,
}

/// Contenders come and go, give up, and are killed, for five seconds.
pub fn churn(episode: &mut Episode<'_>) {
    let shortest = episode.ttl;
    episode.cut_short = true;
    let end = boottime() + Duration::from_secs(5);
    let mut visitors: [Option<Visitor>; 8] = [const { None }; 8];
    let over = eventually_within(PATIENCE, || {
        for place in &mut visitors {
            match place {
                Some(visitor) if !visitor.running.is_running() => {
                    let Visitor { running, allowed, .. } = place.take().expect("a visitor");
                    episode.ends(running, &allowed);
                }
                Some(Visitor { running, killed, .. }) => {
                    if let Some((_, signal)) = killed.take_if(|(at, _)| boottime() >= *at) {
                        episode.broken();
                        running.signal(signal);
                    }
                }
                None if boottime() < end => *place = Some(visit(episode, shortest)),
                None => {}
            }
        }
        (boottime() >= end && visitors.iter().all(Option::is_none)).then_some(())
    });
    if over.is_none() {
        episode.violation(Invariant::GoesOn, "a contender waits forever");
    }
    // What killed contenders held may last as long as that.
    episode.ttl = 2 * shortest;
    episode.mended();
}

fn visit(episode: &mut Episode<'_>, shortest: Duration) -> Visitor {
    episode.ttl = shortest + episode.some_time(shortest);
    let mut allowed = vec![Ending::Own(0)];
    if episode.world.column == Column::Redlock {
        // Where a majority has to answer quickly, it can give up first.
        allowed.push(Ending::Unavailable);
    }
    let patience: &[&str] = match episode.rng.u8(..6) {
        0 => &["-n"],
        1 => &["-w", "0.2"],
        _ => &[],
    };
    if !patience.is_empty() {
        allowed.push(Ending::Busy);
    }
    let signal = match episode.rng.u8(..16) {
        0 => Some(Signal::SIGKILL),
        1..4 => Some(Signal::SIGTERM),
        _ => None,
    };
    let killed = signal.map(|signal| (boottime() + episode.some_time(Duration::from_millis(400)), signal));
    allowed.extend(signal.map(Ending::By));
    let stay = if episode.coin() { Stay::Not } else { Stay::For(episode.rng.f64() * 0.03) };
    let dlock = episode.contender(Way::Straight).args(patience).command(quick::section(episode, stay));
    Visitor { running: dlock.spawn(), killed, allowed }
}
