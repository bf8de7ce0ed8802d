//! What is in an etcd, as the test sees it: keys, leases and users, and how to change them.

use std::process::{Command, Stdio};
use std::sync::PoisonError;

use serde_json::{Value, json};

use crate::support::daemon::{Daemon, need};
use crate::support::pool::{Servers, is_connected_to};
use crate::support::rendezvous::eventually;

use super::json::{
    ALARMS, AUTHENTICATE, COMPACT, DELETE, GRANT, LEASES, MEMBERS, PUT, RANGE, REVOKE, ROLES, Rpc, TIME_TO_LIVE, USERS,
    decode, encode, list, number,
};
use super::{Etcd, Member};

/// The name and password that the test uses on servers that require one.
const ROOT: (&str, &str) = ("root", "root of the tests");
/// A key and its metadata.
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
    /// The seconds that it was granted for.
    pub granted: i64,
    pub keys: Vec<String>,
}
impl Etcd {
    /// All keys that begin with `prefix`, in the order of creation.
    #[track_caller]
    pub fn keys(&self, prefix: &str) -> Vec<Entry> {
        let mut end = prefix.as_bytes().to_vec();
        // The next string that does not begin with it; without a prefix, all keys.
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

    /// The present revision of the store.
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

    /// Deletes a key; returns whether it existed.
    #[track_caller]
    pub fn delete(&self, key: &str) -> bool {
        number(&self.post(DELETE, &json!({"key": encode(key.as_bytes())}))["deleted"]) > 0
    }

    /// Grants a lease of this many seconds, which nobody renews.
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

    /// A lease that has not ended; none if it has.
    #[track_caller]
    pub fn lease(&self, id: i64) -> Option<Lease> {
        let answer = self.read(TIME_TO_LIVE, &json!({"ID": id.to_string(), "keys": true}));
        let keys = list(&answer["keys"]).iter().map(decode).collect();
        let lease = Lease { id, left: number(&answer["TTL"]), granted: number(&answer["grantedTTL"]), keys };
        (lease.left >= 0).then_some(lease)
    }

    /// Compacts the store: a watch from an earlier revision is told so, and has to read again.
    #[track_caller]
    pub fn compact(&self) {
        let revision = self.revision();
        self.post(COMPACT, &json!({"revision": revision.to_string(), "physical": true}));
    }

    /// Requires a name and a password from now on, and creates a user who may do everything with keys that begin with
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

    /// The output of `etcdctl` with these arguments. Fails the test if it fails.
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
        let hosts: Vec<String> = self.members().iter().map(Member::inside_url).collect();
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", hosts.join(","));
        if self.is_guarded() {
            command.env("ETCDCTL_USER", format!("{}:{}", ROOT.0, ROOT.1));
        }
        command
    }

    fn is_guarded(&self) -> bool {
        *self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member that can answer the test.
    #[track_caller]
    pub(super) fn any_member(&self) -> &Member {
        self.at_work().next().expect("no member of etcd is at work").1
    }

    /// The JSON gateway's answer. A request that is refused or not answered fails the test.
    #[track_caller]
    fn post(&self, rpc: Rpc, request: &Value) -> Value {
        let member = self.any_member();
        let token = self.token(member);
        let answer = member.post(rpc, request, token.as_deref());
        answer.unwrap_or_else(|error| panic!("{} {request}: {error}\n{}", rpc.0, member.log()))
    }

    /// The JSON gateway's answer to a request that changes nothing: it is repeated if it fails, as it does during an
    /// election.
    #[track_caller]
    fn read(&self, rpc: Rpc, request: &Value) -> Value {
        eventually(&format!("an answer of etcd to {} {request}", rpc.0), || {
            let member = self.any_member();
            let token = self.token(member);
            member.post(rpc, request, token.as_deref()).ok()
        })
    }

    /// The administrator's token, if the servers require one.
    #[track_caller]
    pub(super) fn token(&self, member: &Member) -> Option<String> {
        self.is_guarded().then(|| {
            let answer = member.post(AUTHENTICATE, &json!({"name": ROOT.0, "password": ROOT.1}), None).unwrap();
            answer["token"].as_str().expect("etcd gives a token").to_owned()
        })
    }
}

pub(super) fn entry(kv: &Value) -> Entry {
    Entry {
        key: decode(&kv["key"]),
        value: decode(&kv["value"]),
        lease: number(&kv["lease"]),
        create_revision: number(&kv["create_revision"]),
        mod_revision: number(&kv["mod_revision"]),
        version: number(&kv["version"]),
    }
}

impl Servers for Etcd {
    fn daemons(&self) -> Vec<&Daemon> {
        self.members().iter().map(|member| &**member).collect()
    }

    /// Each member is a client of itself.
    fn has_clients(&self) -> bool {
        let daemons = self.daemons();
        self.members().iter().any(|member| is_connected_to(member.port(), &daemons))
    }

    fn clear(&self) {
        let all = encode(b"\0");
        self.post(DELETE, &json!({"key": all, "range_end": all}));
        self.leases().into_iter().for_each(|lease| self.revoke(lease.id));
    }

    fn state(&self) -> String {
        let mut state = format!("{} {:?} {:?}", self.is_guarded(), self.keys(""), self.leases());
        for rpc in [USERS, ROLES, MEMBERS, ALARMS] {
            let mut answer = self.read(rpc, &json!({}));
            // How often the store was changed, and who has answered.
            answer["header"].take();
            state += &answer.to_string();
        }
        state
    }
}
