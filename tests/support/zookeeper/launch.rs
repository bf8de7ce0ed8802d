//! Starting the servers of a ZooKeeper, and their configuration.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::certificates::ClientCertificate;
use crate::support::daemon::need;
use crate::support::proxy::Proxy;

use super::ZooKeeper;

/// Where Debian keeps the server's libraries; its own manifest lacks the last one, which TLS needs.
const JARS: [&str; 3] =
    ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar", "/usr/share/java/netty-codec.jar"];

/// What the servers know of the name and password of [`super::content::SUPER`]: the SHA-1 of both in base64.
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

/// The logger that reports every request before it is answered.
const REQUEST_LOGGER: &str = "org.apache.zookeeper.server.FinalRequestProcessor";

impl ZooKeeper {
    /// Starts these servers, which do not run, and returns once they answer.
    #[track_caller]
    pub(in crate::support) fn launch(&self, indices: &[usize]) {
        self.ensemble.start(indices, |index| self.launch_one(index), |server| server.wait_answers(self.is_tls()));
    }

    #[track_caller]
    fn launch_one(&self, index: usize) {
        let server = self.server(index);
        let here = server.directory();
        for jar in JARS {
            assert!(
                Path::new(jar).exists(),
                "missing {jar}: apt-get install libzookeeper-java libslf4j-java (or run tests/run)"
            );
        }
        fs::write(here.join("zoo.cfg"), self.configuration(index)).unwrap();
        let mut command = Command::new(need("java", "default-jdk-headless"));
        // Options that start quickly and stay small.
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
        let mut define = |name: &str, value: &str| _ = command.arg(format!("-D{name}={value}"));
        define("java.io.tmpdir", here.to_str().unwrap());
        // What a process has written survives its death without fsync, and no test cuts the power.
        define("zookeeper.forceSync", "no");
        // Makes them reconnect to each other soon after an outage: by default that can take a minute.
        define("zookeeper.fastleader.maxNotificationInterval", "1000");
        define("zookeeper.cnxTimeout", "1000");
        define("zookeeper.preAllocSize", "1024");
        define("zookeeper.DigestAuthenticationProvider.superDigest", SUPER_DIGEST);
        define(&format!("org.slf4j.simpleLogger.log.{REQUEST_LOGGER}"), "debug");
        command.arg("-cp").arg(JARS.join(":")).arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
        command.arg(here.join("zoo.cfg"));
        // Java takes options from environment variables too.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        fs::write(server.data().join("myid"), (index + 1).to_string()).unwrap();
        server.launch(command);
    }

    fn configuration(&self, index: usize) -> String {
        let server = self.server(index);
        let mut lines = vec![
            format!("tickTime={}", self.options.tick),
            format!("minSessionTimeout={}", self.options.min_session),
            format!("maxSessionTimeout={}", self.options.max_session),
            format!("dataDir={}", server.data().display()),
            format!("clientPort={}", server.port()),
            format!("clientPortAddress={}", server.host()),
            "admin.enableServer=false".into(),
            "4lw.commands.whitelist=*".into(),
            "maxClientCnxns=0".into(),
        ];
        lines.extend(server.disk().map(|disk| format!("dataLogDir={}", disk.display())));
        if self.servers().len() > 1 {
            lines.extend(["initLimit=25".into(), "syncLimit=10".into()]);
            for (other, peer) in self.servers().iter().enumerate() {
                let quorum = self.links[index][other].as_ref().map_or(peer.quorum.number(), Proxy::port);
                lines.push(format!("server.{}={}:{quorum}:{}", other + 1, peer.host(), peer.election.number()));
            }
        }
        if let Some((tls, files)) = self.tls() {
            let clients = match tls.clients {
                ClientCertificate::Ignored => "none",
                ClientCertificate::Wanted => "want",
                ClientCertificate::Needed => "need",
            };
            lines.extend([
                format!("secureClientPort={}", server.secure_port()),
                format!("secureClientPortAddress={}", server.host()),
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".into(),
                format!("ssl.keyStore.location={}", files.key_and_certificate(tls.server).display()),
                "ssl.keyStore.type=PEM".into(),
                format!("ssl.trustStore.location={}", files.ca().display()),
                "ssl.trustStore.type=PEM".into(),
                format!("ssl.clientAuth={clients}"),
            ]);
        }
        lines.extend(self.options.lines.iter().cloned());
        lines.join("\n") + "\n"
    }
}
