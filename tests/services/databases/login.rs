//! Which of several servers is used, and what is said where there is no such database or user.

use crate::support::database_services::DatabaseService;
use crate::support::databases::{Engine, Server};
use crate::support::dlock::Dlock;
use crate::support::service::Service;

use super::on_databases;

on_databases! {
    a_database_or_user_that_is_not_there_is_told
    what_no_name_can_be_and_what_is_said_twice_is_wrong_usage
    of_several_servers_the_one_that_takes_writes_is_used
}

fn run<E: Engine>(service: &DatabaseService<E>, url: &str) -> Dlock {
    service.scratch().dlock().run("job").backend(url).command(["echo", "ran"])
}

fn a_database_or_user_that_is_not_there_is_told<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    service.sql(E::LET_IN);
    let url = service.url();
    let (url, _) = url.rsplit_once('/').unwrap();
    let refused = run(&service, &format!("{url}/elsewhere")).output();
    refused.code(69).stdout_is("").stderr_is_one_line("name a database that exists");
    let refused = run(&service, &service.url_for("nobody_of_that_name", "")).output();
    refused.code(77).stdout_is("").stderr_is_one_line("refused the credentials");
}

fn what_no_name_can_be_and_what_is_said_twice_is_wrong_usage<E: Engine>() {
    let service = DatabaseService::<E>::fresh();
    let url = service.url();
    let nul = url.replacen('@', "%00x@", 1);
    run(&service, &nul).output().code(64).stderr_is_one_line("the user in the backend URL contains a NUL byte");
    run(&service, &format!("{url}?table=a&table=b")).output().code(64).stderr_is_one_line("table is given twice");
}

fn of_several_servers_the_one_that_takes_writes_is_used<E: Engine>() {
    let primary = DatabaseService::<E>::fresh();
    let standby = Server::<E>::with(&[E::READ_ONLY]);
    let [one, other] = [standby.port(), primary.port()].map(|port| format!("127.0.0.1:{port}"));
    let both = |hosts: String| format!("{}://{}@{hosts}/{}", E::KIND, E::USER, E::DATABASE);
    for hosts in [format!("{one},{other}"), format!("{other},{one}")] {
        run(&primary, &both(hosts)).output().success().stdout_is("ran\n");
    }
    assert_eq!(primary.count("SELECT count(*) FROM shedlock"), 1);
    let refused = run(&primary, &standby.url()).output();
    refused.code(69).stdout_is("").stderr_is_one_line("is a standby, or read-only: name the primary");
    // One that does not run costs no more than a refused connection.
    primary.kill();
    let refused = run(&primary, &both(format!("{one},{other}"))).output();
    refused.code(69).stdout_is("").stderr_is_one_line("read-only");
    refused.stderr_is_one_line("connection refused");
}
