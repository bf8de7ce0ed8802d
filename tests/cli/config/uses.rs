//! That every subcommand uses config files, and that a run does not change with them.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::with;
use crate::support::dlock::Outcome;
use crate::support::redis::Redis;
use crate::support::scratch::Scratch;

#[test]
fn every_subcommand_uses_it_and_no_password_is_shown() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    redis.cli(&["CONFIG", "SET", "requirepass", "o:d d@"]);
    let text = |password: &str| format!("backend = \"{}\"\nnamespace = \"ns\"\nwait = 20\n{password}\n", redis.url());
    // Relative to the file, and not to the working directory.
    scratch.secret("secret", "o:d d@\n");
    let elsewhere = scratch.directory("elsewhere", 0o700);
    for password in ["password-file = \"secret\"", "password = \"o:d d@\""] {
        let file =
            scratch.secret("config.toml", text(&format!("{password}\nas = \"a\"\ncount = 1\nparties = 1\nkeep = 60")));
        let dlock = || with(&scratch, &file).current_dir(&elsewhere);
        let holder = dlock().run("k").shell("echo $DLOCK_BACKEND_KIND; read x").stdin(Stdio::piped()).spawn();
        holder.wait_stdout("redis");
        let status = dlock().args(["status", "-k", "k", "--json"]).output();
        let seen: Value = serde_json::from_str(&status.quiet().code(75).stdout()).unwrap();
        assert_eq!((&seen["namespace"], &seen["state"]), (&"ns".into(), &"held".into()));
        let list = dlock().args(["list", "--json"]).output();
        let seen: Value = serde_json::from_str(&list.quiet().success().stdout()).unwrap();
        assert_eq!((&seen["namespace"], &seen["total"]), (&"ns".into(), &1.into()));
        dlock().args(["latch", "-k", "l", "down"]).output().quiet().success();
        dlock().args(["latch", "-k", "l", "wait"]).output().quiet().success();
        dlock().args(["barrier", "-k", "b"]).output().quiet().success();
        let shown = dlock().arg("config").output();
        assert!(!shown.quiet().success().stdout().contains("o:d"), "{shown:?}");
        holder.signal(Signal::SIGTERM);
        holder.wait();
    }
}

#[test]
fn the_nearest_password_counts() {
    let (scratch, redis) = (Scratch::new(), Redis::start());
    redis.cli(&["CONFIG", "SET", "requirepass", "right"]);
    scratch.secret("right", "right\n");
    scratch.secret("wrong", "wrong\n");
    let text = |password: &str| format!("backend = \"{}\"\n{password}\n", redis.url());
    for wrong in ["password = \"wrong\"", "password-file = \"wrong\""] {
        let file = scratch.secret("config.toml", text(wrong));
        let run = || with(&scratch, &file).run("k");
        run().command(["true"]).output().code(77).stderr_is_one_line("refused the credentials");
        run().env("DLOCK_PASSWORD", "right").command(["true"]).output().quiet().success();
        run().env("DLOCK_PASSWORD_FILE", scratch.path("right")).command(["true"]).output().quiet().success();
        let flag = run().env("DLOCK_PASSWORD", "wrong").arg("--password-file").arg(scratch.path("right"));
        flag.command(["true"]).output().quiet().success();
        let file = scratch.secret("config.toml", text(&format!("{wrong}\n[profile.p]\npassword = \"right\"")));
        with(&scratch, &file).run("k").args(["--profile", "p"]).command(["true"]).output().quiet().success();
    }
    // It is in no variable of the command.
    let file = scratch.secret("config.toml", text("password = \"right\""));
    let environment = with(&scratch, &file).run("k").command(["env"]).output();
    assert!(!environment.quiet().success().stdout().contains("right"), "{environment:?}");
}

#[track_caller]
fn waited_and_gave_up(outcome: &Outcome) {
    outcome.code(75);
    assert!(outcome.elapsed().as_millis() >= 300, "{outcome:?}");
}

#[test]
fn an_option_or_variable_overrides_what_excludes_it_in_a_file() {
    let scratch = Scratch::new();
    let file = scratch.secret("config.toml", "nonblock = true\nbackend = \"redis://a\"\nquiet = true\n");
    let holder = scratch.dlock().run("k").backend(scratch.file_url()).shell("echo held; read x");
    let holder = holder.stdin(Stdio::piped()).spawn();
    holder.wait_stdout("held");
    let contender = || with(&scratch, &file).run("k").backend(scratch.file_url());
    contender().command(["true"]).output().code(75).quiet();
    contender().arg("-v").command(["true"]).output().code(75).stderr_is_one_line("k");
    waited_and_gave_up(&contender().args(["-w", "0.3"]).command(["true"]).output());
    waited_and_gave_up(&contender().env("DLOCK_WAIT", "0.3").command(["true"]).output());
    waited_and_gave_up(&contender().env("DLOCK_NONBLOCK", "0").env("DLOCK_WAIT", "0.3").command(["true"]).output());
    let file = scratch.secret("config.toml", "wait = 60\n[profile.p]\nnonblock = true\n");
    let contender = || with(&scratch, &file).run("k").backend(scratch.file_url());
    contender().args(["--profile", "p", "-q"]).command(["true"]).output().code(75).quiet();
    contender().args(["-n", "-q"]).command(["true"]).output().code(75).quiet();
    holder.signal(Signal::SIGTERM);
    holder.wait();
}

#[test]
fn a_run_that_has_begun_does_not_change_with_its_file() {
    let scratch = Scratch::new();
    let text = format!("backend = \"{}\"\nmax-run = \"1h\"\n", scratch.file_url());
    let file = scratch.secret("config.toml", &text);
    let mut holder = with(&scratch, &file).run("k").shell("echo held; read x; exit 3").stdin(Stdio::piped()).spawn();
    holder.wait_stdout("held");
    for text in ["wiat = 1", "backend = \"redis://127.0.0.1:1\"\nmax-run = 1\non-lost = \"ignore\""] {
        scratch.secret("config.toml", text);
        let held = scratch.dlock().args(["status", "-k", "k"]).backend(scratch.file_url()).output();
        held.code(75);
        assert!(held.stdout().contains("held for"), "{held:?}");
    }
    drop(holder.take_stdin());
    holder.wait().code(3).quiet();
    // It was released where it was taken.
    let free = scratch.dlock().args(["status", "-k", "k"]).backend(scratch.file_url()).output();
    assert!(free.quiet().success().stdout().ends_with(": free\n"), "{free:?}");
}
