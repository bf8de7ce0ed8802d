/*!
Names with several addresses: of one server, of a master and its replica, or of independent servers.
*/

use std::ffi::OsString;
use std::fs;
use std::process::{Child, Command, Stdio};

use crate::support::dlock::Dlock;
use crate::support::process;
use crate::support::rendezvous::{Gate, eventually};
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need};

/// The name, defined in a hosts file of its own.
const NAME: &str = "locks.test";

/// A second redis at another address of this host, at the port of the first.
struct Second {
    child: Child,
    port: u16,
    // Removed after the server has ended.
    _scratch: Scratch,
}

impl Second {
    fn start(port: u16, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let mut command = Command::new(need("redis-server", "redis-server"));
        command.args(["--bind", "127.0.0.2", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(scratch.root()).args(options).stdout(Stdio::null());
        let second = Self { child: command.spawn().unwrap(), port, _scratch: scratch };
        eventually("the second redis to answer", || (second.ask(&["PING"]) == "PONG").then_some(()));
        second
    }

    fn ask(&self, words: &[&str]) -> String {
        let mut cli = Command::new(need("redis-cli", "redis-tools"));
        cli.args(["-h", "127.0.0.2", "-p", &self.port.to_string()]).args(words).stderr(Stdio::null());
        String::from_utf8_lossy(&cli.output().unwrap().stdout).trim().to_owned()
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `job` at the server with [`NAME`], which has the `addresses`.
fn run(scratch: &Scratch, port: u16, addresses: &[&str]) -> Dlock {
    let hosts = scratch.path(format!("hosts-{}", addresses.join("-")));
    let lines: Vec<String> = addresses.iter().map(|address| format!("{address} {NAME}\n")).collect();
    fs::write(&hosts, lines.concat()).unwrap();
    let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    let unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"];
    let wrapper: Vec<OsString> = unshare.map(OsString::from).into_iter().chain([hosts.into_os_string()]).collect();
    scratch.dlock().run("job").backend(format!("redis://{NAME}:{port}")).wrapped_by(wrapper)
}

const BOTH: &[&str] = &["127.0.0.1", "127.0.0.2"];

#[test]
fn independent_servers_behind_one_name_are_refused() {
    let (redis, scratch) = (Redis::start(), Scratch::new());
    let second = Second::start(redis.port(), &[]);
    for addresses in [BOTH, &["127.0.0.2", "127.0.0.1"]] {
        let outcome = run(&scratch, redis.port(), addresses).args(["-w", "30s"]).command(["echo", "ran"]).output();
        outcome
            .code(69)
            .stdout_is("")
            .stderr_is_one_line("names several independent redis servers, one of them at 127.");
    }
    assert_eq!((redis.get("dlock:job"), second.ask(&["EXISTS", "dlock:job"])), (None, "0".to_owned()));
}

#[test]
fn a_server_with_several_addresses_and_one_with_its_replica_are_taken() {
    let (redis, scratch) = (Redis::with(["--bind", "127.0.0.1", "127.0.0.2"]), Scratch::new());
    run(&scratch, redis.port(), BOTH).command(["echo", "ran"]).output().success().stdout_is("ran\n");
    let redis = Redis::start();
    let second = Second::start(redis.port(), &["--replicaof", &format!("127.0.0.1 {}", redis.port())]);
    eventually("the replica to be up", || {
        second.ask(&["INFO", "replication"]).contains("link_status:up").then_some(())
    });
    run(&scratch, redis.port(), BOTH).command(["echo", "ran"]).output().success().stdout_is("ran\n");
}

#[test]
fn an_address_that_leads_nowhere_delays_nobody() {
    let (redis, scratch) = (Redis::start(), Scratch::new());
    // One address refuses connections, the other is silent.
    for addresses in [BOTH, &["127.0.0.1", "203.0.113.1"]] {
        run(&scratch, redis.port(), addresses).command(["echo", "ran"]).output().success().stdout_is("ran\n");
    }
    let silent = Second::start(redis.port(), &[]);
    process::signal(silent.child.id().cast_signed(), nix::sys::signal::Signal::SIGSTOP);
    run(&scratch, redis.port(), BOTH).command(["echo", "ran"]).output().success().stdout_is("ran\n");
}

/// At first, only one of the servers can be reached.
#[test]
fn whoever_waits_does_not_go_over_to_an_independent_server() {
    let (redis, scratch) = (Redis::start(), Scratch::new());
    let gate = Gate::new(scratch.path("gate"));
    let holder = scratch.dlock().run("job").backend(redis.url()).args(["-t", "60s"]).shell(gate.wait()).spawn();
    eventually("the lock to be held", || redis.get("dlock:job"));
    let waiter = run(&scratch, redis.port(), BOTH).args(["-w", "4s"]).command(["echo", "overlap"]).spawn();
    waiter.wait_stderr("waiting for 'job'");
    let _second = Second::start(redis.port(), &[]);
    redis.kill();
    let outcome = waiter.wait();
    outcome.code(69).stdout_is("").stderr_ends_with_line("is another server than before");
    holder.signal(nix::sys::signal::Signal::SIGKILL);
    holder.wait().signal(nix::sys::signal::Signal::SIGKILL).stderr();
}

#[test]
fn a_server_that_is_started_again_is_the_same_one() {
    let (redis, scratch) = (Redis::with(["--bind", "127.0.0.1", "127.0.0.2", "--appendonly", "yes"]), Scratch::new());
    let gate = Gate::new(scratch.path("gate"));
    let holder = scratch.dlock().run("job").backend(redis.url()).args(["-t", "5s"]).shell(gate.wait()).spawn();
    eventually("the lock to be held", || redis.get("dlock:job"));
    let waiter = run(&scratch, redis.port(), BOTH).args(["-w", "30s"]).command(["echo", "ran"]).spawn();
    // Then it is in the queue.
    waiter.wait_stderr("waiting for 'job'");
    redis.kill();
    redis.restart();
    gate.open();
    holder.wait().code(0);
    let outcome = waiter.wait();
    outcome.code(0).stdout_is("ran\n").stderr();
}
