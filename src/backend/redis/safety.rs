/*!
Settings of a server that make its locks unsafe.
*/

use ::redis::{Cmd, Value};

use crate::backend::redis::answers::text_of;
use crate::printable::shown;

/// Returns the commands that ask a server for settings that make locks unsafe; sent once, in the round trip of the
/// first attempt.
pub(in crate::backend) fn inspection() -> Vec<Cmd> {
    let mut limits = ::redis::cmd("CONFIG");
    limits.arg("GET").arg("maxmemory*");
    vec![limits, ::redis::cmd("ROLE")]
}

/// Returns the warnings that follow from the answers to [`inspection`]; none if the server refuses to answer.
pub(in crate::backend) fn warnings(answers: &[Value]) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(Value::Array(fields)) = answers.first() {
        let field = |name: &str| {
            fields.chunks_exact(2).find_map(|pair| (text_of(&pair[0])? == name).then(|| text_of(&pair[1])).flatten())
        };
        if let (Some(policy), Some(limit)) = (field("maxmemory-policy"), field("maxmemory"))
            && policy != "noeviction"
            && limit != "0"
        {
            let policy = shown(policy.as_bytes()).to_string();
            warnings.push(format!(
                "the server's maxmemory-policy is {policy}: it may evict locks when memory runs short; use noeviction"
            ));
        }
    }
    if let Some(Value::Array(role)) = answers.get(1)
        && role.first().and_then(text_of) == Some("slave")
    {
        warnings.push("the server is a replica, whose master knows nothing of its locks: name the master".to_owned());
    }
    warnings
}
