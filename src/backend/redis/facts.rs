/*!
The facts that a redis server reports about itself, and the findings for its locks.
*/

use std::collections::BTreeMap;

use ::redis::{Cmd, Value};

use crate::backend::contract::probing::{Finding, counted, version};
use crate::backend::error::ErrorKind;
use crate::backend::redis::answers::text_of;
use crate::backend::redis::raw::request;
use crate::printable::shown;

/// The oldest major version of redis that dlock accepts.
const OLDEST: u64 = 6;
/// The rights that a check needs in addition to those of runs.
pub(in crate::backend) const CHECK: &str = "+info +role +config|get";

/// The facts that a server reported; a fact that it refused to report is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct Facts {
    /// Its time in milliseconds since 1970.
    pub now: Option<u64>,
    /// Its role, and the number of its replicas.
    role: Option<(String, usize)>,
    /// The fields of INFO.
    info: BTreeMap<String, String>,
    /// The settings from CONFIG GET.
    config: BTreeMap<String, String>,
}

/// Returns the request that every user may make, and those that need rights of their own.
pub(in crate::backend) fn questions() -> (Cmd, Vec<Cmd>) {
    let ask = |words: &[&str]| request(words);
    let also =
        [ask(&["ROLE"]), ask(&["INFO"]), ask(&["CONFIG", "GET", "maxmemory*"]), ask(&["CONFIG", "GET", "append*"])];
    (ask(&["TIME"]), also.to_vec())
}

/// Reads the answers to [`questions`].
pub(in crate::backend) fn facts(time: &Value, also: &[Value]) -> Facts {
    let list = |value: Option<&Value>| -> Vec<String> {
        let Some(Value::Array(list)) = value else { return Vec::new() };
        list.iter().map(|value| text_of(value).unwrap_or_default().to_owned()).collect()
    };
    let role = match also.first() {
        Some(Value::Array(role)) => role.first().and_then(text_of).map(|name| {
            let replicas = if let Some(Value::Array(replicas)) = role.get(2) { replicas.len() } else { 0 };
            (name.to_owned(), replicas)
        }),
        _ => None,
    };
    let info = also.get(1).and_then(text_of).unwrap_or_default();
    let info = info.lines().filter_map(|line| line.trim().split_once(':'));
    let config = [list(also.get(2)), list(also.get(3))].concat();
    let now = match list(Some(time)).as_slice() {
        [seconds, micros] => seconds.parse::<u64>().ok().zip(micros.parse::<u64>().ok()),
        _ => None,
    };
    Facts {
        now: now.map(|(seconds, micros)| seconds.saturating_mul(1000).saturating_add(micros / 1000)),
        role,
        info: info.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        config: config.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
    }
}

/// The requirements for replicas and persistence.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::backend) struct Demand {
    /// Number of replicas that must confirm every grant.
    pub replicas: u32,
    /// `true` if servers that could forget a fencing counter are refused.
    pub strict: bool,
    /// `true` if it is one of several servers that vote: the others remember what this one forgets.
    pub votes: bool,
}

impl Facts {
    /// Returns the id of the server, the same under all its names.
    pub(in crate::backend) fn run_id(&self) -> Option<&str> {
        self.info.get("run_id").map(String::as_str).filter(|id| !id.is_empty())
    }

    /// Returns the findings about the server.
    pub(in crate::backend) fn findings(&self, demand: Demand) -> Vec<Finding> {
        vec![self.version(), self.role(), self.eviction(), self.persistence(demand), self.replicas(demand)]
    }

    fn version(&self) -> Finding {
        let told = ["valkey_version", "redis_version"].into_iter().find_map(|name| Some((name, self.info.get(name)?)));
        let Some((name, told)) = told else { return untold("version", "INFO") };
        let product = name.trim_end_matches("_version");
        let text = format!("{product} {}", shown(told.as_bytes()));
        match version(told).first() {
            Some(first) if *first < OLDEST => {
                let remedy = format!("use version {OLDEST} or newer");
                Finding::fail("version", ErrorKind::Unusable, format!("{text} is too old"), remedy)
            }
            _ => Finding::ok("version", text),
        }
    }

    fn role(&self) -> Finding {
        let said = self.role.as_ref().map(|(name, _)| name.as_str());
        let Some(role) = said.or_else(|| self.info.get("role").map(String::as_str)) else {
            return untold("role", "ROLE");
        };
        if self.info.get("loading").is_some_and(|loading| loading == "1") {
            let text = "the server is still loading its data";
            return Finding::fail("role", ErrorKind::Unavailable, text, "wait until it is done");
        }
        match role {
            "master" => Finding::ok("role", "master"),
            "slave" => {
                let text = "it is a replica, whose master knows nothing of its locks";
                Finding::fail("role", ErrorKind::Unavailable, text, "name the master")
            }
            other => {
                let text = format!("it is a {}, and keeps no locks", shown(other.as_bytes()));
                Finding::fail("role", ErrorKind::Unavailable, text, "name the server itself")
            }
        }
    }

    fn eviction(&self) -> Finding {
        let told = |config: &str, info: &str| self.config.get(config).or_else(|| self.info.get(info));
        let (limit, policy) = (told("maxmemory", "maxmemory"), told("maxmemory-policy", "maxmemory_policy"));
        let (Some(limit), Some(policy)) = (limit, policy) else { return untold("eviction", "CONFIG GET") };
        if policy == "noeviction" {
            return Finding::ok("eviction", "maxmemory-policy is noeviction");
        }
        let policy = shown(policy.as_bytes());
        if limit == "0" {
            return Finding::ok("eviction", format!("maxmemory-policy is {policy}, and there is no maxmemory"));
        }
        let text = format!("maxmemory-policy is {policy}: locks may be evicted when memory runs short");
        Finding::warn("eviction", text, "set maxmemory-policy noeviction")
    }

    fn persistence(&self, demand: Demand) -> Finding {
        let of_info = self.info.get("aof_enabled").map(|on| if on == "1" { "yes" } else { "no" });
        let Some(appends) = self.config.get("appendonly").map(String::as_str).or(of_info) else {
            return untold("persistence", "CONFIG GET");
        };
        let syncs = self.config.get("appendfsync").map(String::as_str);
        let verdict = |text: String, remedy: &str| {
            if demand.strict {
                Finding::fail("persistence", ErrorKind::Unusable, text, "set appendonly yes and appendfsync always")
            } else {
                Finding::warn("persistence", text, remedy)
            }
        };
        match (appends, syncs) {
            ("yes", Some("always")) => Finding::ok("persistence", "appendonly is yes, appendfsync is always"),
            ("yes", Some("everysec")) if !demand.strict => {
                let text = "appendonly is yes, appendfsync is everysec: a crash of its machine loses the last second";
                Finding::ok("persistence", text)
            }
            ("yes", Some(other)) => {
                let text =
                    format!("appendfsync is {}: locks may be lost when its machine crashes", shown(other.as_bytes()));
                verdict(text, "set appendfsync everysec, or always")
            }
            ("yes", None) if !demand.strict => Finding::ok("persistence", "appendonly is yes"),
            ("yes", None) => verdict("appendfsync is unknown".to_owned(), ""),
            _ if demand.votes => {
                let text = "appendonly is off: its votes are lost when the server restarts";
                verdict(text.to_owned(), "set appendonly yes, or restart it after a ttl at the earliest")
            }
            _ => {
                let text = "appendonly is off: locks are lost when the server restarts";
                verdict(text.to_owned(), "set appendonly yes, or use etcd")
            }
        }
    }

    fn replicas(&self, demand: Demand) -> Finding {
        let of_info = || self.info.get("connected_slaves")?.parse().ok();
        let Some(count) = self.role.as_ref().map(|(_, count)| *count).or_else(of_info) else {
            return untold("replicas", "ROLE");
        };
        let (wanted, have) = (demand.replicas as usize, counted(count, "replica"));
        match count {
            _ if count < wanted => {
                let text = format!("{have}, and --replicas asks for {wanted}");
                Finding::fail("replicas", ErrorKind::Unavailable, text, "start them, or ask for fewer")
            }
            _ if wanted > 0 => Finding::ok("replicas", format!("{have}, and grants wait for {wanted}")),
            0 => Finding::ok("replicas", "none"),
            _ => {
                let text = format!("{have} that no grant waits for: a failover may lose locks");
                let remedy =
                    if demand.votes { "do without them: other servers vote already" } else { "give --replicas 1" };
                Finding::warn("replicas", text, remedy)
            }
        }
    }
}

/// Returns the finding for a `probe` whose `commands` the user may not run.
fn untold(probe: &'static str, commands: &str) -> Finding {
    let text = format!("{commands} is not allowed");
    Finding::skip(probe, text, format!("allow it for this user ({CHECK}), or look at the server"))
}

#[cfg(test)]
mod tests;
