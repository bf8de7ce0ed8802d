/*!
The exit codes and the one line on standard error that goes with each. Refusals of a held lock and signals while waiting
are in `contract.rs`.
*/

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::dlock::{Dlock, Outcome};
use crate::support::process;
use crate::support::rendezvous::{Gate, Lifeline, boottime};
use crate::support::scratch::Scratch;
use crate::support::servers::{Port, Redis};
use crate::support::service::{FileService, RedisService, Service};

#[test]
fn every_code_passes_through() {
    let service = FileService::fresh();
    // One shell for all of them: its own start would be most of what this costs.
    let every = r#"code=0; while [ "$code" -le 255 ]; do CODE=$code "$@"; echo $?; code=$((code + 1)); done"#;
    let outcome = service.run("job").wrapped_by(["sh", "-c", every, "sh"]).shell("exit $CODE").output();
    let printed = outcome.success().stdout();
    assert!(printed.lines().eq((0..=255).map(|code| code.to_string())), "{printed:?}");
    // Also under a lease, and at the ends of the range.
    let service = RedisService::fresh();
    for code in [0, 1, 127, 128, 255] {
        service.run("job").shell(format!("exit {code}")).output().code(code).quiet();
    }
}

/// The signals that end a process that does nothing about them; without those between the standard ones and the first
/// real-time one for programs, which belong to the C library: it leaves them ignored in what it starts.
fn deadly() -> impl Iterator<Item = i32> {
    let harmless = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
    let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let all = (1..32).chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    all.filter(move |signal| !harmless.contains(signal) && !stopping.contains(signal))
}

/// With nothing ignored: whoever started the tests may have ignored signals, which would not end the command then.
fn heeding_all(dlock: Dlock) -> Dlock {
    // SAFETY: sigaction reads a struct on the stack, and is async-signal-safe.
    unsafe {
        dlock.pre_exec(|| {
            for signal in 1..=libc::SIGRTMAX() {
                let action: libc::sigaction = std::mem::zeroed();
                // Fails for those that cannot be ignored anyway.
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
            Ok(())
        })
    }
}

#[test]
fn every_deadly_signal_ends_dlock_by_the_same_signal_and_without_a_core() {
    let service = FileService::fresh();
    let mut tried = 0;
    for signal in deadly() {
        // With permission to leave a core, which dlock does not use for itself.
        let dlock = heeding_all(service.run("job")).limit(libc::RLIMIT_CORE, libc::RLIM_INFINITY);
        let outcome = dlock.shell(format!("kill -{signal} $$")).output();
        assert_eq!(outcome.status().signal(), Some(signal), "{outcome:?}");
        assert!(!outcome.status().core_dumped(), "{outcome:?}");
        outcome.quiet();
        tried += 1;
    }
    assert!(tried >= 50, "{tried}");
    service.assert_free("job");
}

#[test]
fn as_pid_1_a_signal_becomes_128_and_its_number() {
    let service = FileService::fresh();
    let run = |script: &str| {
        let dlock = service.run("job").wrapped_by(["unshare", "-rpf", "--mount-proc"]);
        heeding_all(dlock).shell(format!("[ $PPID -le 3 ] || exit 99; {script}")).output()
    };
    run("kill -TERM $$").code(143).quiet();
    run("kill -KILL $$").code(137).quiet();
    run("kill -INT $$").code(130).quiet();
    run("kill -HUP $$").code(129).quiet();
    run("kill -ABRT $$").code(134).quiet();
    run("exit 7").code(7).quiet();
    service.assert_free("job");
}

#[test]
fn a_command_that_cannot_be_run_is_126_or_127() {
    let service = FileService::fresh();
    let scratch = service.scratch();
    let run = |program: &OsStr| service.run("job").command([program]).output();
    let secret = |program: &OsStr| service.run("job").command([program, OsStr::new("--password=secret")]).output();
    let plain = scratch.file("plain.sh", "#!/bin/sh\necho ran\n");
    let directory = scratch.directory("directory", 0o755);
    for outcome in [run(plain.as_os_str()), secret(plain.as_os_str())] {
        outcome.code(126).stdout_is("").stderr_is_one_line(&format!("could not run {}: ", plain.display()));
        assert!(!outcome.stderr().contains("secret"), "{outcome:?}");
    }
    run(directory.as_os_str())
        .code(126)
        .stdout_is("")
        .stderr_is_one_line(&format!("could not run {}: ", directory.display()));
    for program in ["no-such-program", "./no-such-program", "/no/no-such-program"] {
        let outcome = secret(OsStr::new(program));
        outcome.code(127).stdout_is("").stderr_is_one_line(&format!("could not run {program}: not found"));
        assert!(!outcome.stderr().contains("secret"), "{outcome:?}");
    }
    // In a directory that is searched, as in one that is named.
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let searched = service.run("job").env("PATH", scratch.root()).command(["plain.sh"]).output();
    searched.code(126).stderr_is_one_line("could not run plain.sh: ");
    service.assert_free("job");
}

#[test]
fn wrong_usage_is_64_and_runs_nothing() {
    let service = FileService::fresh();
    let (url, long) = (service.url(), "x".repeat(513));
    let wrong: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["run"],
        &["run", "--", "echo", "ran"],
        &["run", "--key", "job"],
        &["run", "--key", "", "--", "echo", "ran"],
        &["run", "--key", "a\nb", "--", "echo", "ran"],
        &["run", "--key", "a\u{85}b", "--", "echo", "ran"],
        &["run", "--key", &long, "--", "echo", "ran"],
        &["run", "--key", "job", "--", ""],
        &["run", "--key", "job", "-c", "echo ran", "--", "echo", "ran"],
        &["run", "--key", "job", "--frobnicate", "--", "echo", "ran"],
        &["run", "--key", "job", "-w", "soon", "--", "echo", "ran"],
        &["run", "--key", "job", "-w", "-1", "--", "echo", "ran"],
        &["run", "--key", "job", "-w", "11years", "--", "echo", "ran"],
        &["run", "--key", "job", "-t", "0.9", "--", "echo", "ran"],
        &["run", "--key", "job", "-t", "10", "--kill-after", "6", "--", "echo", "ran"],
        &["run", "--key", "job", "-E", "256", "--", "echo", "ran"],
        &["run", "--key", "job", "-E", "-1", "--", "echo", "ran"],
        &["run", "--key", "job", "--max-run", "0", "--", "echo", "ran"],
        &["run", "--key", "job", "--leftovers", "eat", "--", "echo", "ran"],
        &["run", "--key", "job", "--on-lost", "shrug", "--", "echo", "ran"],
        &["run", "--key", "job", "--namespace", "a\nb", "--", "echo", "ran"],
        &["run", "--key", "job", "--backend", "carrier-pigeon://coop", "--", "echo", "ran"],
        &["run", "--key", "job", "--backend", "redis://127.0.0.1:99999", "--", "echo", "ran"],
        &["run", "--key", "job", "--backend", "file://host/dir", "--", "echo", "ran"],
    ];
    let checked = |dlock: Dlock, shown: &str| {
        let outcome = dlock.output();
        assert_eq!(outcome.status().code(), Some(64), "{shown}\n{outcome:?}");
        outcome.stdout_is("").stderr_is_one_line("");
        assert!(outcome.stderr().len() > "dlock: \n".len(), "{outcome:?}");
    };
    for args in wrong {
        checked(service.scratch().dlock().env("DLOCK_BACKEND", &url).args(*args), &args.join(" "));
    }
    let not_text = OsStr::from_bytes(b"\xff");
    checked(service.run("").command(["echo", "ran"]), "an empty key");
    checked(service.scratch().dlock().run(not_text).backend(&url).command(["echo", "ran"]), "a key that is not UTF-8");
    checked(service.run("job").env("DLOCK_TTL", "soon").command(["echo", "ran"]), "DLOCK_TTL=soon");
    checked(service.run("job").args(["--password-file", "none"]).command(["echo", "ran"]), "no password file");
    assert!(service.litter(&[]).is_empty());
}

#[test]
fn a_backend_that_cannot_be_reached_is_69() {
    let scratch = Scratch::new();
    let port = Port::reserve();
    let url = format!("redis://127.0.0.1:{}", port.number());
    // With a wait it is asked until that has run out.
    for options in [&["-w", "0.3"][..], &["-n"], &["-q"], &[]] {
        let outcome = scratch.dlock().run("job").backend(&url).args(options).command(["echo", "ran"]).output();
        outcome.code(69).stdout_is("").stderr_ends_with_line(&format!("127.0.0.1:{}", port.number()));
        assert!(outcome.elapsed() < Duration::from_secs(10), "{outcome:?}");
    }
}

#[test]
fn a_backend_that_does_not_answer_is_69() {
    let service = RedisService::fresh();
    service.redis.stop();
    let outcome = service.run("job").args(["--connect-timeout", "0.2"]).command(["echo", "ran"]).output();
    outcome.code(69).stdout_is("").stderr_is_one_line("");
    assert!(outcome.elapsed() < Duration::from_secs(10), "{outcome:?}");
    service.redis.cont();
}

#[test]
fn a_lock_file_that_cannot_be_made_is_73() {
    let service = FileService::fresh();
    let scratch = service.scratch();
    let run = |url: &str| scratch.dlock().run("job").backend(url).command(["echo", "ran"]).output();
    let refused = |outcome: Outcome, part: &str| {
        outcome.code(73).stdout_is("").stderr_is_one_line(part);
    };
    let nowhere = scratch.path("nowhere");
    refused(run(&format!("file://{}", nowhere.display())), "nowhere");
    assert!(!nowhere.exists());
    let file = scratch.file("a-file", "");
    refused(run(&format!("file://{}", file.display())), "a-file");
    let lock = scratch.lock_dir().join("job.lock");
    fs::create_dir(&lock).unwrap();
    refused(run(&service.url()), "job.lock");
    fs::remove_dir(&lock).unwrap();
    // The data of another program is not overwritten.
    fs::write(&lock, "precious\n").unwrap();
    refused(run(&service.url()), "job.lock");
    assert_eq!(fs::read_to_string(&lock).unwrap(), "precious\n");
    fs::remove_file(&lock).unwrap();
    let open_to_all = scratch.directory("open-to-all", 0o777);
    refused(run(&format!("file://{}", open_to_all.display())), "open-to-all");
    run(&service.url()).success().stdout_is("ran\n");
}

#[test]
fn a_directory_that_this_user_may_not_write_to_is_73() {
    let scratch = Scratch::new();
    let directory = scratch.directory("of-root", 0o755);
    let url = format!("file://{}", directory.display());
    if process::is_root() {
        let outcome = scratch.dlock().unprivileged().run("job").backend(&url).command(["echo", "ran"]).output();
        outcome.code(73).stdout_is("").stderr_is_one_line("of-root");
    } else {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o555)).unwrap();
        let outcome = scratch.dlock().run("job").backend(&url).command(["echo", "ran"]).output();
        outcome.code(73).stdout_is("").stderr_is_one_line("of-root");
    }
}

#[test]
fn credentials_that_are_refused_are_77_and_stay_secret() {
    let redis = Redis::with(["--requirepass", "right-one"]);
    let scratch = Scratch::new();
    let run = |url: &str| scratch.dlock().run("job").backend(url);
    let refused = |dlock: Dlock| {
        let outcome = dlock.command(["echo", "ran"]).output();
        outcome.code(77).stdout_is("").stderr_is_one_line(&format!("127.0.0.1:{}", redis.port()));
        assert!(!outcome.stderr().contains("wrong-one"), "{outcome:?}");
    };
    refused(run(&redis.url()));
    refused(run(&redis.url_for("", "wrong-one", 0)));
    refused(run(&redis.url_for("somebody", "wrong-one", 0)));
    refused(run(&redis.url()).env("DLOCK_PASSWORD", "wrong-one"));
    let file = scratch.secret("password", "wrong-one\n");
    refused(run(&redis.url()).arg("--password-file").arg(&file));
    // Neither does waiting help, nor is it a conflict.
    refused(run(&redis.url()).args(["-w", "60", "-E", "0"]));
    run(&redis.url_for("", "right-one", 0)).command(["echo", "ran"]).output().success().stdout_is("ran\n");
}

#[test]
fn a_user_who_lacks_permissions_is_77() {
    let redis = Redis::start();
    let scratch = Scratch::new();
    redis.cli(&["ACL", "SETUSER", "keyless", "on", ">pw", "~other:*", "+@all"]);
    redis.cli(&["ACL", "SETUSER", "mute", "on", ">pw", "~*", "-@all", "+ping"]);
    redis.cli(&[
        "ACL",
        "SETUSER",
        "able",
        "on",
        ">pw",
        "~dlock:*",
        "~{dlock:*",
        "-@all",
        "+@write",
        "+@read",
        "+eval",
        "+time",
    ]);
    let run = |user| scratch.dlock().run("job").backend(redis.url_for(user, "pw", 0)).command(["echo", "ran"]).output();
    run("able").success().stdout_is("ran\n");
    for user in ["keyless", "mute"] {
        run(user).code(77).stdout_is("").stderr_is_one_line("lacks rights: ");
    }
}

#[test]
fn a_lock_that_is_lost_is_79() {
    let service = RedisService::fresh();
    let (line, end) = Lifeline::pair();
    let running = service.run("job").args(["--ttl", "1s"]).lifeline(end).shell("echo held; sleep 60").spawn();
    running.wait_stdout("held");
    service.redis.cli(&["DEL", &RedisService::lock("job")]);
    running.wait().code(79).stderr_ends_with_line("lost 'job' at redis://127.0.0.1");
    line.closed_at();

    let service = FileService::fresh();
    let (line, end) = Lifeline::pair();
    let running = service.run("job").lifeline(end).shell("echo held; sleep 60").spawn();
    running.wait_stdout("held");
    fs::remove_file(service.scratch().lock_dir().join("job.lock")).unwrap();
    let removed = boottime();
    running.wait().code(79).stderr_ends_with_line("lost 'job' at file://");
    assert!(line.closed_at().saturating_sub(removed) < Duration::from_secs(2));
}

#[test]
fn a_code_of_the_commands_own_is_kept_when_the_lock_is_lost_on_purpose() {
    let service = RedisService::fresh();
    let gate = Gate::new(service.scratch().path("gate"));
    let script = format!("echo held; {}; exit 5", gate.wait());
    let running = service.run("job").args(["--ttl", "1s", "--on-lost", "ignore"]).shell(script).spawn();
    running.wait_stdout("held");
    service.redis.cli(&["DEL", &RedisService::lock("job")]);
    running.wait_stderr("lost 'job'");
    gate.open();
    running.wait().code(5).stderr_is_one_line("lost 'job'");
}

#[test]
fn a_guard_that_is_killed_is_70() {
    killed_guard(&FileService::fresh());
    killed_guard(&RedisService::fresh());
}

fn killed_guard<S: Service>(service: &S) {
    let (line, end) = Lifeline::pair();
    let running = service.run("job").lifeline(end).shell("echo held; sleep 60; :").spawn();
    running.wait_stdout("held");
    process::signal(running.guard_pid(), Signal::SIGKILL);
    running.wait().code(70).stderr_is_one_line("guard");
    line.closed_at();
    service.assert_free("job");
}

#[test]
fn a_command_that_runs_too_long_is_124() {
    let service = FileService::fresh();
    let run = || service.run("job").args(["--max-run", "0.1"]);
    run().command(["sleep", "60"]).output().code(124).stderr_is_one_line("--max-run");
    run().arg("-q").command(["sleep", "60"]).output().code(124).stderr_is_one_line("--max-run");
}

#[test]
fn a_release_that_fails_is_a_warning_and_no_exit_code() {
    for code in [0, 3] {
        let service = RedisService::fresh();
        let gate = Gate::new(service.scratch().path("gate"));
        let running = service.run("job").shell(format!("echo held; {}; exit {code}", gate.wait())).spawn();
        running.wait_stdout("held");
        service.redis.kill();
        gate.open();
        running.wait().code(code).stderr_is_one_line("could not release 'job': ");
    }
}
