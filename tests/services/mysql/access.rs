//! Who may log in, and what is said while the server is full.

use std::io::Read;
use std::net::TcpStream;

use crate::support::database_services::{MysqlService, MysqlTlsService};
use crate::support::dlock::Dlock;
use crate::support::mysql::Mysql;
use crate::support::service::Service;

fn run(service: &MysqlService, url: &str) -> Dlock {
    service.scratch().dlock().run("job").backend(url).command(["echo", "ran"])
}

#[test]
fn a_password_is_proved_without_being_shown() {
    let service = MysqlService::fresh();
    service.sql("CREATE USER app@'%' IDENTIFIED BY 'hu:sh'; GRANT ALL ON locks.* TO app@'%'");
    run(&service, &service.url_for("app", "hu:sh")).output().success().stdout_is("ran\n");
    for (password, why) in [("wrong", "Access denied for user"), ("", "no password was given")] {
        let refused = run(&service, &service.url_for("app", password)).output();
        refused.code(77).stdout_is("").stderr_is_one_line(why);
        assert!(!refused.stderr().contains("hu:sh"), "{refused:?}");
    }
}

/// The server knows who is at the other end of its socket.
#[test]
fn a_user_of_this_host_needs_no_password() {
    let service = MysqlService::fresh();
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().expect("a user with a name").name;
    let user = if user == "root" { "root".to_owned() } else { user };
    service.sql(&format!(
        "CREATE OR REPLACE USER '{user}'@localhost IDENTIFIED VIA unix_socket; GRANT ALL ON *.* TO '{user}'@localhost"
    ));
    let url = service.socket_url().replace("dlock@", &format!("{user}@"));
    run(&service, &url).output().success().stdout_is("ran\n");
    service.sql("CREATE USER other@localhost IDENTIFIED VIA unix_socket; GRANT ALL ON locks.* TO other@localhost");
    let url = service.socket_url().replace("dlock@", "other@");
    run(&service, &url).output().code(77).stdout_is("").stderr_is_one_line("refused the credentials");
}

#[test]
fn a_method_that_dlock_lacks_is_named() {
    let service = MysqlService::fresh();
    service.sql("INSTALL SONAME 'auth_ed25519'; CREATE USER app@'%' IDENTIFIED VIA ed25519 USING PASSWORD('x')");
    let refused = run(&service, &service.url_for("app", "x")).output();
    refused.code(77).stdout_is("").stderr_is_one_line("the authentication method client_ed25519, which dlock lacks");
}

#[test]
fn tls_is_asked_for_by_the_scheme_or_by_sslmode() {
    let service = MysqlTlsService::fresh();
    let url = service.url();
    let dlock = |url: &str| service.scratch().dlock().run("job").backend(url).command(["echo", "ran"]);
    let plain = url.replace("mysqls://", "mysql://");
    for url in [&url, &format!("{plain}?sslmode=require"), &url.replace("mysqls://", "mariadbs://")] {
        dlock(url).output().code(69).stderr_is_one_line("--tls-ca");
        let trusting = service.scratch().dlock().run("job").backend(url).args(service.options());
        trusting.command(["echo", "ran"]).output().success().stdout_is("ran\n");
    }
    dlock(&plain).output().code(77).stderr_is_one_line("requires TLS (mysqls://)");
}

/// It says so before anything else.
#[test]
fn a_server_without_room_is_waited_for() {
    let service = MysqlService::on(Mysql::with(&["max_connections=10"]));
    service.run("job").command(["true"]).output().success();
    // One more is for the administrator, which is the test itself.
    let sessions: Vec<TcpStream> =
        (0..10).map(|_| TcpStream::connect(("127.0.0.1", service.port())).unwrap()).collect();
    for mut session in &sessions {
        session.read_exact(&mut [0]).unwrap();
    }
    let refused = service.run("job").args(["-w", "0.5"]).command(["echo", "ran"]).output();
    refused.code(69).stdout_is("").stderr_ends_with_line("Too many connections (1040)");
    let waiter = service.run("job").args(["-q", "-w", "30"]).command(["echo", "ran"]).spawn();
    drop(sessions);
    waiter.wait().success().stdout_is("ran\n");
}
