//! Real etcd servers, one or several that form a cluster, and how to look at them from outside.

mod content;
mod json;
mod member;
mod requests;
mod watch;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

// Each test program uses its own part of this.
#[allow(unused_imports)]
pub use content::{Entry, Lease};
pub use member::Member;

use crate::support::certificates::{ClientCertificate, Tls};
use crate::support::daemon::need;
use crate::support::ensemble::Ensemble;
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
    ensemble: Ensemble<Member>,
    options: EtcdOptions,
    /// Whether the servers require a name and a password.
    guarded: Mutex<bool>,
}

impl Deref for Etcd {
    type Target = Ensemble<Member>;

    fn deref(&self) -> &Ensemble<Member> {
        &self.ensemble
    }
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
        let members = (0..options.members).map(|index| Member::new(index, options.islands.get(index))).collect();
        let ensemble = Ensemble::new(members, options.tls);
        let etcd = Self { ensemble, options, guarded: Mutex::new(false) };
        etcd.launch(&etcd.indices());
        etcd
    }

    /// `etcd://127.0.0.1:PORT,127.0.0.1:PORT`, or `etcds://` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls() { "etcds" } else { "etcd" };
        format!("{scheme}://{}", self.addresses(Member::port))
    }

    pub fn members(&self) -> &[Member] {
        self.servers()
    }

    #[track_caller]
    pub fn member(&self, index: usize) -> &Member {
        self.server(index)
    }

    /// Kills all running members, and restarts all on their ports with their data. Returns once they answer.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch(&self.indices());
    }

    /// Kills this member if it runs, and restarts it on its port with its data. Returns once it answers, which takes a
    /// majority.
    #[track_caller]
    pub fn restart_member(&self, index: usize) {
        self.member(index).kill();
        self.launch(&[index]);
    }

    /// The index of the present leader. Waits until a member that is neither frozen nor killed leads, and most of the
    /// others follow it.
    #[track_caller]
    pub fn leader(&self) -> usize {
        eventually("a leader", || {
            let answers: Vec<(usize, Value)> =
                self.at_work().filter_map(|(index, member)| Some((index, member.status().ok()?))).collect();
            let (leader, status) = answers.iter().find(|(_, status)| leads(status))?;
            let id = &status["leader"];
            let followed = answers.iter().filter(|(_, status)| &status["leader"] == id).count();
            (followed * 2 > self.members().len()).then_some(*leader)
        })
    }

    /// The term of the first member that answers: it grows with every election.
    pub fn term(&self) -> Option<u64> {
        self.at_work().find_map(|(_, member)| member.status().ok()?["raftTerm"].as_str()?.parse().ok())
    }

    /// Waits until all members at work follow the same leader. Returns false if they never do.
    pub fn wait_together(&self) -> bool {
        let together = || {
            // A member without a leader follows nobody.
            let leader = |member: &Member| member.status().ok()?["leader"].as_str().map(str::to_owned);
            let leaders: BTreeSet<Option<String>> = self.at_work().map(|(_, member)| leader(member)).collect();
            (leaders.len() == 1 && !leaders.contains(&None)).then_some(())
        };
        eventually_within(4 * CAP, together).is_some()
    }

    /// Starts these members, which do not run, and returns once they answer.
    #[track_caller]
    pub(in crate::support) fn launch(&self, indices: &[usize]) {
        self.ensemble.start(indices, |index| self.launch_one(self.member(index)), Member::wait_answers);
    }

    #[track_caller]
    fn launch_one(&self, member: &Member) {
        let scheme = if self.is_tls() { "https" } else { "http" };
        let client = format!("{scheme}://{}:{}", member.host(), member.port());
        let peers: Vec<String> =
            self.members().iter().map(|peer| format!("{}={}", peer.name, peer.peer_url())).collect();
        let mut command = Command::new(need("etcd", "etcd-server"));
        command.arg("--name").arg(&member.name).arg("--data-dir").arg(member.directory().join("data"));
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
        if let Some((tls, files)) = self.tls() {
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
        member.launch(command);
    }
}
