/*!
dlock called as `flock`: beside flock(1) of util-linux, the same scripts have the same output and exit codes; with a backend, the
lock is that of a run whose key is the file's path.
*/

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::dlock::{DLOCK, Dlock, NO_CONFIG};
use crate::support::scratch::Scratch;
use crate::support::service::{FileService, RedisService, Service};

/// flock(1) of util-linux, also where a link to dlock is found first.
fn util_linux() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let places = path.split(':').chain(["/usr/bin", "/bin"]).map(|directory| Path::new(directory).join("flock"));
    let is_it = |flock: &PathBuf| {
        let version = Command::new(flock).arg("--version").output();
        version.is_ok_and(|output| output.stdout.starts_with(b"flock from util-linux"))
    };
    places.into_iter().find(is_it).expect("there is no flock of util-linux: install util-linux")
}

/// Exit code, output and messages of a script in an empty directory, in which `flock` and `other` are these programs. What is
/// different each time is left out.
fn play(script: &str, flock: &Path, other: &Path) -> (Option<i32>, String, String) {
    let scratch = Scratch::new();
    let called_flock = |name: &str, program: &Path| {
        let link = scratch.directory(name, 0o755).join("flock");
        symlink(program, &link).unwrap();
        link
    };
    called_flock("bin", flock);
    scratch.script("bin/other", &format!("#!/bin/sh\nexec {} \"$@\"\n", called_flock("others", other).display()));
    let place = scratch.directory("place", 0o755);
    let path = format!("{}:/usr/bin:/bin", scratch.path("bin").display());
    let mut shell = Command::new("timeout");
    shell.args(["20", "/bin/sh", "-c", script]).env_clear().env("PATH", path).envs([NO_CONFIG]);
    let output = shell.current_dir(place).stdin(Stdio::null()).output().unwrap();
    let steady = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().map(|line| match line.split_once("getting lock took 0.") {
            Some((before, _)) => format!("{before}getting lock took 0.… seconds\n"),
            None => format!("{line}\n"),
        });
        lines.collect::<String>()
    };
    (output.status.code(), steady(output.stdout), steady(output.stderr))
}

/// Plays scripts with flock(1) and with dlock called as flock, alone and beside each other.
#[track_caller]
fn alike(scripts: &[&str]) {
    let (util_linux, dlock) = (util_linux(), Path::new(*DLOCK));
    for script in scripts {
        let expected = play(script, &util_linux, &util_linux);
        assert_eq!(play(script, dlock, dlock), expected, "{script}");
        if script.contains("other") {
            assert_eq!(play(script, &util_linux, dlock), expected, "{script}");
            assert_eq!(play(script, dlock, &util_linux), expected, "{script}");
        }
    }
}

#[test]
fn command_lines_are_read_as_util_linux_reads_them() {
    alike(&[
        "flock",
        "flock -x",
        "flock -h >/dev/null",
        "flock -Vx >/dev/null",
        "flock --foo",
        "flock -c true",
        "flock --shared=1 f true",
        "flock --timeout",
        "flock -E",
        "flock --n f true",
        "flock --c",
        "flock --non --ti=1 --conf 3 f true",
        "flock -sxew1 -E3 f -c 'exit 4'",
        "flock -- f true",
        "flock f -F true",
        "flock f -c",
        "flock f --command true extra",
        "flock -F -o f true",
        "flock -w x f true",
        "flock -w 5s f true",
        "flock -w -1 f true",
        "flock -w inf f true",
        "flock -w 1e18 f true",
        "flock -E x f true",
        "flock -E 256 f true",
        "flock -E 5000000000 f true",
        "flock abc",
        "flock 99",
        "flock 99999999999",
        "flock -- -1",
        "flock ''",
    ]);
}

#[test]
fn files_directories_and_commands_are_as_with_util_linux() {
    alike(&[
        "umask 027; flock f true; ls -l f | cut -c 1-10",
        "mkdir d; flock d echo directory",
        "flock d/ true",
        "flock '' true",
        "flock /nonexistent/f true",
        "flock /proc/nonexistent true",
        "mkdir d; chmod 0 d; flock f/g true",
        "flock f nonexistent",
        "flock f /etc/passwd",
        "flock f sh -c 'exit 17'",
        "flock f sh -c 'kill -TERM $$'",
        "flock f -c 'echo $0'",
        "SHELL= flock f -c 'echo $0'",
        "SHELL=/bin/bash flock f -c 'echo $0'",
        "SHELL=/nonexistent flock f -c true",
        "flock f ls /proc/self/fd",
        "flock -o f ls /proc/self/fd",
        "trap '' CHLD; flock f sh -c 'exit 3'",
        "trap '' PIPE INT; flock f grep Sig[BI] /proc/self/status",
        "flock -w 1 f grep Sig[BCI] /proc/self/status",
        "echo input | flock f cat",
    ]);
}

/// The subjects of util-linux' own tests of flock.
#[test]
fn locks_are_those_of_util_linux() {
    alike(&[
        // non-block
        "flock f other -n f true",
        "flock f other -n -E 7 f true",
        "flock f other --verbose -n f true",
        "flock f true; other -n f echo free",
        // no-fork
        "flock -F f sh -c \"exit 5\"",
        "flock --no-fork f other -n f true",
        "flock -F --verbose f echo verbose",
        // shared
        "flock -s f other -s -n f echo both",
        "flock -s f other -n f true",
        // exclusive
        "flock -x f other -s -n f true",
        "flock -u f other -n f echo unlocked",
        // timeout
        "flock f other -w 0.2 f true",
        "flock f other --verbose -w 0.2 -E 9 f true",
        "flock f other -w 0 f true",
        "flock f sleep 0.3 & sleep 0.1; other -w 10 f echo waited; wait",
        // time-check
        "flock --verbose f echo checked",
        "flock --verbose 1",
        // descriptors
        "(flock -n 9 || exit 1; other -n f true; echo $?) 9>f",
        "(flock 9; flock -u 9; other -n f echo unlocked) 9>f",
        "exec 9>f; flock -s 9; other -n -s f echo both; other -n f true",
        "exec 9>f; flock -n 9; flock -n 9; echo again",
        "flock -n 0 <&-",
        "flock f sh -c \"sleep 0.3 >/dev/null 2>&1 &\"; other -n f true",
        "flock -o f sh -c \"sleep 0.3 >/dev/null 2>&1 &\"; other -n f echo free",
        "flock f sh -c \"exec 3>&-; other -n f true\"",
    ]);
}

/// `dlock flock` with these words, and with the service as `DLOCK_BACKEND`.
fn flock<S: Service>(service: &S, words: &[&str]) -> Dlock {
    service.scratch().dlock().arg("flock").args(words).env("DLOCK_BACKEND", service.url())
}

fn with_a_backend_it_is_a_run<S: Service>(service: &S) {
    let root = service.scratch().root();
    let path = root.join("job");
    let key = path.to_str().unwrap();
    let holder = service.hold(key);
    // As silent as flock, also where the path is a relative one.
    flock(service, &["-n", key, "true"]).output().code(1).stdout_is("").quiet();
    flock(service, &["-n", "job", "true"]).output().code(1).quiet();
    flock(service, &["-n", "./job", "true"]).output().code(1).quiet();
    flock(service, &["-w", "0.1", key, "true"]).output().code(1).quiet();
    flock(service, &["-E", "7", "-s", "-n", key, "true"]).output().code(7).quiet();
    flock(service, &["--verbose", "-n", key, "true"]).output().code(1).stderr_ends_with_line("did not get");
    flock(service, &["-n", key, "true"]).env("DLOCK_CONFLICT_EXIT_CODE", "0").output().success();
    flock(service, &["-n", "another", "true"]).output().success().quiet();
    holder.let_go().success();
    // The key is the path itself, and not where links lead.
    fs::write(root.join("file"), "").unwrap();
    symlink("file", root.join("link")).unwrap();
    let inside = "\"$0\" held -k \"$1\" && echo \"$DLOCK_KEY\"; exit 17";
    let link = root.join("link");
    let link = link.to_str().unwrap();
    flock(service, &["-F", link, "sh", "-c", inside, *DLOCK, link]).output().code(17).stdout_is(&format!("{link}\n"));
    assert!(!path.exists() && !root.join("another").exists(), "nothing is made");
    let shell = flock(service, &["-o", key, "-c", "echo \"$0\""]).env("SHELL", "/bin/bash").output();
    shell.success().stdout_is("/bin/bash\n").quiet();
    let impossible = flock(service, &["-w", "-1", key, "true"]).output();
    assert_eq!(impossible.code(71).stderr(), "flock: cannot set up timer: Invalid argument\n");
}

#[test]
fn with_a_backend_it_is_a_run_on_file() {
    with_a_backend_it_is_a_run(&FileService::fresh());
}

#[test]
fn with_a_backend_it_is_a_run_on_redis() {
    let service = RedisService::fresh();
    with_a_backend_it_is_a_run(&service);
    // What flock has no option for.
    let ttl = flock(&service, &["job", "-c", "echo $DLOCK_LEASE_TTL"]).env("DLOCK_TTL", "7");
    ttl.output().success().stdout_is("7\n").quiet();
    let wrong = flock(&service, &["job", "true"]).env("DLOCK_TTL", "0");
    wrong.output().code(64).stderr_is_one_line("DLOCK_TTL=0: a lease lasts at least 1s");
}

#[test]
fn a_config_file_is_for_the_paths_that_it_names() {
    let service = RedisService::fresh();
    let scratch = service.scratch();
    let root = scratch.root().to_str().unwrap().to_owned();
    scratch.directory("jobs", 0o755);
    let paths = format!("flock-paths = [\"{root}/jobs/*\"]\n");
    let config = |text: &str| scratch.secret("config.toml", text);
    let with = |text: &str, words: &[&str]| {
        scratch.dlock().arg("flock").args(words).env("DLOCK_CONFIG", config(text)).current_dir(scratch.root())
    };
    let right = format!("backend = \"{}\"\n{paths}", service.url());
    // One that nobody listens at.
    let away = format!("backend = \"redis://127.0.0.1:1\"\n{paths}");
    let holder = service.hold(&format!("{root}/jobs/a"));
    with(&right, &["-n", "jobs/a", "true"]).output().code(1).quiet();
    with(&right, &["-n", "jobs/b", "true"]).output().success().quiet();
    holder.let_go().success();
    with(&away, &["-n", "jobs/a", "true"]).output().code(69).stderr_is_one_line("could not reach");
    assert!(!scratch.path("jobs/a").exists(), "it was locked on this host");
    let here = with(&away, &["-n", "other", "-c", "echo \"$DLOCK_KEY\""]);
    here.output().success().stdout_is("\n").quiet();
    assert!(scratch.path("other").exists(), "it was locked at the backend");
    with("backend = \"redis://127.0.0.1:1\"\n", &["-n", "jobs/a", "true"]).output().success().quiet();
    // A descriptor counts by its file.
    for (file, code, said) in [("jobs/a", 64, "a server cannot lock an open descriptor"), ("other", 0, "")] {
        let script = format!("exec 9>{file}; exec \"$0\" flock -n 9");
        let shell = scratch.dlock().program("/bin/sh").args(["-c", &script, *DLOCK]);
        let outcome = shell.env("DLOCK_CONFIG", config(&away)).current_dir(scratch.root()).output();
        assert!(outcome.code(code).stderr().contains(said), "{outcome:?}");
    }
    with(&paths, &["-n", "jobs/a", "true"]).output().code(78).stderr_is_one_line("no config file has a backend");
    with(&paths, &["-n", "other", "true"]).output().success().quiet();
    let required = with(&right, &["-n", "other", "true"]).env("DLOCK_REQUIRE_BACKEND", "1");
    required.output().code(64).stderr_is_one_line("no backend was chosen for");
    let shown = scratch.dlock().arg("config").env("DLOCK_CONFIG", config(&right)).output();
    let shown = shown.quiet().success().stdout();
    let row = shown.lines().find(|line| line.starts_with("flock-paths")).unwrap_or_else(|| panic!("{shown}"));
    assert!(row.contains(&format!("[\"{root}/jobs/*\"]")) && row.contains("config.toml:2"), "{row}");
}

#[test]
fn what_a_server_cannot_do_is_refused_with_what_to_write() {
    let service = RedisService::fresh();
    let scratch = service.scratch();
    let path = scratch.path("job");
    let key = path.to_str().unwrap();
    let script = "exec 9>job; exec \"$0\" flock \"$@\" 9";
    let shell = |script: &str, words: &[&str]| {
        let dlock = scratch.dlock().program("/bin/sh").args(["-c", script, *DLOCK]).args(words);
        dlock.env("DLOCK_BACKEND", service.url())
    };
    let refused = shell(script, &["-n"]).output();
    refused.code(64).stderr_is_one_line("flock 9: a server cannot lock an open descriptor: write flock -n ");
    // The line that is said does it.
    let said = refused.stderr();
    let line = said.trim().split("dlock acquire").nth(1).unwrap();
    assert!(line.contains(&format!(" -n -k {key} ")), "{said}");
    let line = format!("\"$0\" acquire{line}; \"$0\" status -k '{key}' >/dev/null; echo $?");
    shell(&line, &[]).output().success().stdout_is("75\n");
    shell(script, &["-u"]).output().code(64).stderr_is_one_line("dlock release HANDLE");
    flock(&service, &["-u", "job", "true"]).output().code(64).stderr_is_one_line("dlock release HANDLE");
    let long = "x".repeat(513);
    let refused = flock(&service, &[&long, "true"]).output();
    refused.code(64).stderr_is_one_line("its absolute path is the lock's key: a key has at most 512 bytes");
    assert!(fs::read_dir(scratch.root()).unwrap().count() <= 2, "nothing is made");
}
