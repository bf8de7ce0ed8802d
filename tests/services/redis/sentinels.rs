/*!
Sentinels that disagree: only what a majority of those in the URL say counts, and no address that every host takes for
itself.
*/

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::support::netns::Netns;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis_sets::MASTER_NAME;
use crate::support::rendezvous::eventually;
use crate::support::scratch::Scratch;
use crate::support::servers::{Redis, need};
use crate::support::service::Gated;

/// The user and the password for the masters, and the rule that makes them.
const LOGIN: &str = "worker:hush";
const RULE: [&str; 6] = ["--user", "worker", "on", ">hush", "~*", "+@all"];

/// A sentinel that watches the server at this port, and calls it [`MASTER_NAME`] since this many failovers.
fn sentinel(port: u16, epoch: u32) -> Redis {
    let sentinel = Redis::prepare(["--sentinel"]);
    sentinel.configure(&format!(
        "sentinel monitor {MASTER_NAME} 127.0.0.1 {port} 1\nsentinel config-epoch {MASTER_NAME} {epoch}\n"
    ));
    sentinel.launch();
    sentinel
}

fn url(ports: &[u16]) -> String {
    let places: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+sentinel://{LOGIN}@{}/{MASTER_NAME}", places.join(","))
}

#[test]
fn one_that_lies_decides_nothing_and_its_master_is_not_even_logged_in_to() {
    let scratch = Scratch::new();
    let (honest, other) = (Redis::with(RULE), Redis::start());
    // The largest epoch of all.
    let (one, liar, late) = (sentinel(honest.port(), 1), sentinel(other.port(), 9), sentinel(honest.port(), 1));
    let proxy = Proxy::to(late.port());
    proxy.set(Mode::DelayReplies(Duration::from_millis(300)));
    for ports in [[one.port(), liar.port(), proxy.port()], [liar.port(), proxy.port(), one.port()]] {
        let holder = Gated::spawn(&scratch, scratch.dlock().run("k").backend(url(&ports)).args(["-t", "6s"]));
        holder.wait_held();
        assert!(honest.get("dlock:k").is_some());
        honest.monitor().wait_renewed("dlock:k");
        holder.let_go().success();
    }
    assert_eq!(other.keys(), [""; 0]);
    // There the user would have been refused.
    assert_eq!(other.cli(&["ACL", "LOG"]), "");
}

/// By another name it is still one sentinel, with one vote.
#[test]
fn one_that_is_named_twice_has_one_vote() {
    let scratch = Scratch::new();
    let (honest, other) = (Redis::with(RULE), Redis::with(RULE));
    let (one, liar) = (sentinel(honest.port(), 1), sentinel(other.port(), 9));
    let (one, liar) = (one.port(), liar.port());
    for (hosts, code, said) in [
        (format!("127.0.0.1:{liar},localhost:{liar},127.0.0.1:{one}"), 69, "do not agree on the master"),
        (format!("127.0.0.1:{liar},127.0.0.1:{liar},127.0.0.1:{one}"), 64, "is named twice"),
    ] {
        let url = format!("redis+sentinel://{LOGIN}@{hosts}/{MASTER_NAME}");
        let outcome = scratch.dlock().run("k").backend(url).arg("-n").command(["echo", "ran"]).output();
        outcome.code(code).stdout_is("").stderr_is_one_line(said);
    }
}

#[test]
fn that_all_disagree_name_no_master() {
    let (scratch, servers) = (Scratch::new(), [Redis::with(RULE), Redis::with(RULE), Redis::with(RULE)]);
    let sentinels: Vec<Redis> = servers.iter().zip(1..).map(|(redis, epoch)| sentinel(redis.port(), epoch)).collect();
    let ports: Vec<u16> = sentinels.iter().map(Redis::port).collect();
    for ports in [&ports[..], &ports[..2]] {
        let outcome = scratch.dlock().run("k").backend(url(ports)).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_is_one_line("the sentinels do not agree on the master of mymaster");
    }
    assert!(servers.iter().all(|redis| redis.keys().is_empty()));
}

#[test]
fn on_another_host_that_name_this_one_are_refused() {
    const HOST: &str = "10.9.8.7";
    let (scratch, network) = (Scratch::new(), Netns::start());
    let add = network.command("ip").args(["address", "add", &format!("{HOST}/32"), "dev", "lo"]).status().unwrap();
    assert!(add.success());
    let configuration = scratch.path("sentinel.conf");
    fs::write(&configuration, format!("sentinel monitor {MASTER_NAME} 127.0.0.1 6379 1\n")).unwrap();
    let server = need("redis-server", "redis-server");
    let start = |args: &[&str]| {
        let mut command = network.command(&server);
        command.args(args).arg("--dir").arg(scratch.root()).args(["--protected-mode", "no"]).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let servers = [start(&["--save", ""]), start(&[configuration.to_str().unwrap(), "--sentinel"])];
    let cli = need("redis-cli", "redis-tools");
    for port in ["6379", "26379"] {
        eventually("the servers to answer", || {
            let output = network.command(&cli).args(["-p", port, "PING"]).output().unwrap();
            output.stdout.starts_with(b"PONG").then_some(())
        });
    }
    let run = |host: &str| {
        let url = format!("redis+sentinel://{host}/{MASTER_NAME}");
        scratch.dlock().run("k").backend(url).args(["-w", "30s"]).wrapped_by(network.prefix()).command(["echo", "ran"])
    };
    run("127.0.0.1").output().success().stdout_is("ran\n");
    let outcome = run(HOST).output();
    outcome.code(69).stdout_is("").stderr_is_one_line("names 127.0.0.1:6379 as the master of mymaster");
    // Everything in it is killed.
    drop(network);
    for mut server in servers {
        server.wait().unwrap();
    }
}
