/*!
The probes of `dlock check`, for its man page.
*/

/// The probes: the name and the subject of each.
pub(super) const PROBES: &[(&str, &str)] = &[
    ("host", "whether commands can be supervised here: prctl(2), /proc and descriptors. Warns without pidfd_open(2)"),
    (
        "cpu",
        "the CPU quota of this control group: how many busy processes can be stopped in time with --ttl. Warns if fewer than 16, or if \
         the quota is below a twentieth of a processor",
    ),
    ("reach", "the connection to each server. Warns if a minority is away"),
    (
        "tls",
        "the certificate of each server, and those that signed it: name, authority and expiry. Warns 14 days before it expires",
    ),
    (
        "identity",
        "the user at the service. Warns if no user is given although redis knows several, and if one of redis lacks +scan (dlock list) \
         or +blpop (waiting)",
    ),
    (
        "lock",
        "whether a lock can be taken, is refused to another contender, and can be renewed and released. Skipped for file:///FILE?path, \
         where every key is the same lock",
    ),
    (
        "latency",
        "20 renewals, or as many as fit into 5s. Warns if one takes longer than a twentieth of --ttl, and fails if one takes longer than \
         a sixth. A UTF-8 terminal shows a bar for each",
    ),
    (
        "version",
        "the version of each server. Fails if dlock does not support it, and warns if it is known to lose locks",
    ),
    ("master", "redis+sentinel: the master that a majority of the sentinels names"),
    ("role", "redis, postgres, mysql: fails on a replica, on a standby, and while redis loads its data"),
    ("eviction", "redis: warns if keys may be evicted when memory runs short"),
    (
        "persistence",
        "redis, redlock: warns without appendonly, or with appendfsync no; with --strict-fencing fails without appendfsync always. \
         postgres: warns about fsync and full_page_writes. mysql: innodb_flush_log_at_trx_commit and sync_binlog",
    ),
    (
        "replicas",
        "redis, postgres, mysql: warns about replicas that no grant waits for; fails if there are fewer than --replicas",
    ),
    (
        "servers",
        "redlock: fails if two names are one server, or if there is no majority; warns if the number of servers is even",
    ),
    (
        "cluster",
        "etcd, zookeeper: fails without a leader, and with an alarm of etcd (NOSPACE, CORRUPT). Warns about one member or two, a \
         standalone ZooKeeper, and a learner",
    ),
    ("lease", "etcd, zookeeper: the lease that is granted for --ttl. Warns if it differs"),
    (
        "clock",
        "redis, redlock, postgres, mysql: warns if the clocks of the servers and of this host differ by more than 1s",
    ),
    ("pooler", "postgres: warns about a pooler that gives each transaction another connection"),
    ("connections", "postgres, mysql: warns if nine of ten are in use"),
    ("table", "postgres, mysql: warns about a table that may not keep locks"),
    (
        "directory",
        "file: who may write there, and whether it is on a file system of this host. Warns if that is full, and in a container, which \
         hides holders outside it",
    ),
];
