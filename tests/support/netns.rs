/*!
A network of a test's own: a network namespace with only a loopback interface, on which packets can be dropped.

A proxy cannot imitate dropped packets: nothing is refused, nothing is acknowledged, a connection attempt just never
ends, and what was sent arrives late if the network recovers in time. TCP retransmits after 0.2 s, 0.4 s, 0.8 s and so
on, so after the network recovers, a connection can stay silent for about as long as it was cut off; a new one takes at
most its own first retransmission, one second.

The namespace is created through a user namespace, so no root privileges are needed. Its creator is root *inside* (uid
0), no other user exists there, and files of other users belong to `nobody`. All ports are free: other tests have other
networks.
*/

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::rendezvous::eventually;

/// The nftables table that [`Netns::drop_port`] uses.
const TABLE: &str = "inet faults";

/// A network namespace. When this is dropped, everything that still runs in it is killed, and it is gone; if the test
/// itself is killed, the namespace goes as soon as nothing runs in it.
pub struct Netns {
    /// Reads its standard input until that is closed, at the latest when this process ends.
    holder: Child,
    /// What `/proc/PID/ns/net` links to for everything inside.
    id: PathBuf,
}

impl Netns {
    /// Creates a namespace whose `lo` is up and through which everything passes.
    pub fn start() -> Netns {
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"])
            .env("PATH", path_with_sbin())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("could not run unshare(1) of util-linux");
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n", "could not make a network namespace: are unprivileged user namespaces allowed?");
        let id = fs::read_link(format!("/proc/{}/ns/net", holder.id())).expect("the holder has a network namespace");
        Netns { holder, id }
    }

    /// The words to put before a command line so that it runs inside. Nothing else about it changes, and the process
    /// that is started becomes the program itself, so its pid is the program's.
    pub fn prefix(&self) -> Vec<OsString> {
        let target = self.holder.id().to_string();
        ["nsenter", "--preserve-credentials", "--user", "--net", "--target", &target, "--"].map(OsString::from).into()
    }

    /// `program` inside the namespace; arguments and options are added as for any command.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(program);
        command
    }

    /// From now on drops packets to and from this TCP port, also those of open connections. Ports add up.
    pub fn drop_port(&self, port: u16) {
        // On the receiving side: the sender could be told about a packet that is dropped on the sending side.
        self.nft(&format!(
            "add table {TABLE}\n\
             add chain {TABLE} arriving {{ type filter hook input priority 0; }}\n\
             add rule {TABLE} arriving tcp dport {port} counter drop\n\
             add rule {TABLE} arriving tcp sport {port} counter drop\n"
        ));
    }

    /// How many packets [`Netns::drop_port`] has dropped since the last [`Netns::heal`]: to wait for one that is known
    /// to be sent.
    pub fn dropped(&self) -> u64 {
        let output = self.run_nft(&["--json", "list", "ruleset"], "");
        let rules: serde_json::Value = serde_json::from_slice(&output.stdout).expect("nft writes JSON");
        let items = rules["nftables"].as_array().into_iter().flatten();
        let parts = items.filter_map(|item| item["rule"]["expr"].as_array()).flatten();
        parts.filter_map(|part| part["counter"]["packets"].as_u64()).sum()
    }

    /// Lets everything pass again.
    pub fn heal(&self) {
        // Created first: deleting a table that does not exist is an error.
        self.nft(&format!("add table {TABLE}\ndelete table {TABLE}\n"));
    }

    fn nft(&self, rules: &str) {
        // One file is one transaction: at no moment only half of it is in force.
        self.run_nft(&["--file", "-"], rules);
    }

    fn run_nft(&self, args: &[&str], input: &str) -> Output {
        let mut nft = self
            .command("nft")
            .args(args)
            .env("PATH", path_with_sbin())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("could not run nsenter(1) of util-linux");
        nft.stdin.take().unwrap().write_all(input.as_bytes()).expect("nft reads its rules");
        let output = nft.wait_with_output().unwrap();
        assert!(output.status.success(), "nft failed: {}\n{input}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Every process in the namespace. All of them were started by this test.
    fn inhabitants(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter(|process| fs::read_link(process.path().join("ns/net")).is_ok_and(|id| id == self.id))
            .filter_map(|process| process.file_name().to_str()?.parse().ok().map(Pid::from_raw))
            .collect()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // The holder last, and collected last: until then no other namespace can get the same name.
        let holder = Pid::from_raw(self.holder.id().cast_signed());
        let others_are_gone = || {
            let others: Vec<Pid> = self.inhabitants().into_iter().filter(|pid| *pid != holder).collect();
            for pid in &others {
                let _ = kill(*pid, Signal::SIGKILL);
            }
            others.is_empty().then_some(())
        };
        if std::thread::panicking() {
            // A second panic would hide the first, so there is only one attempt.
            let _ = others_are_gone();
        } else {
            eventually("the end of everything in the network namespace", others_are_gone);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// `ip` and `nft` are in directories that an ordinary user's `PATH` lacks.
fn path_with_sbin() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
