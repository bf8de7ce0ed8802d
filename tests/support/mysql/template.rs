//! The data of a new server.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::support::daemon::{Daemon, need};
use crate::support::databases::archive::{pack, run, unpack};

/// What every server is told: to be small, and not to wait for the disk, since no test cuts the power.
pub const SMALL: [&str; 7] = [
    "--no-defaults",
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=8M",
    "--innodb-use-native-aio=0",
    "--innodb-flush-method=nosync",
    "--skip-name-resolve",
    "--default-time-zone=+00:00",
];
/// What there is: a database, and a user without a password who may do everything in it.
const CONTENT: &str =
    "CREATE DATABASE locks;\nFLUSH PRIVILEGES;\nCREATE USER dlock@'%';\nGRANT ALL ON locks.* TO dlock@'%';\n";

/// Copies the data of a new server to the empty directory `data`.
#[track_caller]
pub fn copy_to(data: &Path) {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    unpack(MADE.get_or_init(make), data);
}

/// The data of a new server.
fn make() -> Vec<u8> {
    let daemon = Daemon::new("install");
    let data = daemon.subdirectory("data");
    let mut install = Command::new(need("mariadb-install-db", "mariadb-server"));
    install.args(SMALL).arg(format!("--datadir={}", data.display()));
    install.arg(format!("--tmpdir={}", daemon.directory().display()));
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    let mut fill = Command::new(need("mariadbd", "mariadb-server"));
    fill.args(SMALL).arg(format!("--datadir={}", data.display())).arg("--bootstrap");
    fill.arg(format!("--tmpdir={}", daemon.directory().display()));
    run(install, daemon.directory(), "");
    run(fill, daemon.directory(), CONTENT);
    pack(&data)
}
