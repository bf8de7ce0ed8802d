/*!
Passwords and other users: what `ps` and `/proc` show, and files for a password that are not as they should be.
*/

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::cli::secrets::{SECRET, assert_kept, assert_silent, encoded};
use crate::support::dlock::{Dlock, LISTENER, Outcome, command_of};
use crate::support::process::{self, NOBODY};
use crate::support::rendezvous::{Gate, eventually, make_fifo};
use crate::support::scratch::Scratch;
use crate::support::servers::Redis;
use crate::support::service::{Service, ZooKeeperService};

#[test]
fn ps_shows_stars_instead_of_a_password_in_the_url() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let url = redis.url_for("", SECRET, 0);
    let gate = Gate::new(scratch.path("gate"));
    // A later URL overrides one, and both are hidden.
    let other = format!("redis://:x{SECRET}@127.0.0.1:1");
    let shapes: [&[&str]; 4] =
        [&["--backend", &url], &[&format!("--backend={url}")], &[&format!("-b{url}")], &["-b", &other, "-b", &url]];
    for shape in shapes {
        let dlock = scratch.dlock().arg("run").args(shape).args(["-k", "k"]);
        let running = dlock.shell(format!("echo held; {}", gate.wait())).spawn();
        running.wait_stdout("held");
        let pids = [running.dlock_pid(), running.guard_pid()].into_iter().chain(running.listener_pid());
        for pid in pids {
            let ps = Command::new("ps").args(["-ww", "-o", "args=", "-p", &pid.to_string()]).output().unwrap();
            assert_kept(&String::from_utf8_lossy(&ps.stdout), "ps");
            assert_kept(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap()), "cmdline");
        }
        let arguments = process::cmdline(running.dlock_pid());
        let shown: Vec<&String> = arguments.iter().filter(|argument| argument.contains("redis://")).collect();
        assert!(shown.iter().all(|url| url.contains("redis://:***") && url.contains("*@127.0.0.1:")), "{shown:?}");
        assert_eq!(arguments.len(), shape.len() + 8, "nothing else has changed: {arguments:?}");
        gate.open();
        // And dlock itself knows the right one.
        running.wait().success();
    }
}

/// What a password protects can be read from the memory of the process that has it. As root one could not tell.
#[test]
fn with_a_password_dlock_and_its_guard_cannot_be_inspected_and_work_all_the_same() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let owner = |pid: i32| fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
    let user = if process::is_root() { NOBODY } else { nix::unistd::geteuid().as_raw() };
    // What it started is found below it, also in a session of its own, and stopped.
    let script = "(setsid sh -c 'trap \"\" TERM; echo away:$$; sleep 1000' &); trap '' TERM; echo held; sleep 1000";
    let open = Redis::start();
    for (dlock, is_closed, kills_the_guard) in [
        // The lock of a dlock that is killed stays taken for a while.
        (scratch.dlock().run("a").backend(redis.url()).env("DLOCK_PASSWORD", SECRET), true, false),
        (scratch.dlock().run("b").backend(redis.url_for("", SECRET, 0)), true, true),
        (scratch.dlock().run("c").backend(open.url()), false, false),
    ] {
        let running = dlock.args(["--kill-after", "200ms"]).unprivileged().shell(script).spawn();
        let away = running.wait_stdout("away:");
        let away: i32 = away.trim_start_matches("away:").trim().parse().unwrap();
        running.wait_stdout("held");
        // As root the program of each can be seen, which the one who is not root could not.
        let dlock = running.pid();
        let guard = eventually("the guard", || process::children(dlock).first().copied());
        let listener =
            process::children(guard).into_iter().find(|&pid| process::comm(pid).as_deref() == Some(LISTENER));
        for pid in [dlock, guard].into_iter().chain(listener) {
            assert_eq!(owner(pid), if is_closed { 0 } else { user }, "{:?}", process::comm(pid));
        }
        let command = command_of(guard).expect("a command");
        assert_eq!(owner(command), user, "the command is not ours to close");
        // Whoever is left of the two finds and stops all of it.
        process::signal(if kills_the_guard { guard } else { dlock }, Signal::SIGKILL);
        process::wait_gone(away);
        process::wait_gone(command);
        let _ = running.wait().stderr();
    }
}

/// Which of the connections at its own port are its own, dlock sees from its own descriptors.
#[test]
fn zookeeper_is_reached_with_a_password_by_a_user_without_privileges() {
    let service = ZooKeeperService::fresh();
    let run = service.run("job").env("DLOCK_USER", "worker").env("DLOCK_PASSWORD", SECRET).unprivileged();
    run.command(["echo", "ran"]).output().success().stdout_is("ran\n");
}

#[test]
fn a_backend_variable_that_is_not_understood_does_not_reach_the_command() {
    let scratch = Scratch::new();
    let secret = encoded(SECRET);
    for value in [
        SECRET.to_owned(),
        secret.clone(),
        format!("redis:{secret}@host"),
        format!("redis:/u:{secret}@host"),
        format!("redis://u:{secret}"),
        format!("redis://host/{secret}"),
        format!("mysql://host?password={secret}"),
        format!("file:{secret}"),
    ] {
        let run = scratch.dlock().run("k").backend(scratch.file_url()).env("DLOCK_BACKEND", &value);
        let outcome = run.shell("env").output();
        outcome.success();
        assert_silent(&outcome);
        assert!(!outcome.stdout().contains("DLOCK_BACKEND="), "{outcome:?}");
    }
    for value in ["", "redis", "file:", "etcd://u@h"] {
        let run = scratch.dlock().run("k").backend(scratch.file_url()).env("DLOCK_BACKEND", value);
        run.shell("printf %s \"${DLOCK_BACKEND-none}\"").output().success().stdout_is(value);
    }
}

/// A run on a server that wants the password which is in `file`.
fn run_with(scratch: &Scratch, redis: &Redis, file: &Path) -> Dlock {
    scratch.dlock().run("k").backend(redis.url()).arg("--password-file").arg(file)
}

#[test]
fn a_password_file_that_holds_no_password_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let long = scratch.secret("long", "x".repeat(4097));
    let marked = scratch.secret("marked", format!("\u{feff}{SECRET}\n"));
    let fifo = scratch.path("fifo");
    make_fifo(&fifo);
    for (file, reason) in [
        (long.as_path(), "its first line is longer than 4096 bytes"),
        (Path::new("/dev/zero"), "its first line is longer than 4096 bytes"),
        (marked.as_path(), "byte order mark"),
        (fifo.as_path(), "no program has opened it for writing within 300ms"),
    ] {
        let started = Instant::now();
        let run = run_with(&scratch, &redis, file).args(["--connect-timeout", "0.3"]);
        let outcome = run.wrapped_by(["timeout", "20"]).command(["touch", "ran"]).output();
        outcome.code(64).stderr_is_one_line(reason);
        assert_silent(&outcome);
        assert!(started.elapsed() < Duration::from_secs(10));
    }
    assert!(!scratch.path("ran").exists());
    // The longest that is taken is only a wrong one.
    let longest = scratch.secret("longest", "x".repeat(4096));
    run_with(&scratch, &redis, &longest).command(["true"]).output().code(77).stderr_is_one_line("credentials");
}

#[test]
fn a_fifo_with_a_writer_is_waited_for() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let fifo = scratch.path("fifo");
    make_fifo(&fifo);
    // Somebody opens it, and writes later: a program that asks its user, say.
    let waiting = ["--connect-timeout", "2", "--wait", "60"];
    let running = run_with(&scratch, &redis, &fifo).args(waiting).command(["true"]).spawn();
    let mut writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    std::thread::sleep(Duration::from_millis(2300));
    assert!(running.is_running());
    writer.write_all(format!("{SECRET}\n").as_bytes()).unwrap();
    drop(writer);
    running.wait().success();
    // One that goes away without a word has written an empty line.
    let running = run_with(&scratch, &redis, &fifo).args(["--connect-timeout", "20"]).command(["true"]).spawn();
    drop(fs::OpenOptions::new().write(true).open(&fifo).unwrap());
    running.wait().code(64).stderr_is_one_line("its first line is empty");
}

/// A pipe that a program has open and says nothing on, or one byte at a time: bounded by --connect-timeout and --wait.
#[test]
fn a_pipe_whose_writer_is_silent_is_not_waited_for_without_end() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let fifo = scratch.path("fifo");
    make_fifo(&fifo);
    let silent = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    for (options, within) in [
        (&["--connect-timeout", "0.4"][..], "400ms"),
        (&["--connect-timeout", "0.4", "-w", "0.7"], "700ms"),
        (&["--connect-timeout", "0.4", "-w", "0.1"], "400ms"),
        (&["--connect-timeout", "0.4", "-n"], "400ms"),
    ] {
        let started = Instant::now();
        let run = run_with(&scratch, &redis, &fifo).args(options).wrapped_by(["timeout", "20"]);
        let outcome = run.command(["touch", "ran"]).output();
        let said = format!("the program that has it open has not written all of it within {within}");
        outcome.code(64).stdout_is("").stderr_is_one_line(&said);
        assert!(started.elapsed() < Duration::from_secs(10));
    }
    // Nothing keeps a signal from ending the wait.
    let running = run_with(&scratch, &redis, &fifo).command(["touch", "ran"]).spawn();
    let pid = running.dlock_pid();
    eventually("the pipe to be waited for", || {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        links.flatten().any(|link| fs::read_link(link.path()).is_ok_and(|target| target == fifo)).then_some(())
    });
    running.signal(Signal::SIGTERM);
    running.wait().signal(Signal::SIGTERM);
    assert!(!scratch.path("ran").exists());
    drop(silent);
}

#[test]
fn a_password_file_that_others_can_read_or_write_is_a_warning_once() {
    let scratch = Scratch::new();
    let redis = Redis::with(["--requirepass", SECRET]);
    let file = scratch.secret("password", format!("{SECRET}\n"));
    let run =
        |options: &[&str]| -> Outcome { run_with(&scratch, &redis, &file).args(options).command(["true"]).output() };
    for mode in [0o600, 0o400, 0o700] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        run(&[]).success();
    }
    for mode in [0o604, 0o602, 0o644, 0o666] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let told = format!("{} can be read or written by other users: chmod 600 it", file.display());
        run(&[]).code(0).stderr_is_one_line(&told);
        run(&["-q"]).code(0).quiet();
    }
    // root may hand a password to a group.
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let outcome = run(&[]);
    if process::is_root() {
        outcome.success()
    } else {
        outcome.code(0).stderr_is_one_line("by other users")
    };
}
