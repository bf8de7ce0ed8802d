//! Real etcd servers, one or several that form a cluster, and how to look at them from outside.

mod content;
mod json;
mod member;
mod requests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

// Each test program uses its own part of this.
#[allow(unused_imports)]
pub use content::{Entry, Lease};

use crate::support::certificates::{Certificates, ClientCertificate, Tls};
use crate::support::daemon::{Daemon, Port, need};
use crate::support::islands::Island;
use crate::support::rendezvous::{CAP, eventually, eventually_within};

use member::leads;

/// How long a server may take to answer one request of the test itself.
const ANSWER: Duration = Duration::from_secs(10);
/// How an [`Etcd`] is set up.
pub struct EtcdOptions {
    pub members: usize,
    /// The heartbeat interval in milliseconds.
    pub heartbeat: u32,
    /// The election timeout in milliseconds, at least five heartbeats. No lease is shorter than one and a half of
    /// these, in whole seconds: below 667 every ttl is granted as requested, and with etcd's own default of 1000 the
    /// shortest is 2 s.
    pub election: u32,
    /// TLS for clients; none for plain text.
    pub tls: Option<Tls>,
    /// More arguments for every member, which override the others.
    pub args: Vec<String>,
    /// The island of each member; empty for all on loopback.
    pub islands: Vec<Island>,
}

impl EtcdOptions {
    /// A server that starts in a tenth of a second.
    pub fn single() -> Self {
        Self { members: 1, heartbeat: 20, election: 200, tls: None, args: Vec::new(), islands: Vec::new() }
    }

    /// Three servers that elect a new leader in about half a second, and do not start an election just because the
    /// machine is busy.
    pub fn cluster() -> Self {
        Self { members: 3, heartbeat: 60, election: 600, ..Self::single() }
    }
}

/// etcd on loopback: one server, or several that form a cluster; with an empty store, as an unprivileged user, gone at
/// the end of the test.
///
/// The test uses a port of its own in plain text, whatever clients have to use. All methods take `&self`, so that
/// another thread may break the servers while the test goes on.
pub struct Etcd {
    members: Vec<Member>,
    options: EtcdOptions,
    certificates: Option<Certificates>,
    /// Whether the servers require a name and a password.
    guarded: Mutex<bool>,
}

/// One server of an [`Etcd`].
pub struct Member {
    name: String,
    pub(in crate::support) daemon: Daemon,
    /// For clients, with TLS if that is enabled.
    client: Port,
    peer: Port,
    /// For the test itself, without TLS.
    inside: Port,
    /// How often the test itself has made each request to this process, by the names of the metrics.
    own: Mutex<BTreeMap<String, u64>>,
}
impl Etcd {
    /// One server that answers.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(EtcdOptions::single())
    }

    /// Three servers that have a leader.
    #[track_caller]
    pub fn cluster() -> Self {
        Self::with(EtcdOptions::cluster())
    }

    #[track_caller]
    pub fn with(options: EtcdOptions) -> Self {
        let member = |index: usize| Member {
            name: format!("n{index}"),
            daemon: Daemon::new("etcd").on(options.islands.get(index)),
            client: Port::reserve(),
            peer: Port::reserve(),
            inside: Port::reserve(),
            own: Mutex::default(),
        };
        let etcd = Self {
            members: (0..options.members).map(member).collect(),
            certificates: options.tls.map(|_| Certificates::new()),
            options,
            guarded: Mutex::new(false),
        };
        etcd.launch_all();
        etcd
    }

    /// `etcd://127.0.0.1:PORT,127.0.0.1:PORT`, or `etcds://` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls() { "etcds" } else { "etcd" };
        let hosts: Vec<String> =
            self.members.iter().map(|member| format!("{}:{}", member.host(), member.port())).collect();
        format!("{scheme}://{}", hosts.join(","))
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub fn member(&self, index: usize) -> &Member {
        &self.members[index]
    }

    /// Whether clients have to use TLS.
    pub fn is_tls(&self) -> bool {
        self.options.tls.is_some()
    }

    /// The certificates that clients need for TLS. Fails the test if it is not enabled.
    #[track_caller]
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("etcd was started without TLS")
    }

    /// Freezes all members.
    #[track_caller]
    pub fn stop(&self) {
        self.members.iter().for_each(Member::stop);
    }

    /// Continues all frozen members.
    #[track_caller]
    pub fn cont(&self) {
        self.members.iter().for_each(Member::cont);
    }

    /// Kills all members.
    pub fn kill(&self) {
        self.members.iter().for_each(Member::kill);
    }

    /// Kills all running members, and restarts all on their ports with their data. Returns once they answer.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch_all();
    }

    /// Kills this member if it runs, and restarts it on its port with its data. Returns once it answers, which takes a
    /// majority.
    #[track_caller]
    pub fn restart_member(&self, index: usize) {
        self.members[index].kill();
        self.launch(&self.members[index]);
        self.members[index].wait_ready();
    }

    /// The index of the present leader. Waits until a member that is neither frozen nor killed leads, and most of the
    /// others follow it.
    #[track_caller]
    pub fn leader(&self) -> usize {
        eventually("a leader", || {
            let at_work: Vec<usize> =
                (0..self.members.len()).filter(|&index| self.members[index].is_at_work()).collect();
            let answers: Vec<(usize, Value)> =
                at_work.iter().filter_map(|&index| Some((index, self.members[index].status().ok()?))).collect();
            let (leader, status) = answers.iter().find(|(_, status)| leads(status))?;
            let id = &status["leader"];
            let followed = answers.iter().filter(|(_, status)| &status["leader"] == id).count();
            (followed * 2 > self.members.len()).then_some(*leader)
        })
    }

    /// Waits until all members at work follow the same leader. Returns false if they never do.
    pub fn wait_together(&self) -> bool {
        let together = || {
            let at_work: Vec<&Member> = self.members.iter().filter(|member| member.is_at_work()).collect();
            // A member without a leader follows nobody.
            let leader = |member: &&Member| member.status().ok()?["leader"].as_str().map(str::to_owned);
            let leaders: BTreeSet<Option<String>> = at_work.iter().map(leader).collect();
            (leaders.len() == 1 && !leaders.contains(&None)).then_some(())
        };
        eventually_within(4 * CAP, together).is_some()
    }

    #[track_caller]
    fn launch_all(&self) {
        // All are started first: a member of a cluster is not ready before most of them are.
        self.members.iter().for_each(|member| self.launch(member));
        self.members.iter().for_each(Member::wait_ready);
    }

    #[track_caller]
    fn launch(&self, member: &Member) {
        let scheme = if self.is_tls() { "https" } else { "http" };
        let client = format!("{scheme}://{}:{}", member.host(), member.port());
        let peers: Vec<String> = self.members.iter().map(|peer| format!("{}={}", peer.name, peer.peer_url())).collect();
        let mut command = Command::new(need("etcd", "etcd-server"));
        command.arg("--name").arg(&member.name).arg("--data-dir").arg(member.daemon.directory().join("data"));
        command.arg("--listen-client-urls").arg(format!("{client},{}", member.inside_url()));
        command.arg("--advertise-client-urls").arg(&client);
        command.arg("--listen-peer-urls").arg(member.peer_url());
        command.arg("--initial-advertise-peer-urls").arg(member.peer_url());
        command.arg("--initial-cluster").arg(peers.join(","));
        command.args(["--heartbeat-interval", &self.options.heartbeat.to_string()]);
        command.args(["--election-timeout", &self.options.election.to_string()]);
        // What a process has written survives its death without fsync, and no test cuts the power.
        command.arg("--unsafe-no-fsync");
        command.args(["--logger", "zap", "--log-level", "warn", "--bcrypt-cost", "4"]);
        if let Some((tls, files)) = self.options.tls.zip(self.certificates.as_ref()) {
            command.arg("--cert-file").arg(files.certificate(tls.server));
            command.arg("--key-file").arg(files.key(tls.server));
            match tls.clients {
                ClientCertificate::Ignored => {}
                ClientCertificate::Wanted => panic!("etcd does not ask for certificates that it does not need"),
                ClientCertificate::Needed => {
                    command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(files.ca());
                }
            }
        }
        command.args(&self.options.args);
        // Environment variables could set options too.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        member.own.lock().unwrap().clear();
        member.daemon.launch(command);
    }
}
