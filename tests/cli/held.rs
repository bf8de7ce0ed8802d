/*!
`dlock held`: whether it runs inside a `dlock run` of that key, and scripts that lock themselves with it. What tells how a run
takes its lock is not for the runs inside it.
*/

use crate::support::backends::{User, on_file_and_redis};
use crate::support::dlock::{DLOCK, Dlock};
use crate::support::process;
use crate::support::rendezvous::{Fifo, Gate};
use crate::support::service::{FileService, RedisService, Service};

on_file_and_redis! {
    it_is_held_inside_a_run_and_not_outside
    a_variable_that_a_daemon_has_inherited_does_not_count
}

/// Shell code that asks for these keys; the shell knows dlock as `$D`.
fn held<S: Service>(service: &S, keys: &[&str]) -> String {
    let more: Vec<_> = service.options().into_iter().map(|word| word.into_string().unwrap()).collect();
    let keys: Vec<String> = keys.iter().map(|key| format!("-k {key}")).collect();
    format!("\"$D\" held {} -b '{}' {}", keys.join(" "), service.url(), more.join(" "))
}

/// `dlock held` for this key, outside of any run.
fn ask<S: Service>(service: &S, key: &str) -> Dlock {
    service.scratch().dlock().args(["held", "-k", key]).backend(service.url()).args(service.options())
}

fn it_is_held_inside_a_run_and_not_outside<S: Service>(service: &S) {
    ask(service, "job").output().code(75).stdout_is("").quiet();
    let holder = service.hold("job");
    ask(service, "job").output().code(75).stdout_is("").quiet();
    holder.let_go().success();
    for &user in User::all() {
        let key = format!("{user:?}");
        // Where dlock is copied to a place that every user can reach.
        user.run(service, &format!("{key}-first")).command(["true"]).output().success();
        let own = service.scratch().path("dlock");
        let dlock = if own.exists() { own } else { (*DLOCK).into() };
        let asked = [&[key.as_str()][..], &["other"], &[&key, "other"], &[&key, &key]].map(|keys| held(service, keys));
        let script = asked.map(|asked| format!("{asked}; echo $?")).join("; ");
        let outcome = user.run(service, &key).env("D", dlock).shell(script).output();
        outcome.success().stdout_is("0\n75\n75\n0\n").quiet();
    }
}

fn a_variable_that_a_daemon_has_inherited_does_not_count<S: Service>(service: &S) {
    let holder = service.hold("job");
    let environment = process::environ(holder.running.command_pid());
    let inherited = || environment.iter().filter(|(name, _)| name.starts_with("DLOCK_"));
    let with_it = || inherited().fold(ask(service, "job"), |ask, (name, value)| ask.env(name, value));
    // The run that it names lives, and this is not inside it.
    with_it().output().code(75).stdout_is("").quiet();
    holder.let_go().success();
    with_it().output().code(75).stdout_is("").quiet();
    let next = service.hold("job");
    with_it().output().code(75).stdout_is("").quiet();
    next.let_go().success();
}

#[test]
fn where_it_cannot_be_told_it_ends_with_69() {
    let service = RedisService::fresh();
    let away = "\"$D\" held -k job -b redis://127.0.0.1:1; echo $?".to_owned();
    let elsewhere =
        format!("unshare -rpf --mount-proc sh -c '{}'; echo $?", held(&service, &["job"]).replace('\'', r"'\''"));
    for (script, reason) in [(away, "cannot read 'job': "), (elsewhere, "PID namespace")] {
        let outcome = service.run("job").env("D", *DLOCK).shell(script).output();
        outcome.code(0).stdout_is("69\n").stderr_is_one_line(reason);
    }
}

#[test]
fn under_a_handle_it_is_held_inside_the_run_only() {
    let service = RedisService::fresh();
    let acquire = service.scratch().dlock().args(["acquire", "-k", "job", "--ttl", "1m"]).backend(service.url());
    let handle = acquire.output().success().stdout().trim().to_owned();
    ask(&service, "job").env("DLOCK_HANDLE", &handle).output().code(75).quiet();
    let run = service.scratch().dlock().args(["run", "--handle", &handle]).env("D", *DLOCK);
    run.shell(format!("{}; echo $?", held(&service, &["job"]))).output().success().stdout_is("0\n");
    service.scratch().dlock().args(["release", &handle]).output().success();
}

#[test]
fn a_wrong_command_line_is_refused() {
    let service = FileService::fresh();
    let run = |words: &[&str]| service.scratch().dlock().args(words).output();
    run(&["held"]).code(64).stderr_is_one_line("--key");
    run(&["held", "-k", ""]).code(64).stderr_is_one_line("--key: a key must not be empty");
    run(&["held", "-k", "job", "-b", "nonsense://x"]).code(64).stdout_is("").stderr();
}

/// A script whose first line asks for its lock with these options, and takes it with others.
fn locks_itself<S: Service>(service: &S, asks: &str) -> Dlock {
    let url = service.url();
    let script = format!(
        "echo >> \"$0.starts\"\n\"$D\" held {asks} || exec \"$D\" run -n -b '{url}' -k me -- sh \"$0\"\necho ran \"$DLOCK_KEY\"\n"
    );
    let script = service.scratch().file("itself", script);
    service.scratch().dlock().env("D", *DLOCK).command(["sh".as_ref(), script.as_os_str()]).bare()
}

#[test]
fn a_script_that_locks_itself_does_not_run_unlocked_where_the_variables_are_a_daemons() {
    let service = RedisService::fresh();
    let asks = format!("-b '{}' -k me", service.url());
    locks_itself(&service, &asks).output().success().stdout_is("ran me\n").quiet();
    let holder = service.hold("me");
    let held = process::environ(holder.running.command_pid())["DLOCK_HELD"].clone();
    let outcome = locks_itself(&service, &asks).env("DLOCK_KEY", "me").env("DLOCK_HELD", held).output();
    outcome.code(75).stdout_is("").stderr_is_one_line("held by ");
    holder.let_go().success();
}

/// Otherwise each of them would begin the next one.
#[test]
fn a_script_that_asks_for_another_lock_than_it_takes_ends() {
    let service = RedisService::fresh();
    for asks in ["-k me", &format!("-b '{}' -k other", service.url()), "-b redis://127.0.0.1:1 -k me"] {
        let outcome = locks_itself(&service, asks).output();
        let said = outcome.code(64).stdout_is("").stderr();
        let refused = "starts itself again and again inside its lock 'me': give dlock held in that script the --key";
        assert!(said.lines().last().unwrap().contains(refused), "{said}");
        let starts = service.scratch().path("itself.starts");
        assert_eq!(std::fs::read(&starts).unwrap().len(), 9);
        std::fs::remove_file(starts).unwrap();
    }
    service.assert_free("me");
}

/// Each of them is for the run that reads it.
#[test]
fn what_says_how_a_run_takes_its_lock_does_not_reach_its_command() {
    let service = FileService::fresh();
    for (name, value) in [
        ("DLOCK_SHARED", "1"),
        ("DLOCK_EXCLUSIVE", "1"),
        ("DLOCK_SLOTS", "2"),
        ("DLOCK_ONCE_PER", "1h"),
        ("DLOCK_MIN_HOLD", "1ms"),
        ("DLOCK_LOCK_DELAY", "0"),
        ("DLOCK_CONFLICT_EXIT_CODE", "0"),
    ] {
        let outcome = service.run("job").env(name, value).env("DLOCK_TTL", "9s").shell("env").output();
        let environment = outcome.success().stdout();
        assert!(!environment.contains(name), "{environment}");
        assert!(environment.contains("DLOCK_TTL=9s"), "{environment}");
    }
}

/// An outer run's variable makes no inner run of another key a reader, and skips none.
#[test]
fn a_run_of_another_key_inside_a_shared_one_is_exclusive() {
    let service = FileService::fresh();
    let path = |name| service.scratch().path(name);
    let (mut words, gate) = (Fifo::new(path("words")), Gate::new(path("gate")));
    let inner = |script: &str| format!("'{}' run -k upload -n -b '{}' -- sh -c '{script}'", *DLOCK, service.url());
    let outer = |key: &str, script: &str| {
        let variables = [("DLOCK_SHARED", "1"), ("DLOCK_CONFLICT_EXIT_CODE", "0")];
        variables.into_iter().fold(service.run(key), |run, (name, value)| run.env(name, value)).shell(inner(script))
    };
    let inside = format!("{}; {}", words.say("inside"), gate.wait()).replace('\'', r"'\''");
    let first = outer("db", &inside).spawn();
    words.expect("inside");
    outer("db", "echo overlap").output().code(75).stdout_is("").stderr_is_one_line("did not get 'upload': held by");
    gate.open();
    first.wait().success();
}
