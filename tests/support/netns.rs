/*!
A network of its own: a network namespace with nothing in it but a loopback interface, on which packets can be lost.

A dropped packet is what a proxy cannot imitate: nothing is refused, nothing is acknowledged, a connection attempt just
never ends, and what was sent arrives late if the network heals in time. TCP sends again after 0.2 s, 0.4 s, 0.8 s and so
on, so after healing a connection can stay silent for about as long as it was cut off; a new one is not slower than its
own first repetition, one second.

The namespace is made through a user namespace, so no root is needed. Whoever made it is root *inside* (uid 0), nobody
else exists there, and files of other users belong to `nobody`. Ports are free: other tests have other networks.
*/

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::rendezvous::eventually;

/// The nftables table that [`Netns::drop_port`] works with.
const TABLE: &str = "inet faults";

/// A network namespace. When this is dropped, everything that still runs in it is killed, and it is gone; if the test
/// itself is killed, the namespace goes as soon as nothing runs in it.
pub struct Netns {
    /// Reads its standard input until that ends, which it does when we do.
    holder: Child,
    /// What `/proc/PID/ns/net` reads for everything inside.
    id: PathBuf,
}

impl Netns {
    /// Makes a namespace whose `lo` is up and through which everything passes.
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

    /// What to put before a command line so that it runs inside: nothing else about it changes, and the process that
    /// is started becomes `program` itself, so its pid is the program's.
    pub fn prefix(&self) -> Vec<OsString> {
        let target = self.holder.id().to_string();
        ["nsenter", "--preserve-credentials", "--user", "--net", "--target", &target, "--"].map(OsString::from).into()
    }

    /// `program` inside; add arguments and whatever else as to any command.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(program);
        command
    }

    /// From now on packets to and from this TCP port vanish, of open connections too. Ports add up.
    pub fn drop_port(&self, port: u16) {
        // At the receiving side: a sender whose packet is dropped at the sending side may be told so.
        self.nft(&format!(
            "add table {TABLE}\n\
             add chain {TABLE} arriving {{ type filter hook input priority 0; }}\n\
             add rule {TABLE} arriving tcp dport {port} counter drop\n\
             add rule {TABLE} arriving tcp sport {port} counter drop\n"
        ));
    }

    /// How many packets [`Netns::drop_port`] made vanish since the last [`Netns::heal`]: to wait for one that is known
    /// to be sent.
    pub fn dropped(&self) -> u64 {
        let output = self.run_nft(&["--json", "list", "ruleset"], "");
        let rules: serde_json::Value = serde_json::from_slice(&output.stdout).expect("nft writes JSON");
        let items = rules["nftables"].as_array().into_iter().flatten();
        let parts = items.filter_map(|item| item["rule"]["expr"].as_array()).flatten();
        parts.filter_map(|part| part["counter"]["packets"].as_u64()).sum()
    }

    /// Everything passes again.
    pub fn heal(&self) {
        // Adding it first: deleting what is not there is an error.
        self.nft(&format!("add table {TABLE}\ndelete table {TABLE}\n"));
    }

    fn nft(&self, rules: &str) {
        // One file is one transaction: no moment at which only half of it holds.
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

    /// Everything in the namespace. Nothing gets into it but through us, so all of it is ours.
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
        // The holder last, and waited for last: until then its namespace's name cannot be another one's.
        let holder = Pid::from_raw(self.holder.id().cast_signed());
        let others_are_gone = || {
            let others: Vec<Pid> = self.inhabitants().into_iter().filter(|pid| *pid != holder).collect();
            for pid in &others {
                let _ = kill(*pid, Signal::SIGKILL);
            }
            others.is_empty().then_some(())
        };
        if std::thread::panicking() {
            // A second panic would hide the first; one try is what we can do.
            let _ = others_are_gone();
        } else {
            eventually("the end of everything in the network namespace", others_are_gone);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// `ip` and `nft` live in directories that an ordinary user's `PATH` does not have.
fn path_with_sbin() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
