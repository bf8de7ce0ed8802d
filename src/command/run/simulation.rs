/*!
A simulation of a lease with the real decisions of dlock: when to renew, to retry and to give up ([`Renewals`]), what
dlock tells the guard and when it acts itself ([`Backstop`]), and how the guard stops the command ([`Ladder`]). Only
their environment is simulated: a server whose clock is fast, a network that loses and delays, processes that are late,
frozen or killed, and a command that may ignore signals.

The properties: the command is dead before its lease can end at the server, as long as dlock or its guard runs, or as
soon as one of them runs again; no renewal rescues it after a SIGTERM for the lease; and it is left alone while renewals
are answered.

[`Renewals`]: crate::lease::renewal::Renewals
[`Backstop`]: crate::command::run::backstop::Backstop
[`Ladder`]: crate::supervise::stop::Ladder
*/

mod game;
mod script;

use std::time::Duration;

use proptest::prelude::*;

use crate::cli::OnLost;
use crate::command::run::simulation::game::{Game, LATENESS};
use crate::command::run::simulation::script::{Fate, Happening, Script, friendly, script};
use crate::property::holds;

#[test]
fn the_command_never_outlives_its_lease_and_nothing_rescues_it_after_sigterm() {
    holds(2000, script(), |script| {
        let end = 12 * script.ttl;
        match Game::begin(script) {
            Some(mut game) => {
                let end = game.now + end;
                game.play(end)
            }
            None => Ok(()),
        }
    });
}

#[test]
fn a_command_whose_renewals_are_answered_or_lost_only_one_at_a_time_is_left_alone() {
    holds(500, friendly(), |script| {
        let (alone, groups) = script.happenings.iter().fold((0, 0), |(alone, groups), (_, what)| match what {
            Happening::Signal { group: false } => (alone + 1, groups),
            Happening::Signal { group: true } => (alone, groups + 1),
            _ => (alone, groups),
        });
        let end = 30 * script.ttl;
        let Some(mut game) = Game::begin(script) else { return Err(TestCaseError::fail("not started")) };
        let end = game.now + end;
        game.play(end)?;
        prop_assert!(game.alive && game.termed.is_none(), "stopped at {:?}", game.now);
        prop_assert!(game.sent > 30, "only {} renewals", game.sent);
        // A signal to dlock alone is passed on once, unless the command just got the same signal with the group.
        prop_assert!(game.passed_on <= alone && (groups > 0 || game.passed_on == alone), "{}", game.passed_on);
        Ok(())
    });
}

#[test]
fn a_command_whose_lease_runs_out_is_told_to_end_in_good_time_before_it_is_killed() {
    let silent = script().prop_map(|script| Script {
        on_lost: OnLost::Stop,
        happenings: Vec::new(),
        afterwards: Fate::Lost,
        ends_on_term: None,
        ..script
    });
    holds(500, silent, |script| {
        let end = 40 * script.ttl;
        let Some(mut game) = Game::begin(script) else { return Ok(()) };
        let end = game.now + end;
        game.play(end)?;
        prop_assert!(!game.alive);
        // With almost no time between SIGTERM and SIGKILL, the two may come in either order.
        let given = game.termed.map_or(Duration::ZERO, |termed| game.now.since(termed));
        prop_assert!(given + LATENESS >= game.kill_after, "it had only {given:?}");
        Ok(())
    });
}

#[test]
fn a_command_that_is_to_ignore_a_loss_is_left_alone_whatever_happens() {
    let ignoring = script().prop_map(|mut script| {
        script
            .happenings
            .retain(|(_, what)| !matches!(what, Happening::KillGuard | Happening::KillDlock | Happening::Exit));
        Script { on_lost: OnLost::Ignore, ends_on_term: None, ..script }
    });
    holds(500, ignoring, |script| {
        let end = 12 * script.ttl;
        let Some(mut game) = Game::begin(script) else { return Ok(()) };
        let end = game.now + end;
        game.play(end)?;
        prop_assert!(game.alive && game.termed.is_none());
        Ok(())
    });
}
