//! Contenders of all modes at random, of which some are killed: a witness that knows nothing of dlock's locks judges.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::backends::on_every_backend;
use crate::support::dlock::Running;
use crate::support::mode_witness::{Mode, ModeWitness};
use crate::support::rendezvous::{boottime, eventually};
use crate::support::service::Service;

on_every_backend! {
    ;
    whoever_excludes_each_other_never_runs_together
}

/// How many come in all, how many of them at a time, and which of them are killed: at about the same time, because what they
/// hold stays taken until their leases end.
const ALL: usize = 40;
const AT_ONCE: usize = 8;
const KILLED: [usize; 3] = [12, 14, 17];

struct Contender {
    running: Running,
    mode: Mode,
    /// When it is killed, if it is.
    killed_at: Option<Duration>,
}

fn whoever_excludes_each_other_never_runs_together<S: Service>(service: &S) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let witness = ModeWitness::in_dir(service.scratch().root());
    let mut contender = |number: usize| {
        // Of the last two, one is refused while the other is in use.
        let mode = match rng.u8(..12) {
            0..2 => Mode::Exclusive,
            2..6 => Mode::Shared,
            6..11 => Mode::Slots(3),
            _ => Mode::Slots(2),
        };
        let work = format!("0.{:02}", rng.u8(..12));
        let delay = Duration::from_millis(rng.u64(..150));
        // The few that are refused for a killed one's sake would be many.
        let is_killed = KILLED.contains(&number) && mode != Mode::Slots(2);
        let dlock = service.run("job").args(["-q", "--ttl", "4s"]).args(mode.options());
        let running = dlock.command(witness.command(mode, &work)).spawn();
        Contender { running, mode, killed_at: is_killed.then(|| boottime() + delay) }
    };
    // On a busy machine more of them are refused, and others come for them.
    let (mut present, mut come, mut refused) = (Vec::new(), 0, 0);
    eventually("all to have had their turn", || {
        while present.len() < AT_ONCE && come < ALL + refused {
            present.push(contender(come));
            come += 1;
        }
        for one in &mut present {
            if one.running.is_running() && one.killed_at.is_some_and(|at| boottime() >= at) {
                one.running.signal(Signal::SIGKILL);
            }
        }
        let (gone, left): (Vec<Contender>, Vec<Contender>) =
            present.drain(..).partition(|one| !one.running.is_running());
        present = left;
        refused += gone.into_iter().map(ended).filter(|&is_refused| is_refused).count();
        present.is_empty().then_some(())
    });
    let sections = witness.check();
    assert!(sections.len() >= ALL - KILLED.len(), "{}", witness.log());
    service.assert_free("job");
}

/// Checks how a contender has ended; true if it was refused.
#[track_caller]
fn ended(contender: Contender) -> bool {
    let outcome = contender.running.wait();
    let said = outcome.stderr();
    let is_killed = contender.killed_at.is_some() && outcome.status().code().is_none();
    let is_refused = outcome.status().code() == Some(64) && said.contains("in use with --slots");
    let may_be_refused = matches!(contender.mode, Mode::Slots(_));
    assert!(is_killed || (is_refused && may_be_refused) || outcome.status().success(), "{outcome:?}");
    is_refused
}
