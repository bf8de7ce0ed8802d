//! The programs of PostgreSQL, and the data of a new server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::daemon::Daemon;
use crate::support::databases::archive::{pack, run, unpack};
use crate::support::process;

/// Where Debian has the programs, one directory for each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The path of `program`: on the `PATH`, or of the newest version that is installed. Fails the test if there is none.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin").join(name))))
        .filter(|(_, path)| path.exists())
        .collect();
    versions.sort();
    let found = process::which(name).or_else(|| versions.pop().map(|(_, path)| path));
    found.unwrap_or_else(|| panic!("missing {name}: apt-get install postgresql (or run tests/run)"))
}

/// Copies the data of a new server to the empty directory `data`.
#[track_caller]
pub fn copy_to(data: &Path) {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    unpack(MADE.get_or_init(make), data);
}

/// The data of a new server.
fn make() -> Vec<u8> {
    let daemon = Daemon::new("initdb");
    let data = daemon.subdirectory("data");
    let mut init = Command::new(program("initdb"));
    init.arg("-D").arg(&data).args(["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]);
    init.args(["--wal-segsize=1", "--no-instructions"]);
    run(init, daemon.directory(), "");
    pack(&data)
}
