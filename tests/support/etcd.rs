//! Real etcd servers, one or several that form a cluster, and how to look at them from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::certificates::{Certificates, ClientCertificate, Tls};
use super::daemon::{Daemon, Port, need};
use super::islands::Island;
use super::rendezvous::{CAP, boottime, eventually, eventually_within};

/// How long a server may take to answer one request of the test itself.
const ANSWER: Duration = Duration::from_secs(10);

/// The name and password with which the test looks at servers that want one.
const ROOT: (&str, &str) = ("root", "root of the tests");

/// A request that the test itself makes: where the JSON gateway has it, and what the server's metrics call it.
type Rpc = (&'static str, &'static str);
const RANGE: Rpc = ("/v3/kv/range", "Range");
const PUT: Rpc = ("/v3/kv/put", "Put");
const DELETE: Rpc = ("/v3/kv/deleterange", "DeleteRange");
const COMPACT: Rpc = ("/v3/kv/compaction", "Compact");
const GRANT: Rpc = ("/v3/lease/grant", "LeaseGrant");
const REVOKE: Rpc = ("/v3/lease/revoke", "LeaseRevoke");
const LEASES: Rpc = ("/v3/lease/leases", "LeaseLeases");
const TIME_TO_LIVE: Rpc = ("/v3/lease/timetolive", "LeaseTimeToLive");
const STATUS: Rpc = ("/v3/maintenance/status", "Status");
const AUTHENTICATE: Rpc = ("/v3/auth/authenticate", "Authenticate");
const WATCH: Rpc = ("/v3/watch", "Watch");

/// What an [`Etcd`] is made of.
pub struct EtcdOptions {
    pub members: usize,
    /// In milliseconds.
    pub heartbeat: u32,
    /// In milliseconds, at least five heartbeats. No lease is shorter than one and a half of these, in whole seconds:
    /// below 667 all that a client asks for is granted, with etcd's own default of 1000 at least 2 s are.
    pub election: u32,
    /// None for plain text.
    pub tls: Option<Tls>,
    /// More arguments for every member, which win over ours.
    pub args: Vec<String>,
    /// Where each member is; none for all on loopback.
    pub islands: Vec<Island>,
}

impl EtcdOptions {
    /// A server that starts in a tenth of a second.
    pub fn single() -> Self {
        Self { members: 1, heartbeat: 20, election: 200, tls: None, args: Vec::new(), islands: Vec::new() }
    }

    /// Three servers that find a new leader in about half a second, and do not look for one just because the machine is
    /// busy.
    pub fn cluster() -> Self {
        Self { members: 3, heartbeat: 60, election: 600, ..Self::single() }
    }
}

/// etcd on loopback: one server, or several that form a cluster; with an empty store, as an unprivileged user, gone at
/// the end of the test.
///
/// The test looks through a port of its own in plain text, whatever clients have to use. All methods take `&self`, so
/// that another thread may break the servers while the test goes on.
pub struct Etcd {
    members: Vec<Member>,
    options: EtcdOptions,
    certificates: Option<Certificates>,
    /// Whether the servers want a name and a password.
    guarded: Mutex<bool>,
}

/// One server of an [`Etcd`].
pub struct Member {
    name: String,
    pub(super) daemon: Daemon,
    /// For clients, with TLS where that is asked for.
    client: Port,
    peer: Port,
    /// For the test itself, without TLS.
    inside: Port,
    /// How often the test has asked this process what, by the names of the metrics.
    own: Mutex<BTreeMap<String, u64>>,
}

/// A key and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: String,
    /// The lease it is bound to, or 0.
    pub lease: i64,
    pub create_revision: i64,
    pub mod_revision: i64,
    /// 1 for a key that was put once.
    pub version: i64,
}

/// A lease that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: i64,
    /// Seconds that it has left, rounded down.
    pub left: i64,
    /// Seconds that it was granted for.
    pub granted: i64,
    pub keys: Vec<String>,
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

    /// What clients need for TLS. Fails the test when there is none.
    #[track_caller]
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("etcd was started without TLS")
    }

    /// Freezes all members.
    #[track_caller]
    pub fn stop(&self) {
        self.members.iter().for_each(Member::stop);
    }

    /// Lets all members that are frozen go on.
    #[track_caller]
    pub fn cont(&self) {
        self.members.iter().for_each(Member::cont);
    }

    /// Kills all members.
    pub fn kill(&self) {
        self.members.iter().for_each(Member::kill);
    }

    /// Kills all members that run, and starts all again on their ports with their data. Returns when they answer.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        self.launch_all();
    }

    /// Kills this member if it runs, and starts it again on its port with its data. Returns when it answers, which takes
    /// a majority.
    #[track_caller]
    pub fn restart_member(&self, index: usize) {
        self.members[index].kill();
        self.launch(&self.members[index]);
        self.members[index].wait_ready();
    }

    /// The index of the member that leads at this moment. Waits until one that is neither frozen nor killed does, and most
    /// of the others follow it.
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

    /// Waits until all members that are at work follow the same leader. False where they never do.
    pub fn wait_together(&self) -> bool {
        let together = || {
            let at_work: Vec<&Member> = self.members.iter().filter(|member| member.is_at_work()).collect();
            // Not to have one is to follow nobody.
            let leader = |member: &&Member| member.status().ok()?["leader"].as_str().map(str::to_owned);
            let leaders: BTreeSet<Option<String>> = at_work.iter().map(leader).collect();
            (leaders.len() == 1 && !leaders.contains(&None)).then_some(())
        };
        eventually_within(4 * CAP, together).is_some()
    }

    /// All keys that begin with `prefix`, the first created first.
    #[track_caller]
    pub fn keys(&self, prefix: &str) -> Vec<Entry> {
        let mut end = prefix.as_bytes().to_vec();
        // The next string that does not begin with it; without a prefix, all there are.
        match end.last_mut() {
            Some(last) => *last += 1,
            None => end.push(0),
        }
        let from = if prefix.is_empty() { b"\0" } else { prefix.as_bytes() };
        let answer = self.read(
            RANGE,
            &json!({"key": encode(from), "range_end": encode(&end), "sort_target": "CREATE", "sort_order": "ASCEND"}),
        );
        list(&answer["kvs"]).iter().map(entry).collect()
    }

    /// How many keys begin with `prefix`, which is not empty.
    #[track_caller]
    pub fn count(&self, prefix: &str) -> usize {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().expect("a prefix to count") += 1;
        let request = json!({"key": encode(prefix.as_bytes()), "range_end": encode(&end), "count_only": true});
        number(&self.post(RANGE, &request)["count"]).try_into().unwrap_or(0)
    }

    /// The key of exactly this name.
    #[track_caller]
    pub fn get(&self, key: &str) -> Option<Entry> {
        let answer = self.read(RANGE, &json!({"key": encode(key.as_bytes())}));
        list(&answer["kvs"]).first().map(entry)
    }

    /// The revision of the store.
    #[track_caller]
    pub fn revision(&self) -> i64 {
        number(&self.post(RANGE, &json!({"key": encode(b"\0")}))["header"]["revision"])
    }

    /// Puts a key, bound to a lease unless that is 0.
    #[track_caller]
    pub fn put(&self, key: &str, value: &str, lease: i64) {
        self.post(
            PUT,
            &json!({"key": encode(key.as_bytes()), "value": encode(value.as_bytes()), "lease": lease.to_string()}),
        );
    }

    /// Deletes a key; whether it was there.
    #[track_caller]
    pub fn delete(&self, key: &str) -> bool {
        number(&self.post(DELETE, &json!({"key": encode(key.as_bytes())}))["deleted"]) > 0
    }

    /// Grants a lease of so many seconds, which nobody renews.
    #[track_caller]
    pub fn grant(&self, seconds: i64) -> i64 {
        number(&self.post(GRANT, &json!({"TTL": seconds.to_string()}))["ID"])
    }

    #[track_caller]
    pub fn revoke(&self, lease: i64) {
        self.post(REVOKE, &json!({"ID": lease.to_string()}));
    }

    /// All leases.
    #[track_caller]
    pub fn leases(&self) -> Vec<Lease> {
        let leases = self.read(LEASES, &json!({}));
        list(&leases["leases"]).iter().filter_map(|lease| self.lease(number(&lease["ID"]))).collect()
    }

    /// What is known of a lease that has not ended.
    #[track_caller]
    pub fn lease(&self, id: i64) -> Option<Lease> {
        let answer = self.read(TIME_TO_LIVE, &json!({"ID": id.to_string(), "keys": true}));
        let keys = list(&answer["keys"]).iter().map(decode).collect();
        let lease = Lease { id, left: number(&answer["TTL"]), granted: number(&answer["grantedTTL"]), keys };
        (lease.left >= 0).then_some(lease)
    }

    /// Forgets what was before the present revision: whoever watches from earlier on is told so, and has to read again.
    #[track_caller]
    pub fn compact(&self) {
        let revision = self.revision();
        self.post(COMPACT, &json!({"revision": revision.to_string(), "physical": true}));
    }

    /// Demands a name and a password from now on, and makes a user who may do everything with the keys that begin with
    /// `prefix`, and nothing with others.
    #[track_caller]
    pub fn guard(&self, user: &str, password: &str, prefix: &str) {
        let root = format!("{}:{}", ROOT.0, ROOT.1);
        self.etcdctl(&["user", "add", &root]);
        self.etcdctl(&["user", "grant-role", ROOT.0, "root"]);
        self.etcdctl(&["user", "add", &format!("{user}:{password}")]);
        self.etcdctl(&["role", "add", "some"]);
        self.etcdctl(&["role", "grant-permission", "some", "readwrite", prefix, "--prefix"]);
        self.etcdctl(&["user", "grant-role", user, "some"]);
        self.etcdctl(&["auth", "enable"]);
        *self.guarded.lock().unwrap() = true;
    }

    /// What `etcdctl` prints when it is given these arguments. Fails the test when it fails.
    #[track_caller]
    pub fn etcdctl(&self, args: &[&str]) -> String {
        let output = self.etcdctl_command().args(args).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "etcdctl {args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// `etcdctl` as the administrator, ready for its arguments.
    #[track_caller]
    pub fn etcdctl_command(&self) -> Command {
        let mut command = Command::new(need("etcdctl", "etcd-client"));
        let hosts: Vec<String> = self.members.iter().map(Member::inside_url).collect();
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", hosts.join(","));
        if self.is_guarded() {
            command.env("ETCDCTL_USER", format!("{}:{}", ROOT.0, ROOT.1));
        }
        command
    }

    /// Counts what others than [`Etcd`] itself ask, from now on. Members must not be restarted meanwhile.
    #[track_caller]
    pub fn count_requests(&self) -> RequestCount<'_> {
        RequestCount { etcd: self, before: self.requests_by_others() }
    }

    /// The sum over all members at work of what this metric says, one that has no labels.
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let value = |member: &Member| {
            // Large ones are written as `1.234e+06`.
            let line = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok();
            let value = member.metrics().lines().find_map(line).unwrap_or(0.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let value = value as u64;
            value
        };
        self.members.iter().filter(|member| member.is_at_work()).map(value).sum()
    }

    /// How many bytes the members at work have sent to clients, but for the answers to the test itself that say so.
    #[track_caller]
    pub fn sent(&self) -> u64 {
        self.metric("etcd_network_client_grpc_sent_bytes_total")
    }

    /// Watches the keys that begin with `prefix`, from now on.
    #[track_caller]
    pub fn watch(&self, prefix: &str) -> Watch {
        let member = self.any_member();
        let token = self.token(member);
        member.watch(prefix, token.as_deref())
    }

    fn is_guarded(&self) -> bool {
        *self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who answers the test: somebody who can.
    #[track_caller]
    fn any_member(&self) -> &Member {
        self.members.iter().find(|member| member.is_at_work()).expect("no member of etcd is at work")
    }

    /// What the JSON gateway answers. A request that is refused or not answered fails the test.
    #[track_caller]
    fn post(&self, rpc: Rpc, request: &Value) -> Value {
        let member = self.any_member();
        let token = self.token(member);
        let answer = member.post(rpc, request, token.as_deref());
        answer.unwrap_or_else(|error| panic!("{} {request}: {error}\n{}", rpc.0, member.log()))
    }

    /// The same for what changes nothing: it is asked again where it fails, as it does while the members look for a leader.
    #[track_caller]
    fn read(&self, rpc: Rpc, request: &Value) -> Value {
        eventually(&format!("an answer of etcd to {} {request}", rpc.0), || {
            let member = self.any_member();
            let token = self.token(member);
            member.post(rpc, request, token.as_deref()).ok()
        })
    }

    /// A proof that we are the administrator, where the servers want one.
    #[track_caller]
    fn token(&self, member: &Member) -> Option<String> {
        self.is_guarded().then(|| {
            let answer = member.post(AUTHENTICATE, &json!({"name": ROOT.0, "password": ROOT.1}), None).unwrap();
            answer["token"].as_str().expect("etcd gives a token").to_owned()
        })
    }

    /// How often others have asked what, by the names of the metrics, since the members were started.
    #[track_caller]
    fn requests_by_others(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for member in self.members.iter().filter(|member| member.is_at_work()) {
            // Those first: a request of ours in between would be missed otherwise.
            let own = member.own.lock().unwrap().clone();
            for (method, count) in member.requests() {
                *sums.entry(method.clone()).or_default() +=
                    count.saturating_sub(own.get(&method).copied().unwrap_or(0));
            }
        }
        sums
    }

    #[track_caller]
    fn launch_all(&self) {
        // All first: a member of a cluster is not ready before most of them are.
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
        // What a process has written outlives its being killed without that, and no test takes away the power.
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
        // Its options can be variables too.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        member.own.lock().unwrap().clear();
        member.daemon.launch(command);
    }
}

impl Member {
    /// Where clients reach it.
    pub fn port(&self) -> u16 {
        self.client.number()
    }

    /// Where the other members reach it.
    pub fn peer_port(&self) -> u16 {
        self.peer.number()
    }

    /// Its process. Fails the test when it is not running.
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// The address of it.
    pub fn host(&self) -> Ipv4Addr {
        self.daemon.host()
    }

    /// Has the test ask others, as long as this one is cut off from them and cannot know.
    pub fn set_aside(&self, aside: bool) {
        self.daemon.set_aside(aside);
    }

    /// Whether it has been started and neither killed, frozen nor set aside since.
    pub fn is_at_work(&self) -> bool {
        self.daemon.is_at_work()
    }

    /// Freezes it: connections are still accepted by the kernel, and nothing is answered. Returns when it stands still.
    #[track_caller]
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Lets it go on when it is frozen.
    #[track_caller]
    pub fn cont(&self) {
        self.daemon.cont();
    }

    /// Kills it, frozen or not. Returns when it is gone; connecting is refused from then on.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Where the server is for the test itself.
    fn inside_url(&self) -> String {
        format!("http://{}:{}", self.host(), self.inside.number())
    }

    fn peer_url(&self) -> String {
        format!("http://{}:{}", self.host(), self.peer_port())
    }

    #[track_caller]
    fn wait_ready(&self) {
        self.daemon.wait_ready(|| {
            let (_, body) = self.http("GET", "/health", "", None).ok()?;
            body.contains(r#""health":"true""#).then_some(())
        });
    }

    fn status(&self) -> io::Result<Value> {
        self.post(STATUS, &json!({}), None)
    }

    /// Every message that clients have sent, by the method's name; each heartbeat of a lease is one.
    #[track_caller]
    fn requests(&self) -> BTreeMap<String, u64> {
        let text = self.metrics();
        let counter = |line: &str| {
            let labels = line.strip_prefix("grpc_server_msg_received_total{")?;
            let method = labels.split_once(r#"grpc_method=""#)?.1.split_once('"')?.0;
            let count: u64 = line.rsplit_once(' ')?.1.parse().ok()?;
            (count > 0).then(|| (method.to_owned(), count))
        };
        text.lines().filter_map(counter).collect()
    }

    #[track_caller]
    fn metrics(&self) -> String {
        let (status, text) = self.http("GET", "/metrics", "", None).unwrap();
        assert_eq!(status, 200, "{text}");
        text
    }

    fn post(&self, rpc: Rpc, request: &Value, token: Option<&str>) -> io::Result<Value> {
        let (path, method) = rpc;
        *self.own.lock().unwrap_or_else(PoisonError::into_inner).entry(method.to_owned()).or_default() += 1;
        let (status, body) = self.http("POST", path, &request.to_string(), token)?;
        if status != 200 {
            return Err(io::Error::other(format!("{status} {body}")));
        }
        serde_json::from_str(&body).map_err(io::Error::other)
    }

    /// One request and its answer: the status code and the body.
    fn http(&self, method: &str, path: &str, body: &str, token: Option<&str>) -> io::Result<(u16, String)> {
        let mut stream = self.send(method, path, body, token)?;
        let status = read_head(&mut stream)?;
        let mut body = String::new();
        stream.read_to_string(&mut body)?;
        Ok((status, body))
    }

    fn send(&self, method: &str, path: &str, body: &str, token: Option<&str>) -> io::Result<BufReader<TcpStream>> {
        let address = SocketAddr::from((self.host(), self.inside.number()));
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        // In this version of HTTP the answer is as it is, and ends with the connection.
        let head = format!("{method} {path} HTTP/1.0\r\n{token}Content-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes())?;
        Ok(BufReader::new(stream))
    }

    #[track_caller]
    fn watch(&self, prefix: &str, token: Option<&str>) -> Watch {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().expect("a prefix to watch") += 1;
        let request = json!({"create_request": {"key": encode(prefix.as_bytes()), "range_end": encode(&end)}});
        *self.own.lock().unwrap().entry(WATCH.1.to_owned()).or_default() += 1;
        let mut answers = self.send("POST", WATCH.0, &request.to_string(), token).unwrap();
        assert_eq!(read_head(&mut answers).unwrap(), 200);
        let mut created = String::new();
        answers.read_line(&mut created).unwrap();
        assert!(created.contains(r#""created":true"#), "etcd does not watch: {created}");
        let stream = answers.get_ref().try_clone().unwrap();
        stream.set_read_timeout(None).unwrap();
        let events = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let shared = Arc::clone(&events);
        thread::spawn(move || {
            for line in answers.lines().map_while(Result::ok) {
                let at = boottime();
                let answer: Value = serde_json::from_str(&line).unwrap_or_default();
                let seen = list(&answer["result"]["events"]).iter().map(|event| event_at(at, event));
                shared.0.lock().unwrap().extend(seen);
                shared.1.notify_all();
            }
        });
        Watch { events, stream }
    }
}

/// What others ask an [`Etcd`] from a moment on.
pub struct RequestCount<'a> {
    etcd: &'a Etcd,
    before: BTreeMap<String, u64>,
}

impl RequestCount<'_> {
    /// How often others have asked what up to now, by the method's name (`Range`, `Txn`, `Watch`, `LeaseGrant` …). What
    /// goes through a stream is counted by the message: each `LeaseKeepAlive` is one heartbeat, each `Watch` one watch
    /// made or cancelled. All that has been answered is in it.
    #[track_caller]
    pub fn so_far(&self) -> BTreeMap<String, u64> {
        let mut after = self.etcd.requests_by_others();
        for (method, count) in &mut after {
            *count -= self.before.get(method).copied().unwrap_or(0);
        }
        after.retain(|_, count| *count > 0);
        after
    }

    /// How many requests these were, heartbeats apart.
    #[track_caller]
    pub fn without_heartbeats(&self) -> u64 {
        self.so_far().iter().filter(|(method, _)| *method != "LeaseKeepAlive").map(|(_, count)| count).sum()
    }
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When we were told, by [`boottime`]: never before it happened.
    pub at: Duration,
    pub key: String,
    /// What was put, or none for the end of the key, also by the end of its lease.
    pub value: Option<String>,
    pub revision: i64,
}

/// What happens to some keys, by the server's own account.
pub struct Watch {
    events: Arc<(Mutex<Vec<Event>>, Condvar)>,
    /// Of our own connection, to end the thread.
    stream: TcpStream,
}

impl Watch {
    /// All that we have been told up to now.
    pub fn so_far(&self) -> Vec<Event> {
        self.events.0.lock().unwrap().clone()
    }

    /// Waits for the first event that is `wanted`, or has it been one already.
    #[track_caller]
    pub fn wait(&self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let (events, changed) = &*self.events;
        let missing = |seen: &mut Vec<Event>| !seen.iter().any(&wanted);
        let (seen, _) = changed.wait_timeout_while(events.lock().unwrap(), CAP, missing).unwrap();
        let found = seen.iter().find(|event| wanted(event)).cloned();
        found.unwrap_or_else(|| panic!("waited {CAP:?} in vain for {what}: {seen:?}"))
    }

    /// Waits for the end of `key`.
    #[track_caller]
    pub fn wait_deleted(&self, key: &str) -> Event {
        self.wait(&format!("the end of {key}"), |event| event.key == key && event.value.is_none())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Whether this is the status of a member that leads.
fn leads(status: &Value) -> bool {
    status["leader"] == status["header"]["member_id"]
}

fn entry(kv: &Value) -> Entry {
    Entry {
        key: decode(&kv["key"]),
        value: decode(&kv["value"]),
        lease: number(&kv["lease"]),
        create_revision: number(&kv["create_revision"]),
        mod_revision: number(&kv["mod_revision"]),
        version: number(&kv["version"]),
    }
}

fn event_at(at: Duration, event: &Value) -> Event {
    // What is not said is a put.
    let deleted = event["type"] == "DELETE";
    let entry = entry(&event["kv"]);
    Event { at, key: entry.key, value: (!deleted).then_some(entry.value), revision: entry.mod_revision }
}

/// Reads the head of an answer, and its status code.
fn read_head(stream: &mut impl BufRead) -> io::Result<u16> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("not HTTP: {line:?}")))?;
    while !line.trim().is_empty() {
        line.clear();
        stream.read_line(&mut line)?;
    }
    Ok(status)
}

/// The items of an array; none where an empty one is left out.
fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A 64-bit integer, which JSON has as text; 0 where it is left out.
fn number(value: &Value) -> i64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

/// Base64, which the gateway wants for keys and values.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, index| bits << 8 | usize::from(*group.get(index).unwrap_or(&0)));
        for place in 0..4 {
            text.push(if place <= group.len() { char::from(BASE64[bits >> (18 - 6 * place) & 63]) } else { '=' });
        }
    }
    text
}

/// The text that a value in base64 stands for.
fn decode(value: &Value) -> String {
    let digits = value.as_str().unwrap_or_default().bytes().filter(|&byte| byte != b'=');
    let (mut bytes, mut bits, mut length) = (Vec::new(), 0, 0);
    for digit in digits {
        let digit = BASE64.iter().position(|&byte| byte == digit).expect("etcd answers in base64");
        (bits, length) = (bits << 6 | digit, length + 6);
        if length >= 8 {
            length -= 8;
            bytes.push(u8::try_from(bits >> length & 255).unwrap());
            bits &= (1 << length) - 1;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
