/*!
A network of this program's own, in which packets can be dropped.

Before it starts its first thread, the whole program moves into a network namespace with nothing but a loopback
interface; servers, proxies and dlocks are started inside.
*/

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::islands::nft;
use crate::support::process;

/// Set once the program was started again inside.
const INSIDE: &str = "DLOCK_FAULTS_NETWORK";

/// Moves into a new network namespace. Without root, the program is started again by unshare(1), which can do that.
pub fn enter() -> io::Result<()> {
    if std::env::var_os(INSIDE).is_none() {
        if process::is_root() {
            // SAFETY: a system call with an integer; there is only one thread yet.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
                let error = io::Error::last_os_error();
                return Err(io::Error::new(
                    error.kind(),
                    format!("CAP_SYS_ADMIN is missing for a network namespace: {error}"),
                ));
            }
        } else {
            let mut again = Command::new("unshare");
            again.args(["--user", "--map-current-user", "--keep-caps", "--net", "--"]);
            return Err(again.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).env(INSIDE, "1").exec());
        }
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    if up.success() { Ok(()) } else { Err(io::Error::other("the loopback interface does not come up")) }
}

/// As long as this exists, packets to and from some TCP ports vanish, also those of open connections.
pub struct Dropping {
    table: String,
}

impl Dropping {
    pub fn start(ports: &[u16]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let table = format!("inet faults{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let ports = ports.join(", ");
        // On the receiving side: the sender could be told about a packet that is dropped on the sending side.
        nft(&format!(
            "add table {table}\n\
             add chain {table} arriving {{ type filter hook input priority 0; }}\n\
             add rule {table} arriving tcp dport {{ {ports} }} drop\n\
             add rule {table} arriving tcp sport {{ {ports} }} drop\n"
        ));
        Self { table }
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        nft(&format!("delete table {}\n", self.table));
    }
}
