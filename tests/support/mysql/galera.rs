//! Two MariaDB servers that are one Galera cluster.

use crate::support::daemon::{Daemon, Port};
use crate::support::rendezvous::eventually;

use super::Mysql;

/// The library by which servers are a cluster.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
/// How a node notices the death of the other: not after seconds, as it does by default.
const WATCHFUL: &str = "gcache.size=1M;gcache.page_size=1M;evs.keepalive_period=PT0.2S;evs.inactive_check_period=PT0.1S;\
                        evs.suspect_timeout=PT1S;evs.inactive_timeout=PT2S;gmcast.peer_timeout=PT1S";

/// Two nodes on loopback that both take writes, with the same database as a single server.
pub struct Galera {
    pub nodes: [Mysql; 2],
    _ports: [Port; 2],
}

impl Galera {
    /// Starts the nodes, and returns once both are part of the cluster.
    #[track_caller]
    pub fn start() -> Self {
        assert!(
            std::path::Path::new(PROVIDER).exists(),
            "missing {PROVIDER}: apt-get install galera-4 (or run tests/run)"
        );
        let ports = [Port::reserve(), Port::reserve()];
        let nodes = [node(&ports[0], "gcomm://"), node(&ports[1], &format!("gcomm://127.0.0.1:{}", ports[0].number()))];
        // Both have the same data. That the second is where the first is once it serves saves copying them.
        for (node, transactions) in nodes.iter().zip([1, 2]) {
            let state = format!(
                "# GALERA saved state\nversion: 2.1\nuuid: 5ee1bfa9-8b4c-11ee-8e5f-0a0a0a0a0a0a\nseqno: {transactions}\n\
                 safe_to_bootstrap: 1\n"
            );
            node.write("data/grastate.dat", &state);
            node.launch();
            node.wait_serving(true);
        }
        Self { nodes, _ports: ports }
    }
}

/// One node, which is not running yet.
fn node(port: &Port, cluster: &str) -> Mysql {
    let port = port.number();
    let mut settings = vec![
        "wsrep-on=ON".to_owned(),
        format!("wsrep-provider={PROVIDER}"),
        format!("wsrep-cluster-address={cluster}"),
        "wsrep-node-address=127.0.0.1".to_owned(),
        format!(
            "wsrep-provider-options=base_host=127.0.0.1;base_port={port};gmcast.listen_addr=tcp://127.0.0.1:{port};{WATCHFUL}"
        ),
        "wsrep-sst-method=skip".to_owned(),
        "binlog-format=ROW".to_owned(),
        "innodb-autoinc-lock-mode=2".to_owned(),
    ];
    if cluster == "gcomm://" {
        settings.push("wsrep-new-cluster".to_owned());
    }
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Mysql::on(Daemon::new("galera"), &settings)
}

impl Mysql {
    /// Waits until a node of a cluster serves, or refuses to because it is without a quorum.
    #[track_caller]
    pub fn wait_serving(&self, serves: bool) {
        let expected = if serves { "ON" } else { "OFF" };
        eventually(&format!("wsrep_ready to be {expected}"), || {
            let status = self.sql("SHOW STATUS LIKE 'wsrep_ready'");
            status.iter().any(|row| row[1] == expected).then_some(())
        });
    }
}
