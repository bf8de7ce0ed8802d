use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::support::dlock::{Dlock, Outcome};
use crate::support::rendezvous::{Fifo, Gate};
use crate::support::scratch::Scratch;
use crate::support::servers::{Port, Redis};

/// A password with characters that have to be encoded in a URL. No part of it occurs anywhere else.
pub const SECRET: &str = "hush/Zw7q@Kx9%Vb4:Tn2";
/// The parts in which it could show up when something has cut it into pieces.
const PARTS: [&str; 5] = ["hush", "Zw7q", "Kx9", "Vb4", "Tn2"];

/// Nothing of the password is in `text`, in whatever encoding: its pieces are the same in all of them.
#[track_caller]
pub fn assert_kept(text: &str, place: &str) {
    for part in PARTS {
        assert!(!text.contains(part), "{part:?} of the password is in {place}: {text}");
    }
}

/// Nothing of the password is in what a dlock wrote to stdout and stderr.
#[track_caller]
pub fn assert_silent(outcome: &Outcome) {
    assert_kept(&outcome.stderr(), "stderr");
    assert_kept(&outcome.stdout(), "stdout");
}

pub fn encoded(secret: &str) -> String {
    utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string()
}

/// Every way to give dlock a password.
#[derive(Clone, Copy, Debug)]
enum Way {
    Url,
    UrlVariable,
    Variable,
    File,
    FileVariable,
    Stdin,
    Descriptor,
}

impl Way {
    const ALL: [Way; 7] =
        [Way::Url, Way::UrlVariable, Way::Variable, Way::File, Way::FileVariable, Way::Stdin, Way::Descriptor];

    /// `run --key k` on `redis` with this password, given in this way.
    fn run(self, scratch: &Scratch, redis: &Redis, password: &str) -> Dlock {
        let run = scratch.dlock().run("k");
        let with_password = redis.url_for("", password, 0);
        let file = scratch.secret("password", format!("{password}\n"));
        match self {
            Self::Url => run.backend(with_password),
            Self::UrlVariable => run.env("DLOCK_BACKEND", with_password),
            Self::Variable => run.backend(redis.url()).env("DLOCK_PASSWORD", password),
            Self::File => run.backend(redis.url()).arg("--password-file").arg(file),
            Self::FileVariable => run.env("DLOCK_BACKEND", redis.url()).env("DLOCK_PASSWORD_FILE", file),
            Self::Stdin => {
                let file = std::fs::File::open(file).unwrap();
                run.backend(redis.url()).args(["--password-file", "-"]).stdin(Stdio::from(file))
            }
            Self::Descriptor => {
                let shell = ["/bin/sh", "-c", r#"exec 9< password; exec "$@""#, "sh"];
                run.backend(redis.url()).args(["--password-file", "fd:9"]).wrapped_by(shell)
            }
        }
    }
}

#[test]
fn every_way_in_works_and_none_leads_out_again() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let gate = Gate::new(scratch.path("gate"));
    let mut events = Fifo::new(scratch.path("events"));
    for way in Way::ALL {
        // The environment that the shell has, and the one that the kernel shows of it; its descriptors and arguments.
        let tell = format!(
            "env; tr '\\0' '\\n' < /proc/$$/environ; tr '\\0' ' ' < /proc/$$/cmdline; ls -l /proc/$$/fd/; {}; {}",
            events.say("held"),
            gate.wait()
        );
        let running = way.run(&scratch, &redis, SECRET).arg("-v").shell(tell).spawn();
        events.expect("held");
        let holder = redis.get("dlock:k").unwrap();
        assert!(holder.contains("\"program\":\"sh\""), "{way:?}: {holder}");
        assert_kept(&holder, "what the holder publishes");
        gate.open();
        let outcome = running.wait();
        outcome.code(0).stderr_ends_with_line("released 'k'");
        assert_silent(&outcome);
        let stdout = outcome.stdout();
        assert!(!stdout.contains("DLOCK_PASSWORD="), "{way:?}: {stdout}");
        // Its standard input is its own, as without dlock.
        let open = |line: &str| line.contains(" -> ") && line.ends_with("/password") && !line.contains(" 0 -> ");
        assert!(!stdout.lines().any(open), "{way:?}: the command has the password file open: {stdout}");
        assert!(stdout.contains("DLOCK_TOKEN="), "{way:?}: {stdout}");
    }
}

#[test]
fn a_backend_variable_reaches_the_command_without_its_password() {
    let scratch = Scratch::new();
    let redis = Redis::start();
    let rules = format!("ACL SETUSER worker on >{SECRET} ~* +@all");
    redis.cli(&rules.split(' ').collect::<Vec<_>>());
    let run = |url: String| {
        let outcome = scratch.dlock().run("k").env("DLOCK_BACKEND", url).shell("printf %s $DLOCK_BACKEND").output();
        outcome.success();
        outcome.stdout()
    };
    let port = redis.port();
    assert_eq!(run(redis.url_for("worker", SECRET, 1)), format!("redis://worker@127.0.0.1:{port}/1"));
    assert_eq!(run(redis.url()), redis.url());
    // One that was not used is cleaned as well.
    for url in [redis.url_for("worker", SECRET, 1), format!("redis://worker:{SECRET}@127.0.0.1:{port}")] {
        let unused =
            scratch.dlock().run("k").env("DLOCK_BACKEND", url).backend(scratch.file_url()).shell("env").output();
        unused.success();
        assert_silent(&unused);
    }
    let odd = [OsStr::from_bytes(b"redis://u:hush\xff@host"), OsStr::new("redis://u:hush@[host")];
    for url in odd {
        let unused =
            scratch.dlock().run("k").env("DLOCK_BACKEND", url).backend(scratch.file_url()).shell("env").output();
        unused.success();
        assert_silent(&unused);
    }
}

#[test]
fn a_wrong_password_is_refused_without_a_word_about_it() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", "right"]);
    let open = Redis::start();
    for way in Way::ALL {
        let outcome = way.run(&scratch, &redis, SECRET).arg("-v").command(["touch", "ran"]).output();
        outcome.code(77).stderr_is_one_line("refused the credentials");
        assert_silent(&outcome);
        // A server without a password.
        let outcome = way.run(&scratch, &open, SECRET).arg("-v").command(["touch", "ran"]).output();
        outcome.code(77).stderr_is_one_line("refused the credentials");
        assert_silent(&outcome);
    }
    // None at all.
    let outcome = scratch.dlock().run("k").backend(redis.url()).command(["touch", "ran"]).output();
    outcome.code(77).stderr_is_one_line("check the user and password");
    assert!(!scratch.path("ran").exists());
}

#[test]
fn an_unreachable_server_is_named_without_the_password() {
    let scratch = Scratch::new();
    let port = Port::reserve();
    let url = format!("redis://worker:{}@127.0.0.1:{}/3", encoded(SECRET), port.number());
    let outcome = scratch.dlock().run("k").backend(url).command(["true"]).output();
    outcome.code(69).stderr_is_one_line(&format!("redis://worker@127.0.0.1:{}/3", port.number()));
    assert_silent(&outcome);
}

#[test]
fn what_cannot_be_read_is_not_repeated() {
    let scratch = Scratch::new();
    let secret = encoded(SECRET);
    let urls = [
        format!("redis://:{secret}@host:port"),
        format!("redis://:{secret}@host:0"),
        format!("redis://:{secret}@"),
        format!("redis://:{secret}"),
        format!("redis://u:{secret}@host/x"),
        format!("redis://u:{secret}@host?x=1"),
        format!("redis://u:{secret}@host#x"),
        format!("redis://u:{secret}@[host"),
        format!("redis://u:{secret}@ho st"),
        format!("redis:/u:{secret}@host:port"),
        format!("redis:{secret}@host:port"),
        format!("redisss://u:{secret}@host"),
        format!("http://u:{secret}@host"),
        format!("//u:{secret}@host"),
        format!("u:{secret}@host"),
        format!("{secret}@host"),
        secret.clone(),
        // Not encoded at all.
        format!("redis://u:{SECRET}@host"),
        format!("{SECRET}://host"),
        SECRET.to_owned(),
        format!("file:{SECRET}"),
    ];
    for url in &urls {
        let run = || scratch.dlock().run("k").command(["touch", "ran"]);
        let flag = scratch.dlock().run("k").backend(url).command(["touch", "ran"]).output();
        let variable = run().env("DLOCK_BACKEND", url).output();
        for (outcome, name) in [(flag, "--backend"), (variable, "DLOCK_BACKEND")] {
            outcome.code(64).stderr_is_one_line(name);
            assert_silent(&outcome);
        }
    }
    let bytes = [b"redis://:", SECRET.as_bytes(), b"\xff@host"].concat();
    let outcome = scratch.dlock().run("k").backend(OsStr::from_bytes(&bytes)).command(["touch", "ran"]).output();
    outcome.code(64).stderr_is_one_line("--backend");
    assert_silent(&outcome);
    let bytes = [SECRET.as_bytes(), b"\xff"].concat();
    let run = scratch.dlock().run("k").backend("redis").env("DLOCK_PASSWORD", OsStr::from_bytes(&bytes));
    let outcome = run.command(["touch", "ran"]).output();
    outcome.code(64).stderr_is_one_line("DLOCK_PASSWORD");
    assert_silent(&outcome);
    let file = scratch.secret("password", &bytes);
    let outcome = scratch.dlock().run("k").backend("redis").arg("--password-file").arg(file).command(["true"]).output();
    outcome.code(64).stderr_is_one_line("--password-file");
    assert_silent(&outcome);
    assert!(!scratch.path("ran").exists());
}

#[test]
fn a_mistyped_command_line_is_not_repeated_with_its_password() {
    let scratch = Scratch::new();
    let url = format!("redis://worker:{}@host", encoded(SECRET));
    let run = || scratch.dlock().run("k");
    let lines = [
        run().arg(format!("--backned={url}")),
        run().arg("--backned").arg(&url),
        run().arg(format!("--password={SECRET}")),
        run().arg("--password").arg(SECRET),
        run().arg("--wait").arg(&url),
        run().arg("--ttl").arg(&url),
        run().arg("-E").arg(&url),
        run().arg("--on-lost").arg(&url),
        scratch.dlock().arg("run").backend(&url),
        scratch.dlock().arg(&url),
        run().backend(&url).arg("--unknown"),
    ];
    for line in lines {
        let outcome = line.command(["touch", "ran"]).output();
        outcome.code(64).stderr_is_one_line("");
        assert!(["see dlock ", "did you mean --"].iter().any(|hint| outcome.stderr().contains(hint)), "{outcome:?}");
        assert_silent(&outcome);
    }
    // Of two the last one counts.
    let outcome = run().backend(&url).backend(scratch.file_url()).command(["true"]).output();
    outcome.success();
    assert_silent(&outcome);
    // Without --backend in front of it, it is the command.
    let outcome = run().backend(scratch.file_url()).arg(&url).args(["touch", "ran"]).output();
    outcome.code(127).stderr_is_one_line("could not run");
    assert_silent(&outcome);
    assert_kept(&String::from_utf8_lossy(&std::fs::read(scratch.lock_dir().join("k.lock")).unwrap()), "the lock file");
}

#[test]
fn help_and_pages_do_not_show_what_the_variables_hold() {
    let scratch = Scratch::new();
    let url = format!("redis://worker:{}@host", encoded(SECRET));
    let names = ["BACKEND", "PASSWORD", "PASSWORD_FILE", "USER", "NAMESPACE", "REASON", "COMMAND"];
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["run", "--help"],
        &["run", "-h"],
        &["generate", "--help"],
        &["generate", "man"],
        &["generate", "bash"],
        &["generate", "zsh"],
        &["generate", "fish"],
        &["--version"],
    ] {
        let with_variables = names.iter().fold(scratch.dlock(), |dlock, name| {
            let value = if *name == "BACKEND" { &url } else { SECRET };
            dlock.env(format!("DLOCK_{name}"), value)
        });
        let outcome = with_variables.args(arguments).output();
        outcome.success();
        assert_silent(&outcome);
        // Nor does it depend on them.
        let plain = scratch.dlock().args(arguments).output();
        plain.success().stdout_is(&outcome.stdout());
    }
}

#[test]
fn a_loss_and_a_failed_release_are_told_without_the_password() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let mut events = Fifo::new(scratch.path("events"));
    let gate = Gate::new(scratch.path("gate"));
    let held = format!("{}; {}", events.say("held"), gate.wait());
    let run = || scratch.dlock().run("k").backend(redis.url_for("", SECRET, 0)).args(["-v", "--ttl", "1s"]);
    // The password is changed, and the connection closed, while the command runs.
    let running = run().shell(&held).spawn();
    events.expect("held");
    redis.cli(&["CONFIG", "SET", "requirepass", "another"]);
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let outcome = running.wait();
    outcome.code(79).stderr_ends_with_line("lost 'k' at redis://127.0.0.1");
    assert_silent(&outcome);
    let waited = run().args(["-w", "0.1"]).command(["true"]).output();
    waited.code(77).stderr_is_one_line("refused the credentials");
    assert_silent(&waited);
    redis.kill();
    // The server is gone when the command ends.
    let redis = Redis::with(["--requirepass", SECRET]);
    let running = scratch.dlock().run("k").backend(redis.url_for("", SECRET, 0)).arg("-v").shell(&held).spawn();
    events.expect("held");
    redis.kill();
    gate.open();
    let outcome = running.wait();
    outcome.code(0).stderr_ends_with_line("could not release 'k'");
    assert_silent(&outcome);
}

#[test]
fn the_address_of_a_ci_job_is_published_without_its_password() {
    let scratch = Scratch::new();
    let address = format!("https://worker:{}@ci.example/job/7", encoded(SECRET));
    let run = scratch.dlock().run("k").backend(scratch.file_url()).env("BUILD_URL", address);
    let outcome = run.command(["cat", "locks/k.lock"]).output();
    outcome.success();
    assert!(outcome.stdout().contains("https://worker@ci.example/job/7"), "{outcome:?}");
    assert_silent(&outcome);
}

#[test]
fn only_the_first_line_is_the_password_and_the_rest_is_the_commands_input() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    for end in ["\n", "\r\n"] {
        let file = scratch.secret("input", format!("{SECRET}{end}first\nsecond\n"));
        let run = || scratch.dlock().run("k").backend(redis.url());
        run().arg("--password-file").arg(&file).command(["true"]).output().success();
        // From a file, and through a pipe.
        let from_file = run().args(["--password-file", "-"]).stdin(std::fs::File::open(&file).unwrap());
        from_file.command(["cat"]).output().success().stdout_is("first\nsecond\n");
        let mut piped = run().args(["--password-file", "-"]).stdin(Stdio::piped()).command(["cat"]).spawn();
        std::io::Write::write_all(&mut piped.take_stdin(), &std::fs::read(&file).unwrap()).unwrap();
        piped.wait().success().stdout_is("first\nsecond\n");
    }
    let file = scratch.secret("without-an-end", SECRET);
    let run = scratch.dlock().run("k").backend(redis.url()).arg("--password-file").arg(file);
    run.command(["true"]).output().success();
}

#[test]
fn a_password_file_that_cannot_be_read_is_refused_before_anything_happens() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let run = |file: &OsStr| {
        let run = scratch.dlock().run("k").backend(redis.url()).arg("--password-file").arg(file);
        let outcome = run.command(["touch", "ran"]).output();
        outcome.code(64).stderr_is_one_line("name a readable file that holds the password");
    };
    let directory: &Path = scratch.root();
    let names = ["missing", "-", "fd:9", "fd:", "fd:-1", "fd:x", "/dev/null"].map(OsString::from);
    for name in names.iter().map(OsString::as_os_str).chain([directory.as_os_str()]) {
        run(name);
    }
    run(scratch.secret("empty-line", format!("\n{SECRET}\n")).as_os_str());
    assert!(!scratch.path("ran").exists());
    assert!(redis.keys().is_empty());
    let files: BTreeSet<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, BTreeSet::from(["empty-line".into()]));
}
