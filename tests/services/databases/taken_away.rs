//! What other hands do to the row of a lock that is held.

use std::time::Duration;

use crate::support::database_services::DatabaseService;
use crate::support::databases::Engine;
use crate::support::rendezvous::boottime;
use crate::support::service::Service;
use crate::support::tree::Tree;

use super::{assert_lost, on_databases};

on_databases! {
    a_row_that_is_deleted_ends_the_command
    a_row_that_is_freed_ends_the_command
    a_row_that_is_anothers_ends_the_command_and_stays_anothers
    a_table_that_is_dropped_ends_the_command
    a_row_that_is_freed_just_before_the_command_ends_is_told_as_a_loss
    the_documented_statement_frees_a_lock_whose_holder_is_gone
}

#[track_caller]
fn ends<E: Engine>(change: &str, why: &str) -> DatabaseService<E> {
    let service = DatabaseService::<E>::fresh();
    let mut tree = Tree::new(service.scratch());
    let dlock = service.run("job").args(["-t", "4s"]).shell(tree.work()).lifeline(tree.end()).spawn();
    tree.wait_grown();
    service.wait_renewed("dlock:job");
    service.sql(change);
    let changed = boottime();
    // The next renewal finds out, within a third of the lease, and SIGKILL comes a quarter of it later.
    let (died, lease) = (tree.died_at(), Duration::from_secs(4));
    let late = changed + lease / 3 + lease / 4 + Duration::from_millis(400);
    assert!(died < late, "{:?} later", died.saturating_sub(changed));
    assert_lost(&dlock.wait(), why);
    service
}

fn a_row_that_is_deleted_ends_the_command<E: Engine>() {
    ends::<E>("DELETE FROM shedlock", "its row is gone from the database").assert_free("job");
}

fn a_row_that_is_freed_ends_the_command<E: Engine>() {
    let free = "UPDATE shedlock SET lock_until = :now WHERE name = 'dlock:job'";
    ends::<E>(free, "it was freed there").assert_free("job");
}

fn a_row_that_is_anothers_ends_the_command_and_stays_anothers<E: Engine>() {
    let take = "UPDATE shedlock SET locked_by = 'web1', lock_until = :later";
    let service = ends::<E>(take, "its row is held by another program: web1");
    assert_eq!(service.locked_by("dlock:job").as_deref(), Some("web1"));
}

fn a_table_that_is_dropped_ends_the_command<E: Engine>() {
    ends::<E>("DROP TABLE shedlock", "its table is gone from the database");
}

fn a_row_that_is_freed_just_before_the_command_ends_is_told_as_a_loss<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let holder = service.hold("job");
    service.sql("UPDATE shedlock SET lock_until = :now");
    assert_lost(&holder.let_go(), "not ours any more when it ended");
}

/// What README has for three in the morning.
fn the_documented_statement_frees_a_lock_whose_holder_is_gone<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.run("job").args(["--min-hold", "1h"]).command(["true"]).output().success();
    service.assert_held("job");
    service.sql("UPDATE shedlock SET lock_until = :now WHERE name = 'dlock:job'");
    service.assert_free("job");
}
