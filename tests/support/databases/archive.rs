//! The data of a new server, which are made once per test process and then copied: nothing is left on the disk when it ends.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::process::unprivileged;

/// All that is in this directory.
#[track_caller]
pub fn pack(data: &Path) -> Vec<u8> {
    let mut pack = Command::new("tar");
    pack.args(["cf", "-", "-C"]).arg(data).arg(".");
    let output = pack.output().unwrap();
    assert!(output.status.success(), "tar: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Copies that to the empty directory `data`, which belongs to the user that servers run as.
#[track_caller]
pub fn unpack(archive: &[u8], data: &Path) {
    let mut unpack = Command::new("tar");
    unpack.args(["xf", "-", "-C"]).arg(data).stdin(Stdio::piped());
    unprivileged(&mut unpack);
    let mut unpack = unpack.spawn().unwrap();
    unpack.stdin.take().unwrap().write_all(archive).unwrap();
    assert!(unpack.wait().unwrap().success(), "cannot copy the data of a server");
    // Data that others can read is refused.
    fs::set_permissions(data, fs::Permissions::from_mode(0o700)).unwrap();
}

/// Runs a command as the user that servers run as, with this input. A failure fails the test.
#[track_caller]
pub fn run(mut command: Command, directory: &Path, input: &str) {
    command.current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    unprivileged(&mut command);
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
