//! Watching keys of an etcd: changes as they happen.

use std::io::BufRead;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::rendezvous::{CAP, boottime};

use super::content::entry;
use super::json::{WATCH, encode, list, read_head};
use super::{Etcd, Member};

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When the test was told, by [`boottime`]: never before it happened.
    pub at: Duration,
    pub key: String,
    /// The new value, or none if the key was deleted or its lease ended.
    pub value: Option<String>,
    pub revision: i64,
}

/// The changes of some keys, as the server reports them.
pub struct Watch {
    events: Arc<(Mutex<Vec<Event>>, Condvar)>,
    /// The test's own connection, to end the thread.
    stream: TcpStream,
}

impl Watch {
    /// All changes reported up to now.
    pub fn so_far(&self) -> Vec<Event> {
        self.events.0.lock().unwrap().clone()
    }

    /// Waits for the first change that is `wanted`, which may have come already.
    #[track_caller]
    pub fn wait(&self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let (events, changed) = &*self.events;
        let missing = |seen: &mut Vec<Event>| !seen.iter().any(&wanted);
        let (seen, _) = changed.wait_timeout_while(events.lock().unwrap(), CAP, missing).unwrap();
        let found = seen.iter().find(|event| wanted(event)).cloned();
        found.unwrap_or_else(|| panic!("timed out after {CAP:?} waiting for {what}: {seen:?}"))
    }

    /// Waits until `key` is deleted.
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
impl Etcd {
    /// Watches the keys that begin with `prefix`, from now on.
    #[track_caller]
    pub fn watch(&self, prefix: &str) -> Watch {
        let member = self.any_member();
        let token = self.token(member);
        member.watch(prefix, token.as_deref())
    }
}

impl Member {
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

fn event_at(at: Duration, event: &Value) -> Event {
    // A put is not named as such.
    let deleted = event["type"] == "DELETE";
    let entry = entry(&event["kv"]);
    Event { at, key: entry.key, value: (!deleted).then_some(entry.value), revision: entry.mod_revision }
}
