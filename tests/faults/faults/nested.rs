//! Runs inside runs: a thousand of one lock, and one of another lock, which inherits the outer run's variables.

use std::fs;

use nix::sys::signal::Signal;

use crate::episode::{Ending, Episode, Invariant, KEY, Way};
use crate::support::dlock::{DLOCK, Dlock};
use crate::support::programs::sh;
use crate::support::rendezvous::{CAP, Gate, eventually_within};

/// How many runs there are, and how many of them at the same time: each has a connection and two more processes.
const MANY: usize = 1000;
const AT_ONCE: usize = 40;
/// How many are inside each other.
const DEEP: usize = 100;

/// Each of the nested runs does its work: none waits for its own outer run, and none is skipped.
pub fn thousand(episode: &mut Episode<'_>) {
    let path = |name| episode.scratch.path(name).display().to_string();
    let (done, failed, deep) = (path("done"), path("failed"), path("deep"));
    let run = format!("'{}' run -k {KEY} -b '{}' -w 60 -E 0 --", *DLOCK, episode.world.url());
    let one = sh(&format!("{run} {} || echo $? >> '{failed}'", sh(&format!("echo >> '{done}'"))));
    let bottom = format!("[ $1 -gt 0 ] || {{ echo >> '{done}'; exit; }}");
    fs::write(&deep, format!("{bottom}; {run} sh \"$0\" $(($1 - 1)) || echo $? >> '{failed}'")).unwrap();
    let work = format!("seq {MANY} | xargs -P {AT_ONCE} -I_NUMBER_ {one}; sh '{deep}' {DEEP}");
    // With so many on one machine, a renewal may be late.
    episode.ttl *= 10;
    let dlock = episode.dlock(Way::Straight).command(episode.section(&work));
    let holder = episode.hold_as_told(dlock);
    episode.queue_some();
    episode.broken();
    let count = || fs::read(&done).map_or(0, |done| done.len());
    let is_running = || holder.running.is_running();
    let mut before = 0;
    while is_running() && eventually_within(CAP, || (!is_running() || count() > before).then_some(())).is_some() {
        before = count();
    }
    if is_running() {
        episode.violation(Invariant::GoesOn, "a nested run waits for its own outer run");
        holder.running.signal(Signal::SIGTERM);
    }
    holder.died_at();
    episode.mended();
    let failed = fs::read_to_string(&failed).unwrap_or_default();
    if count() != MANY + 1 || !failed.is_empty() {
        let what = format!("{} of {MANY} runs beside and one below each other have done their work: {failed}", count());
        episode.violation(Invariant::GoesOn, what);
    }
    episode.ends(holder.running, &[Ending::Own(0)]);
}

/// What tells how the outer run takes its lock does not reach the inner one, which wants another lock: it holds that alone, and is
/// not skipped in silence.
pub fn inherited_variables(episode: &mut Episode<'_>) {
    let (how, value) = if episode.coin() { ("DLOCK_SHARED", "1") } else { ("DLOCK_SLOTS", "3") };
    let gate = Gate::new(episode.scratch.path("gate"));
    let inside = |episode: &Episode<'_>, options: &[&str]| -> Dlock {
        let ttl = format!("{}s", episode.ttl.as_secs());
        // A lock on this host: nothing of it is to be looked for at the servers.
        let outer = episode.scratch.dlock().run("outer").backend(episode.scratch.file_url());
        let outer = outer.env(how, value).env("DLOCK_CONFLICT_EXIT_CODE", "0").env("DLOCK_KEY", KEY);
        let mut inner: Vec<std::ffi::OsString> = [*DLOCK, "run", "-k", KEY, "-t", &ttl].map(Into::into).into();
        inner.extend(["-b".into(), episode.world.url().into()]);
        inner.extend(options.iter().map(Into::into));
        inner.push("--".into());
        inner.extend(episode.section(&format!("{}; {}", gate.wait(), episode.store.write())));
        outer.command(inner)
    };
    let first = inside(episode, &[]);
    let first = episode.hold_as_told(first);
    episode.queue_some();
    episode.broken();
    let refused = inside(episode, &["-n"]).output();
    episode.ended(&refused, &[Ending::Busy, Ending::Unavailable]);
    gate.open();
    first.died_at();
    episode.mended();
    episode.ends(first.running, &[Ending::Own(0)]);
}
