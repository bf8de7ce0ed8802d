/*!
The rights that a user needs at a server, in the syntax of `ACL SETUSER`, for advice to users who lack some.
*/

use crate::backend::contract::claim::Claim;
use crate::key::Namespace;

/// The commands that locks, latches and barriers use on a single server.
pub(super) const SINGLE: &str = "+eval +evalsha +blpop +type +getrange +pttl +pexpire +time +zrem +hdel +del +zrange +hget \
                                 +hset +exists +lpush +get +set +zscore +zrevrange +zadd +zrank +zcard \
                                 +zrangebyscore +hvals +hgetall";
/// The commands that locks and latches use on each of several servers.
pub(in crate::backend) const MAJORITY: &str = "+eval +evalsha +blpop +type +getrange +pttl +pexpire +time +del +lpush +get +set \
                                               +zrange +zadd +zrem +zscore +zcard +zrangebyscore +hget +hset +hdel +hvals";
/// The commands that looks use.
pub(in crate::backend) const LOOK: &str = "+multi +exec +time +type +getrange +get +pttl +zcard +zrange +hmget +scan";
/// The commands that breaking a lock uses, including those of looks.
pub(in crate::backend) const STEER: &str = "+multi +exec +time +type +getrange +get +pttl +zcard +zrange +hmget +scan +eval \
                                            +pexpire +set +del +exists +hget +hset +hdel +zadd +zrem +zscore +zrangebyscore \
                                            +lpush";
/// The command that dlock uses on a sentinel.
pub(super) const SENTINEL: &str = "+sentinel";

/// The rights that a user needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct Rights {
    /// The patterns of the keys; empty if there are none.
    patterns: String,
    /// The commands.
    commands: String,
}

/// Returns a pattern that matches this text only; with a `*` appended, it matches all that begins with it.
#[must_use]
pub(super) fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut pattern, character| {
        if "*?[]\\".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
        pattern
    })
}

impl Rights {
    /// Returns the rights for these commands, which use no keys.
    #[must_use]
    pub(in crate::backend) fn without_keys(commands: &str) -> Self {
        Self { patterns: String::new(), commands: commands.to_owned() }
    }

    /// Returns the rights for these commands on all locks in the namespace of `claim`.
    #[must_use]
    pub(in crate::backend) fn for_locks(claim: &Claim, commands: &str) -> Self {
        Self::for_all_locks(&claim.namespace, commands)
    }

    /// Returns the rights for these commands on all locks in this namespace.
    #[must_use]
    pub(in crate::backend) fn for_all_locks(namespace: &Namespace, commands: &str) -> Self {
        let pattern = escaped(&namespace.prefix(':'));
        let patterns = if pattern.is_empty() { "~*".to_owned() } else { format!("~{pattern}* ~{{{pattern}*") };
        Self { patterns, commands: commands.to_owned() }
    }

    /// Returns these rights and those for further `commands`.
    #[must_use]
    pub(in crate::backend) fn and(self, commands: &str) -> Self {
        Self { commands: format!("{} {commands}", self.commands), ..self }
    }

    /// Returns the command that grants the rights to `user`, who lacks the right to a key if `keys` is set, and
    /// otherwise to a command. Redis refuses patterns for a user that may already use all keys.
    #[must_use]
    pub(super) fn advice(&self, user: &str, keys: bool) -> String {
        let Self { patterns, commands } = self;
        match () {
            () if patterns.is_empty() => format!("ACL SETUSER {user} {commands}"),
            () if keys => format!("ACL SETUSER {user} {patterns} {commands}"),
            () => format!("ACL SETUSER {user} {commands} (and {patterns}, unless it may use all keys)"),
        }
    }
}

/// Returns the commands of `script` that are not among these `commands`.
#[cfg(test)]
pub(in crate::backend) fn lacking(commands: &str, script: &str) -> Vec<String> {
    let called = script.split("call('").skip(1).filter_map(|rest| Some(rest.split_once('\'')?.0.to_lowercase()));
    called.filter(|command| !commands.split_whitespace().any(|right| right[1..] == **command)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_are_those_of_the_namespace() {
        for (namespace, patterns) in [
            ("dlock", "~dlock:* ~{dlock:*"),
            ("a:b", "~a:b:* ~{a:b:*"),
            ("", "~*"),
            ("a*[b]?\\", "~a\\*\\[b\\]\\?\\\\:* ~{a\\*\\[b\\]\\?\\\\:*"),
        ] {
            let claim = Claim::example(namespace, "job/x").expect("names");
            let rights = Rights::for_locks(&claim, MAJORITY).and("+select");
            let commands = format!("{MAJORITY} +select");
            assert_eq!(rights.advice("u", true), format!("ACL SETUSER u {patterns} {commands}"));
            assert_eq!(
                rights.advice("u", false),
                format!("ACL SETUSER u {commands} (and {patterns}, unless it may use all keys)")
            );
        }
        assert_eq!(Rights::without_keys(SENTINEL).advice("u", false), "ACL SETUSER u +sentinel");
    }
}
