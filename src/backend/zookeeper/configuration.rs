/*!
The configuration that a server reports of its ensemble, and whether two servers can belong to the same one.

Every server reports its own settings, and these differ even within one ensemble: a server may call itself `0.0.0.0`,
use a short name where another uses a long one, or know a new member a little earlier. So two servers count as strangers
only if their settings have no member in common.
*/

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The members of an ensemble, as one of them knows them; empty for a standalone server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Configuration(Vec<Member>);

/// An endpoint on which a member listens for the others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    /// The member's number.
    id: u64,
    host: String,
    /// The ports for the leader and for elections.
    ports: [u16; 2],
}

impl Configuration {
    /// Reads the text of `/zookeeper/config`. Returns `None` if it is not UTF-8, or if a member in it cannot be parsed.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut members = Vec::new();
        for line in text.lines() {
            let Some((id, places)) = line.strip_prefix("server.").and_then(|member| member.split_once('=')) else {
                continue;
            };
            let id = id.trim().parse().ok()?;
            let places = places.split(';').next().unwrap_or_default();
            for place in places.split('|') {
                members.push(Member::read(id, place.trim())?);
            }
        }
        Some(Self(members))
    }

    /// Returns `true` if the server is standalone.
    pub(super) fn is_of_one(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of members; 0 for a standalone server.
    pub(super) fn members(&self) -> usize {
        let ids: BTreeSet<u64> = self.0.iter().map(|member| member.id).collect();
        ids.len()
    }

    /// Returns `true` if `host` is listed as a member's. Local names such as `localhost` never are.
    pub(super) fn names(&self, host: &str) -> bool {
        !is_vague(host) && self.0.iter().any(|member| is_same_name(&member.host, host))
    }

    /// Returns `true` if the two have no member in common, so that their servers belong to different ensembles.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        !self.0.iter().any(|member| other.0.iter().any(|another| member.may_be(another)))
    }
}

impl Member {
    /// Reads `host:port:port[:role]`.
    fn read(id: u64, place: &str) -> Option<Self> {
        let (host, ports) = match place.strip_prefix('[') {
            Some(rest) => rest.split_once("]:")?,
            None => place.split_once(':')?,
        };
        let mut ports = ports.split(':').map(|port| port.parse().ok());
        Some(Self { id, host: host.to_owned(), ports: [ports.next()??, ports.next()??] })
    }

    /// Returns `true` if both may describe the same member. One equal port is enough, as the other may be mapped.
    fn may_be(&self, other: &Self) -> bool {
        let is_address = |host: &str| host.parse::<IpAddr>().is_ok();
        let hosts_fit = is_same_name(&self.host, &other.host)
            || is_vague(&self.host)
            || is_vague(&other.host)
            || is_address(&self.host) != is_address(&other.host);
        let ports_fit = self.ports.iter().zip(&other.ports).any(|(one, other)| one == other);
        self.id == other.id && hosts_fit && ports_fit
    }
}

/// Returns `true` if two names are equal, or if one is the other with its domain.
fn is_same_name(one: &str, other: &str) -> bool {
    let plain = |host: &str| host.trim_end_matches('.').to_ascii_lowercase();
    let (one, other) = (plain(one), plain(other));
    let has_domain = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|domain| domain.starts_with('.')) && short.parse::<u8>().is_err()
    };
    one == other || has_domain(&one, &other) || has_domain(&other, &one)
}

/// Returns `true` if a name means a different host on each machine, as `localhost` and `0.0.0.0` do.
fn is_vague(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback() || address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Configuration {
        Configuration::read(text.as_bytes()).unwrap_or_else(|| panic!("{text}"))
    }

    const THREE: &str = "server.1=a:2888:3888:participant\nserver.2=b:2888:3888:participant;0.0.0.0:2181\n\
                         server.3=c:2888:3888:observer\nversion=0";

    #[test]
    fn members_are_read_in_every_form() {
        assert_eq!(read(THREE).0.len(), 3);
        assert!(read("").is_of_one() && read("version=0\n").is_of_one());
        let member = |text: &str| read(text).0[0].clone();
        let plain = Member { id: 7, host: "::1".to_owned(), ports: [1, 2] };
        assert_eq!(member("server.7=[::1]:1:2"), plain);
        assert_eq!(read("server.7=a:1:2|b:3:4;2181").0.len(), 2);
        for odd in ["server.x=a:1:2", "server.1=a", "server.1=a:1", "server.1=a:1:99999", "server.1=[::1:1:2"] {
            assert_eq!(Configuration::read(odd.as_bytes()), None, "{odd}");
        }
        assert_eq!(Configuration::read(&[0xff]), None);
    }

    #[test]
    fn only_servers_without_a_common_member_are_strangers() {
        for (other, excluded) in [
            (THREE, false),
            ("", true),
            // A member calls itself `0.0.0.0`, or knows another one by its long name.
            ("server.1=0.0.0.0:2888:3888", false),
            ("server.9=x:2888:3888\nserver.2=B.example.org:2888:3888", false),
            // One more member, which the others do not know yet.
            ("server.3=c:2888:3888\nserver.4=d:2888:3888", false),
            // An address may belong to any name; a port may be mapped.
            ("server.1=10.0.0.1:2888:3888", false),
            ("server.1=a:12888:3888", false),
            ("server.1=x:2888:3888\nserver.2=y:2888:3888", true),
            ("server.2=a:2888:3888\nserver.1=b:2888:3888", true),
            ("server.1=a:12888:13888", true),
            ("server.1=a.x:2888:3888", false),
            ("server.1=ab:2888:3888", true),
        ] {
            let (one, other) = (read(THREE), read(other));
            assert_eq!((one.excludes(&other), other.excludes(&one)), (excluded, excluded), "{other:?}");
        }
        let (one, other) = (read("server.1=127.0.0.1:1:2"), read("server.1=127.0.0.1:3:4"));
        assert!(one.excludes(&other), "on one host");
    }

    #[test]
    fn a_name_in_the_settings_proves_where_a_server_belongs_unless_it_is_vague() {
        let settings = read("server.1=zk-1.zk.prod:2888:3888\nserver.2=127.0.0.1:1:2\nserver.3=10.0.0.1:1:2");
        for (host, expected) in [
            ("zk-1", true),
            ("ZK-1.zk.prod.", true),
            ("zk-1.zk", true),
            ("zk", false),
            ("zk-1.zk.test", false),
            ("127.0.0.1", false),
            ("localhost", false),
            ("10.0.0.1", true),
            ("10", false),
        ] {
            assert_eq!(settings.names(host), expected, "{host}");
        }
    }
}
