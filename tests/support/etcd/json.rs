//! etcd's JSON gateway: the requests that it takes, and how it encodes its answers.

use std::io::{self, BufRead};

use serde_json::Value;

/// A request that the test itself makes: its path at the JSON gateway, and its name in the server's metrics.
pub(super) type Rpc = (&'static str, &'static str);
pub(super) const RANGE: Rpc = ("/v3/kv/range", "Range");
pub(super) const PUT: Rpc = ("/v3/kv/put", "Put");
pub(super) const DELETE: Rpc = ("/v3/kv/deleterange", "DeleteRange");
pub(super) const COMPACT: Rpc = ("/v3/kv/compaction", "Compact");
pub(super) const GRANT: Rpc = ("/v3/lease/grant", "LeaseGrant");
pub(super) const REVOKE: Rpc = ("/v3/lease/revoke", "LeaseRevoke");
pub(super) const LEASES: Rpc = ("/v3/lease/leases", "LeaseLeases");
pub(super) const TIME_TO_LIVE: Rpc = ("/v3/lease/timetolive", "LeaseTimeToLive");
pub(super) const STATUS: Rpc = ("/v3/maintenance/status", "Status");
pub(super) const AUTHENTICATE: Rpc = ("/v3/auth/authenticate", "Authenticate");
pub(super) const USERS: Rpc = ("/v3/auth/user/list", "UserList");
pub(super) const ROLES: Rpc = ("/v3/auth/role/list", "RoleList");
pub(super) const MEMBERS: Rpc = ("/v3/cluster/member/list", "MemberList");
pub(super) const ALARMS: Rpc = ("/v3/maintenance/alarm", "Alarm");
pub(super) const WATCH: Rpc = ("/v3/watch", "Watch");

/// Reads the head of an answer, and returns its status code.
pub(super) fn read_head(stream: &mut impl BufRead) -> io::Result<u16> {
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

/// The items of an array; empty if it is left out.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A 64-bit integer, which JSON has as text; 0 if it is left out.
pub(super) fn number(value: &Value) -> i64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

/// Base64, as the gateway wants keys and values.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, index| bits << 8 | usize::from(*group.get(index).unwrap_or(&0)));
        for place in 0..4 {
            text.push(if place <= group.len() { char::from(BASE64[bits >> (18 - 6 * place) & 63]) } else { '=' });
        }
    }
    text
}

/// The text of a value in base64.
pub(super) fn decode(value: &Value) -> String {
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
