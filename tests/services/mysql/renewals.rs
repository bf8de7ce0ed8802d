//! Answers to renewals that come late.

use std::time::Duration;

use crate::support::database_services::MysqlService;
use crate::support::rendezvous::{boottime, last_until};
use crate::support::service::{Gated, Service};

/// The release follows the renewal on the same connection, and its answer is another one.
#[test]
fn a_release_after_a_renewal_without_an_answer_is_no_loss() {
    let service = MysqlService::fresh();
    let holder = Gated::spawn(service.scratch(), service.run("job").args(["-t", "6s"]));
    holder.wait_held();
    service.wait_renewed("dlock:job");
    // Its answer is on the way; the next renewal is due two seconds later.
    last_until(boottime() + Duration::from_millis(300));
    service.stop();
    last_until(boottime() + Duration::from_secs(2));
    holder.open();
    last_until(boottime() + Duration::from_millis(500));
    service.cont();
    holder.running.wait().success();
    service.assert_free("job");
}
