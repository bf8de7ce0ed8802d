//! Who may log in.

use crate::support::database_services::{PostgresService, PostgresTlsService};
use crate::support::dlock::Dlock;
use crate::support::service::Service;

fn run(service: &PostgresService, url: &str) -> Dlock {
    service.scratch().dlock().run("job").backend(url).command(["echo", "ran"])
}

#[test]
fn a_password_is_proved_in_every_way_that_does_not_show_it() {
    let service = PostgresService::fresh();
    service.run("job").command(["true"]).output().success();
    for (method, encryption) in [("scram-sha-256", "scram-sha-256"), ("md5", "md5")] {
        let role = format!("app_{encryption}").replace('-', "_");
        let make =
            format!("SET password_encryption = '{encryption}'; CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'hu:sh'");
        service.sql(&make);
        service.ask_for(method);
        run(&service, &service.url_for(&role, "hu:sh")).output().success().stdout_is("ran\n");
        for (password, why) in [("wrong", "password authentication failed"), ("", "no password was given")] {
            let refused = run(&service, &service.url_for(&role, password)).output();
            refused.code(77).stdout_is("").stderr_is_one_line(why);
            assert!(!refused.stderr().contains("hu:sh"), "{refused:?}");
        }
    }
}

#[test]
fn a_password_is_not_sent_in_clear_text() {
    let service = PostgresService::fresh();
    service.sql("CREATE ROLE app LOGIN SUPERUSER PASSWORD 'hush'");
    service.ask_for("password");
    let refused = run(&service, &service.url_for("app", "hush")).output();
    refused.code(77).stdout_is("").stderr_is_one_line("the password in clear text");
}

#[test]
fn tls_is_asked_for_by_the_scheme_or_by_sslmode() {
    let service = PostgresTlsService::fresh();
    let url = service.url();
    let dlock = |url: &str| service.scratch().dlock().run("job").backend(url).command(["echo", "ran"]);
    let required = format!("{}?sslmode=require", url.replace("postgress://", "postgres://"));
    for url in [&url, &required] {
        dlock(url).output().code(69).stderr_is_one_line("--tls-ca");
        let trusting = service.scratch().dlock().run("job").backend(url).args(service.options());
        trusting.command(["echo", "ran"]).output().success().stdout_is("ran\n");
    }
    let plain = url.replace("postgress://", "postgres://");
    dlock(&plain).output().code(77).stderr_is_one_line("no encryption");
    let without = PostgresService::fresh();
    let url = without.url().replace("postgres://", "postgress://");
    let asked = service.scratch().dlock().run("job").backend(url).args(service.options());
    asked.command(["echo", "ran"]).output().code(69).stderr_is_one_line("something in between has changed the answer");
}
