//! The network drops packets.

use super::*;

#[test]
fn packets_dropped_both_ways_are_survived_by_no_command() {
    const PORT: u16 = 6379;
    let net = Netns::start();
    let scratch = Scratch::new();
    let server = ServerInside::start(&net, &scratch, PORT);
    let url = format!("redis://127.0.0.1:{PORT}");
    let mut tree = Tree::new(&scratch);
    let witness = Witness::in_dir(scratch.root());
    let inside = || scratch.dlock().wrapped_by(net.prefix()).run("job").backend(&url).args(["-t", "1s"]);
    let holder = inside().command(witness.command(&tree.work())).lifeline(tree.end()).spawn();
    tree.wait_grown();
    let waiter = inside().command(witness.command("true")).spawn();
    waiter.wait_stderr("waiting for 'job'");

    net.drop_port(PORT);
    // By a way that the fault does not touch. What was under way and got through has arrived by now.
    let expiry = server.expiry(KEY);
    let died = tree.died_at();
    assert_in_time(died, expiry);
    let cut = boottime();
    last_until(cut + 2 * TTL);
    net.heal();
    assert_lost(&holder.wait(), "not answer");
    assert_taken_over(&witness, waiter);
}

/// A redis in a namespace that can also be reached through its unix socket.
struct ServerInside {
    child: std::process::Child,
    socket: std::path::PathBuf,
}

impl ServerInside {
    fn start(net: &Netns, scratch: &Scratch, port: u16) -> Self {
        let socket = scratch.path("redis.sock");
        let mut command = net.command(need("redis-server", "redis-server"));
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.arg("--unixsocket").arg(&socket).arg("--dir").arg(scratch.root());
        command.stdout(std::process::Stdio::null());
        let server = Self { child: command.spawn().unwrap(), socket };
        eventually("redis to answer", || server.ask("PING").filter(|reply| reply == "+PONG"));
        server
    }

    fn ask(&self, request: &str) -> Option<String> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.write_all(format!("{request}\r\n").as_bytes()).ok()?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).ok()?;
        Some(reply.trim_end().to_owned())
    }

    fn expiry(&self, key: &str) -> Duration {
        let now = boottime();
        let reply = self.ask(&format!("PTTL {key}")).expect("an answer");
        let left: u64 = reply.trim_start_matches(':').parse().expect("a key that expires");
        now + Duration::from_millis(left - 1)
    }
}

impl Drop for ServerInside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
