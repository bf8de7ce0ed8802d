//! Network namespaces.

use super::*;
use crate::support::netns::Netns;
use std::process::{ChildStdin, ChildStdout};

const PORT: u16 = 6379;

#[test]
fn packets_are_dropped_not_refused_and_pass_after_healing() {
    let net = Netns::start();
    // A port other than the server's: inside the namespace all ports are free, and nobody listens on that one.
    assert!(!connects(&net, PORT), "without a server the port refuses");
    let _server = serve(&net);

    let mut open = Conversation::start(&net);
    open.ping();
    assert_eq!(open.hear(), "+PONG");

    net.drop_port(PORT);
    open.ping();
    let mut new = connect(&net, PORT);
    eventually("some lost packets", || (net.dropped() > 3).then_some(()));
    // Neither refused nor answered.
    assert_eq!(new.try_wait().unwrap(), None);
    net.heal();
    assert_eq!(open.hear(), "+PONG");
    assert!(new.wait().unwrap().success());
    assert_eq!(net.dropped(), 0);
}

#[test]
fn only_the_dropped_port_is_dropped() {
    let net = Netns::start();
    let _server = serve(&net);
    net.drop_port(PORT + 1);
    assert!(connects(&net, PORT));
    net.heal();
    net.heal();
    assert!(connects(&net, PORT));
}

#[test]
fn it_is_a_network_of_its_own() {
    let (one, two) = (Netns::start(), Netns::start());
    let _server = serve(&one);
    assert!(connects(&one, PORT));
    assert!(!connects(&two, PORT));
    let names = one.command("ls").arg("/sys/class/net").output().unwrap();
    assert!(names.status.success());
    let interfaces = one.command("ip").args(["-brief", "link"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&interfaces.stdout).lines().count(), 1);
}

#[test]
fn the_program_is_the_process_that_was_started() {
    let net = Netns::start();
    let mut child = net.command("sh").args(["-c", "echo $$; exit 9"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end().parse(), Ok(child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn dropping_it_kills_what_runs_inside() {
    let net = Netns::start();
    let mut child = net.command("setsid").args(["sleep", "1000"]).spawn().unwrap();
    let inside = std::fs::read_link(format!("/proc/{}/ns/net", child.id())).unwrap();
    eventually("it to be inside", || {
        let now = std::fs::read_link(format!("/proc/{}/ns/net", child.id())).unwrap();
        (now != std::fs::read_link("/proc/self/ns/net").unwrap() || now != inside).then_some(())
    });
    drop(net);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

/// A redis, ready.
fn serve(net: &Netns) -> Server {
    let dir = std::env::temp_dir();
    let mut server = net
        .command("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &PORT.to_string(), "--save", "", "--appendonly", "no", "--dir"])
        .arg(dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("redis to listen", || {
        assert_eq!(server.try_wait().unwrap(), None, "redis-server ended");
        connects(net, PORT).then_some(())
    });
    Server(server)
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn connect(net: &Netns, port: u16) -> Child {
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    net.command("bash").args(["-c", &script]).stderr(Stdio::null()).spawn().unwrap()
}

fn connects(net: &Netns, port: u16) -> bool {
    connect(net, port).wait().unwrap().success()
}

/// One open connection to the server, kept by a process inside the namespace.
struct Conversation {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    fn start(net: &Netns) -> Conversation {
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{PORT}; while read -r line; do printf '%s\\r\\n' \"$line\" >&3; read -r reply <&3; echo \"$reply\"; done"
        );
        let mut bash = net.command("bash");
        let mut child = bash.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Conversation { child, input, output }
    }

    fn ping(&mut self) {
        self.input.write_all(b"PING\n").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
