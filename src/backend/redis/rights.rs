/*!
The rights that a user needs at a server, as `ACL SETUSER` takes them: for advice to users who lack some.
*/

use crate::backend::Claim;

/// What dlock asks of a single server.
pub(super) const SINGLE: &str = "+eval +blpop +type +getrange +pttl +pexpire +time +zrem +hdel +del +zrange +hget +hset \
                                 +exists +lpush +get +set +zscore +zrevrange +zadd +zrank";
/// What dlock asks of each of several servers.
pub(in crate::backend) const MAJORITY: &str = "+eval +type +getrange +pttl +pexpire +time +del +get +set";
/// What dlock asks of a sentinel.
pub(super) const SENTINEL: &str = "+sentinel";

/// The rights that a user needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct Rights {
    /// The patterns of the keys; empty where there are none.
    patterns: String,
    /// The commands.
    commands: String,
}

impl Rights {
    /// The rights for these commands, which use no keys.
    #[must_use]
    pub(super) fn without_keys(commands: &str) -> Self {
        Self { patterns: String::new(), commands: commands.to_owned() }
    }

    /// The rights for these commands on all locks in the namespace of `claim`.
    #[must_use]
    pub(in crate::backend) fn for_locks(claim: &Claim, commands: &str) -> Self {
        let lock = claim.namespace.join(':', &claim.key);
        let prefix = lock.strip_suffix(&claim.key.encoded()).unwrap_or_default();
        let mut pattern = String::new();
        for character in prefix.chars() {
            if "*?[]\\".contains(character) {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        let patterns = if pattern.is_empty() { "~*".to_owned() } else { format!("~{pattern}* ~{{{pattern}*") };
        Self { patterns, commands: commands.to_owned() }
    }

    /// These rights and those for further `commands`.
    #[must_use]
    pub(in crate::backend) fn and(self, commands: &str) -> Self {
        Self { commands: format!("{} {commands}", self.commands), ..self }
    }

    /// What to grant to `user`, who lacks the right to a key if `keys` says so, and otherwise to a command. Redis
    /// refuses patterns for a user that may use all keys already.
    #[must_use]
    pub(super) fn advice(&self, user: &str, keys: bool) -> String {
        let Self { patterns, commands } = self;
        match () {
            () if patterns.is_empty() => format!("ACL SETUSER {user} {commands}"),
            () if keys => format!("ACL SETUSER {user} {patterns} {commands}"),
            () => format!("ACL SETUSER {user} {commands}, on the keys {patterns}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::time::Duration;

    use super::*;
    use crate::holder::{About, Owner};
    use crate::key::{Key, Namespace};

    #[test]
    fn the_patterns_are_those_of_the_namespace() {
        for (namespace, patterns) in [
            ("dlock", "~dlock:* ~{dlock:*"),
            ("a:b", "~a:b:* ~{a:b:*"),
            ("", "~*"),
            ("a*[b]?\\", "~a\\*\\[b\\]\\?\\\\:* ~{a\\*\\[b\\]\\?\\\\:*"),
        ] {
            let claim = Claim {
                key: Key::parse(OsStr::new("job/x")).expect("valid"),
                namespace: Namespace::parse(namespace).expect("valid"),
                owner: Owner::random().expect("random"),
                ttl: Duration::from_secs(30),
                min_hold: Duration::ZERO,
                about: About::default(),
            };
            let rights = Rights::for_locks(&claim, MAJORITY).and("+select");
            let commands = format!("{MAJORITY} +select");
            assert_eq!(rights.advice("u", true), format!("ACL SETUSER u {patterns} {commands}"));
            assert_eq!(rights.advice("u", false), format!("ACL SETUSER u {commands}, on the keys {patterns}"));
        }
        assert_eq!(Rights::without_keys(SENTINEL).advice("u", false), "ACL SETUSER u +sentinel");
    }
}
