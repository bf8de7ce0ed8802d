//! What foreign programs need and no package has: made once, for all tests and test runs, in `target/tmp`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use super::source;
use crate::support::daemon::{need, need_python};

/// The directory of Java libraries on Debian.
const JARS: &str = "/usr/share/java";

/// A Python with redlock-py, in a virtual environment.
#[track_caller]
pub fn python_with_redlock() -> PathBuf {
    let python = need_python("ensurepip", "python3-venv");
    let (build, run) = (source("requirements-build.txt"), source("requirements.txt"));
    let inputs = [python.as_os_str().as_encoded_bytes(), &fs::read(&build).unwrap(), &fs::read(&run).unwrap()];
    let environment = made_once("redlock-py", &inputs, |directory| {
        succeed(Command::new(&python).args(["-m", "venv"]).arg(directory));
        let install = |options: &[&str], requirements: &Path| {
            let mut pip = Command::new(directory.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]);
            succeed(pip.args(["--require-hashes"]).args(options).arg("-r").arg(requirements));
        };
        install(&[], &build);
        // Otherwise pip fetches the newest version of the build tools.
        install(&["--no-build-isolation"], &run);
    });
    environment.join("bin/python")
}

/// The class path of `CuratorLock`, compiled.
#[track_caller]
pub fn curator_class_path() -> String {
    const LIBRARIES: [&str; 18] = [
        "curator-recipes",
        "curator-framework",
        "curator-client",
        "zookeeper",
        "zookeeper-jute",
        "guava",
        "slf4j-api",
        "slf4j-simple",
        "netty-buffer",
        "netty-codec",
        "netty-common",
        "netty-handler",
        "netty-resolver",
        "netty-transport",
        "netty-transport-native-epoll",
        "netty-transport-native-unix-common",
        "commons-cli",
        "snappy-java",
    ];
    let jars: Vec<String> = LIBRARIES.iter().map(|name| format!("{JARS}/{name}.jar")).collect();
    assert!(Path::new(&jars[0]).exists(), "missing {}: apt-get install libcurator-recipes-java", jars[0]);
    let (program, libraries) = (source("CuratorLock.java"), jars.join(":"));
    let inputs = [&fs::read(&program).unwrap(), libraries.as_bytes()];
    let classes = made_once("curator-lock", &inputs, |directory| {
        let mut compiler = Command::new(need("javac", "default-jdk-headless"));
        succeed(compiler.args(["-cp", &libraries, "-d"]).arg(directory).arg(&program));
    });
    format!("{}:{libraries}", classes.display())
}

/// A directory with what `make` builds from `inputs`. It is built once for the same inputs, however many ask for it;
/// the others wait meanwhile. An unfinished build is repeated.
#[track_caller]
fn made_once(name: &str, inputs: &[&[u8]], make: impl FnOnce(&Path)) -> PathBuf {
    let mut digest = Sha256::new();
    for input in inputs {
        digest.update(input.len().to_le_bytes());
        digest.update(input);
    }
    let hash: String = digest.finalize().iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let all = Path::new(option_env!("CARGO_TARGET_TMPDIR").unwrap_or("target/tmp"));
    fs::create_dir_all(all).unwrap();
    let [directory, lock, finished] =
        ["", ".lock", ".finished"].map(|suffix| all.join(format!("{name}-{hash}{suffix}")));
    let lock = File::create(lock).unwrap();
    lock.lock().unwrap();
    if !finished.exists() {
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        make(&directory);
        File::create(finished).unwrap();
    }
    directory
}

#[track_caller]
fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
}
